//! Metrics of the HTTP server.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::pods::DEFAULT_BUCKETS;

/// Labels of one kind of request; all values come from short fixed lists.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    /// The method, or `other`.
    pub method: &'static str,
    /// The first segment of the path if it is one of ours, or `other`.
    pub path: &'static str,
    /// `readwrite` or `readonly`.
    pub server_type: &'static str,
    /// `true` for exec, attach and debug.
    pub long_running: &'static str,
}

/// Families about requests. Clones share their values.
#[derive(Debug, Clone)]
pub struct ServerMetrics {
    /// Requests seen.
    pub requests: Family<RequestLabels, Counter>,
    /// How long they took, in seconds.
    pub durations: Family<RequestLabels, Histogram>,
    /// Requests being answered.
    pub inflight: Family<RequestLabels, Gauge>,
}

impl ServerMetrics {
    /// Makes them and puts them into the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "kubelet_http_requests",
            "Number of the http requests received since the server started",
            metrics.requests.clone(),
        );
        registry.register(
            "kubelet_http_requests_duration_seconds",
            "Duration in seconds to serve http requests",
            metrics.durations.clone(),
        );
        registry.register(
            "kubelet_http_inflight_requests",
            "Number of the inflight http requests",
            metrics.inflight.clone(),
        );
        metrics
    }
}

impl Default for ServerMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DEFAULT_BUCKETS)),
            inflight: Family::default(),
        }
    }
}
