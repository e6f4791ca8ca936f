//! The statuses of init, app and ephemeral containers.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    ContainerUser, LinuxContainerUser, PodSpec, PodStatus, ResourceRequirements, VolumeMount, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{ContainerFact, ContainerFactState, Input, STATUS_UNKNOWN};
use crate::restart::{is_sidecar, should_restart, should_restart_init};

pub(super) struct Parts {
    pub(super) init: Vec<ContainerStatus>,
    pub(super) app: Vec<ContainerStatus>,
    pub(super) ephemeral: Vec<ContainerStatus>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Init,
    App,
    Ephemeral,
}

/// What is needed of a container of any kind.
struct Wanted<'a> {
    kind: Kind,
    name: &'a str,
    image: &'a str,
    mounts: &'a [VolumeMount],
    resources: Option<&'a ResourceRequirements>,
    container: Option<&'a Container>,
}

impl<'a> Wanted<'a> {
    fn new(kind: Kind, container: &'a Container) -> Self {
        Self {
            kind,
            name: &container.name,
            image: container.image.as_deref().unwrap_or_default(),
            mounts: container.volume_mounts.as_deref().unwrap_or_default(),
            resources: container.resources.as_ref(),
            container: Some(container),
        }
    }
}

pub(super) fn all(input: &Input<'_>, spec: &PodSpec, before: &PodStatus) -> Parts {
    let init = spec.init_containers.iter().flatten();
    let one = |wanted: &Wanted<'_>, old: &Option<Vec<ContainerStatus>>| {
        let old = old.iter().flatten().find(|status| status.name == wanted.name);
        status(input, spec, wanted, old)
    };
    let mut app: Vec<ContainerStatus> = spec
        .containers
        .iter()
        .map(|container| one(&Wanted::new(Kind::App, container), &before.container_statuses))
        .collect();
    app.sort_by(|a, b| a.name.cmp(&b.name));
    let init =
        init.map(|container| one(&Wanted::new(Kind::Init, container), &before.init_container_statuses)).collect();
    let mut ephemeral: Vec<ContainerStatus> = spec
        .ephemeral_containers
        .iter()
        .flatten()
        .map(|container| {
            let wanted = Wanted {
                kind: Kind::Ephemeral,
                name: &container.name,
                image: container.image.as_deref().unwrap_or_default(),
                mounts: container.volume_mounts.as_deref().unwrap_or_default(),
                resources: None,
                container: None,
            };
            one(&wanted, &before.ephemeral_container_statuses)
        })
        .collect();
    ephemeral.sort_by(|a, b| a.name.cmp(&b.name));
    Parts { init, app, ephemeral }
}

fn status(input: &Input<'_>, spec: &PodSpec, wanted: &Wanted<'_>, old: Option<&ContainerStatus>) -> ContainerStatus {
    let mut facts: Vec<&ContainerFact> = input.containers.iter().filter(|fact| fact.name == wanted.name).collect();
    facts.sort_by_key(|fact| std::cmp::Reverse((fact.restart_count, fact.created_at)));
    let mut status = match facts.first() {
        Some(newest) => observed(input, wanted, newest, old),
        None => unobserved(input, spec, wanted, old),
    };
    if let Some(last) = facts.get(1) {
        status.last_state = Some(observed(input, wanted, last, None).state.unwrap_or_default());
    }
    show_failure(input, spec, wanted, facts.first().copied(), &mut status);
    status.volume_mounts = mounts(wanted.mounts, input.recursive_read_only, old);
    set_probes(input, wanted, &mut status);
    status
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let text = |text: &str| if text.is_empty() { None } else { Some(text.to_owned()) };
    ContainerState {
        waiting: Some(ContainerStateWaiting { reason: text(reason), message: text(message) }),
        ..ContainerState::default()
    }
}

fn terminated(state: ContainerStateTerminated) -> ContainerState {
    ContainerState { terminated: Some(state), ..ContainerState::default() }
}

fn lost(message: &str) -> ContainerState {
    terminated(ContainerStateTerminated {
        exit_code: 137,
        reason: Some(STATUS_UNKNOWN.to_owned()),
        message: Some(message.to_owned()),
        ..ContainerStateTerminated::default()
    })
}

