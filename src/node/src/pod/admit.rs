//! Admission: once per uid, a pure chain of checks over a snapshot of the node. The first refusal stands.

use k8s_openapi::api::core::v1::Pod;

use crate::journal::Verdict;

/// What the checks look at.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// The node's name.
    pub(super) name: String,
    /// How many pods it takes.
    pub(super) pod_limit: usize,
    /// How many other pods it has that are not over.
    pub(super) pods: usize,
}

type Check = fn(&Pod, &Node) -> Option<(&'static str, String)>;

/// The chain, in order.
const CHECKS: [Check; 2] = [pod_count, node_name];

/// Decides whether a pod may run here.
pub(super) fn admit(pod: &Pod, node: &Node) -> Verdict {
    match CHECKS.iter().find_map(|check| check(pod, node)) {
        None => Verdict::Admitted,
        Some((reason, message)) => Verdict::Rejected { reason: reason.to_owned(), message },
    }
}

fn pod_count(_pod: &Pod, node: &Node) -> Option<(&'static str, String)> {
    let (used, capacity) = (node.pods, node.pod_limit);
    (used >= capacity).then(|| {
        let message =
            format!("Node didn't have enough resource: pods, requested: 1, used: {used}, capacity: {capacity}");
        ("OutOfpods", message)
    })
}

fn node_name(pod: &Pod, node: &Node) -> Option<(&'static str, String)> {
    let wanted = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).filter(|n| !n.is_empty())?;
    (wanted != node.name)
        .then(|| ("NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name".to_owned()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;

    use super::*;

    fn node(pods: usize) -> Node {
        Node { name: "n1".into(), pod_limit: 2, pods }
    }

    fn pod(node_name: &str) -> Pod {
        let spec = PodSpec { node_name: Some(node_name.into()), ..PodSpec::default() };
        Pod { spec: Some(spec), ..Pod::default() }
    }

    #[test]
    fn refuses_what_is_too_many_or_not_ours() {
        assert_eq!(admit(&pod("n1"), &node(1)), Verdict::Admitted);
        let cases = [("n1", 2, "OutOfpods"), ("n2", 0, "NodeName"), ("n2", 2, "OutOfpods")];
        for (name, pods, want) in cases {
            let Verdict::Rejected { reason, .. } = admit(&pod(name), &node(pods)) else { panic!("admitted {name}") };
            assert_eq!(reason, want);
        }
    }
}
