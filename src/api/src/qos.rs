//! The quality-of-service class of a pod: decides its cgroup's place, its OOM score and its rank in an eviction.

use std::fmt;

use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceRequirements};

use crate::resources::{self, Amounts};

/// The three classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Qos {
    /// Requests equal limits for cpu and memory of every container.
    Guaranteed,
    /// Something is asked for, but not all of it is bounded.
    Burstable,
    /// Nothing is asked for.
    BestEffort,
}

impl Qos {
    /// The class as `status.qosClass` shows it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Guaranteed, Self::Burstable, Self::BestEffort].into_iter().find(|class| class.as_str() == text)
    }
}

impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the class that the API has set, else computes it: a class once given stays.
pub fn of(pod: &Pod) -> Qos {
    let given = pod.status.as_ref().and_then(|status| status.qos_class.as_deref()).and_then(Qos::parse);
    given.unwrap_or_else(|| pod.spec.as_ref().map_or(Qos::BestEffort, compute))
}

/// Computes the class from cpu and memory; the pod's own resources count instead of the containers' where set.
pub fn compute(spec: &PodSpec) -> Qos {
    if let Some(own) = spec.resources.as_ref().filter(|own| own.requests.is_some() || own.limits.is_some()) {
        return class([own].into_iter());
    }
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    class(containers.map(|container| container.resources.as_ref().unwrap_or(&EMPTY)))
}

static EMPTY: ResourceRequirements = ResourceRequirements { claims: None, limits: None, requests: None };

fn class<'a>(all: impl Iterator<Item = &'a ResourceRequirements>) -> Qos {
    let (mut requests, mut limits, mut guaranteed) = (Amounts::new(), Amounts::new(), true);
    for one in all {
        let request = positive(&resources::amounts(one.requests.as_ref()));
        let limit = positive(&resources::amounts(one.limits.as_ref()));
        guaranteed &= limit.len() == 2;
        resources::add(&mut requests, &request);
        resources::add(&mut limits, &limit);
    }
    if requests.is_empty() && limits.is_empty() {
        Qos::BestEffort
    } else if guaranteed && requests == limits {
        Qos::Guaranteed
    } else {
        Qos::Burstable
    }
}

fn positive(amounts: &Amounts) -> Amounts {
    amounts
        .iter()
        .filter(|(name, amount)| {
            matches!(name.as_str(), resources::CPU | resources::MEMORY) && !amount.is_zero() && !amount.is_negative()
        })
        .map(|(name, amount)| (name.clone(), *amount))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn class_of(containers: Value) -> Qos {
        compute(&serde_json::from_value(json!({"containers": containers})).unwrap())
    }

    #[test]
    fn class_table() {
        let bound = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}});
        let part = json!({"limits": {"memory": "50Mi"}, "requests": {"cpu": "100m"}});
        let one = |resources: &Value| json!({"name": "c", "resources": resources});
        for (containers, want) in [
            (json!([one(&json!({}))]), Qos::BestEffort),
            (json!([one(&bound)]), Qos::Guaranteed),
            (json!([one(&bound), one(&bound)]), Qos::Guaranteed),
            (json!([one(&bound), one(&json!({}))]), Qos::Burstable),
            (json!([one(&part)]), Qos::Burstable),
            (json!([one(&json!({"requests": {"cpu": "0"}}))]), Qos::BestEffort),
            (json!([one(&json!({"limits": {"nvidia.com/gpu": "1"}}))]), Qos::BestEffort),
        ] {
            assert_eq!(class_of(containers.clone()), want, "{containers}");
        }
    }

    #[test]
    fn init_containers_count() {
        let spec: PodSpec = serde_json::from_value(json!({
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1m"}}}],
            "containers": [{"name": "c"}]}))
        .unwrap();
        assert_eq!(compute(&spec), Qos::Burstable);
    }

    #[test]
    fn pod_level_resources_decide_alone() {
        let spec: PodSpec = serde_json::from_value(json!({
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
            "containers": [{"name": "c"}]}))
        .unwrap();
        assert_eq!(compute(&spec), Qos::Guaranteed);
    }

    #[test]
    fn a_class_once_given_stays() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {},
            "spec": {"containers": [{"name": "c"}]}, "status": {"qosClass": "Burstable"}}))
        .unwrap();
        assert_eq!(of(&pod), Qos::Burstable);
    }
}
