//! Reduces a pod's spec to what the plan needs.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};
use longshore_api::hash;

use super::plan::{ExitRule, Member, Restart, Role, Wanted};
use crate::probe::ProbeKind;
use crate::telemetry::ContainerType;

/// Builds the reduced spec.
pub(super) fn wanted(pod: &Pod) -> Wanted {
    let spec = pod.spec.as_ref();
    let restart = Restart::parse(spec.and_then(|s| s.restart_policy.as_deref()));
    let init = spec.and_then(|s| s.init_containers.as_deref()).unwrap_or_default();
    let apps = spec.map(|s| s.containers.as_slice()).unwrap_or_default();
    Wanted {
        restart,
        host_network: spec.and_then(|s| s.host_network).unwrap_or(false),
        has_probes: apps.iter().chain(init).any(|c| ProbeKind::ALL.iter().any(|kind| kind.of(c).is_some())),
        init: init
            .iter()
            .map(|c| {
                if c.restart_policy.as_deref() == Some("Always") {
                    member(c, Role::Sidecar, Restart::Always)
                } else {
                    // A plain init container that failed is tried again unless the pod never restarts anything.
                    let rule = if restart == Restart::Never { Restart::Never } else { Restart::OnFailure };
                    member(c, Role::Init, own(c, rule))
                }
            })
            .collect(),
        apps: apps.iter().map(|c| member(c, Role::App, own(c, restart))).collect(),
        ephemeral: spec.iter().flat_map(|s| s.ephemeral_containers.iter().flatten()).map(guest).collect(),
    }
}

fn guest(container: &EphemeralContainer) -> Member {
    let hash = hash::container(&container.name, container.image.as_deref().unwrap_or_default());
    Member { name: container.name.clone(), role: Role::Ephemeral, hash, restart: Restart::Never, rules: Vec::new() }
}

fn own(container: &Container, pod: Restart) -> Restart {
    match container.restart_policy.as_deref() {
        Some(own) => Restart::parse(Some(own)),
        None => pod,
    }
}

fn member(container: &Container, role: Role, restart: Restart) -> Member {
    let hash = hash::container(&container.name, container.image.as_deref().unwrap_or_default());
    Member { name: container.name.clone(), role, hash, restart, rules: ExitRule::of(container) }
}

/// Finds a container of the spec by name and says which list it stands in.
pub(super) fn find<'a>(pod: &'a Pod, name: &str) -> Option<(&'a Container, Role)> {
    let spec = pod.spec.as_ref()?;
    if let Some(found) = spec.containers.iter().find(|c| c.name == name) {
        return Some((found, Role::App));
    }
    let found = spec.init_containers.as_deref().unwrap_or_default().iter().find(|c| c.name == name)?;
    let role = if found.restart_policy.as_deref() == Some("Always") { Role::Sidecar } else { Role::Init };
    Some((found, role))
}

/// Says which part a container plays; `None` = the spec has none of that name.
pub(super) fn role(pod: &Pod, name: &str) -> Option<Role> {
    find(pod, name).map(|(_, role)| role).or_else(|| guest_of(pod, name).map(|_| Role::Ephemeral))
}

/// Finds an ephemeral container.
pub(super) fn guest_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a EphemeralContainer> {
    pod.spec.as_ref()?.ephemeral_containers.iter().flatten().find(|guest| guest.name == name)
}

/// Where and how a container leaves its last words: whether the log serves when there is no file.
pub(super) fn falls_back_to_log(pod: &Pod, name: &str) -> Option<bool> {
    let policy = match find(pod, name) {
        Some((container, _)) => container.termination_message_policy.as_deref(),
        None => guest_of(pod, name)?.termination_message_policy.as_deref(),
    };
    Some(policy == Some("FallbackToLogsOnError"))
}

/// Grace of the spec in seconds.
pub(super) fn spec_grace(pod: &Pod) -> i64 {
    pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds).unwrap_or(30)
}

/// Grace of a container that a probe condemned: the probe's own, else the pod's.
pub(super) fn probe_grace(pod: &Pod, name: &str, kind: ProbeKind) -> i64 {
    let own = find(pod, name).and_then(|(c, _)| kind.of(c)?.termination_grace_period_seconds);
    own.unwrap_or_else(|| spec_grace(pod))
}

/// Hash of a container's definition.
pub(super) fn hash_of(wanted: &Wanted, name: &str) -> String {
    let mut members = wanted.apps.iter().chain(&wanted.init).chain(&wanted.ephemeral);
    members.find(|m| m.name == name).map(|m| m.hash.clone()).unwrap_or_default()
}

/// How figures call a container of the pod.
pub(super) fn container_type(pod: &Pod, name: &str) -> ContainerType {
    match role(pod, name) {
        Some(Role::Init | Role::Sidecar) => ContainerType::Init,
        Some(Role::Ephemeral) => ContainerType::Ephemeral,
        Some(Role::App) | None => ContainerType::Container,
    }
}
