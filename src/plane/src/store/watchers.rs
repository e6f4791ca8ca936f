//! Who is to be told of a write: watchers by the prefix and, where they want the pods of one node only, by that node. So a
//! write costs those who watch it and nobody else.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde::Deserialize;
use tokio::sync::Notify;

use super::types::Event;

/// Keys of pods, whose node is what most agents select by.
const PODS: &str = "pods/";

/// A watcher's place: the first event it has not seen.
#[derive(Debug)]
pub(super) struct Cursor {
    id: u64,
    prefix: Box<str>,
    /// Only what is or was on this node.
    node: Option<Box<str>>,
    /// First unseen matching revision; 0 = none. Changed only under the state's lock.
    pub(super) pending: AtomicU64,
    pub(super) wake: Notify,
}

impl Cursor {
    /// Whether an event is for this watcher.
    pub(super) fn sees(&self, event: &Event) -> bool {
        event.key.starts_with(&*self.prefix) && self.node.as_deref().is_none_or(|node| event.nodes().concern(node))
    }
}

/// Watchers of one prefix.
#[derive(Debug, Default)]
struct Group {
    all: HashMap<u64, Arc<Cursor>>,
    by_node: HashMap<Box<str>, HashMap<u64, Arc<Cursor>>>,
}

/// All watchers.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    groups: HashMap<Box<str>, Group>,
    /// How many groups have prefixes of a length.
    lengths: BTreeMap<usize, usize>,
    next: u64,
}

impl Watchers {
    /// Adds a watcher that has seen everything.
    pub(super) fn add(&mut self, prefix: &str, node: Option<&str>) -> Arc<Cursor> {
        let (id, node) = (self.next, node.map(Box::from));
        self.next += 1;
        let (pending, wake) = (AtomicU64::new(0), Notify::new());
        let cursor = Arc::new(Cursor { id, prefix: prefix.into(), node, pending, wake });
        if !self.groups.contains_key(prefix) {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        let group = self.groups.entry(prefix.into()).or_default();
        let place = match &cursor.node {
            Some(node) => group.by_node.entry(node.clone()).or_default(),
            None => &mut group.all,
        };
        place.insert(id, Arc::clone(&cursor));
        cursor
    }

    /// Removes a watcher.
    pub(super) fn remove(&mut self, cursor: &Cursor) {
        let Some(group) = self.groups.get_mut(&cursor.prefix) else { return };
        match &cursor.node {
            None => drop(group.all.remove(&cursor.id)),
            Some(node) => {
                if let Some(place) = group.by_node.get_mut(node) {
                    place.remove(&cursor.id);
                    if place.is_empty() {
                        group.by_node.remove(node);
                    }
                }
            }
        }
        if group.all.is_empty() && group.by_node.is_empty() {
            self.groups.remove(&cursor.prefix);
            if let Some(count) = self.lengths.get_mut(&cursor.prefix.len()) {
                *count -= 1;
                if *count == 0 {
                    self.lengths.remove(&cursor.prefix.len());
                }
            }
        }
    }

    /// Returns those whom an event concerns.
    pub(super) fn of<'s>(&'s self, event: &'s Event) -> impl Iterator<Item = &'s Arc<Cursor>> {
        let prefixes = self.lengths.keys().filter_map(|length| event.key.get(..*length));
        prefixes.filter_map(|prefix| self.groups.get(prefix)).flat_map(|group| {
            let on_nodes = (!group.by_node.is_empty()).then(|| group.of_nodes(event.nodes()));
            group.all.values().chain(on_nodes.into_iter().flatten())
        })
    }

    /// Returns all.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Cursor>> {
        self.groups
            .values()
            .flat_map(|group| group.all.values().chain(group.by_node.values().flat_map(HashMap::values)))
    }
}

