//! The registry and its text form.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;

use super::process::ProcessCollector;
use super::{EventMetrics, NodeMetrics, PodMetrics, ProbeMetrics, ServerMetrics};

/// Upstream counters whose names lack the suffix that the encoder puts behind every counter.
const COUNTERS_WITHOUT_TOTAL: &[&str] = &[
    "kubelet_evictions",
    "kubelet_preemptions",
    "kubelet_pleg_discard_events",
    "kubelet_evented_pleg_connection_error_count",
    "kubelet_evented_pleg_connection_success_count",
    "kubelet_server_expiration_renew_errors",
    "kubelet_certificate_manager_client_expiration_renew_errors",
];

/// Shared by everything that counts.
pub type SharedTelemetry = Arc<Telemetry>;

/// All metrics of the agent.
#[derive(Debug)]
pub struct Telemetry {
    registry: Mutex<Registry>,
    /// The event recorder's.
    pub events: EventMetrics,
    /// The pod workers'.
    pub pods: PodMetrics,
    /// The node's own.
    pub node: NodeMetrics,
    /// The probes', which are not part of `/metrics`.
    pub probes: ProbeMetrics,
    /// The server's.
    pub server: ServerMetrics,
}

impl Telemetry {
    /// Makes the registry with the agent's own families in it.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let events = EventMetrics::register(&mut registry);
        let pods = PodMetrics::register(&mut registry);
        let node = NodeMetrics::register(&mut registry);
        let server = ServerMetrics::register(&mut registry);
        registry.register_collector(Box::new(ProcessCollector));
        Self { registry: Mutex::new(registry), events, pods, node, probes: ProbeMetrics::new(), server }
    }

    /// Lets another subsystem put its families in.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.lock())
    }

    /// The text that `/metrics` answers (Prometheus text format 0.0.4).
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::with_capacity(16 * 1024);
        prometheus_text::encode(&mut text, &self.registry.lock())?;
        for name in COUNTERS_WITHOUT_TOTAL {
            if text.contains(name) {
                text = text.replace(&format!("{name}_total"), name);
            }
        }
        Ok(text)
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::new()
    }
}
