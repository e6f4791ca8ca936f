//! The watchers: most of them agents of nodes, with a few controllers that see everything of a kind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use longshore_util::{Tasks, spawn};

use super::wire::revision_of;
use super::{Crew, Figures, Kind, Scale, Wire, Write};

/// What one watcher watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Pods of a node, by field selector, with the node's rights.
    PodsOf(usize),
    /// A node's own object.
    OwnNode(usize),
    /// All services, with a node's rights.
    Services(usize),
    /// One configmap or secret that a pod of the node uses, with the node's rights.
    Object(usize, Kind, String, String),
    /// A kind in a namespace.
    Namespace(Kind, String),
    /// A kind in the whole cluster.
    Everywhere(Kind),
}

impl Scope {
    fn path(&self) -> String {
        match self {
            Self::PodsOf(node) => format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", Scale::node(*node)),
            Self::OwnNode(node) => format!("/api/v1/nodes?fieldSelector=metadata.name%3D{}", Scale::node(*node)),
            Self::Services(_) => "/api/v1/services?".to_owned(),
            Self::Object(_, kind, namespace, name) => {
                format!("{}?fieldSelector=metadata.name%3D{name}", kind.path(namespace))
            }
            Self::Namespace(kind, namespace) => format!("{}?", kind.path(namespace)),
            Self::Everywhere(kind) => format!("{}?", kind.path("")),
        }
    }

    fn wire<'crew>(&self, crew: &'crew Crew, index: usize) -> &'crew Wire {
        match self {
            Self::PodsOf(node) | Self::OwnNode(node) | Self::Services(node) | Self::Object(node, ..) => {
                &crew.nodes[*node]
            }
            Self::Namespace(..) | Self::Everywhere(_) => crew.controller(index),
        }
    }

    /// Whether the watcher must be told of a write.
    pub fn sees(&self, write: &Write) -> bool {
        match self {
            Self::PodsOf(node) => write.kind == Kind::Pod && write.node == Some(*node),
            Self::OwnNode(_) | Self::Services(_) => false,
            Self::Object(_, kind, namespace, name) => {
                write.kind == *kind && write.namespace == *namespace && write.name == *name
            }
            Self::Namespace(kind, namespace) => write.kind == *kind && write.namespace == *namespace,
            Self::Everywhere(kind) => write.kind == *kind,
        }
    }

    /// The mix of a crowd, as it is for a thousand: 500 of a node's pods, 150 of a node's own object, 240 of one configmap
    /// or secret, 100 of a kind in a namespace, 10 of a busy kind in the whole cluster.
    pub fn mix(scale: &Scale) -> Vec<Self> {
        let part = |of_a_thousand: usize| (scale.watchers * of_a_thousand).div_ceil(1000);
        let mut all: Vec<Self> = Vec::new();
        let everywhere = [Kind::Pod, Kind::Event, Kind::Lease, Kind::ConfigMap, Kind::Pod];
        all.extend((0..part(10)).map(|index| Self::Everywhere(everywhere[index % everywhere.len()])));
        let kinds = [Kind::ConfigMap, Kind::Secret, Kind::Pod, Kind::Event];
        all.extend(
            (0..part(100))
                .map(|index| Self::Namespace(kinds[index % kinds.len()], scale.namespace(index / kinds.len()))),
        );
        all.extend((0..part(240)).map(|index| {
            // Nodes may watch only what their pods use: every other one is the authority's certificate, which is in use
            // everywhere, the rest are the settings of one of their pods.
            let node = index % scale.nodes;
            let pod = scale.pod_of(node, index / scale.nodes);
            let set = pod / Scale::REPLICAS;
            let (namespace, settings) = scale.configmap(set);
            let name = if index.is_multiple_of(2) { settings } else { "kube-root-ca.crt".to_owned() };
            Self::Object(node, Kind::ConfigMap, namespace, name)
        }));
        all.extend((0..part(150)).map(|index| Self::OwnNode(index % scale.nodes)));
        let left = scale.watchers.saturating_sub(all.len());
        all.extend((0..left).map(|index| Self::PodsOf(index % scale.nodes)));
        all
    }

    /// Of the agent of the only node: its pods, its own object, services, and configmaps that the pods use.
    pub fn agent(scale: &Scale) -> Vec<Self> {
        let mut all = vec![Self::PodsOf(0), Self::OwnNode(0), Self::Services(0)];
        let sets = 0..scale.sets();
        all.extend(sets.map(|set| {
            let (namespace, name) = scale.configmap(set);
            Self::Object(0, Kind::ConfigMap, namespace, name)
        }));
        all
    }
}

