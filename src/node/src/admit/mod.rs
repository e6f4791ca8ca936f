//! Admission: whether a pod may run here, decided once per uid over a snapshot of the node and of the pods that hold a
//! place on it. Pure; the first refusal stands, and what is refused is told in upstream's words.
//!
//! ```text
//! pressure -> sysctls -> node, resources, ports, taints -> AppArmor -> features -> shutdown
//!                                  |
//!                                  +-- only room is missing, and the pod is critical: others make room
//! ```

mod predicates;
mod preempt;
mod resize;
mod sysctl;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodSpec, Taint};
use longshore_api::placement;
use longshore_api::qos::{self, Qos};
use longshore_api::resources::{self, Amounts, Side};
use longshore_api::security::{self, Profile};

pub use resize::{DEFERRED, INFEASIBLE, NotGranted, Rank, ResizeRules, resize};
pub use sysctl::SysctlRules;

use crate::model::{DesiredPod, PodUid};

/// Pods of this priority and above are the cluster's own.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;
/// Policy of supplemental groups that leaves out the image's.
const STRICT: &str = "Strict";
const MEMORY_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// What is short on the node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Short {
    /// Memory.
    pub memory: bool,
    /// Disk space or inodes.
    pub disk: bool,
    /// Process ids.
    pub pid: bool,
}

/// The node, as the checks see it.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// What it gives to pods, their number included.
    pub allocatable: Amounts,
    /// What it is short of.
    pub short: Short,
    /// Which sysctls pods may set.
    pub sysctls: Arc<SysctlRules>,
    /// Whether the kernel enforces AppArmor profiles.
    pub app_armor: bool,
    /// Whether the runtime can keep the image's groups away.
    pub strict_groups: bool,
    /// Whether resources of a pod as a whole are understood.
    pub pod_resources: bool,
    /// Which sizes of pods that run it can change.
    pub resize: ResizeRules,
    /// Whether the machine is about to go down.
    pub shutting_down: bool,
}

/// Where the checks learn of the node.
#[async_trait]
pub trait Grounds: Send + Sync + std::fmt::Debug + 'static {
    /// The node as known now.
    fn node(&self) -> Node;

    /// Waits until the runtime has told what it can do.
    async fn runtime_known(&self);

    /// The same after another look into the API; labels may have changed a moment ago.
    async fn look_again(&self) -> Node;
}

/// A pod that holds a place on the node.
#[derive(Debug, Clone)]
pub struct Neighbour {
    /// Its uid.
    pub uid: PodUid,
    /// What it holds.
    pub requests: Amounts,
    /// The pod; `None` for one that no source has named since the agent started.
    pub pod: Option<Arc<Pod>>,
    /// Whether it is a static pod.
    pub is_static: bool,
}

impl Neighbour {
    /// Describes a pod that holds what its spec asks for as a neighbour.
    pub fn of(desired: &DesiredPod) -> Self {
        Self {
            uid: desired.uid.clone(),
            requests: requests(&desired.pod),
            pod: Some(Arc::clone(&desired.pod)),
            is_static: desired.source.is_static(),
        }
    }
}

/// Why a pod may not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Reason of the event and of the status.
    pub reason: String,
    /// Message of the event; the status puts a prefix before it.
    pub message: String,
}

impl Refusal {
    fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}

/// The outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may run.
    Admit,
    /// It may not.
    Refuse(Refusal),
    /// It may once these have gone; if that does not help, the refusal stands.
    MakeRoom {
        /// Who has to go.
        victims: Vec<PodUid>,
        /// The resource that is short, for figures.
        resource: String,
        /// What is said if there is no room in the end.
        refusal: Refusal,
    },
}

/// Reason of a pod that does not fit labels of the node.
pub const NODE_AFFINITY: &str = "NodeAffinity";

/// Decides.
pub fn decide(pod: &DesiredPod, node: &Node, others: &[Neighbour]) -> Decision {
    let no_spec = PodSpec::default();
    let spec = pod.pod.spec.as_ref().unwrap_or(&no_spec);
    if let Some(refusal) = pressure(pod, spec, node).or_else(|| node.sysctls.check(spec)) {
        return Decision::Refuse(refusal);
    }
    if let Some(refusal) = predicates::of_node(spec, node) {
        return Decision::Refuse(refusal);
    }
    let short = predicates::missing(&pod.pod, node, others);
    let mismatch = predicates::mismatch(pod, spec, node, others);
    let first = short.first().map(predicates::Missing::refusal).or_else(|| mismatch.clone());
    if let Some(refusal) = first {
        if mismatch.is_none() && is_critical(&pod.pod, pod.source.is_static()) {
            return make_room(pod, &short, others, refusal);
        }
        return Decision::Refuse(refusal);
    }
    match app_armor(&pod.pod, spec, node).or_else(|| features(spec, node)).or_else(|| shutdown(node)) {
        Some(refusal) => Decision::Refuse(refusal),
        None => Decision::Admit,
    }
}

