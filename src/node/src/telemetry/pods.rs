//! Metrics of pods and containers, set by the pod workers.

use prometheus_client::encoding::{EncodeLabel as _, EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::fmt::Write as _;

use super::ResizeMetrics;

const START_BUCKETS: [f64; 24] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0,
];
const LAST_START_BUCKET: f64 = 3600.0;
const SYNC_BUCKETS: [f64; 11] = [0.010, 0.050, 0.100, 0.500, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
/// The buckets that upstream calls default.
pub(super) const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Value of the label `container_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContainerType {
    /// A container of `spec.containers`.
    Container,
    /// One of `spec.initContainers`.
    Init,
    /// One of `spec.ephemeralContainers`.
    Ephemeral,
    /// The pod's sandbox.
    Sandbox,
}

impl EncodeLabelValue for ContainerType {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(match self {
            Self::Container => "container",
            Self::Init => "init_container",
            Self::Ephemeral => "ephemeral_container",
            Self::Sandbox => "podsandbox",
        })
    }
}

/// Label `static`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StaticLabel(
    /// Whether the pods are static ones.
    pub bool,
);

impl EncodeLabelSet for StaticLabel {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        let value = if self.0 { "true" } else { "false" };
        ("static", value).encode(encoder.encode_label())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    container_state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabels {
    container_type: ContainerType,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StartErrorLabels {
    container_type: ContainerType,
    code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExitLabels {
    container_type: ContainerType,
    exit_code: i64,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SignalLabels {
    preemption_signal: String,
}

/// Families about pods. Clones share their values.
#[derive(Debug, Clone)]
pub struct PodMetrics {
    /// Pods with a running sandbox.
    pub running_pods: Gauge,
    running_containers: Family<StateLabels, Gauge>,
    /// Pods that sources want.
    pub desired_pods: Family<StaticLabel, Gauge>,
    /// Pods whose resources are not released yet.
    pub active_pods: Family<StaticLabel, Gauge>,
    /// Mirrors in the API.
    pub mirror_pods: Gauge,
    /// Pods started.
    pub started_pods: Counter,
    /// Pods whose sandbox could not be made.
    pub started_pods_errors: Counter,
    /// Pods that came back under the uid of an ended one.
    pub restarted_pods: Family<StaticLabel, Counter>,
    started_containers: Family<TypeLabels, Counter>,
    started_containers_errors: Family<StartErrorLabels, Counter>,
    terminated_containers: Family<ExitLabels, Counter>,
    admission_rejections: Family<ReasonLabels, Counter>,
    preemptions: Family<SignalLabels, Counter>,
    worker: Family<OperationLabels, Histogram>,
    /// Pod first seen to worker started, in seconds.
    pub worker_start: Histogram,
    /// Pod first seen to its containers started, in seconds.
    pub start: Histogram,
    /// Creation to all containers started, less pulls and init containers, in seconds.
    pub start_sli: Histogram,
    /// Creation to all containers started, in seconds.
    pub start_total: Histogram,
    /// Status change to its write, in seconds.
    pub status_sync: Histogram,
    /// Containers per pod.
    pub containers_per_pod: Histogram,
    /// Sandboxes of pods that nothing wants, found and ended.
    pub orphaned_runtime_pods: Counter,
    /// HTTPS hooks that were answered in plain HTTP, and that was taken.
    pub hook_http_fallbacks: Counter,
    /// Pauses before a stop that the end of the grace cut short.
    pub sleeps_cut_short: Counter,
    /// Resizes.
    pub resizes: ResizeMetrics,
}

impl PodMetrics {
    /// Makes them and puts them into the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.register_gauges(registry);
        metrics.register_counters(registry);
        metrics.register_times(registry);
        metrics.resizes.register(registry);
        metrics
    }

    /// Sets how many containers are in a state: `created`, `running`, `exited` or `unknown`.
    pub fn set_containers(&self, container_state: &'static str, count: i64) {
        self.running_containers.get_or_create(&StateLabels { container_state }).set(count);
    }

    /// Counts a container that was started.
    pub fn container_started(&self, container_type: ContainerType) {
        self.started_containers.get_or_create(&TypeLabels { container_type }).inc();
    }

    /// Counts a container that could not be started; `code` is the reason, e.g. `CreateContainerError`.
    pub fn container_start_failed(&self, container_type: ContainerType, code: &str) {
        let labels = StartErrorLabels { container_type, code: code.to_owned() };
        self.started_containers_errors.get_or_create(&labels).inc();
    }

    /// Counts a container that ended.
    pub fn container_ended(&self, container_type: ContainerType, exit_code: i32, reason: &str) {
        let labels = ExitLabels { container_type, exit_code: exit_code.into(), reason: reason.to_owned() };
        self.terminated_containers.get_or_create(&labels).inc();
    }

    /// Counts a pod that was not admitted.
    pub fn pod_refused(&self, reason: &str) {
        self.admission_rejections.get_or_create(&ReasonLabels { reason: reason.to_owned() }).inc();
    }

    /// Counts a pod that made room for a critical one; the signal is the resource that was short.
    pub fn pod_preempted(&self, resource: &str) {
        self.preemptions.get_or_create(&SignalLabels { preemption_signal: resource.to_owned() }).inc();
    }

    /// Notes how long one pass over a pod took; the operation is `create`, `update`, `sync` or `kill`.
    pub fn pass(&self, operation_type: &'static str, seconds: f64) {
        self.worker.get_or_create(&OperationLabels { operation_type }).observe(seconds);
    }

    fn register_gauges(&self, registry: &mut Registry) {
        registry.register(
            "kubelet_running_pods",
            "Number of pods that have a running pod sandbox",
            self.running_pods.clone(),
        );
        registry.register(
            "kubelet_running_containers",
            "Number of containers currently running",
            self.running_containers.clone(),
        );
        registry.register(
            "kubelet_desired_pods",
            "The number of pods the kubelet is being instructed to run",
            self.desired_pods.clone(),
        );
        registry.register(
            "kubelet_active_pods",
            "The number of pods the kubelet considers active and which are being considered when admitting new pods",
            self.active_pods.clone(),
        );
        registry.register(
            "kubelet_mirror_pods",
            "The number of mirror pods the kubelet will try to create",
            self.mirror_pods.clone(),
        );
    }

    fn register_counters(&self, registry: &mut Registry) {
        registry.register("kubelet_started_pods", "Cumulative number of pods started", self.started_pods.clone());
        registry.register(
            "kubelet_started_pods_errors",
            "Cumulative number of errors when starting pods",
            self.started_pods_errors.clone(),
        );
        registry.register(
            "kubelet_restarted_pods",
            "Number of pods that have been restarted because they were deleted and recreated with the same UID",
            self.restarted_pods.clone(),
        );
        registry.register(
            "kubelet_started_containers",
            "Cumulative number of containers started",
            self.started_containers.clone(),
        );
        registry.register(
            "kubelet_started_containers_errors",
            "Cumulative number of errors when starting containers",
            self.started_containers_errors.clone(),
        );
        registry.register(
            "kubelet_terminated_containers",
            "Cumulative number of containers terminated",
            self.terminated_containers.clone(),
        );
        registry.register(
            "kubelet_admission_rejections",
            "Cumulative number of pod admission rejections by the Kubelet",
            self.admission_rejections.clone(),
        );
        registry.register(
            "kubelet_preemptions",
            "Cumulative number of pod preemptions by preemption resource",
            self.preemptions.clone(),
        );
        registry.register(
            "kubelet_orphaned_runtime_pods",
            "Number of pods that have been detected in the container runtime without being already known to the pod worker",
            self.orphaned_runtime_pods.clone(),
        );
        registry.register(
            "kubelet_lifecycle_handler_http_fallbacks",
            "Number of HTTPS lifecycle hooks that were run again over HTTP",
            self.hook_http_fallbacks.clone(),
        );
        registry.register(
            "kubelet_sleep_action_terminated_early",
            "Number of sleep hooks that ended before their time because the grace period was over",
            self.sleeps_cut_short.clone(),
        );
    }

    fn register_times(&self, registry: &mut Registry) {
        registry.register(
            "kubelet_pod_worker_duration_seconds",
            "Duration in seconds to sync a single pod",
            self.worker.clone(),
        );
        registry.register(
            "kubelet_pod_worker_start_duration_seconds",
            "Duration in seconds from kubelet seeing a pod to starting a worker",
            self.worker_start.clone(),
        );
        registry.register(
            "kubelet_pod_start_duration_seconds",
            "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
            self.start.clone(),
        );
        registry.register(
            "kubelet_pod_start_sli_duration_seconds",
            "Duration in seconds to start a pod, excluding time to pull images and run init containers",
            self.start_sli.clone(),
        );
        registry.register(
            "kubelet_pod_start_total_duration_seconds",
            "Duration in seconds to start a pod since creation, including time to pull images and run init containers",
            self.start_total.clone(),
        );
        registry.register(
            "kubelet_pod_status_sync_duration_seconds",
            "Duration in seconds to sync a pod status update",
            self.status_sync.clone(),
        );
        registry.register(
            "kubelet_containers_per_pod_count",
            "The number of containers per pod",
            self.containers_per_pod.clone(),
        );
    }
}

impl Default for PodMetrics {
    fn default() -> Self {
        let start = || Histogram::new(START_BUCKETS.into_iter().chain([LAST_START_BUCKET]));
        Self {
            running_pods: Gauge::default(),
            running_containers: Family::default(),
            desired_pods: Family::default(),
            active_pods: Family::default(),
            mirror_pods: Gauge::default(),
            started_pods: Counter::default(),
            started_pods_errors: Counter::default(),
            restarted_pods: Family::default(),
            started_containers: Family::default(),
            started_containers_errors: Family::default(),
            terminated_containers: Family::default(),
            admission_rejections: Family::default(),
            preemptions: Family::default(),
            worker: Family::new_with_constructor(|| Histogram::new(DEFAULT_BUCKETS)),
            worker_start: Histogram::new(DEFAULT_BUCKETS),
            start: start(),
            start_sli: start(),
            start_total: start(),
            status_sync: Histogram::new(SYNC_BUCKETS),
            containers_per_pod: Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0]),
            orphaned_runtime_pods: Counter::default(),
            hook_http_fallbacks: Counter::default(),
            sleeps_cut_short: Counter::default(),
            resizes: ResizeMetrics::default(),
        }
    }
}
