//! Handles through which other rooms reach pods.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;

use super::{DesiredPod, MirrorUid, PodKey, PodUid};

/// An order to end a pod for the node's own reasons (eviction, deadline, shutdown, preemption).
#[derive(Debug, Clone)]
pub struct Terminate {
    /// Upper bound of the grace period; it can only shrink what was ordered before.
    pub grace: Option<Duration>,
    /// `status.reason` of the failed pod, e.g. `Evicted`.
    pub reason: &'static str,
    /// `status.message` of the failed pod.
    pub message: String,
    /// Whether the condition `DisruptionTarget` is set.
    pub disruption: bool,
}

/// Wakes and ends pods.
pub trait PodControl: Send + Sync + std::fmt::Debug {
    /// Wakes the worker of a pod, e.g. because the runtime reported a change. Unknown uids are ignored.
    fn wake(&self, uid: &PodUid);
    /// Tells a pod that what its probes say has changed. Unknown uids are ignored.
    fn verdict(&self, uid: &PodUid);
    /// Orders the end of a pod. Unknown uids are ignored.
    fn terminate(&self, uid: &PodUid, order: Terminate);
}

/// What is known of one pod, for readers.
#[derive(Debug, Clone)]
pub struct PodView {
    /// The desired object.
    pub desired: DesiredPod,
    /// The status that the agent computed last; `None` before the first pass.
    pub status: Option<Arc<PodStatus>>,
    /// The mirror's uid of a static pod, once it stands in the API.
    pub mirror: Option<MirrorUid>,
}

/// Read access to the pod table for `server`, `source`, `status`, `stats` and `node`.
pub trait ReadPods: Send + Sync + std::fmt::Debug {
    /// All pods known to the node.
    fn pods(&self) -> Vec<PodView>;
    /// The pod of that name, if known.
    fn by_key(&self, key: &PodKey) -> Option<PodView>;
    /// The pod of that uid, if known (a mirror's uid is understood as well).
    fn by_uid(&self, uid: &str) -> Option<PodView>;
}
