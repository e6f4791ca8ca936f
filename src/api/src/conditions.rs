//! The conditions of a pod that the agent owns, in the order in which they are written.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::phase::Phase;
use crate::restart::is_sidecar;

/// Sandbox stands and has its network.
pub const READY_TO_START: &str = "PodReadyToStartContainers";
/// Init containers are done.
pub const INITIALIZED: &str = "Initialized";
/// All containers and readiness gates agree.
pub const READY: &str = "Ready";
/// All containers are ready.
pub const CONTAINERS_READY: &str = "ContainersReady";
/// The pod has a node.
pub const SCHEDULED: &str = "PodScheduled";
/// The pod was ended for the node's own reasons; shared with other writers.
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// An exit took the whole pod back to its beginning, and that is not finished yet.
pub const ALL_RESTARTING: &str = "AllContainersRestarting";

/// Another size is asked for and was not granted.
pub const RESIZE_PENDING: &str = "PodResizePending";
/// Another size was granted and is being put into effect.
pub const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";

/// Says whether a condition is the agent's alone.
pub fn is_owned(kind: &str) -> bool {
    matches!(
        kind,
        READY_TO_START
            | INITIALIZED
            | READY
            | CONTAINERS_READY
            | SCHEDULED
            | RESIZE_PENDING
            | RESIZE_IN_PROGRESS
            | ALL_RESTARTING
    )
}

/// What the conditions are computed from.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The pod's spec.
    pub spec: &'a PodSpec,
    /// Statuses of init containers.
    pub init: &'a [ContainerStatus],
    /// Statuses of app containers.
    pub app: &'a [ContainerStatus],
    /// The phase as computed, before it is held back while containers run.
    pub phase: Phase,
    /// The newest sandbox is ready, has an address and fits the spec.
    pub sandbox_ready: bool,
    /// Conditions that others wrote (readiness gates look here).
    pub others: &'a [PodCondition],
}

/// The condition of a pod that has a rule by which all its containers restart.
pub fn all_restarting(now: bool) -> PodCondition {
    condition(ALL_RESTARTING, now, now.then_some("RestartAllContainersStarted"), None)
}

/// The condition of a pod whose new size is not granted.
pub fn resize_pending(reason: &str, message: &str) -> PodCondition {
    condition(RESIZE_PENDING, true, Some(reason), Some(message.to_owned()))
}

/// The condition of a pod whose new size is being put into effect, with what is in the way.
pub fn resize_in_progress(error: Option<&str>) -> PodCondition {
    condition(RESIZE_IN_PROGRESS, true, error.map(|_| "Error"), error.map(str::to_owned))
}

/// Computes the owned conditions, without times and generation.
pub fn compute(facts: Facts<'_>) -> Vec<PodCondition> {
    let containers = containers_ready(facts);
    vec![
        condition(READY_TO_START, facts.sandbox_ready, None, None),
        initialized(facts),
        ready(facts, &containers),
        containers,
        condition(SCHEDULED, true, None, None),
    ]
}

/// Sets times: a condition keeps its time as long as its status is the same as in `before`.
pub fn stamp(conditions: &mut [PodCondition], before: &[PodCondition], generation: Option<i64>, now: Timestamp) {
    for condition in conditions {
        let kept = before
            .iter()
            .find(|old| old.type_ == condition.type_ && old.status == condition.status)
            .and_then(|old| old.last_transition_time.clone());
        condition.last_transition_time = Some(kept.unwrap_or(Time(now)));
        condition.observed_generation = generation;
    }
}

fn condition(kind: &str, holds: bool, reason: Option<&str>, message: Option<String>) -> PodCondition {
    PodCondition {
        type_: kind.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: reason.map(str::to_owned),
        message,
        ..PodCondition::default()
    }
}

fn names(list: &[&str]) -> String {
    format!("[{}]", list.join(" "))
}

fn status_of<'a>(statuses: &'a [ContainerStatus], name: &str) -> Option<&'a ContainerStatus> {
    statuses.iter().find(|status| status.name == name)
}

fn message(parts: [(&str, &[&str]); 2]) -> String {
    let texts: Vec<String> = parts
        .iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(kind, list)| format!("containers with {kind} status: {}", names(list)))
        .collect();
    texts.join(", ")
}