/// An event as a watcher saw it.
#[derive(Debug, Clone, Copy)]
struct Sight {
    revision: u64,
    at: Instant,
}

#[derive(Debug, Default)]
struct Seen {
    sights: Vec<Sight>,
    bookmarks: usize,
    /// Frames that were no events, and the stream's end.
    trouble: Option<String>,
}

#[derive(Debug)]
struct Watcher {
    scope: Scope,
    seen: Arc<Mutex<Seen>>,
}

/// All watchers of a run.
#[derive(Debug)]
pub struct Crowd {
    watchers: Vec<Watcher>,
    from: u64,
}

/// How late events came.
#[derive(Debug)]
pub struct Lateness {
    /// From when the write was sent.
    pub after_sending: Figures,
    /// From when the writer had its answer; events that came sooner count as at once.
    pub after_answer: Figures,
    /// Events that were seen, by all watchers together.
    pub events: usize,
}

impl Crowd {
    /// Opens all watches of a mix from now on.
    pub async fn open(crew: &Crew, scopes: Vec<Scope>, tasks: &Tasks) -> Result<Self> {
        let from = list_revision(crew.controller(0)).await?;
        let open = |(index, scope): (usize, Scope)| async move {
            let path = format!("{}&watch=1&allowWatchBookmarks=true&resourceVersion={from}", scope.path());
            let body = scope.wire(crew, index).open(&path, false).await?;
            let seen = Arc::new(Mutex::new(Seen::default()));
            drop(spawn(tasks, "watcher", follow(body, Arc::clone(&seen))));
            Ok::<_, anyhow::Error>(Watcher { scope, seen })
        };
        let watchers = stream::iter(scopes.into_iter().enumerate()).map(open).buffered(32).try_collect().await?;
        Ok(Self { watchers, from })
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.watchers.len()
    }

    /// Whether nobody watches.
    pub fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    /// Whether every watcher has been told of the last write that concerns it.
    pub fn is_up_to_date(&self, writes: &[Write]) -> bool {
        let mut last: Vec<u64> = vec![0; self.watchers.len()];
        for write in writes {
            for (watcher, last) in self.watchers.iter().zip(&mut last) {
                if watcher.scope.sees(write) {
                    *last = (*last).max(write.revision);
                }
            }
        }
        self.watchers.iter().zip(last).all(|(watcher, last)| {
            last == 0 || watcher.lock().sights.last().is_some_and(|sight| sight.revision >= last)
        })
    }

    /// Checks that every watcher saw each answered write that concerns it, each event once and in the order of
    /// revisions, and that no watch ended.
    pub fn check(&self, writes: &[Write]) -> Result<()> {
        for watcher in &self.watchers {
            let seen = watcher.lock();
            let about = || format!("{:?}", watcher.scope);
            ensure!(seen.trouble.is_none(), "{}: {}", about(), seen.trouble.as_deref().unwrap_or_default());
            for pair in seen.sights.windows(2) {
                let (first, second) = (pair[0].revision, pair[1].revision);
                ensure!(first < second, "{}: revision {second} came after {first}", about());
            }
            for write in writes.iter().filter(|write| watcher.scope.sees(write)) {
                let found = seen.sights.binary_search_by_key(&write.revision, |sight| sight.revision);
                ensure!(found.is_ok(), "{}: the write {write:?} was answered but never seen", about());
            }
            // Bookmarks promise nothing before the start.
            ensure!(seen.sights.first().is_none_or(|sight| sight.revision > self.from), "{}: too early", about());
        }
        Ok(())
    }