fn was_running(old: &ContainerStatus) -> bool {
    old.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// A container that the runtime does not know (any more).
fn unobserved(
    input: &Input<'_>,
    spec: &PodSpec,
    wanted: &Wanted<'_>,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let has_init = spec.init_containers.as_ref().is_some_and(|init| !init.is_empty());
    let mut status = ContainerStatus {
        name: wanted.name.to_owned(),
        image: wanted.image.to_owned(),
        state: Some(waiting(if has_init { "PodInitializing" } else { "ContainerCreating" }, "")),
        last_state: Some(ContainerState::default()),
        ..ContainerStatus::default()
    };
    let Some(old) = old else {
        // An init container whose record was pruned after the app containers were made has done its work.
        let app_made = || input.containers.iter().any(|fact| spec.containers.iter().any(|app| app.name == fact.name));
        if wanted.kind == Kind::Init && wanted.container.is_some_and(|container| !is_sidecar(container)) && app_made() {
            status.state = Some(completed());
        }
        return status;
    };
    if old.state.as_ref().is_some_and(|state| state.terminated.is_some()) {
        return ContainerStatus { ready: false, ..old.clone() };
    }
    status.restart_count = old.restart_count;
    status.last_state = Some(old.last_state.clone().unwrap_or_default());
    if was_running(old) {
        // It ran and is gone without a trace; that end must not be hidden behind a fresh start.
        if status.last_state.as_ref().is_none_or(|last| last.terminated.is_none()) {
            status.last_state = Some(lost(
                "The container could not be located when the pod was deleted.  The container used to be Running",
            ));
        }
        if input.pod.metadata.deletion_timestamp.is_none() {
            status.restart_count += 1;
        }
    }
    status
}

fn completed() -> ContainerState {
    terminated(ContainerStateTerminated {
        exit_code: 0,
        reason: Some("Completed".to_owned()),
        message: Some("Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally".to_owned()),
        ..ContainerStateTerminated::default()
    })
}

fn observed(
    input: &Input<'_>,
    wanted: &Wanted<'_>,
    fact: &ContainerFact,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let id = format!("{}://{}", input.runtime_name, fact.id);
    let mut restart_count = fact.restart_count;
    let state = match &fact.state {
        ContainerFactState::Created => waiting("", ""),
        ContainerFactState::Running { started_at } => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(Time(*started_at)) }),
            ..ContainerState::default()
        },
        ContainerFactState::Exited { started_at, finished_at, exit_code, reason, message } => {
            terminated(ContainerStateTerminated {
                container_id: Some(id.clone()),
                exit_code: *exit_code,
                reason: Some(reason.clone()).filter(|text| !text.is_empty()),
                message: Some(message.clone()).filter(|text| !text.is_empty()),
                started_at: started_at.map(Time),
                finished_at: finished_at.map(Time),
                signal: None,
            })
        }
        ContainerFactState::Unknown if old.is_some_and(was_running) => {
            restart_count += 1;
            lost("The container could not be located when the pod was terminated")
        }
        ContainerFactState::Unknown => waiting("", ""),
    };
    let requests = wanted.resources.and_then(|resources| resources.requests.clone());
    ContainerStatus {
        name: wanted.name.to_owned(),
        image: fact.image.clone(),
        image_id: fact.image_id.clone(),
        container_id: Some(id),
        restart_count,
        state: Some(state),
        last_state: Some(old.and_then(|old| inherited_last(old, fact, input)).unwrap_or_default()),
        resources: Some(resources_of(wanted, fact)),
        allocated_resources: requests.filter(|requests| !requests.is_empty()),
        user: fact.user.as_ref().map(|user| ContainerUser {
            linux: Some(LinuxContainerUser {
                uid: user.uid,
                gid: user.gid,
                supplemental_groups: if user.groups.is_empty() { None } else { Some(user.groups.clone()) },
            }),
        }),
        stop_signal: fact.stop_signal.clone(),
        ..ContainerStatus::default()
    }
}

