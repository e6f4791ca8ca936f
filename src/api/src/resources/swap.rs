//! How much swap a container may use where burstable containers share the node's (`memorySwap.swapBehavior: LimitedSwap`).

use k8s_openapi::api::core::v1::{Container, Pod};

use super::{MEMORY, Side, of_container};
use crate::qos::{self, Qos};

/// Memory and swap of a node, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeSwap {
    /// Memory.
    pub memory: i64,
    /// Swap.
    pub swap: i64,
}

/// Says whether a container gets a part of the node's swap: its pod is burstable and nobody's foundation (`critical`), and it
/// asks for less memory than it may have.
pub fn may_swap(pod: &Pod, container: &Container, critical: bool) -> bool {
    let of = |side| of_container(container, side).get(MEMORY).map(crate::quantity::Quantity::value);
    let asked = of(Side::Requests);
    !critical && qos::of(pod) == Qos::Burstable && asked.is_some_and(|asked| asked > 0) && asked != of(Side::Limits)
}

/// Bytes of swap that a container may use: the share that it asks for of the node's memory; 0 = none.
pub fn swap_limit(pod: &Pod, container: &Container, critical: bool, node: NodeSwap) -> i64 {
    if !may_swap(pod, container, critical) || node.memory <= 0 {
        return 0;
    }
    let asked = of_container(container, Side::Requests).get(MEMORY).map_or(0, crate::quantity::Quantity::value);
    let share = i128::from(asked) * i128::from(node.swap) / i128::from(node.memory);
    i64::try_from(share).unwrap_or(i64::MAX).max(0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const GIB: i64 = 1 << 30;

    fn limit(resources: Value, critical: bool) -> i64 {
        let pod: Pod =
            serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "resources": resources}]}})).unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        swap_limit(&pod, container, critical, NodeSwap { memory: 8 * GIB, swap: 4 * GIB })
    }

    #[test]
    fn burstable_containers_share_the_nodes_swap_by_what_they_ask_for() {
        assert_eq!(limit(json!({"requests": {"memory": "2Gi"}}), false), GIB);
        assert_eq!(limit(json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "3Gi"}}), false), GIB);
        assert_eq!(limit(json!({"requests": {"memory": "3"}}), false), 1);
    }

    #[test]
    fn others_get_none() {
        assert_eq!(limit(json!({"requests": {"memory": "2Gi"}}), true), 0);
        assert_eq!(limit(json!({}), false), 0);
        assert_eq!(limit(json!({"requests": {"cpu": "1"}}), false), 0);
        let all = json!({"cpu": "1", "memory": "2Gi"});
        assert_eq!(limit(json!({"requests": all, "limits": all}), false), 0);
        assert_eq!(limit(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "2Gi"}}), false), 0);
    }
}