    /// How late the events of these writes were seen.
    pub fn lateness(&self, writes: &[Write]) -> Lateness {
        let by_revision: HashMap<u64, &Write> = writes.iter().map(|write| (write.revision, write)).collect();
        let (mut sent, mut answered, mut events) = (Vec::new(), Vec::new(), 0);
        for watcher in &self.watchers {
            let seen = watcher.lock();
            events += seen.sights.len();
            for sight in &seen.sights {
                if let Some(write) = by_revision.get(&sight.revision) {
                    sent.push(sight.at.saturating_duration_since(write.sent));
                    answered.push(sight.at.saturating_duration_since(write.answered));
                }
            }
        }
        Lateness { after_sending: sent.into_iter().collect(), after_answer: answered.into_iter().collect(), events }
    }
}

impl Watcher {
    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The revision of now.
async fn list_revision(wire: &Wire) -> Result<u64> {
    let answer = wire.get("/api/v1/namespaces?limit=1").await?.good()?;
    let found = revision_of(&answer.body);
    ensure!(found > 0, "a list without a revision");
    Ok(found)
}

async fn follow(mut body: Incoming, seen: Arc<Mutex<Seen>>) {
    let mut lines = Lines::default();
    let trouble = loop {
        match body.frame().await {
            None => break "the watch ended".to_owned(),
            Some(Err(error)) => break format!("the watch broke: {error}"),
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                let at = Instant::now();
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                lines.read(&data, |head| note(&mut seen, head, at));
            }
        }
    };
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.trouble.get_or_insert(trouble);
}

fn note(seen: &mut Seen, head: &[u8], at: Instant) {
    match head.strip_prefix(b"{\"type\":\"").and_then(|rest| rest.first()) {
        Some(b'A' | b'M' | b'D') => seen.sights.push(Sight { revision: revision_of(head), at }),
        Some(b'B') => seen.bookmarks += 1,
        _ => {
            seen.trouble.get_or_insert_with(|| String::from_utf8_lossy(head).into_owned());
        }
    }
}

/// So much of a line is looked at: kind, revision and name are there.
const HEAD: usize = 700;

/// Splits a stream into lines and keeps only how each begins.
#[derive(Debug, Default)]
struct Lines {
    head: Vec<u8>,
}

impl Lines {
    fn read(&mut self, mut data: &[u8], mut each: impl FnMut(&[u8])) {
        while !data.is_empty() {
            let end = data.iter().position(|byte| *byte == b'\n');
            let piece = &data[..end.unwrap_or(data.len())];
            let room = HEAD.saturating_sub(self.head.len()).min(piece.len());
            self.head.extend_from_slice(&piece[..room]);
            let Some(end) = end else { return };
            each(&self.head);
            self.head.clear();
            data = &data[end + 1..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_however_they_are_cut() {
        let text = format!("{{\"type\":\"ADDED\",\"n\":1}}\n{}\n{{}}\n", "x".repeat(2000));
        for size in [1, 2, 3, 7, 64, 5000] {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for chunk in text.as_bytes().chunks(size) {
                lines.read(chunk, |head| found.push(head.to_vec()));
            }
            assert_eq!(found.len(), 3, "{size}");
            assert_eq!((found[0].as_slice(), found[1].len()), (&b"{\"type\":\"ADDED\",\"n\":1}"[..], HEAD));
        }
    }

    #[test]
    fn the_mix_is_as_large_as_wanted_and_mostly_nodes() {
        let mix = Scope::mix(&Scale::FULL);
        assert_eq!(mix.len(), 1000);
        assert_eq!(mix.iter().filter(|scope| matches!(scope, Scope::PodsOf(_))).count(), 500);
        assert_eq!(mix.iter().filter(|scope| matches!(scope, Scope::Everywhere(_))).count(), 10);
    }
}
