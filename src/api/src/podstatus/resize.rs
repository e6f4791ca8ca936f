//! What a status says of another size that a pod is asked to have.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodCondition, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Raw;

use super::Input;
use crate::qos::Qos;
use crate::resources::{self, CPU, CpuPolicy, MEMORY, Side};

/// What becomes of another size that is asked for. The pod of the input has the sizes that it was granted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resize {
    /// It is not granted.
    pub pending: Option<ResizePending>,
    /// It is granted and being put into effect.
    pub progress: Option<ResizeProgress>,
    /// The spec with the sizes that are still in force while another one is put into effect.
    pub in_force: Option<PodSpec>,
    /// Nobody has decided yet over the newest spec: this generation is the last one that was looked at.
    pub undecided_since: Option<i64>,
}

/// A size that is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResizePending {
    /// `Deferred` or `Infeasible`.
    pub reason: String,
    /// Why.
    pub message: String,
    /// Generation of the spec that asks for it.
    pub generation: Option<i64>,
}

/// A size that is being put into effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResizeProgress {
    /// Generation of the spec that asked for it.
    pub generation: Option<i64>,
    /// What is in the way.
    pub error: Option<String>,
}

/// The sizes of the pod as a whole: what it asks for, and limits where its group is bound.
pub(super) fn in_force(spec: &PodSpec, class: Qos) -> Option<ResourceRequirements> {
    let group = resources::pod_cgroup(spec, class, CpuPolicy::default());
    let side = |side: Side, bound: &dyn Fn(&str) -> bool| {
        let amounts = resources::pod(spec, side).into_iter();
        let own: BTreeMap<String, Raw> = amounts
            .filter(|(name, _)| matches!(name.as_str(), CPU | MEMORY) && bound(name))
            .map(|(name, amount)| (name, Raw(amount.to_string())))
            .collect();
        (!own.is_empty()).then_some(own)
    };
    let bound = |name: &str| match name {
        CPU => group.cpu_quota.is_some(),
        _ => group.memory_limit.is_some(),
    };
    let own = ResourceRequirements {
        claims: None,
        limits: side(Side::Limits, &bound),
        requests: side(Side::Requests, &|_| true),
    };
    (own.limits.is_some() || own.requests.is_some()).then_some(own)
}

