//! Composes the whole status of a pod from its spec, what the runtime shows, verdicts and the status before.
//! Pure: the caller fills [`Input`] and decides what to do with the answer; the same input gives the same status.
//!
//! A pass while the pod is wanted: `is_terminal = false, may_run = true`. After everything of an ending pod was stopped:
//! `is_terminal = true`, and `may_run = false` once nothing can run any more; only then a terminal phase is reported.
//! When volumes and cgroup are gone, [`finish`] closes what never ran.

mod containers;
mod ends;
mod messages;
mod resize;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodCondition, PodIP, PodSpec, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Raw;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::conditions;
use crate::phase::{self, Phase};
use crate::qos;
use crate::resources::{self, Actual, Side};

pub use ends::{finish, rejected};
pub use messages::bound_messages;
pub use resize::{Resize, ResizePending, ResizeProgress};

/// The reason of a container whose end nobody saw.
pub const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";

/// Everything that a status is computed from.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The pod as wanted, with its status as last received from the API.
    pub pod: &'a Pod,
    /// The status that this node computed last; `None` before the first pass.
    pub previous: Option<&'a PodStatus>,
    /// All containers of the pod that the runtime or the journal knows, in any order.
    pub containers: &'a [ContainerFact],
    /// Why containers could not be started, by name (image, configuration, create, start, back-off).
    pub failures: &'a BTreeMap<String, Waiting>,
    /// Probe results by container name; a container without an entry has no probes.
    pub probes: &'a BTreeMap<String, ProbeFact>,
    /// The newest sandbox is ready, has an address and fits the spec.
    pub sandbox_ready: bool,
    /// Addresses of the sandbox, the node's first family first; empty keeps those known before.
    pub pod_ips: &'a [String],
    /// Addresses of the node, its first family first.
    pub host_ips: &'a [String],
    /// Name of the runtime, the scheme of container ids (`containerd`).
    pub runtime_name: &'a str,
    /// The pod comes from a manifest on this node.
    pub is_static: bool,
    /// All that is left of the pod is its end.
    pub is_terminal: bool,
    /// Containers of the pod may still run: a terminal phase is held back.
    pub may_run: bool,
    /// The agent ended the pod for this reason (eviction, deadline, shutdown).
    pub verdict: Option<&'a Verdict>,
    /// The runtime can make mounts read-only recursively; `None` = not known yet.
    pub recursive_read_only: Option<bool>,
    /// What becomes of another size that is asked for.
    pub resize: &'a Resize,
    /// Now.
    pub now: Timestamp,
}

/// One container as observed.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerFact {
    /// Its name in the spec.
    pub name: String,
    /// Its id in the runtime, without scheme.
    pub id: String,
    /// How often the container of this name had been started before this one.
    pub restart_count: i32,
    /// When it was made; decides which is the newest.
    pub created_at: Timestamp,
    /// What it does.
    pub state: ContainerFactState,
    /// Image as the runtime names it (the user's text).
    pub image: String,
    /// Image reference that the runtime resolved.
    pub image_id: String,
    /// Identity of the first process, where the runtime tells it.
    pub user: Option<UserFact>,
    /// The signal that ends it, where it is shown (upstream's gate `ContainerStopSignals`).
    pub stop_signal: Option<String>,
    /// The size that it was last given; `None` = what the pod was granted.
    pub in_force: Option<ResourceRequirements>,
    /// The size that the runtime shows.
    pub actual: Option<Actual>,
}

/// What a container does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerFactState {
    /// Made, not started.
    Created,
    /// Runs.
    Running {
        /// Since when.
        started_at: Timestamp,
    },
    /// Ended.
    Exited {
        /// When it had started; `None` when it never did.
        started_at: Option<Timestamp>,
        /// When it ended; `None` when the runtime does not know.
        finished_at: Option<Timestamp>,
        /// Exit code.
        exit_code: i32,
        /// Reason as the runtime gives it (`Completed`, `Error`, `OOMKilled`).
        reason: String,
        /// Termination message.
        message: String,
    },
    /// The runtime cannot tell.
    Unknown,
}

