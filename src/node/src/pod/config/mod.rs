//! From a pod to what the runtime is asked for: the configuration of its sandbox and of its containers.
//! Pure: everything that had to be read (images, objects, volumes, the node) comes in resolved.

pub(super) mod annotations;
mod container;
mod env;
mod image_volume;
mod mounts;
mod sandbox;
mod security;
#[cfg(test)]
mod shown;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use longshore_api::dns::ClusterDns;
use longshore_api::resources::{Amounts, CpuPolicy, NodeSwap};

pub use container::{ContainerInput, container_config, container_size};
pub use env::{EnvFile, EnvInput, Objects, References, environment, references};
pub use image_volume::{ImageMount, VolumeImage, image_mounts, image_volumes};
pub use mounts::{MountInput, SubPathKey, VolumeFact, mounts, sub_path};
pub use sandbox::{SandboxConfig, sandbox_config};
pub use security::own_users;

/// Waiting reason of a container whose configuration cannot be made.
pub const CONFIG_ERROR: &str = "CreateContainerConfigError";

/// Why a configuration cannot be made, in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConfigError {
    /// Waiting reason.
    pub reason: &'static str,
    /// Message for the status and the event.
    pub message: String,
}

impl ConfigError {
    /// Builds an error with the usual reason.
    pub fn new(message: impl Into<String>) -> Self {
        Self { reason: CONFIG_ERROR, message: message.into() }
    }
}

/// What configurations need to know of the node. Read once at start, replaced when the configuration changes.
#[derive(Debug, Clone, Default)]
pub struct NodeFacts {
    /// The agent's root (`/var/lib/kubelet`).
    pub root: PathBuf,
    /// Root of the pods' logs (`/var/log/pods`).
    pub pod_logs: PathBuf,
    /// Resolver settings.
    pub dns: ClusterDns,
    /// How cpu limits are enforced.
    pub cpu: CpuPolicy,
    /// Memory of the machine in bytes.
    pub memory: i64,
    /// Page sizes of huge pages as the runtime names them (`2MB`, `1GB`), smallest first.
    pub huge_pages: Vec<String>,
    /// Whether cgroup v2 is in use.
    pub cgroup_v2: bool,
    /// Whether the kernel accounts for swap (cgroup v1: `memory.memsw.*` is there).
    pub swap_accounting: bool,
    /// What burstable containers share of swap (`LimitedSwap` on cgroup v2); `None` = pods get none.
    pub swap: Option<NodeSwap>,
    /// `singleProcessOOMKill` of the configuration.
    pub single_process_oom_kill: bool,
    /// `lifecycle.stopSignal` is passed on (upstream's gate `ContainerStopSignals`).
    pub stop_signals: bool,
    /// `seccompDefault` of the configuration.
    pub seccomp_default: bool,
    /// Paths to mask beyond the usual ones (per-cpu thermal throttle files that exist).
    pub extra_masked: Vec<String>,
    /// The node's addresses, its first family first.
    pub host_ips: Vec<String>,
    /// What the node gives to pods.
    pub allocatable: Amounts,
}

impl NodeFacts {
    /// The folder of one pod.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }
}

/// In which list of the spec a container stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerKind {
    /// `initContainers`.
    Init,
    /// `containers`.
    App,
    /// `ephemeralContainers`.
    Ephemeral,
}

/// Finds a container by name; an ephemeral one is shown as an ordinary one.
pub fn find_container<'a>(spec: &'a PodSpec, name: &str) -> Option<(ContainerKind, Cow<'a, Container>)> {
    let named = |container: &&Container| container.name == name;
    if let Some(found) = spec.containers.iter().find(named) {
        return Some((ContainerKind::App, Cow::Borrowed(found)));
    }
    if let Some(found) = spec.init_containers.iter().flatten().find(named) {
        return Some((ContainerKind::Init, Cow::Borrowed(found)));
    }
    let found = spec.ephemeral_containers.iter().flatten().find(|container| container.name == name)?;
    Some((ContainerKind::Ephemeral, Cow::Owned(ordinary(found))))
}

fn ordinary(from: &k8s_openapi::api::core::v1::EphemeralContainer) -> Container {
    let from = from.clone();
    Container {
        args: from.args,
        command: from.command,
        env: from.env,
        env_from: from.env_from,
        image: from.image,
        image_pull_policy: from.image_pull_policy,
        name: from.name,
        resources: from.resources,
        security_context: from.security_context,
        stdin: from.stdin,
        stdin_once: from.stdin_once,
        termination_message_path: from.termination_message_path,
        termination_message_policy: from.termination_message_policy,
        tty: from.tty,
        volume_devices: from.volume_devices,
        volume_mounts: from.volume_mounts,
        working_dir: from.working_dir,
        ..Container::default()
    }
}

/// A pod as messages name it: `name_namespace(uid)`.
pub fn pod_text(pod: &crate::model::DesiredPod) -> String {
    longshore_api::restart::pod_text(&pod.key.name, &pod.key.namespace, pod.uid.as_str())
}
