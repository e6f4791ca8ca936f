//! What calls cost, under the names that upstream uses.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation_type: &'static str,
}

/// Calls, their durations and their failures, per operation. Clones share the figures.
#[derive(Debug, Clone)]
pub struct RuntimeMetrics {
    operations: Family<Operation, Counter>,
    durations: Family<Operation, Histogram, fn() -> Histogram>,
    errors: Family<Operation, Counter>,
}

impl Default for RuntimeMetrics {
    fn default() -> Self {
        Self {
            operations: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.005, 2.5, 14))),
            errors: Family::default(),
        }
    }
}

impl RuntimeMetrics {
    /// Adds the families to a registry; the encoder appends `_total` to counters.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "kubelet_runtime_operations",
            "Cumulative number of runtime operations by operation type",
            self.operations.clone(),
        );
        registry.register(
            "kubelet_runtime_operations_duration_seconds",
            "Duration in seconds of runtime operations, by operation type",
            self.durations.clone(),
        );
        registry.register(
            "kubelet_runtime_operations_errors",
            "Cumulative number of runtime operation errors by operation type",
            self.errors.clone(),
        );
    }

    pub(super) fn begin(&self, operation_type: &'static str) {
        self.operations.get_or_create(&Operation { operation_type }).inc();
    }

    pub(super) fn end(&self, operation_type: &'static str, elapsed: Duration, failed: bool) {
        self.durations.get_or_create(&Operation { operation_type }).observe(elapsed.as_secs_f64());
        if failed {
            self.errors.get_or_create(&Operation { operation_type }).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_buckets_are_upstreams() {
        let metrics = RuntimeMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        metrics.begin("create_container");
        metrics.end("create_container", Duration::from_millis(6), true);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "kubelet_runtime_operations_total{operation_type=\"create_container\"} 1",
            "kubelet_runtime_operations_errors_total{operation_type=\"create_container\"} 1",
            "kubelet_runtime_operations_duration_seconds_bucket{le=\"0.005\",operation_type=\"create_container\"} 0",
            "kubelet_runtime_operations_duration_seconds_bucket{le=\"0.0125\",operation_type=\"create_container\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
