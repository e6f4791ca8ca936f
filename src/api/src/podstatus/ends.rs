//! The two ends of a pod that are no ordinary pass: refused before anything was made, and gone from the node.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{STATUS_UNKNOWN, whole_second};
use crate::phase::Phase;
use crate::qos;
use crate::restart::is_sidecar;

/// Returns the status of a pod that the node did not admit; the message says so in the usual words.
pub fn rejected(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> PodStatus {
    let start = pod.status.as_ref().and_then(|status| status.start_time.clone());
    PodStatus {
        phase: Some(Phase::Failed.as_str().to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(format!("Pod was rejected: {message}")),
        qos_class: Some(qos::of(pod).as_str().to_owned()),
        observed_generation: pod.metadata.generation.filter(|generation| *generation != 0),
        start_time: start.or_else(|| Some(Time(whole_second(now)))),
        ..PodStatus::default()
    }
}

/// Closes the status of a pod of which nothing is left on the node: containers without an end get one that says that
/// nobody saw it, and the phase becomes terminal (a static pod's does not).
pub fn finish(pod: &Pod, mut status: PodStatus, is_static: bool) -> PodStatus {
    let no_spec = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&no_spec);
    let app = status.container_statuses.as_deref().unwrap_or_default();
    let init = status.init_container_statuses.as_deref().unwrap_or_default();
    if is_initialized(spec, app, init) {
        status.container_statuses.iter_mut().flatten().for_each(close);
    }
    if let Some(init) = status.init_container_statuses.as_mut() {
        // Those after the last one that ever started were never meant to have run.
        let reached = init.iter().rposition(has_evidence).map_or(0, |last| last + 1);
        init.iter_mut().take(reached).for_each(close);
    }
    let terminal = status.phase.as_deref().and_then(Phase::parse).is_some_and(Phase::is_terminal);
    if !is_static && !terminal {
        status.phase = Some(Phase::Failed.as_str().to_owned());
    }
    status
}

fn close(status: &mut ContainerStatus) {
    if status.state.as_ref().is_some_and(|state| state.terminated.is_some()) {
        return;
    }
    status.state = Some(ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: 137,
            reason: Some(STATUS_UNKNOWN.to_owned()),
            message: Some("The container could not be located when the pod was terminated".to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    });
}

fn ended_well(state: Option<&ContainerState>) -> bool {
    state.and_then(|state| state.terminated.as_ref()).is_some_and(|ended| ended.exit_code == 0)
}

fn has_evidence(status: &ContainerStatus) -> bool {
    let ran = |state: &ContainerState| state.running.is_some() || state.terminated.is_some();
    status.state.as_ref().is_some_and(ran) || status.last_state.as_ref().is_some_and(|last| last.terminated.is_some())
}

/// Says whether the app containers' turn had come.
pub(super) fn is_initialized(spec: &PodSpec, app: &[ContainerStatus], init: &[ContainerStatus]) -> bool {
    let Some(last) = spec.init_containers.iter().flatten().last() else { return true };
    if app.iter().any(has_evidence) {
        return true;
    }
    init.iter().find(|status| status.name == last.name).is_some_and(|status| {
        if is_sidecar(last) {
            status.started == Some(true)
        } else {
            ended_well(status.state.as_ref()) || ended_well(status.last_state.as_ref())
        }
    })
}