/// Identity of a container's first process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserFact {
    /// User id.
    pub uid: i64,
    /// Group id.
    pub gid: i64,
    /// Supplementary groups.
    pub groups: Vec<i64>,
}

/// Why a container waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Reason, e.g. `ErrImagePull`.
    pub reason: String,
    /// Message for people.
    pub message: String,
}

/// What the probes say of a running container; `None` means that there is no such probe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProbeFact {
    /// Startup probe has succeeded.
    pub started: Option<bool>,
    /// Readiness probe succeeds.
    pub ready: Option<bool>,
    /// The postStart hook has not finished: the container does not count as started.
    pub hook_pending: bool,
}

/// The agent's own decision about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// `status.reason`.
    pub reason: String,
    /// `status.message`.
    pub message: String,
    /// Whether the condition `DisruptionTarget` is set with it.
    pub disruption: bool,
}

/// Computes the status.
pub fn compose(input: &Input<'_>) -> PodStatus {
    let empty = PodStatus::default();
    let no_spec = PodSpec::default();
    let spec = input.pod.spec.as_ref().unwrap_or(&no_spec);
    let api = input.pod.status.as_ref().unwrap_or(&empty);
    let before = input.previous.unwrap_or(api);
    let generation =
        input.resize.undecided_since.or(input.pod.metadata.generation).filter(|generation| *generation != 0);

    let parts = containers::all(input, spec, before);
    let mut status = PodStatus {
        qos_class: Some(qos::of(input.pod).as_str().to_owned()),
        observed_generation: generation,
        nominated_node_name: api.nominated_node_name.clone(),
        resource_claim_statuses: api.resource_claim_statuses.clone(),
        extended_resource_claim_status: api.extended_resource_claim_status.clone(),
        start_time: before.start_time.clone().or_else(|| Some(Time(whole_second(input.now)))),
        allocated_resources: allocated(spec),
        resources: resize::in_force(input.resize.in_force.as_ref().unwrap_or(spec), qos::of(input.pod)),
        ..PodStatus::default()
    };
    set_addresses(&mut status, input, spec, before);

    let mut all = parts.app.clone();
    all.extend(parts.init.iter().cloned());
    let has_initialized = input.containers.iter().any(|fact| spec.containers.iter().any(|app| app.name == fact.name))
        || ends::is_initialized(spec, &parts.app, &parts.init);
    let facts = phase::Facts { is_terminal: input.is_terminal, has_initialized, is_static: input.is_static };
    let phase = settle_phase(&mut status, input, phase::compute(spec, &all, facts), before, api);

    let others: Vec<PodCondition> =
        api.conditions.iter().flatten().filter(|condition| !conditions::is_owned(&condition.type_)).cloned().collect();
    let mut owned = conditions::compute(conditions::Facts {
        spec,
        init: &parts.init,
        app: &parts.app,
        phase,
        sandbox_ready: input.sandbox_ready,
        others: &others,
    });
    let known: Vec<PodCondition> = before.conditions.iter().chain(&api.conditions).flatten().cloned().collect();
    conditions::stamp(&mut owned, &known, generation, input.now);
    let owned: Vec<PodCondition> = resize::conditions(input, &known).into_iter().chain(owned).collect();
    let held_back = hold_back(&mut status, input, phase, before);
    status.conditions = Some(merge_conditions(others, owned, input, generation, held_back));

    status.init_container_statuses = non_empty(parts.init);
    status.container_statuses = non_empty(parts.app);
    status.ephemeral_container_statuses = non_empty(parts.ephemeral);
    status
}

fn non_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    if list.is_empty() { None } else { Some(list) }
}

fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn parse_phase(status: &PodStatus) -> Option<Phase> {
    status.phase.as_deref().and_then(Phase::parse)
}

