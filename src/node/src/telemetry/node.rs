//! The node's own metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

/// Label of `kubelet_node_name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    node: String,
}

/// Gauges about the node. Clones share their values.
#[derive(Debug, Clone, Default)]
pub struct NodeMetrics {
    name: Family<NodeLabels, Gauge>,
    /// 1 or 2.
    pub cgroup_version: Gauge,
    /// From process start to the moment when the Node was known to be registered.
    pub registration: Gauge<f64, AtomicU64>,
    /// From process start to the first Ready written.
    pub startup: Gauge<f64, AtomicU64>,
}

impl NodeMetrics {
    /// Makes them and puts them into the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("kubelet_node_name", "The node's name. The count is always 1", metrics.name.clone());
        registry.register("kubelet_cgroup_version", "cgroup version on the hosts", metrics.cgroup_version.clone());
        registry.register(
            "kubelet_node_startup_registration_duration_seconds",
            "Duration in seconds of node registration during startup",
            metrics.registration.clone(),
        );
        registry.register(
            "kubelet_node_startup_duration_seconds",
            "Duration in seconds of node startup in total",
            metrics.startup.clone(),
        );
        metrics
    }

    /// Sets the label that says which node this is.
    pub fn set_name(&self, node: &str) {
        self.name.get_or_create(&NodeLabels { node: node.to_owned() }).set(1);
    }
}