/// The size in force, as the runtime shows it where it does.
fn resources_of(wanted: &Wanted<'_>, fact: &ContainerFact) -> ResourceRequirements {
    let own = fact.in_force.as_ref().or(wanted.resources).cloned().unwrap_or_default();
    let own = ResourceRequirements { claims: None, ..own };
    match (&fact.state, &fact.actual) {
        (ContainerFactState::Running { .. }, Some(actual)) => actual.shown(own),
        _ => own,
    }
}

/// The end of the instance before stays in the status when the runtime's record of it has been removed.
fn inherited_last(old: &ContainerStatus, fact: &ContainerFact, input: &Input<'_>) -> Option<ContainerState> {
    let id = format!("{}://{}", input.runtime_name, fact.id);
    if old.container_id.as_deref() == Some(id.as_str()) {
        // A waiting reason may have moved this very instance's end into lastState; it is no earlier instance.
        return old.last_state.clone().filter(|last| {
            last.terminated.as_ref().is_none_or(|end| end.container_id.as_deref() != Some(id.as_str()))
        });
    }
    let ended = old.state.clone().filter(|state| state.terminated.is_some());
    ended.or_else(|| old.last_state.clone())
}

/// Shows why a container that is to be started (again) does not start.
fn show_failure(
    input: &Input<'_>,
    spec: &PodSpec,
    wanted: &Wanted<'_>,
    newest: Option<&ContainerFact>,
    status: &mut ContainerStatus,
) {
    if input.pod.metadata.deletion_timestamp.is_some() {
        return;
    }
    let to_start = match newest.map(|fact| &fact.state) {
        None | Some(ContainerFactState::Created | ContainerFactState::Unknown) => true,
        Some(ContainerFactState::Running { .. }) => false,
        Some(ContainerFactState::Exited { exit_code, .. }) => match (wanted.kind, wanted.container) {
            (Kind::Init, Some(container)) => should_restart_init(spec, container, *exit_code),
            (Kind::App, Some(container)) => should_restart(spec, container, *exit_code),
            _ => false,
        },
    };
    if !to_start {
        return;
    }
    let Some(failure) = input.failures.get(wanted.name) else { return };
    if status.state.as_ref().is_some_and(|state| state.terminated.is_some()) {
        status.last_state.clone_from(&status.state);
    }
    status.state = Some(waiting(&failure.reason, &failure.message));
}

/// What a mount came to; where it is not known whether the runtime can do a wish it stays as it was shown.
fn mounts(
    mounts: &[VolumeMount],
    recursive: Option<bool>,
    old: Option<&ContainerStatus>,
) -> Option<Vec<VolumeMountStatus>> {
    if mounts.is_empty() {
        return None;
    }
    let shown = |path: &str| {
        let old = old?.volume_mounts.as_ref()?.iter().find(|old| old.mount_path == path)?;
        Some(old.recursive_read_only.as_deref() == Some("Enabled"))
    };
    let one = |mount: &VolumeMount| {
        let read_only = mount.read_only.unwrap_or(false);
        let wished = mount.recursive_read_only.as_deref();
        let effective = match wished {
            Some("Enabled") => "Enabled",
            Some("IfPossible") if recursive.or_else(|| shown(&mount.mount_path)).unwrap_or(false) => "Enabled",
            _ => "Disabled",
        };
        VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: Some(true).filter(|_| read_only),
            recursive_read_only: Some(effective.to_owned()).filter(|_| read_only),
            ..VolumeMountStatus::default()
        }
    };
    Some(mounts.iter().map(one).collect())
}

fn set_probes(input: &Input<'_>, wanted: &Wanted<'_>, status: &mut ContainerStatus) {
    status.ready = false;
    if wanted.kind == Kind::Ephemeral {
        return;
    }
    let probe = input.probes.get(wanted.name).copied().unwrap_or_default();
    let running = status.state.as_ref().is_some_and(|state| state.running.is_some());
    let started = running && !probe.hook_pending && probe.started.unwrap_or(true);
    status.started = Some(started);
    if wanted.kind == Kind::Init && !wanted.container.is_some_and(is_sidecar) {
        let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        status.ready = ended.is_some_and(|ended| ended.exit_code == 0);
    } else {
        status.ready = started && probe.ready.unwrap_or(true);
    }
}