impl Group {
    fn of_nodes<'s>(&'s self, nodes: &'s Nodes) -> impl Iterator<Item = &'s Arc<Cursor>> {
        let (named, others) = match nodes {
            Nodes::Known(names) => (names.as_slice(), None),
            Nodes::Unknown => (&[][..], Some(self.by_node.values())),
        };
        let named = named.iter().filter_map(|name| self.by_node.get(name));
        named.chain(others.into_iter().flatten()).flat_map(HashMap::values)
    }
}

/// On which nodes a pod is and was, by one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Nodes {
    /// On none, one, or two different ones.
    Known(Vec<Box<str>>),
    /// One of the two states cannot be read: all who watch may be concerned.
    Unknown,
}

impl Nodes {
    /// Reads both states of an event.
    pub(super) fn of(key: &str, states: &[&[u8]]) -> Self {
        if !key.starts_with(PODS) {
            return Self::Unknown;
        }
        let mut names: Vec<Box<str>> = Vec::with_capacity(1);
        for state in states {
            let Ok(pod) = serde_json::from_slice::<Pod<'_>>(state) else { return Self::Unknown };
            let name = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
            if !name.is_empty() && !names.iter().any(|own| **own == *name) {
                names.push((&*name).into());
            }
        }
        Self::Known(names)
    }

    fn concern(&self, node: &str) -> bool {
        match self {
            Self::Known(names) => names.iter().any(|name| **name == *node),
            Self::Unknown => true,
        }
    }
}

#[derive(Deserialize)]
struct Pod<'a> {
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
}

#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow, rename = "nodeName")]
    node_name: Option<Cow<'a, str>>,
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::types::{EventKind, Revision};
    use super::*;

    fn event(key: &str, before: Option<&str>, now: &str) -> Event {
        let previous = before.map(|text| Bytes::copy_from_slice(text.as_bytes()).into());
        Event::new(Revision(1), EventKind::Updated, key.into(), &[now.as_bytes()], previous)
    }

    #[test]
    fn an_event_concerns_those_whose_prefix_and_node_it_has() {
        let mut watchers = Watchers::default();
        let subjects = [
            ("", None),
            ("pods/", None),
            ("pods/a/", None),
            ("pods/a/p", None),
            ("pods/b/", None),
            ("nodes/", None),
            ("pods/", Some("n1")),
            ("pods/", Some("n1")),
            ("pods/", Some("n2")),
            ("pods/a/", Some("n2")),
        ];
        let cursors: Vec<_> = subjects.iter().map(|(prefix, node)| watchers.add(prefix, *node)).collect();
        let on = |node: &str| format!("{{\"kind\":\"Pod\",\"spec\":{{\"nodeName\":\"{node}\"}}}}");
        for (event, want) in [
            (event("pods/a/p", None, &on("n1")), vec![0, 1, 2, 3, 6, 7]),
            (event("pods/a/px", None, &on("n1")), vec![0, 1, 2, 3, 6, 7]),
            (event("pods/a/q", Some(&on("n1")), &on("n2")), vec![0, 1, 2, 6, 7, 8, 9]),
            (event("pods/b/p", None, "{\"spec\":{}}"), vec![0, 1, 4]),
            // What cannot be read may concern everybody.
            (event("pods/b/p", Some("{"), &on("n1")), vec![0, 1, 4, 6, 7, 8]),
            (event("nodes/n1", None, "{}"), vec![0, 5]),
            (event("nod", None, "{}"), vec![0]),
            (event("pods/ä", None, "{}"), vec![0, 1]),
        ] {
            let mut found: Vec<u64> = watchers.of(&event).map(|cursor| cursor.id).collect();
            found.sort_unstable();
            assert_eq!(found, want, "{event:?}");
            let seeing: Vec<u64> = cursors.iter().filter(|own| own.sees(&event)).map(|own| own.id).collect();
            assert_eq!(seeing, want, "{event:?}");
        }
        assert_eq!(watchers.all().count(), cursors.len());
        cursors.iter().for_each(|cursor| watchers.remove(cursor));
        assert!(watchers.groups.is_empty() && watchers.lengths.is_empty());
    }
}
