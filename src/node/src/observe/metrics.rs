//! What observing costs and finds, under upstream's names (where the relist is called PLEG).

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Prometheus' default buckets.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Figures of the observer. Clones share their values.
#[derive(Debug, Clone)]
pub struct ObserverMetrics {
    pub(super) relist_duration: Histogram,
    pub(super) relist_interval: Histogram,
    pub(super) last_seen: Gauge<f64, AtomicU64>,
    pub(super) stream_errors: Counter,
    pub(super) streams: Counter,
    pub(super) stream_latency: Histogram,
    pub(super) events: Counter,
    pub(super) lost_events: Counter,
}

impl Default for ObserverMetrics {
    fn default() -> Self {
        Self {
            relist_duration: Histogram::new(BUCKETS),
            relist_interval: Histogram::new(BUCKETS),
            last_seen: Gauge::default(),
            stream_errors: Counter::default(),
            streams: Counter::default(),
            stream_latency: Histogram::new(BUCKETS),
            events: Counter::default(),
            lost_events: Counter::default(),
        }
    }
}

impl ObserverMetrics {
    /// Makes them and puts them into the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "kubelet_pleg_relist_duration_seconds",
            "Duration in seconds for relisting pods in PLEG",
            metrics.relist_duration.clone(),
        );
        registry.register(
            "kubelet_pleg_relist_interval_seconds",
            "Interval in seconds between relisting in PLEG",
            metrics.relist_interval.clone(),
        );
        registry.register(
            "kubelet_pleg_last_seen_seconds",
            "Timestamp in seconds when PLEG was last seen active",
            metrics.last_seen.clone(),
        );
        registry.register(
            "kubelet_evented_pleg_connection_error_count",
            "The number of errors encountered during the establishment of streaming connection with the CRI runtime",
            metrics.stream_errors.clone(),
        );
        registry.register(
            "kubelet_evented_pleg_connection_success_count",
            "The number of times a streaming client was obtained to receive CRI Events",
            metrics.streams.clone(),
        );
        registry.register(
            "kubelet_evented_pleg_connection_latency_seconds",
            "The latency of streaming connection with the CRI runtime, measured in seconds",
            metrics.stream_latency.clone(),
        );
        registry.register(
            "longshore_runtime_events",
            "Events received from the container runtime",
            metrics.events.clone(),
        );
        registry.register(
            "longshore_runtime_events_lost",
            "Changes found by a relist that the runtime's event stream did not tell",
            metrics.lost_events.clone(),
        );
        metrics
    }
}