/// What a pod holds of the node while it is admitted.
pub fn requests(pod: &Pod) -> Amounts {
    pod.spec.as_ref().map(|spec| resources::pod_with_overhead(spec, Side::Requests)).unwrap_or_default()
}

/// Says whether the runtime must have told what it can do before the pod is looked at.
pub fn asks_runtime(pod: &Pod) -> bool {
    let Some(spec) = pod.spec.as_ref() else { return false };
    let groups = spec.security_context.as_ref().and_then(|security| security.supplemental_groups_policy.as_deref());
    groups == Some(STRICT) || spec.host_users == Some(false)
}

/// Says whether a pod belongs to the machine or to the cluster itself.
pub fn is_critical(pod: &Pod, is_static: bool) -> bool {
    is_static || priority(pod).is_some_and(|priority| priority >= CRITICAL_PRIORITY)
}

fn priority(pod: &Pod) -> Option<i32> {
    pod.spec.as_ref().and_then(|spec| spec.priority)
}

fn make_room(pod: &DesiredPod, short: &[predicates::Missing], others: &[Neighbour], refusal: Refusal) -> Decision {
    match preempt::victims(&pod.pod, pod.source.is_static(), short, others) {
        Ok(victims) => {
            let resource = short.first().map(|first| first.resource.clone()).unwrap_or_default();
            Decision::MakeRoom { victims, resource, refusal }
        }
        Err(lacking) => Decision::Refuse(Refusal::new(
            "UnexpectedAdmissionError",
            format!(
                "Unexpected error while attempting to recover from admission failure: preemption: error finding a set \
                 of pods to preempt: no set of running pods found to reclaim resources: {lacking}"
            ),
        )),
    }
}

/// A node that is short of something takes only what helps it or what it would not evict.
fn pressure(pod: &DesiredPod, spec: &PodSpec, node: &Node) -> Option<Refusal> {
    let conditions: Vec<&str> =
        [(node.short.memory, "MemoryPressure"), (node.short.disk, "DiskPressure"), (node.short.pid, "PIDPressure")]
            .into_iter()
            .filter_map(|(present, name)| present.then_some(name))
            .collect();
    if conditions.is_empty() || is_critical(&pod.pod, pod.source.is_static()) {
        return None;
    }
    if conditions == ["MemoryPressure"] {
        let taint =
            Taint { key: MEMORY_TAINT.to_owned(), value: None, effect: "NoSchedule".to_owned(), time_added: None };
        let tolerations = spec.tolerations.as_deref().unwrap_or_default();
        if qos::of(&pod.pod) != Qos::BestEffort || tolerations.iter().any(|one| placement::tolerates(one, &taint)) {
            return None;
        }
    }
    Some(Refusal::new("Evicted", format!("The node had condition: [{}]. ", conditions.join(" "))))
}

fn app_armor(pod: &Pod, spec: &PodSpec, node: &Node) -> Option<Refusal> {
    if node.app_armor {
        return None;
    }
    let settings = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
        .map(|container| (container.name.as_str(), container.security_context.as_ref()));
    let wanted = settings
        .filter_map(|(name, own)| security::app_armor(pod, spec, name, own))
        .any(|profile| profile != Profile::Unconfined);
    wanted.then(|| Refusal::new("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"))
}

fn features(spec: &PodSpec, node: &Node) -> Option<Refusal> {
    let asked = spec.resources.as_ref().is_some_and(|own| own.requests.is_some() || own.limits.is_some());
    (asked && !node.pod_resources).then(|| {
        Refusal::new(
            "PodLevelResourcesNotSupported",
            "resources are set for the pod as a whole, and the feature gate PodLevelResources is off on this node",
        )
    })
}

fn shutdown(node: &Node) -> Option<Refusal> {
    node.shutting_down.then(|| Refusal::new("NodeShutdown", "Pod was rejected as the node is shutting down."))
}
