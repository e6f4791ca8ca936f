//! What the agent is started with, and what other rooms get of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_api::gates::Gates;
use longshore_api::quantity::Quantity;
use longshore_api::resources::CpuPolicy;
use longshore_cri::{SharedImages, SharedRuntime, v1};
use longshore_transport::client::Clients;
use longshore_util::clock::SharedClock;

use crate::event::{EventRecorder, EventTarget};
use crate::gc::Cleaning;
use crate::image::PullLimits;
use crate::logs::RotateOptions;
use crate::model::ReadPods;
use crate::node::startup::StartupOptions;
use crate::node::{NodeHandle, NodeOptions, Reserved, Threshold};
use crate::pod::BackoffRule;
use crate::resource::{CgroupDriver, CgroupTree};
use crate::settings::Settings;
use crate::userns::{Span, SpanError};

/// How long a question to the runtime may delay the start.
pub(super) const ASK_WITHIN: Duration = Duration::from_secs(2);

/// What the agent is started with.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// Flags and configuration.
    pub settings: Settings,
    /// The node's name, lower case.
    pub node_name: String,
    /// The runtime; may be away at the start.
    pub runtime: SharedRuntime,
    /// Its images.
    pub images: SharedImages,
    /// The API; `None` = static pods alone.
    pub clients: Option<Clients>,
    /// Wall-clock time.
    pub clock: SharedClock,
    /// Which pods that no source wants are removed.
    pub cleaning: Cleaning,
}

impl AgentOptions {
    /// How cpu limits are enforced.
    pub(super) fn cpu_policy(&self) -> CpuPolicy {
        let config = &self.settings.config;
        let period = i64::try_from(config.cpu_cfs_quota_period.as_std().as_micros()).unwrap_or(0);
        let usual = CpuPolicy::default();
        CpuPolicy { quota: config.cpu_cfs_quota, period: if period > 0 { period } else { usual.period } }
    }

    /// Whether burstable containers share the node's swap.
    pub(super) fn shares_swap(&self) -> bool {
        self.settings.config.memory_swap.swap_behavior == "LimitedSwap"
    }

    /// Delays between restarts.
    pub(super) fn backoff(&self) -> BackoffRule {
        let cap = self.settings.config.crash_loop_back_off.max_container_restart_period.as_std();
        BackoffRule::new(cap, self.settings.gates.is_enabled("ReduceDefaultCrashLoopBackOffDecay"))
    }

    /// Which ids are for pods with users of their own.
    pub(super) fn user_span(&self, pods: u64) -> Result<Span, SpanError> {
        let per_pod = self.settings.config.user_namespaces.ids_per_pod;
        Span::of_machine(u64::try_from(per_pod).unwrap_or(0), pods)
    }

    /// What container logs are bound to; `None` = nothing.
    pub(super) fn log_bounds(&self, pods: Arc<dyn ReadPods>) -> Option<RotateOptions> {
        let config = &self.settings.config;
        // A size below nothing turns rotation off; a bad one has been refused before.
        let size = Quantity::parse(&config.container_log_max_size).ok()?.value();
        Some(RotateOptions {
            size: u64::try_from(size).ok()?,
            files: usize::try_from(config.container_log_max_files).unwrap_or(2),
            workers: usize::try_from(config.container_log_max_workers).unwrap_or(1),
            every: config.container_log_monitor_interval.as_std(),
            folder: config.pod_logs_dir.clone().into(),
            runtime: Arc::clone(&self.runtime),
            pods,
            clock: Arc::clone(&self.clock),
        })
    }

    /// How many pulls at once, and how often.
    pub(super) fn pull_limits(&self) -> PullLimits {
        let config = &self.settings.config;
        PullLimits {
            serial: config.serialize_image_pulls,
            parallel: config.max_parallel_image_pulls.and_then(|count| usize::try_from(count).ok()),
            per_second: config.registry_pull_qps,
            burst: config.registry_burst,
        }
    }

    /// Bounds all pods together, where the configuration says so, and tells how that went.
    pub(super) fn enforce_allocatable(&self, tree: &CgroupTree, node: &NodeHandle, events: &EventRecorder) {
        let config = &self.settings.config;
        if !config.enforce_node_allocatable.iter().any(|what| what == "pods") {
            return;
        }
        let capacity = node.capacity();
        let kept = reserved([&config.system_reserved, &config.kube_reserved]).memory;
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let memory = capacity.memory.0.saturating_sub(kept);
        let target = EventTarget::node(&self.node_name);
        match tree.enforce(number(capacity.cpu_milli.1), number(memory)) {
            Ok(true) => {
                events.normal(&target, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods");
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "pods are not bound to what the node gives them");
                let message = format!("Failed to update Node Allocatable Limits: {error}");
                events.warning(&target, "FailedNodeAllocatableEnforcement", message);
            }
        }
    }

    /// The driver that the runtime tells, else the configured one.
    pub(super) async fn cgroup_driver(&self) -> CgroupDriver {
        let (driver, differs) = super::driver::agreed(&self.runtime, &self.settings.config.cgroup_driver).await;
        if let Some(differs) = differs {
            tracing::warn!("{differs}");
        }
        driver
    }

