//! Sets of fields, as `managedFields` writes them: a tree of path elements (`f:NAME`, `k:{KEYS}`, `v:VALUE`, `i:INDEX`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Deepest set that is read: one level for each of the deepest object, and some for the ends.
const MAX_DEPTH: u32 = 108;

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set(BTreeMap<String, Node>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    /// Whether the path that ends here is in the set.
    member: bool,
    below: Set,
}

impl Set {
    /// Whether there is no path in it.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(|node| !node.member && node.below.is_empty())
    }

    /// Adds a path.
    pub fn insert<T: AsRef<str>>(&mut self, path: &[T]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = self.0.entry(first.as_ref().to_owned()).or_default();
        if rest.is_empty() {
            node.member = true;
        } else {
            node.below.insert(rest);
        }
    }

    /// Takes one path out; what lies below it stays.
    pub fn remove<T: AsRef<str>>(&mut self, path: &[T]) {
        let Some((first, rest)) = path.split_first() else { return };
        let Some(node) = self.0.get_mut(first.as_ref()) else { return };
        if rest.is_empty() {
            node.member = false;
        } else {
            node.below.remove(rest);
        }
        self.tidy(first.as_ref());
    }

    /// Takes out everything at and below a path.
    pub fn remove_all<T: AsRef<str>>(&mut self, path: &[T]) {
        let Some((first, rest)) = path.split_first() else { return };
        if rest.is_empty() {
            self.0.remove(first.as_ref());
        } else if let Some(node) = self.0.get_mut(first.as_ref()) {
            node.below.remove_all(rest);
            self.tidy(first.as_ref());
        }
    }

    fn tidy(&mut self, element: &str) {
        if self.0.get(element).is_some_and(|node| !node.member && node.below.0.is_empty()) {
            self.0.remove(element);
        }
    }

    /// Whether a path is in the set.
    pub fn has<T: AsRef<str>>(&self, path: &[T]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        self.0.get(first.as_ref()).is_some_and(|node| if rest.is_empty() { node.member } else { node.below.has(rest) })
    }

    /// Returns what lies below an element.
    pub fn below(&self, element: &str) -> Option<&Self> {
        self.0.get(element).map(|node| &node.below)
    }

    /// Returns the elements that a path may go on with, and whether it may end there.
    pub fn elements(&self) -> impl Iterator<Item = (&str, bool, &Self)> {
        self.0.iter().map(|(element, node)| (element.as_str(), node.member, &node.below))
    }

    /// Adds all paths of another set.
    pub fn unite(&mut self, other: &Self) {
        for (element, theirs) in &other.0 {
            let ours = self.0.entry(element.clone()).or_default();
            ours.member |= theirs.member;
            ours.below.unite(&theirs.below);
        }
    }

    /// Returns the paths that both have.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| ours && theirs)
    }

    /// Returns the paths that the other has not.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| ours && !theirs)
    }

    fn combine(&self, other: &Self, keep: fn(bool, bool) -> bool) -> Self {
        let nothing = Node::default();
        let mut set = Self::default();
        for (element, ours) in &self.0 {
            let theirs = other.0.get(element).unwrap_or(&nothing);
            let below = ours.below.combine(&theirs.below, keep);
            let member = keep(ours.member, theirs.member);
            if member || !below.0.is_empty() {
                set.0.insert(element.clone(), Node { member, below });
            }
        }
        set
    }

    /// Returns the set with all named fields on the way to its paths as members.
    #[must_use]
    pub fn with_named_parents(&self) -> Self {
        let nodes = self.0.iter().map(|(element, node)| {
            let below = node.below.with_named_parents();
            let member = node.member || (element.starts_with("f:") && !below.0.is_empty());
            (element.clone(), Node { member, below })
        });
        Self(nodes.collect())
    }

    /// Returns all paths in order.
    pub fn paths(&self) -> Vec<Vec<&str>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect<'a>(&'a self, before: &mut Vec<&'a str>, paths: &mut Vec<Vec<&'a str>>) {
        for (element, node) in &self.0 {
            before.push(element);
            if node.member {
                paths.push(before.clone());
            }
            node.below.collect(before, paths);
            before.pop();
        }
    }

    /// Whether all paths are in what is written as `fieldsV1`.
    pub(super) fn is_within(&self, fields: &Value) -> bool {
        self.0.iter().all(|(element, node)| {
            fields.get(element).is_some_and(|found| {
                (!node.member || is_member(found)) && (node.below.0.is_empty() || node.below.is_within(found))
            })
        })
    }

    /// Whether any path is in what is written as `fieldsV1`.
    pub(super) fn meets(&self, fields: &Value) -> bool {
        self.0.iter().any(|(element, node)| {
            fields.get(element).is_some_and(|found| (node.member && is_member(found)) || node.below.meets(found))
        })
    }

    /// Writes the set as `fieldsV1`.
    pub fn to_value(&self) -> Value {
        let entries = self.0.iter().map(|(element, node)| {
            let mut below = node.below.to_value();
            if let Some(map) = below.as_object_mut().filter(|map| node.member && !map.is_empty()) {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (element.clone(), below)
        });
        Value::Object(entries.collect())
    }

    /// Reads `fieldsV1`; nothing if it is none.
    pub fn from_value(value: &Value) -> Option<Self> {
        Self::read(value, MAX_DEPTH)
    }

    fn read(value: &Value, depth: u32) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        let mut set = Self::default();
        for (element, below) in value.as_object()?.iter().filter(|(element, _)| *element != ".") {
            let map = below.as_object()?;
            let member = map.is_empty() || map.contains_key(".");
            set.0.insert(canonical(element)?, Node { member, below: Self::read(below, depth)? });
        }
        Some(set)
    }
}

