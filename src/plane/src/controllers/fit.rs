//! Whether a pod may go to a node, and what is said when it may go to none. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::apiserver::object::{list, text};

/// Why a node was passed over, in the stock scheduler's words.
fn obstacle(pod: &Value, node: &Value) -> Option<String> {
    if !is_ready(node) {
        return Some("had untolerated taint(s)".to_owned());
    }
    if node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true) {
        return Some("were unschedulable".to_owned());
    }
    let labels = node.pointer("/metadata/labels");
    let selector = pod.pointer("/spec/nodeSelector").and_then(Value::as_object);
    if selector.into_iter().flatten().any(|(key, value)| labels.and_then(|labels| labels.get(key)) != Some(value)) {
        return Some("didn't match Pod's node affinity/selector".to_owned());
    }
    let hard = |taint: &&Value| matches!(text(taint, "/effect"), "NoSchedule" | "NoExecute");
    let open = list(node, "/spec/taints")
        .iter()
        .filter(hard)
        .any(|taint| !list(pod, "/spec/tolerations").iter().any(|toleration| tolerates(toleration, taint)));
    open.then(|| "had untolerated taint(s)".to_owned())
}

fn is_ready(node: &Value) -> bool {
    list(node, "/status/conditions")
        .iter()
        .any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True")
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

/// What of a node is looked at.
pub(super) const READ: [&str; 5] =
    ["metadata.name", "metadata.labels", "spec.unschedulable", "spec.taints", "status.conditions"];

/// Returns the node for a pod: of those that fit the one with the fewest pods. Otherwise what is said about it.
pub(super) fn choose<'n>(
    pod: &Value,
    nodes: impl ExactSizeIterator<Item = &'n Value>,
    pods_on: impl Fn(&str) -> usize,
) -> Result<String, String> {
    let count = nodes.len();
    let mut obstacles: BTreeMap<String, usize> = BTreeMap::new();
    let mut fitting = Vec::new();
    for node in nodes {
        match obstacle(pod, node) {
            Some(reason) => *obstacles.entry(reason).or_default() += 1,
            None => fitting.push(text(node, "/metadata/name")),
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