fn containers_ready(facts: Facts<'_>) -> PodCondition {
    if facts.app.is_empty() && facts.init.is_empty() {
        return condition(CONTAINERS_READY, false, Some("UnknownContainerStatuses"), None);
    }
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    let sidecars = facts.spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let wanted =
        sidecars.map(|container| (container, facts.init)).chain(facts.spec.containers.iter().map(|c| (c, facts.app)));
    for (container, statuses) in wanted {
        match status_of(statuses, &container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) if !status.ready => unready.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    if facts.phase == Phase::Succeeded && unknown.is_empty() {
        return condition(CONTAINERS_READY, false, Some("PodCompleted"), None);
    }
    if facts.phase == Phase::Failed {
        return condition(CONTAINERS_READY, false, Some("PodFailed"), None);
    }
    let text = message([("unknown", &unknown), ("unready", &unready)]);
    if text.is_empty() {
        condition(CONTAINERS_READY, true, None, None)
    } else {
        condition(CONTAINERS_READY, false, Some("ContainersNotReady"), Some(text))
    }
}

fn ready(facts: Facts<'_>, containers: &PodCondition) -> PodCondition {
    if containers.status != "True" {
        return PodCondition { type_: READY.to_owned(), ..containers.clone() };
    }
    let mut texts = Vec::new();
    for gate in facts.spec.readiness_gates.iter().flatten() {
        let kind = &gate.condition_type;
        match facts.others.iter().find(|condition| condition.type_ == *kind) {
            None => texts.push(format!("corresponding condition of pod readiness gate {kind:?} does not exist.")),
            Some(condition) if condition.status != "True" => texts
                .push(format!("the status of pod readiness gate {kind:?} is not \"True\", but {}", condition.status)),
            Some(_) => {}
        }
    }
    if texts.is_empty() {
        condition(READY, true, None, None)
    } else {
        condition(READY, false, Some("ReadinessGatesNotReady"), Some(texts.join(", ")))
    }
}

fn initialized(facts: Facts<'_>) -> PodCondition {
    let init: Vec<_> = facts.spec.init_containers.iter().flatten().collect();
    if !init.is_empty() && facts.app.is_empty() && facts.init.is_empty() {
        return condition(INITIALIZED, false, Some("UnknownContainerStatuses"), None);
    }
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    for container in init {
        match status_of(facts.init, &container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) => {
                let done = if is_sidecar(container) { status.started == Some(true) } else { status.ready };
                if !done {
                    incomplete.push(container.name.as_str());
                }
            }
        }
    }
    if facts.phase == Phase::Succeeded && unknown.is_empty() {
        return condition(INITIALIZED, true, Some("PodCompleted"), None);
    }
    // Sticky: an app container that has started once proves that the init containers were done.
    if facts.app.iter().any(has_started) {
        return condition(INITIALIZED, true, None, None);
    }
    let text = message([("unknown", &unknown), ("incomplete", &incomplete)]);
    if text.is_empty() {
        condition(INITIALIZED, true, None, None)
    } else {
        condition(INITIALIZED, false, Some("ContainersNotInitialized"), Some(text))
    }
}

fn has_started(status: &ContainerStatus) -> bool {
    let ran =
        |state: &k8s_openapi::api::core::v1::ContainerState| state.running.is_some() || state.terminated.is_some();
    status.started == Some(true)
        || status.state.as_ref().is_some_and(ran)
        || status.last_state.as_ref().is_some_and(ran)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(name: &str, ready: bool) -> ContainerStatus {
        serde_json::from_value(json!({"name": name, "image": "", "imageID": "", "ready": ready, "restartCount": 0}))
            .unwrap()
    }

    fn spec(value: Value) -> PodSpec {
        serde_json::from_value(value).unwrap()
    }

    fn brief(conditions: &[PodCondition]) -> Vec<String> {
        conditions
            .iter()
            .map(|condition| {
                format!(
                    "{}={}|{}|{}",
                    condition.type_,
                    condition.status,
                    condition.reason.as_deref().unwrap_or_default(),
                    condition.message.as_deref().unwrap_or_default()
                )
            })
            .collect()
    }

    #[test]
    fn a_failing_init_container_is_named() {
        let spec = spec(json!({"initContainers": [{"name": "i1"}, {"name": "i2"}], "containers": [{"name": "c"}]}));
        let got = compute(Facts {
            spec: &spec,
            init: &[status("i1", true), status("i2", false)],
            app: &[status("c", false)],
            phase: Phase::Pending,
            sandbox_ready: true,
            others: &[],
        });
        assert_eq!(
            brief(&got),
            [
                "PodReadyToStartContainers=True||",
                "Initialized=False|ContainersNotInitialized|containers with incomplete status: [i2]",
                "Ready=False|ContainersNotReady|containers with unready status: [c]",
                "ContainersReady=False|ContainersNotReady|containers with unready status: [c]",
                "PodScheduled=True||",
            ]
        );
    }

    #[test]
    fn ended_pods_say_how() {
        let spec = spec(json!({"containers": [{"name": "c"}, {"name": "d"}]}));
        let app = [status("c", false), status("d", false)];
        let facts = |phase| Facts { spec: &spec, init: &[], app: &app, phase, sandbox_ready: false, others: &[] };
        assert_eq!(
            brief(&compute(facts(Phase::Succeeded)))[1..3],
            ["Initialized=True|PodCompleted|", "Ready=False|PodCompleted|"]
        );
        assert_eq!(brief(&compute(facts(Phase::Failed)))[1..3], ["Initialized=True||", "Ready=False|PodFailed|"]);
        assert_eq!(
            brief(&compute(facts(Phase::Running)))[2],
            "Ready=False|ContainersNotReady|containers with unready status: [c d]"
        );
    }

    #[test]
    fn readiness_gates_hold_ready_back() {
        let spec = spec(json!({"containers": [{"name": "c"}],
            "readinessGates": [{"conditionType": "a/x"}, {"conditionType": "b/y"}]}));
        let other = condition("a/x", false, None, None);
        let got = compute(Facts {
            spec: &spec,
            init: &[],
            app: &[status("c", true)],
            phase: Phase::Running,
            sandbox_ready: true,
            others: &[other],
        });
        assert_eq!(
            brief(&got)[2..4],
            [
                "Ready=False|ReadinessGatesNotReady|the status of pod readiness gate \"a/x\" is not \"True\", but False, \
                 corresponding condition of pod readiness gate \"b/y\" does not exist.",
                "ContainersReady=True||",
            ]
        );
    }

    #[test]
    fn times_move_only_with_the_status() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut old = vec![condition(READY, true, None, None), condition(SCHEDULED, true, None, None)];
        stamp(&mut old, &[], Some(1), at(1));
        let mut new = vec![condition(READY, false, Some("x"), None), condition(SCHEDULED, true, None, None)];
        stamp(&mut new, &old, Some(2), at(5));
        assert_eq!(new[0].last_transition_time, Some(Time(at(5))));
        assert_eq!(new[1].last_transition_time, Some(Time(at(1))));
        assert_eq!(new[1].observed_generation, Some(2));
    }
}
