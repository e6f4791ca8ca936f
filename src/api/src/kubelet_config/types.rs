//! The typed form of the configuration, for the rooms that act on it. Built only by [`super::finish`], which has applied the
//! defaults of the table, so no field needs a default of its own here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::nested::{
    Authentication, Authorization, CrashLoopBackOff, Logging, MemoryReservation, MemorySwap, SecretHeaders,
    ShutdownTier, Taint, Tracing, UserNamespaces,
};
use crate::duration::GoDuration;

/// The effective configuration: every field has its value, defaults applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KubeletConfiguration {
    /// Run the 10250 server (and read-only server if port set).
    #[serde(default)]
    pub enable_server: bool,
    /// File or directory of static pod manifests; empty disables.
    #[serde(default)]
    pub static_pod_path: String,
    /// Root of per-pod container log directories.
    #[serde(default)]
    pub pod_logs_dir: String,
    /// Pod resync interval (jitter 0.5); also liveness check input.
    #[serde(default)]
    pub sync_frequency: GoDuration,
    /// Full re-list period of staticPodPath.
    #[serde(default)]
    pub file_check_frequency: GoDuration,
    /// Poll period of staticPodURL.
    #[serde(default)]
    pub http_check_frequency: GoDuration,
    /// HTTP source of static pods; empty disables.
    #[serde(default, rename = "staticPodURL")]
    pub static_pod_url: String,
    /// Extra headers for staticPodURL requests.
    #[serde(default, rename = "staticPodURLHeader")]
    pub static_pod_url_header: SecretHeaders,
    /// Listen address of 10250 and read-only server.
    #[serde(default)]
    pub address: String,
    /// Main HTTPS server port.
    #[serde(default)]
    pub port: i32,
    /// Plain HTTP, no auth, limited endpoints.
    #[serde(default)]
    pub read_only_port: i32,
    /// Serving certificate PEM (with intermediates).
    #[serde(default)]
    pub tls_cert_file: String,
    /// Key for tlsCertFile.
    #[serde(default)]
    pub tls_private_key_file: String,
    /// TLS<=1.2 cipher list; insecure names allowed with warning.
    #[serde(default)]
    pub tls_cipher_suites: Vec<String>,
    /// Key exchange groups allowed.
    #[serde(default)]
    pub tls_curve_preferences: Vec<i32>,
    /// Minimum TLS version.
    #[serde(default)]
    pub tls_min_version: String,
    /// Client certificate rotation by CSR.
    #[serde(default)]
    pub rotate_certificates: bool,
    /// Request serving certificate by CSR instead of self-signing.
    #[serde(default, rename = "serverTLSBootstrap")]
    pub server_tls_bootstrap: bool,
    /// Who callers of 10250 are.
    #[serde(default)]
    pub authentication: Authentication,
    /// What callers of 10250 may do.
    #[serde(default)]
    pub authorization: Authorization,
    /// Token bucket rate for image pulls.
    #[serde(default, rename = "registryPullQPS")]
    pub registry_pull_qps: i32,
    /// Bucket size for image pulls.
    #[serde(default)]
    pub registry_burst: i32,
    /// When present images need re-checked credentials.
    #[serde(default)]
    pub image_pull_credentials_verification_policy: String,
    /// Images exempt from credential re-check.
    #[serde(default)]
    pub preloaded_images_verification_allowlist: Vec<String>,
    /// Event creation rate.
    #[serde(default, rename = "eventRecordQPS")]
    pub event_record_qps: i32,
    /// Event burst.
    #[serde(default)]
    pub event_burst: i32,
    /// Exec, attach, logs, run, portForward, runningpods, pprof, configz ... on 10250.
    #[serde(default)]
    pub enable_debugging_handlers: bool,
    /// Block profiling for pprof.
    #[serde(default)]
    pub enable_contention_profiling: bool,
    /// Plain HTTP healthz port.
    #[serde(default)]
    pub healthz_port: i32,
    /// Healthz listen address.
    #[serde(default)]
    pub healthz_bind_address: String,
    /// Own oom_score_adj.
    #[serde(default)]
    pub oom_score_adj: i32,
    /// DNS suffix for pod search paths and FQDN.
    #[serde(default)]
    pub cluster_domain: String,
    /// Nameservers for ClusterFirst pods.
    #[serde(default, rename = "clusterDNS")]
    pub cluster_dns: Vec<String>,
    /// Legacy stream idle timeout.
    #[serde(default)]
    pub streaming_connection_idle_timeout: GoDuration,
    /// Node status computation period; CRI/API heartbeat timeout input.
    #[serde(default)]
    pub node_status_update_frequency: GoDuration,
    /// Forced node status write period if unchanged.
    #[serde(default)]
    pub node_status_report_frequency: GoDuration,
    /// Lease duration; renewed every quarter.
    #[serde(default)]
    pub node_lease_duration_seconds: i32,
    /// Unused image younger than this is kept.
    #[serde(default, rename = "imageMinimumGCAge")]
    pub image_minimum_gc_age: GoDuration,
    /// Unused image older than this is removed regardless of disk.
    #[serde(default, rename = "imageMaximumGCAge")]
    pub image_maximum_gc_age: GoDuration,
    /// Disk usage starting image GC; 100 disables.
    #[serde(default, rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: i32,
    /// Disk usage target of image GC.
    #[serde(default, rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: i32,
    /// Per-pod volume usage calculation period.
    #[serde(default)]
    pub volume_stats_agg_period: GoDuration,
    /// Cgroup to move the agent into.
    #[serde(default)]
    pub kubelet_cgroups: String,
    /// Cgroup for non-kernel processes not yet in a container.
    #[serde(default)]
    pub system_cgroups: String,
    /// Parent of kubepods cgroup.
    #[serde(default)]
    pub cgroup_root: String,
    /// Create QoS and pod cgroups.
    #[serde(default, rename = "cgroupsPerQOS")]
    pub cgroups_per_qos: bool,
    /// Cgroup naming driver.
    #[serde(default)]
    pub cgroup_driver: String,
    /// CPU manager policy.
    #[serde(default)]
    pub cpu_manager_policy: String,
    /// CPU policy options.
    #[serde(default)]
    pub cpu_manager_policy_options: BTreeMap<String, String>,
    /// Period of cpuset re-application.
    #[serde(default)]
    pub cpu_manager_reconcile_period: GoDuration,
    /// False: memory.oom.group=1 kills whole container.
    #[serde(rename = "singleProcessOOMKill", skip_serializing_if = "Option::is_none")]
    pub single_process_oom_kill: Option<bool>,
    /// Memory manager policy.
    #[serde(default)]
    pub memory_manager_policy: String,
    /// NUMA alignment policy.
    #[serde(default)]
    pub topology_manager_policy: String,
    /// Alignment unit.
    #[serde(default)]
    pub topology_manager_scope: String,
    /// Topology options.
    #[serde(default)]
    pub topology_manager_policy_options: BTreeMap<String, String>,
    /// Share of memory requests withheld from lower QoS.
    #[serde(default)]
    pub qos_reserved: BTreeMap<String, String>,
    /// CRI call timeout (not for pull, logs, exec, attach).
    #[serde(default)]
    pub runtime_request_timeout: GoDuration,
    /// Validated only; no action with CRI runtimes.
    #[serde(default)]
    pub hairpin_mode: String,
    /// Pod count capacity.
    #[serde(default)]
    pub max_pods: i32,
    /// Pod CIDR in standalone mode only; sent through CRI UpdateRuntimeConfig.
    #[serde(default, rename = "podCIDR")]
    pub pod_cidr: String,
    /// Pids limit per pod cgroup.
    #[serde(default)]
    pub pod_pids_limit: i64,
    /// Base resolver file for pods.
    #[serde(default)]
    pub resolv_conf: String,
    /// Retired.
    #[serde(default)]
    pub run_once: bool,
    /// Enforce CPU limits with CFS quota.
    #[serde(default, rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: bool,
    /// CFS period.
    #[serde(default, rename = "cpuCFSQuotaPeriod")]
    pub cpu_cfs_quota_period: GoDuration,
    /// Images listed in node status.
    #[serde(default)]
    pub node_status_max_images: i32,
    /// Own RLIMIT_NOFILE.
    #[serde(default)]
    pub max_open_files: i64,
    /// API client body type.
    #[serde(default)]
    pub content_type: String,
    /// API client rate.
    #[serde(default, rename = "kubeAPIQPS")]
    pub kube_api_qps: i32,
    /// API client burst.
    #[serde(default, rename = "kubeAPIBurst")]
    pub kube_api_burst: i32,
    /// One pull at a time.
    #[serde(default)]
    pub serialize_image_pulls: bool,
    /// Parallel pull cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel_image_pulls: Option<i32>,
    /// Hard eviction thresholds.
    #[serde(default)]
    pub eviction_hard: BTreeMap<String, String>,
    /// Soft eviction thresholds.
    #[serde(default)]
    pub eviction_soft: BTreeMap<String, String>,
    /// How long soft threshold must hold.
    #[serde(default)]
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    /// Minimum time a pressure condition stays.
    #[serde(default)]
    pub eviction_pressure_transition_period: GoDuration,
    /// Cap on pod grace for soft eviction.
    #[serde(default)]
    pub eviction_max_pod_grace_period: i32,
    /// Extra amount to free past threshold.
    #[serde(default)]
    pub eviction_minimum_reclaim: BTreeMap<String, String>,
    /// Fill unset evictionHard keys with defaults.
    #[serde(default)]
    pub merge_default_eviction_settings: bool,
    /// Pod cap per core.
    #[serde(default)]
    pub pods_per_core: i32,
    /// Volume attach done by controller; sets node annotation.
    #[serde(default)]
    pub enable_controller_attach_detach: bool,
    /// Error instead of writing kernel tunables.
    #[serde(default)]
    pub protect_kernel_defaults: bool,
    /// Create KUBE-IPTABLES-HINT and firewall chains.
    #[serde(default, rename = "makeIPTablesUtilChains")]
    pub make_iptables_util_chains: bool,
    /// Retired.
    #[serde(default)]
    pub iptables_masquerade_bit: i32,
    /// Retired.
    #[serde(default)]
    pub iptables_drop_bit: i32,
    /// Gate overrides.
    #[serde(default)]
    pub feature_gates: BTreeMap<String, bool>,
    /// Refuse to start when swap is on.
    #[serde(default)]
    pub fail_swap_on: bool,
    /// Swap of containers.
    #[serde(default)]
    pub memory_swap: MemorySwap,
    /// Rotate container log beyond this size.
    #[serde(default)]
    pub container_log_max_size: String,
    /// Log files kept per container.
    #[serde(default)]
    pub container_log_max_files: i32,
    /// Parallel rotation workers.
    #[serde(default)]
    pub container_log_max_workers: i32,
    /// Rotation check period.
    #[serde(default)]
    pub container_log_monitor_interval: GoDuration,
    /// How configmaps/secrets are fetched.
    #[serde(default)]
    pub config_map_and_secret_change_detection_strategy: String,
    /// Reserved for OS daemons.
    #[serde(default)]
    pub system_reserved: BTreeMap<String, String>,
    /// Reserved for node agents.
    #[serde(default)]
    pub kube_reserved: BTreeMap<String, String>,
    /// CPU ids reserved; overrides cpu of kube/systemReserved.
    #[serde(default, rename = "reservedSystemCPUs")]
    pub reserved_system_cpus: String,
    /// Re-enable hidden metrics.
    #[serde(default)]
    pub show_hidden_metrics_for_version: String,
    /// Cgroup of OS daemons.
    #[serde(default)]
    pub system_reserved_cgroup: String,
    /// Cgroup of node agents.
    #[serde(default)]
    pub kube_reserved_cgroup: String,
    /// Levels enforced by cgroup limits.
    #[serde(default)]
    pub enforce_node_allocatable: Vec<String>,
    /// Unsafe sysctls pods may set.
    #[serde(default)]
    pub allowed_unsafe_sysctls: Vec<String>,
    /// FlexVolume plugin dir.
    #[serde(default)]
    pub volume_plugin_dir: String,
    /// Node spec.providerID at registration.
    #[serde(default, rename = "providerID")]
    pub provider_id: String,
    /// Kernel memory threshold events trigger eviction loop.
    #[serde(default)]
    pub kernel_memcg_notification: bool,
    /// How the agent logs.
    #[serde(default)]
    pub logging: Logging,
    /// /logs/ endpoint serving /var/log.
    #[serde(default)]
    pub enable_system_log_handler: bool,
    /// Query parameters on /logs/.
    #[serde(default)]
    pub enable_system_log_query: bool,
    /// Total shutdown delay.
    #[serde(default)]
    pub shutdown_grace_period: GoDuration,
    /// Tail part kept for critical pods.
    #[serde(default)]
    pub shutdown_grace_period_critical_pods: GoDuration,
    /// Shutdown tiers by priority.
    #[serde(default)]
    pub shutdown_grace_period_by_pod_priority: Vec<ShutdownTier>,
    /// Restart back-off of containers.
    #[serde(default)]
    pub crash_loop_back_off: CrashLoopBackOff,
    /// Memory reserved per NUMA node.
    #[serde(default)]
    pub reserved_memory: Vec<MemoryReservation>,
    /// /debug/pprof.
    #[serde(default)]
    pub enable_profiling_handler: bool,
    /// /debug/flags/v.
    #[serde(default)]
    pub enable_debug_flags_handler: bool,
    /// RuntimeDefault for pods without seccomp profile.
    #[serde(default)]
    pub seccomp_default: bool,
    /// Memory.high factor (gate MemoryQoS).
    #[serde(default)]
    pub memory_throttling_factor: f64,
    /// Memory.min/memory.low use.
    #[serde(default)]
    pub memory_reservation_policy: String,
    /// Taints on node creation.
    #[serde(default)]
    pub register_with_taints: Vec<Taint>,
    /// Create own Node object.
    #[serde(default)]
    pub register_node: bool,
    /// Spans sent to a collector.
    #[serde(default)]
    pub tracing: Tracing,
    /// Ephemeral-storage accounting and eviction.
    #[serde(default)]
    pub local_storage_capacity_isolation: bool,
    /// CRI socket.
    #[serde(default)]
    pub container_runtime_endpoint: String,
    /// CRI image socket.
    #[serde(default)]
    pub image_service_endpoint: String,
    /// Refuse to start on cgroup v1.
    #[serde(default)]
    pub fail_cgroup_v1: bool,
    /// Ids of user namespaces.
    #[serde(default)]
    pub user_namespaces: UserNamespaces,
}
