//! Whom the kernel kills first when memory is short.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::{MEMORY, Side, of_container};
use crate::qos::{self, Qos};
use crate::quantity::Quantity;
use crate::restart::is_sidecar;

const BEST_EFFORT: i64 = 1000;
const GUARANTEED: i64 = -997;
const BURSTABLE_LEAST: i64 = 1000 + GUARANTEED;
const NODE_CRITICAL: &str = "system-node-critical";
const CRITICAL_PRIORITY: i32 = 2_000_001_000;

/// Returns the OOM score of one container of a pod on a node with `node_memory` bytes.
///
/// The more of the node's memory a Burstable container asks for, the later it is killed; a sidecar is killed no earlier than
/// the app container that is killed last, since those depend on it.
pub fn oom_score_adj(pod: &Pod, container: &Container, node_memory: i64) -> i64 {
    let Some(spec) = pod.spec.as_ref() else { return BEST_EFFORT };
    let critical = spec.priority_class_name.as_deref() == Some(NODE_CRITICAL)
        || spec.priority.is_some_and(|priority| priority >= CRITICAL_PRIORITY);
    if critical {
        return GUARANTEED;
    }
    match qos::of(pod) {
        Qos::Guaranteed => GUARANTEED,
        Qos::BestEffort => BEST_EFFORT,
        Qos::Burstable => {
            let own = burstable(spec, container, node_memory);
            if !is_sidecar(container) {
                return own;
            }
            spec.containers.iter().map(|app| burstable(spec, app, node_memory)).chain([own]).min().unwrap_or(own)
        }
    }
}

fn burstable(spec: &PodSpec, container: &Container, node_memory: i64) -> i64 {
    let request = memory(container).saturating_add(share_of_pod(spec));
    let score = 1000 - 1000_i64.saturating_mul(request).checked_div(node_memory).unwrap_or(0);
    score.clamp(BURSTABLE_LEAST, BEST_EFFORT - 1)
}

fn memory(container: &Container) -> i64 {
    of_container(container, Side::Requests).get(MEMORY).map_or(0, Quantity::value)
}

/// What the pod asks for beyond its containers is spread over them evenly.
fn share_of_pod(spec: &PodSpec) -> i64 {
    let Some(total) = Side::Requests.of(spec.resources.as_ref()).get(MEMORY).map(Quantity::value) else { return 0 };
    let containers: Vec<&Container> = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten().filter(|container| is_sidecar(container)))
        .collect();
    let asked: i64 = containers.iter().map(|container| memory(container)).fold(0, i64::saturating_add);
    let count = i64::try_from(containers.len()).unwrap_or(i64::MAX);
    total.saturating_sub(asked).max(0).checked_div(count).unwrap_or(0)
}
