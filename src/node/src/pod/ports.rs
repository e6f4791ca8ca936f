//! What workers need of other rooms, as small traits, so that they can be driven by fakes and composed in one place.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PodStatus;
use longshore_api::resize::{Bound, Group};
use longshore_api::security::ImageUser;
use longshore_cri::v1;

use super::config::VolumeImage;
use crate::model::{ContainerId, DesiredPod, MirrorUid, PodKey, PodUid};

/// Why a step could not be taken, in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Waiting reason or event reason, e.g. `CreateContainerConfigError`.
    pub reason: String,
    /// What went wrong.
    pub message: String,
    /// Set when the room that failed knows when a new try makes sense.
    pub retry_after: Option<std::time::Duration>,
}

impl Failure {
    /// Builds a failure.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into(), retry_after: None }
    }
}

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulledImage {
    /// What the runtime resolved it to; goes into `image` of the container.
    pub reference: String,
    /// The user that the image names, for `runAsNonRoot`.
    pub user: ImageUser,
    /// Images of volumes that the container mounts, by the volume's name.
    pub volumes: BTreeMap<String, VolumeImage>,
}

/// What a container's configuration is made from.
#[derive(Debug)]
pub struct ContainerRequest<'a> {
    /// The pod.
    pub pod: &'a DesiredPod,
    /// The container's name.
    pub container: &'a str,
    /// Attempt number.
    pub attempt: u32,
    /// Its image.
    pub image: &'a PulledImage,
    /// Pod addresses.
    pub pod_ips: &'a [String],
    /// Whose processes it sees, for an ephemeral container that names one.
    pub target: Option<&'a ContainerId>,
}

/// Volumes, images and configurations of pods.
#[async_trait]
pub trait Prepare: Send + Sync + Debug + 'static {
    /// Makes the pod's folders and volumes; safe to call again.
    async fn volumes(&self, pod: &DesiredPod) -> Result<(), Failure>;

    /// The pod's labels or annotations have changed, which its volumes may show.
    fn relabelled(&self, _uid: &PodUid) {}

    /// What failed for this pod and waits is to be tried at once.
    fn forget_delays(&self, _uid: &PodUid) {}

    /// The pod's volumes in memory and how many bytes each of them holds.
    fn memory_volumes(&self, _pod: &DesiredPod) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Undoes [`Prepare::volumes`]; safe to call again.
    async fn release(&self, uid: &PodUid) -> Result<(), Failure>;

    /// Makes an image present; reports what it does as events of the container.
    async fn image(&self, pod: &DesiredPod, container: &str) -> Result<PulledImage, Failure>;

    /// The handler of the runtime that the pod's class names; empty = the usual one.
    async fn runtime_handler(&self, pod: &DesiredPod) -> Result<String, Failure>;

    /// Whether the pod's handler can make mounts below a read-only mount read-only, too; `None` = not known yet.
    fn recursive_read_only(&self, pod: &DesiredPod) -> Option<bool>;

    /// Builds the sandbox's configuration; with `tell`, what its owner should know goes out as events.
    async fn sandbox_config(&self, pod: &DesiredPod, attempt: u32, tell: bool)
    -> Result<v1::PodSandboxConfig, Failure>;

    /// Builds a container's configuration and what it needs on disk.
    async fn container_config(&self, request: ContainerRequest<'_>) -> Result<v1::ContainerConfig, Failure>;

    /// What the runtime is told of a container's size; `None` for a container that is not in the spec.
    fn container_size(&self, pod: &DesiredPod, container: &str) -> Option<v1::LinuxContainerResources>;

    /// Removes what is left of the pod on disk: its folder and its logs.
    async fn forget(&self, pod: &DesiredPod) -> Result<(), Failure>;

    /// The same for a pod of which only the folder is known; refuses while anything is mounted in it.
    async fn forget_uid(&self, uid: &PodUid) -> Result<(), Failure>;
}

/// Bounds of a pod's cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodBounds {
    /// As they are.
    pub now: Group,
    /// As they should be.
    pub wanted: Group,
}

/// Pod cgroups.
#[async_trait]
pub trait PodCgroups: Send + Sync + Debug + 'static {
    /// Makes the pod's cgroup. While a resize is under way (`moving`) the bounds of one that is there are left alone: they
    /// move step by step.
    async fn ensure(&self, pod: &DesiredPod, moving: bool) -> Result<(), Failure>;

    /// The bounds that the pod's cgroup has, and those that it should have; `None` where there is none of ours.
    fn bounds(&self, pod: &DesiredPod) -> Result<Option<PodBounds>, Failure>;

    /// Sets one bound of the pod's cgroup.
    fn bind(&self, pod: &DesiredPod, bound: Bound) -> Result<(), Failure>;

    /// How much memory the pod has in use, if known.
    fn memory_usage(&self, pod: &DesiredPod) -> Option<i64>;

    /// Kills what still runs of a container that the runtime calls exited: a start that was cut off can leave its process
    /// behind, and the next instance must not run beside it.
    async fn clear(&self, pod: &DesiredPod, container: &ContainerId);

    /// Removes it, with whatever still runs inside.
    async fn remove(&self, pod: &DesiredPod) -> Result<(), Failure>;
}

/// A status on its way to the API.
#[derive(Debug, Clone)]
pub struct StatusUpdate {
    /// The pod.
    pub uid: PodUid,
    /// Its name.
    pub key: PodKey,
    /// The mirror of a static pod.
    pub mirror: Option<MirrorUid>,
    /// The status.
    pub status: Arc<PodStatus>,
    /// Containers, volumes and cgroup are gone: the API object may go.
    pub done: bool,
}

/// Takes statuses; newest wins.
pub trait StatusSink: Send + Sync + Debug + 'static {
    /// Replaces the pod's status. Never blocks.
    fn put(&self, pod: &DesiredPod, update: StatusUpdate);

    /// The pod is gone from the node.
    fn forget(&self, uid: &PodUid);
}
