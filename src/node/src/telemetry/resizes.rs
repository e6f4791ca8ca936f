//! Metrics of pods that get another size while they run.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use longshore_api::resize::Sizes;
use longshore_api::resources::{self, Amounts, CPU, MEMORY};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

const MILLISECONDS: [f64; 14] = [
    10.0, 50.0, 100.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 30_000.0, 60_000.0, 120_000.0, 300_000.0,
    600_000.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    resource: &'static str,
    requirement: &'static str,
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SuccessLabels {
    success: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DetailLabels {
    reason_detail: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TriggerLabels {
    retry_trigger: &'static str,
}

/// Families about resizes. Clones share their values.
#[derive(Debug, Clone)]
pub struct ResizeMetrics {
    requested: Family<RequestLabels, Counter>,
    duration: Family<SuccessLabels, Histogram>,
    pending: Family<ReasonLabels, Gauge>,
    infeasible: Family<DetailLabels, Counter>,
    in_progress: Gauge,
    accepted_late: Family<TriggerLabels, Counter>,
}

impl ResizeMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "kubelet_container_requested_resizes",
            "Number of requested container resizes, counted at the container level",
            self.requested.clone(),
        );
        registry.register(
            "kubelet_pod_resize_duration_milliseconds",
            "Duration in milliseconds from a granted size to the size in force",
            self.duration.clone(),
        );
        registry.register(
            "kubelet_pod_pending_resizes",
            "Number of pods that wait for another size, by reason",
            self.pending.clone(),
        );
        registry.register(
            "kubelet_pod_infeasible_resizes",
            "Number of resizes that cannot be, by what stands against them",
            self.infeasible.clone(),
        );
        registry.register(
            "kubelet_pod_in_progress_resizes",
            "Number of pods whose new size is being put into force",
            self.in_progress.clone(),
        );
        registry.register(
            "kubelet_pod_deferred_accepted_resizes",
            "Number of resizes that were granted after they had waited, by what made them be looked at again",
            self.accepted_late.clone(),
        );
    }

    /// Counts what a newer spec asks for.
    pub fn requested(&self, before: &Pod, after: &Pod) {
        let (before, after) = (Sizes::of_pod(before), Sizes::of_pod(after));
        for (name, new) in &after.containers {
            let old = before.container(name).cloned().unwrap_or_default();
            let sides = [
                ("requests", resources::amounts(old.requests.as_ref()), resources::amounts(new.requests.as_ref())),
                ("limits", resources::amounts(old.limits.as_ref()), resources::amounts(new.limits.as_ref())),
            ];
            for (requirement, old, new) in sides {
                for resource in [CPU, MEMORY] {
                    if let Some(operation) = operation(&old, &new, resource) {
                        self.requested.get_or_create(&RequestLabels { resource, requirement, operation }).inc();
                    }
                }
            }
        }
    }

    /// Counts a size that cannot be; the detail is upstream's word for why.
    pub fn infeasible(&self, reason_detail: &'static str) {
        self.infeasible.get_or_create(&DetailLabels { reason_detail }).inc();
    }

    /// Counts a size that was granted after it had waited.
    pub fn accepted_late(&self, retry_trigger: &'static str) {
        self.accepted_late.get_or_create(&TriggerLabels { retry_trigger }).inc();
    }

    /// Sets how many pods wait, for room or in vain.
    pub fn set_pending(&self, deferred: i64, infeasible: i64) {
        self.pending.get_or_create(&ReasonLabels { reason: "deferred" }).set(deferred);
        self.pending.get_or_create(&ReasonLabels { reason: "infeasible" }).set(infeasible);
    }

    /// A pod's resize is under way, or is not any more.
    pub fn set_in_progress(&self, more: bool) {
        if more {
            self.in_progress.inc();
        } else {
            self.in_progress.dec();
        }
    }

    /// Notes how long a resize took to its end, or to the first thing in its way.
    pub fn lasted(&self, success: bool, time: SignedDuration) {
        let labels = SuccessLabels { success: if success { "true" } else { "false" } };
        self.duration.get_or_create(&labels).observe(time.as_secs_f64() * 1000.0);
    }
}

fn operation(old: &Amounts, new: &Amounts, resource: &str) -> Option<&'static str> {
    match (old.get(resource), new.get(resource)) {
        (None, Some(_)) => Some("add"),
        (Some(_), None) => Some("remove"),
        (Some(old), Some(new)) if new > old => Some("increase"),
        (Some(old), Some(new)) if new < old => Some("decrease"),
        (_, _) => None,
    }
}

impl Default for ResizeMetrics {
    fn default() -> Self {
        Self {
            requested: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(MILLISECONDS)),
            pending: Family::default(),
            infeasible: Family::default(),
            in_progress: Gauge::default(),
            accepted_late: Family::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_asked_for_is_counted_by_resource_and_direction() {
        let pod = |resources: Value| -> Pod {
            serde_json::from_value(
                json!({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": resources}]}}),
            )
            .unwrap()
        };
        let metrics = ResizeMetrics::default();
        metrics.requested(
            &pod(json!({"requests": {"cpu": "1", "memory": "1Gi"}})),
            &pod(json!({"requests": {"cpu": "2", "memory": "0.5Gi"}, "limits": {"cpu": "2"}})),
        );
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "{resource=\"cpu\",requirement=\"requests\",operation=\"increase\"} 1",
            "{resource=\"memory\",requirement=\"requests\",operation=\"decrease\"} 1",
            "{resource=\"cpu\",requirement=\"limits\",operation=\"add\"} 1",
        ] {
            assert!(text.contains(&format!("kubelet_container_requested_resizes_total{line}")), "{text}");
        }
    }
}
