//! Whether a pod may go to a node, and what is said when it may go to none. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::apiserver::object::{list, text};

/// What is looked at of a node, read once: each pod looks at all nodes.
#[derive(Debug)]
pub(super) struct Node {
    name: String,
    ready: bool,
    closed: bool,
    labels: Map<String, Value>,
    /// Those that keep pods away.
    taints: Vec<Value>,
}

impl Node {
    /// Where in an object those things stand.
    pub(super) const READ: [&str; 5] =
        ["metadata.name", "metadata.labels", "spec.unschedulable", "spec.taints", "status.conditions"];

    /// Reads a node.
    pub(super) fn of(node: &Value) -> Self {
        let is_ready = |condition: &Value| text(condition, "/type") == "Ready" && text(condition, "/status") == "True";
        let is_hard = |taint: &&Value| matches!(text(taint, "/effect"), "NoSchedule" | "NoExecute");
        Self {
            name: text(node, "/metadata/name").to_owned(),
            ready: list(node, "/status/conditions").iter().any(is_ready),
            closed: node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true),
            labels: node.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default(),
            taints: list(node, "/spec/taints").iter().filter(is_hard).cloned().collect(),
        }
    }

    /// Why it was passed over, in the stock scheduler's words.
    fn obstacle(&self, selector: Option<&Map<String, Value>>, tolerations: &[Value]) -> Option<&'static str> {
        if !self.ready {
            return Some("had untolerated taint(s)");
        }
        if self.closed {
            return Some("were unschedulable");
        }
        if selector.into_iter().flatten().any(|(key, value)| self.labels.get(key) != Some(value)) {
            return Some("didn't match Pod's node affinity/selector");
        }
        let open = self.taints.iter().any(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)));
        open.then_some("had untolerated taint(s)")
    }
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let effect = text(toleration, "/effect");
    if !effect.is_empty() && effect != text(taint, "/effect") {
        return false;
    }
    let key = text(toleration, "/key");
    match text(toleration, "/operator") {
        "Exists" => key.is_empty() || key == text(taint, "/key"),
        _ => key == text(taint, "/key") && text(toleration, "/value") == text(taint, "/value"),
    }
}

/// Returns the node for a pod: of those that fit the one with the fewest pods. Otherwise what is said about it.
pub(super) fn choose<'n>(
    pod: &Value,
    nodes: impl ExactSizeIterator<Item = &'n Node>,
    pods_on: impl Fn(&str) -> usize,
) -> Result<String, String> {
    let count = nodes.len();
    let selector = pod.pointer("/spec/nodeSelector").and_then(Value::as_object);
    let tolerations = list(pod, "/spec/tolerations");
    let mut obstacles: BTreeMap<&str, usize> = BTreeMap::new();
    let mut fitting = Vec::new();
    for node in nodes {
        match node.obstacle(selector, tolerations) {
            Some(reason) => *obstacles.entry(reason).or_default() += 1,
            None => fitting.push(&*node.name),
        }
    }
    if let Some(name) = fitting.into_iter().min_by_key(|name| pods_on(name)) {
        return Ok(name.to_owned());
    }
    if count == 0 {
        return Err("no nodes available to schedule pods".to_owned());
    }
    let reasons: Vec<String> = obstacles.iter().map(|(reason, count)| format!("{count} node(s) {reason}")).collect();
    Err(format!("0/{count} nodes are available: {}.", reasons.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"disk": "ssd"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    }

    fn pick(pod: &Value, nodes: &[Value]) -> Result<String, String> {
        let nodes: Vec<Node> = nodes.iter().map(Node::of).collect();
        choose(pod, nodes.iter(), |name| usize::from(name == "a"))
    }

    #[test]
    fn a_pod_goes_to_a_ready_node_that_fits() {
        let any = json!({"spec": {}});
        assert_eq!(pick(&any, &[node("a"), node("b")]).unwrap(), "b");
        assert_eq!(pick(&any, &[node("a")]).unwrap(), "a");
        assert_eq!(pick(&json!({"spec": {"nodeSelector": {"disk": "ssd"}}}), &[node("a")]).unwrap(), "a");
        let mut tainted = node("a");
        tainted["spec"] = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"},
            {"key": "soft", "effect": "PreferNoSchedule"}]});
        for toleration in [
            json!({"operator": "Exists"}),
            json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}),
            json!({"key": "k", "value": "v"}),
        ] {
            assert_eq!(pick(&json!({"spec": {"tolerations": [toleration]}}), &[tainted.clone()]).unwrap(), "a");
        }
        assert!(pick(&json!({"spec": {"tolerations": [{"key": "k", "value": "w"}]}}), &[tainted]).is_err());
    }

    #[test]
    fn what_is_in_the_way_is_counted() {
        let any = json!({"spec": {}});
        assert_eq!(pick(&any, &[]).unwrap_err(), "no nodes available to schedule pods");
        let mut late = node("a");
        late["status"]["conditions"][0]["status"] = json!("False");
        let mut closed = node("b");
        closed["spec"] = json!({"unschedulable": true});
        assert_eq!(
            pick(&any, &[late, closed]).unwrap_err(),
            "0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
        );
        assert_eq!(
            pick(&json!({"spec": {"nodeSelector": {"disk": "hdd"}}}), &[node("a")]).unwrap_err(),
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
        );
    }
}