    /// The runtime's name, the scheme of container ids.
    pub(super) async fn runtime_name(&self) -> String {
        let ask = self.runtime.version(v1::VersionRequest { version: "0.1.0".into() });
        match tokio::time::timeout(ASK_WITHIN, ask).await {
            Ok(Ok(answer)) if !answer.runtime_name.is_empty() => answer.runtime_name,
            // Both runtimes that there are name themselves; while one is away the commoner is meant.
            _ => "containerd".to_owned(),
        }
    }

    /// Chores before anything else.
    pub(super) fn startup(&self, cgroup_v2: bool) -> StartupOptions {
        let config = &self.settings.config;
        StartupOptions {
            root_dir: self.root(),
            pod_logs_dir: config.pod_logs_dir.clone().into(),
            protect_kernel_defaults: config.protect_kernel_defaults,
            oom_score_adj: config.oom_score_adj,
            max_open_files: u64::try_from(config.max_open_files).unwrap_or(0),
            fail_swap_on: config.fail_swap_on,
            fail_cgroup_v1: config.fail_cgroup_v1,
            cgroup_v1: !cgroup_v2,
            machine_root: "/".into(),
            container_links_dir: super::LEGACY_LOGS.into(),
        }
    }

    /// The node's own face.
    pub(super) fn node(&self, cgroup_v2: bool) -> NodeOptions {
        let config = &self.settings.config;
        let process = &self.settings.process;
        let mut options = NodeOptions::new(self.node_name.clone());
        options.register = config.register_node;
        options.labels.clone_from(&process.node_labels);
        options.taints = config
            .register_with_taints
            .iter()
            .map(|taint| k8s_openapi::api::core::v1::Taint {
                key: taint.key.clone(),
                value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
                effect: taint.effect.clone(),
                time_added: None,
            })
            .collect();
        options.provider_id = Some(config.provider_id.clone()).filter(|id| !id.is_empty());
        options.external_cloud = process.cloud_provider == "external";
        options.node_ips = process.node_ip.split(',').filter_map(|ip| ip.trim().parse().ok()).collect();
        options.port = u16::try_from(config.port).unwrap_or(0);
        options.controller_attach_detach = config.enable_controller_attach_detach;
        options.max_pods = u32::try_from(config.max_pods).unwrap_or(0);
        options.pods_per_core = u32::try_from(config.pods_per_core).unwrap_or(0);
        options.reserved = reserved([&config.system_reserved, &config.kube_reserved]);
        options.evict_memory = config.eviction_hard.get("memory.available").and_then(|text| threshold(text));
        options.evict_nodefs = config.eviction_hard.get("nodefs.available").and_then(|text| threshold(text));
        options.local_storage = config.local_storage_capacity_isolation;
        options.update_frequency = config.node_status_update_frequency.as_std();
        options.report_frequency = config.node_status_report_frequency.as_std();
        options.lease_duration = Duration::from_secs(u64::try_from(config.node_lease_duration_seconds).unwrap_or(40));
        options.max_images = usize::try_from(config.node_status_max_images).ok();
        options.cgroup_v1 = !cgroup_v2;
        options.root_dir = self.root();
        options.declared_features = declared(&self.settings.gates);
        options
    }

    /// `--root-dir`.
    pub(super) fn root(&self) -> PathBuf {
        PathBuf::from(&self.settings.process.root_dir)
    }

    /// The client for everything that is not an event or a heartbeat.
    pub(super) fn client(&self) -> Option<kube::Client> {
        self.clients.as_ref().map(|clients| clients.main.clone())
    }

    /// A shared handle on the runtime.
    pub(super) fn runtime(&self) -> SharedRuntime {
        Arc::clone(&self.runtime)
    }
}

/// Sums what is kept from pods.
fn reserved(lists: [&std::collections::BTreeMap<String, String>; 2]) -> Reserved {
    let mut sum = Reserved::default();
    for (name, text) in lists.into_iter().flatten() {
        let Ok(amount) = text.parse::<Quantity>() else { continue };
        let whole = u64::try_from(amount.value()).unwrap_or(0);
        match name.as_str() {
            "cpu" => sum.cpu_milli += u64::try_from(amount.milli_value()).unwrap_or(0),
            "memory" => sum.memory += whole,
            "ephemeral-storage" => sum.ephemeral_storage += whole,
            _ => {}
        }
    }
    sum
}

fn threshold(text: &str) -> Option<Threshold> {
    match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().map(Threshold::Percent),
        None => {
            let amount = text.parse::<Quantity>().ok()?;
            u64::try_from(amount.value()).ok().map(Threshold::Quantity)
        }
    }
}

/// Features that others must know of before they ask for them; only what this agent really does.
const DECLARED: [&str; 3] = [
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// What the node declares, sorted.
fn declared(gates: &Gates) -> Vec<String> {
    let on = |name: &&str| gates.is_enabled("NodeDeclaredFeatures") && gates.is_enabled(name);
    DECLARED.into_iter().filter(on).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_declares_what_it_does_and_gates_allow() {
        let of = |set: &[(&'static str, bool)]| declared(&Gates::resolve(set.iter().copied()).unwrap());
        assert_eq!(of(&[]), DECLARED);
        assert_eq!(of(&[("InPlacePodLevelResourcesVerticalScaling", false)]), DECLARED[1..]);
    }
}