/// Whether the path to a place of `fieldsV1` is in the set.
fn is_member(found: &Value) -> bool {
    found.as_object().is_some_and(|map| map.is_empty() || map.contains_key("."))
}

/// Returns an element as we write it.
fn canonical(element: &str) -> Option<String> {
    match element.split_once(':')? {
        ("f", _) => Some(element.to_owned()),
        (kind @ ("k" | "v"), rest) => {
            let value: Value = serde_json::from_str(rest).ok()?;
            (kind == "v" || value.is_object()).then(|| format!("{kind}:{value}"))
        }
        ("i", rest) => rest.parse::<usize>().ok().map(|_| element.to_owned()),
        _ => None,
    }
}

/// Returns a path as people read it, e.g. `.spec.containers[name="c"].image`.
pub fn shown<T: AsRef<str>>(path: &[T]) -> String {
    let mut text = String::new();
    for element in path {
        match element.as_ref().split_once(':') {
            Some(("f", name)) => {
                text.push('.');
                text.push_str(name);
            }
            Some(("k", keys)) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                text.extend(["[", &keys.join(","), "]"]);
            }
            Some(("v", value)) => text.extend(["[=", value, "]"]),
            Some((_, index)) => text.extend(["[", index, "]"]),
            None => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> Set {
        Set::from_value(&value).unwrap()
    }

    #[test]
    fn sets_are_written_as_they_were_read() {
        let value = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:containers": {
            "k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}}, "v:\"x\"": {}, "i:3": {}});
        assert_eq!(set(value.clone()).to_value(), value);
        let spaced = json!({"k:{ \"b\": 1, \"a\": \"x\" }": {}});
        assert_eq!(set(spaced).to_value(), json!({"k:{\"a\":\"x\",\"b\":1}": {}}));
        for bad in [json!([]), json!({"x": {}}), json!({"k:1": {}}), json!({"f:a": 1}), json!({"i:x": {}})] {
            assert_eq!(Set::from_value(&bad), None, "{bad}");
        }
    }

    #[test]
    fn paths_come_and_go() {
        let mut fields = Set::default();
        fields.insert(&["f:a", "f:b"]);
        fields.insert(&["f:a"]);
        assert!(fields.has(&["f:a"]) && fields.has(&["f:a", "f:b"]) && !fields.has(&["f:b"]));
        fields.remove(&["f:a"]);
        assert_eq!(fields.paths(), [["f:a", "f:b"]]);
        fields.remove(&["f:a", "f:b"]);
        assert!(fields.is_empty());
        assert_eq!(fields, Set::default(), "nothing is left behind");
        fields.insert(&["f:a", "f:b", "f:c"]);
        fields.remove_all(&["f:a", "f:b"]);
        assert_eq!(fields, Set::default());
    }

    #[test]
    fn sets_are_united_cut_and_subtracted_path_by_path() {
        let (a, b) =
            (set(json!({"f:a": {".": {}, "f:x": {}}, "f:b": {}})), set(json!({"f:a": {"f:x": {}}, "f:c": {}})));
        assert_eq!(a.common(&b).to_value(), json!({"f:a": {"f:x": {}}}));
        assert_eq!(a.without(&b).to_value(), json!({"f:a": {}, "f:b": {}}));
        let mut both = a.clone();
        both.unite(&b);
        assert_eq!(both.paths().len(), 4);
    }

    #[test]
    fn named_parents_are_members_and_items_are_not() {
        let fields = set(json!({"f:l": {"k:{\"n\":1}": {"f:m": {"f:x": {}}}}}));
        let want = json!({"f:l": {".": {}, "k:{\"n\":1}": {"f:m": {".": {}, "f:x": {}}}}});
        assert_eq!(fields.with_named_parents().to_value(), want);
    }

    #[test]
    fn paths_read_as_in_conflicts() {
        let path = ["f:spec", "f:ports", "k:{\"containerPort\":80,\"protocol\":\"TCP\"}", "f:name"];
        assert_eq!(shown(&path), r#".spec.ports[containerPort=80,protocol="TCP"].name"#);
        assert_eq!(shown(&["f:finalizers", "v:\"a\"", "i:1"]), r#".finalizers[="a"][1]"#);
    }
}