/// Phase, reason and message: terminal phases are never left, verdicts win over exit codes.
fn settle_phase(
    status: &mut PodStatus,
    input: &Input<'_>,
    computed: Phase,
    before: &PodStatus,
    api: &PodStatus,
) -> Phase {
    let terminal = |from: &PodStatus| parse_phase(from).filter(|phase| phase.is_terminal());
    // How a pod ended is decided once.
    let mut phase = terminal(before).or_else(|| terminal(api)).unwrap_or(computed);
    if Some(phase) == parse_phase(before) {
        status.reason = before.reason.clone().or_else(|| api.reason.clone());
        status.message = before.message.clone().or_else(|| api.message.clone());
    }
    if let Some(verdict) = input.verdict {
        phase = Phase::Failed;
        status.reason = Some(verdict.reason.clone());
        status.message = Some(verdict.message.clone());
    }
    // What the API shows as ended cannot end differently.
    if let Some(ended) = terminal(api) {
        phase = ended;
    }
    status.phase = Some(phase.as_str().to_owned());
    phase
}

/// While containers may run the old phase stays: others count a terminal pod's resources as free.
fn hold_back(status: &mut PodStatus, input: &Input<'_>, phase: Phase, before: &PodStatus) -> bool {
    let was_terminal = parse_phase(before).is_some_and(Phase::is_terminal);
    let held_back = phase.is_terminal() && !was_terminal && input.may_run;
    if held_back {
        status.phase = before.phase.clone().or_else(|| Some(Phase::Pending.as_str().to_owned()));
        status.reason.clone_from(&before.reason);
        status.message.clone_from(&before.message);
    }
    held_back
}

fn merge_conditions(
    others: Vec<PodCondition>,
    owned: Vec<PodCondition>,
    input: &Input<'_>,
    generation: Option<i64>,
    held_back: bool,
) -> Vec<PodCondition> {
    let mut out = others;
    if let Some(verdict) = input.verdict.filter(|verdict| verdict.disruption && !held_back) {
        out.retain(|condition| condition.type_ != conditions::DISRUPTION_TARGET || condition.status == "True");
        if !out.iter().any(|condition| condition.type_ == conditions::DISRUPTION_TARGET) {
            out.push(PodCondition {
                type_: conditions::DISRUPTION_TARGET.to_owned(),
                status: "True".to_owned(),
                reason: Some("TerminationByKubelet".to_owned()),
                message: Some(verdict.message.clone()),
                observed_generation: generation,
                last_transition_time: Some(Time(input.now)),
                ..PodCondition::default()
            });
        }
    }
    out.extend(owned);
    out
}

fn set_addresses(status: &mut PodStatus, input: &Input<'_>, spec: &PodSpec, before: &PodStatus) {
    let host: Vec<HostIP> = input.host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect();
    if let Some(first) = host.first() {
        status.host_ip = Some(first.ip.clone());
        status.host_ips = Some(host);
    } else {
        status.host_ip.clone_from(&before.host_ip);
        status.host_ips.clone_from(&before.host_ips);
    }
    let own = if spec.host_network.unwrap_or(false) { input.host_ips } else { input.pod_ips };
    let pod: Vec<PodIP> = own.iter().map(|ip| PodIP { ip: ip.clone() }).collect();
    if let Some(first) = pod.first() {
        status.pod_ip = Some(first.ip.clone());
        status.pod_ips = Some(pod);
    } else {
        status.pod_ip.clone_from(&before.pod_ip);
        status.pod_ips.clone_from(&before.pod_ips);
    }
}

/// What is set aside for the pod as a whole; nothing asked gives nothing.
fn allocated(spec: &PodSpec) -> Option<BTreeMap<String, Raw>> {
    let sum: BTreeMap<String, Raw> = resources::pod(spec, Side::Requests)
        .into_iter()
        .filter(|(name, _)| matches!(name.as_str(), resources::CPU | resources::MEMORY))
        .map(|(name, amount)| (name, Raw(amount.to_string())))
        .collect();
    if sum.is_empty() { None } else { Some(sum) }
}