/// Each keeps the generation of the spec that it is about.
pub(super) fn conditions(input: &Input<'_>, known: &[PodCondition]) -> Vec<PodCondition> {
    let Resize { pending, progress, .. } = input.resize;
    let mut out = Vec::new();
    if let Some(ResizePending { reason, message, generation }) = pending {
        let mut own = [crate::conditions::resize_pending(reason, message)];
        crate::conditions::stamp(&mut own, known, *generation, input.now);
        out.extend(own);
    }
    if let Some(ResizeProgress { generation, error }) = progress {
        let mut own = [crate::conditions::resize_in_progress(error.as_deref())];
        crate::conditions::stamp(&mut own, known, *generation, input.now);
        out.extend(own);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::podstatus::{ContainerFact, ContainerFactState, compose};
    use crate::resources::Actual;

    fn composed(resize: &Resize, change: impl FnOnce(&mut ContainerFact)) -> Value {
        let pod = serde_json::from_value(json!({"metadata": {"name": "p", "generation": 3}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {
                "requests": {"cpu": "150m", "memory": "32Mi"}, "limits": {"cpu": "300m", "memory": "64Mi"}}}]}}))
        .unwrap();
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        let mut fact = ContainerFact {
            name: "c".to_owned(),
            id: "1".to_owned(),
            restart_count: 0,
            created_at: at(1),
            state: ContainerFactState::Running { started_at: at(1) },
            image: "i".to_owned(),
            image_id: "i".to_owned(),
            user: None,
            stop_signal: None,
            in_force: None,
            actual: None,
        };
        change(&mut fact);
        let status = compose(&Input {
            pod: &pod,
            previous: None,
            containers: &[fact],
            failures: &BTreeMap::new(),
            probes: &BTreeMap::new(),
            sandbox_ready: true,
            pod_ips: &[],
            host_ips: &[],
            runtime_name: "containerd",
            is_static: false,
            is_terminal: false,
            may_run: true,
            verdict: None,
            recursive_read_only: Some(false),
            resize,
            now: at(9),
        });
        serde_json::to_value(status).unwrap()
    }

    fn brief(status: &Value) -> Vec<String> {
        let conditions = status["conditions"].as_array().unwrap().iter();
        conditions
            .map(|c| format!("{}|{}|{}", c["type"].as_str().unwrap(), c["reason"], c["observedGeneration"]))
            .collect()
    }

    #[test]
    fn each_condition_tells_the_generation_that_it_is_about() {
        let resize = Resize {
            pending: Some(ResizePending { reason: "Deferred".into(), message: "full".into(), generation: Some(3) }),
            progress: Some(ResizeProgress { generation: Some(2), error: Some("no".into()) }),
            ..Resize::default()
        };
        let status = composed(&resize, |_| {});
        let shown = brief(&status);
        assert_eq!(shown[..2], ["PodResizePending|\"Deferred\"|3", "PodResizeInProgress|\"Error\"|2"]);
        assert_eq!(status["conditions"][0]["message"], "full");
        assert!(shown[2..].iter().all(|condition| condition.ends_with("|3")), "{shown:?}");
        let bare = Resize { progress: Some(ResizeProgress { generation: Some(2), error: None }), ..Resize::default() };
        assert_eq!(brief(&composed(&bare, |_| {}))[0], "PodResizeInProgress|null|2");
        assert_eq!(brief(&composed(&Resize::default(), |_| {})).len(), 5);
    }

    #[test]
    fn what_is_granted_in_force_and_shown_are_three_things() {
        let old: PodSpec = serde_json::from_value(json!({"containers": [{"name": "c", "resources": {
            "requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}}]}))
        .unwrap();
        let own = old.containers[0].resources.clone();
        let resize = Resize { in_force: Some(old), ..Resize::default() };
        let status = composed(&resize, |fact| fact.in_force = own.clone());
        let container = &status["containerStatuses"][0];
        assert_eq!(container["allocatedResources"]["cpu"], "150m");
        assert_eq!(container["resources"]["limits"], json!({"cpu": "200m", "memory": "64Mi"}));
        assert_eq!(status["allocatedResources"], json!({"cpu": "150m", "memory": "32Mi"}));
        assert_eq!(status["resources"]["limits"]["cpu"], "200m");
        let actual = Actual { cpu_request: Some(100), cpu_limit: Some(250), memory_limit: Some(64 << 20) };
        let status = composed(&resize, |fact| (fact.in_force, fact.actual) = (own, Some(actual)));
        assert_eq!(status["containerStatuses"][0]["resources"]["limits"]["cpu"], "250m");
    }

    #[test]
    fn a_generation_that_nobody_looked_at_is_not_called_observed() {
        let resize = Resize { undecided_since: Some(2), ..Resize::default() };
        assert_eq!(composed(&resize, |_| {})["observedGeneration"], 2);
    }

    #[test]
    fn limits_of_the_pod_are_told_where_its_group_is_bound() {
        let shown = |spec: Value| {
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            serde_json::to_value(in_force(&spec, Qos::Burstable)).unwrap()
        };
        let open = json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}},
            {"name": "b", "resources": {"requests": {"cpu": "1"}}}]});
        assert_eq!(shown(open), json!({"requests": {"cpu": "2"}}));
        let whole = json!({"resources": {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}},
            "containers": [{"name": "a"}]});
        assert_eq!(shown(whole), json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}));
        assert_eq!(shown(json!({"containers": [{"name": "a"}]})), Value::Null);
    }
}
