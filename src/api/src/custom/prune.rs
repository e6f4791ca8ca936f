//! Fields that a schema does not know are taken out, and told.

use serde_json::Value;

use super::structural::Node;
use crate::schema::check::{self, Findings};
use crate::schema::schema;

/// Takes unknown fields out of an object of a kind.
pub fn object(node: &Node, object: &mut Value) -> Findings {
    let mut state = State { path: String::new(), findings: Findings::default() };
    state.value(node, object, true);
    state.findings
}

/// Takes unknown fields out of a value that is no object of a kind, e.g. a default.
pub fn value(node: &Node, value: &mut Value) -> Findings {
    let mut state = State { path: String::new(), findings: Findings::default() };
    state.value(node, value, node.embedded);
    state.findings
}

struct State {
    path: String,
    findings: Findings,
}

impl State {
    fn value(&mut self, node: &Node, value: &mut Value, whole: bool) {
        match value {
            Value::Object(map) => map.retain(|key, value| {
                let length = self.path.len();
                if length > 0 {
                    self.path.push('.');
                }
                self.path.push_str(key);
                let keep = self.entry(node, key, value, whole);
                if !keep {
                    self.findings.add("unknown", &self.path);
                }
                self.path.truncate(length);
                keep
            }),
            Value::Array(items) => {
                let Some(below) = &node.items else { return };
                for (index, item) in items.iter_mut().enumerate() {
                    let length = self.path.len();
                    self.path.extend(["[", &index.to_string(), "]"]);
                    self.value(below, item, below.embedded);
                    self.path.truncate(length);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Returns whether the entry stays.
    fn entry(&mut self, node: &Node, key: &str, value: &mut Value, whole: bool) -> bool {
        if whole && matches!(key, "apiVersion" | "kind") {
            return true;
        }
        if whole && key == "metadata" {
            if let Some(id) = schema().named("meta/v1", "ObjectMeta") {
                let found = check::prune(schema(), id, value);
                self.findings.take_below(&self.path, &found);
            }
            return true;
        }
        match node.below(key) {
            Some(below) => {
                self.value(below, value, below.embedded);
                true
            }
            None => node.keeps(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_go_and_are_told_with_their_paths() {
        let node = Node::read(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"}, "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"y": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "object"}}},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true}}}}}}}));
        let mut sent = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n", "odd": 1, "labels": {"a": "b"}},
            "top": 1, "spec": {"a": "x", "b": 1, "list": [{"x": 1, "z": 2}], "map": {"k": {"y": "1", "q": 2}},
                "free": {"any": {"thing": 1}, "known": {"gone": 1}},
                "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "bad": 1}, "spec": {"q": 1}, "status": {}}}});
        let findings = object(&node, &mut sent);
        let mut texts = findings.texts().to_vec();
        texts.sort();
        let want = [
            "metadata.odd",
            "spec.b",
            "spec.free.known.gone",
            "spec.list[0].z",
            "spec.map.k.q",
            "spec.pod.metadata.bad",
            "spec.pod.status",
            "top",
        ];
        assert_eq!(texts, want.map(|path| format!("unknown field {path:?}")));
        assert_eq!(
            sent,
            json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}},
                "spec": {"a": "x", "list": [{"x": 1}], "map": {"k": {"y": "1"}}, "free": {"any": {"thing": 1}, "known": {}},
                    "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"q": 1}}}})
        );
        assert!(object(&node, &mut sent).is_empty());
    }
}
