//! The decision: what to do next for a pod, from what is wanted and what was observed. Pure; the worker carries it out.
//!
//! ```text
//! sandbox bad or absent -> kill what lives, stop old sandboxes, make a new one
//! sandbox good          -> init containers in order -> main containers
//! nothing left to run   -> finish
//! ```

mod backoff;
mod guests;
mod home;
mod init;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

pub(crate) use backoff::BackoffEntry;
pub use backoff::BackoffRule;
pub(crate) use rules::ExitRule;

use self::home::{SandboxState, is_over};
use super::observed::{Instance, InstanceState, Observed};
use crate::model::{ContainerId, SandboxId};
use crate::probe::ProbeKind;

/// Whether an exited container comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    /// Always.
    Always,
    /// Only after a failure.
    OnFailure,
    /// Never.
    Never,
}

impl Restart {
    /// Reads the API's word; the API's default is `Always`.
    pub(crate) fn parse(text: Option<&str>) -> Self {
        match text {
            Some("OnFailure") => Self::OnFailure,
            Some("Never") => Self::Never,
            _ => Self::Always,
        }
    }

    /// Says whether an exit with that outcome is followed by a restart.
    pub(crate) fn wants(self, failed: bool) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => failed,
            Self::Never => false,
        }
    }
}

/// The part a container plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to success before the next one.
    Init,
    /// An init container that keeps running beside the main ones.
    Sidecar,
    /// A main container.
    App,
    /// A guest that somebody put into the running pod to look around; it runs once.
    Ephemeral,
}

/// A container of the spec, reduced to what decisions need.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// Its name.
    pub(crate) name: String,
    /// Its part.
    pub(crate) role: Role,
    /// Hash of its definition; a change restarts it.
    pub(crate) hash: String,
    /// Its own restart rule, resolved against the pod's.
    pub(crate) restart: Restart,
    /// What its exit codes mean, before that rule is asked; the first match counts.
    pub(crate) rules: Vec<ExitRule>,
}

/// A pod's spec, reduced to what decisions need.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The pod's restart policy.
    pub(crate) restart: Restart,
    /// Whether it uses the host's network.
    pub(crate) host_network: bool,
    /// Whether any container has a probe.
    pub(crate) has_probes: bool,
    /// Init containers in spec order.
    pub(crate) init: Vec<Member>,
    /// Main containers in spec order.
    pub(crate) apps: Vec<Member>,
    /// Ephemeral containers in spec order.
    pub(crate) ephemeral: Vec<Member>,
}

/// Key under which a failed try to make the sandbox is held back; no container can have that name.
pub(crate) const SANDBOX_HOLD: &str = "";

/// What the probes say of a running container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Probed {
    /// It counts as started.
    pub(crate) started: bool,
    /// The probe by whose failures it is to be killed.
    pub(crate) failed: Option<ProbeKind>,
}

/// What `plan` looks at.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    /// The spec.
    pub(crate) wanted: &'a Wanted,
    /// The runtime's side.
    pub(crate) observed: &'a Observed,
    /// Restart delays by container name.
    pub(crate) backoffs: &'a BTreeMap<String, BackoffEntry>,
    /// Containers whose last try failed and when to try again.
    pub(crate) holds: &'a BTreeMap<String, Timestamp>,
    /// What probes say; a container that is not in here has none.
    pub(crate) probes: &'a BTreeMap<ContainerId, Probed>,
    /// Containers that have to start anew in another size.
    pub(crate) resized: &'a BTreeSet<ContainerId>,
    /// Highest restart count ever seen by container, also of instances the runtime has forgotten.
    pub(crate) counted: &'a BTreeMap<String, u32>,
    /// Whether the pod was told to end: then nothing may start.
    pub(crate) terminating: bool,
    /// Wall-clock time.
    pub(crate) now: Timestamp,
}

impl Input<'_> {
    fn probed(&self, instance: &Instance) -> Probed {
        self.probes.get(&instance.id).copied().unwrap_or(Probed { started: true, failed: None })
    }
}

/// Why a container is killed while its pod lives on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillReason {
    /// Its pod's sandbox must be made anew.
    SandboxChanged,
    /// Its definition changed.
    DefinitionChanged,
    /// It gets another size, for which it has to start anew.
    Resized,
    /// The runtime does not know its state.
    StateUnknown,
    /// A newer instance of the same name lives.
    Doubled,
    /// An exit of another container restarts the whole pod.
    PodRestarts,
    /// Its hook after the start failed.
    PostStartFailed,
    /// A probe failed too often.
    Probe {
        /// Which.
        kind: ProbeKind,
        /// Whether it comes back.
        again: bool,
    },
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Stop a container.
    Kill {
        /// Which.
        id: ContainerId,
        /// Its name.
        name: String,
        /// Why.
        reason: KillReason,
    },
    /// Forget a container that has ended, so that its name begins anew.
    Remove {
        /// Which.
        id: ContainerId,
        /// Its name.
        name: String,
        /// When it ended, if its end is why: the restart delay grows by it.
        after_exit: Option<Timestamp>,
    },
    /// Stop a sandbox.
    StopSandbox(SandboxId),
    /// Make a sandbox.
    CreateSandbox {
        /// Its attempt number.
        attempt: u32,
        /// Whether one existed before.
        changed: bool,
    },
    /// Create (or adopt) and start a container.
    Start {
        /// Its name.
        name: String,
        /// Attempt number = restart count.
        attempt: u32,
        /// An instance that was made but never started.
        adopt: Option<ContainerId>,
        /// The exit that this start follows, for the restart delay.
        after_exit: Option<Timestamp>,
    },
}

/// A container that is held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldBack {
    /// Its name.
    pub(crate) name: String,
    /// Attempt number of the instance that ended.
    pub(crate) attempt: u32,
    /// When it ended.
    pub(crate) since: Timestamp,
    /// Until when.
    pub(crate) until: Timestamp,
    /// The delay.
    pub(crate) delay: Duration,
}

/// The result: ordered steps, and when to look again if nothing happens before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Steps in order.
    pub(crate) actions: Vec<Action>,
    /// When to plan again.
    pub(crate) wake: Option<Timestamp>,
    /// Containers in a restart delay.
    pub(crate) held_back: Vec<HeldBack>,
    /// Nothing will ever run again: the pod is to be ended.
    pub(crate) finished: bool,
    /// All init containers are through.
    pub(crate) initialized: bool,
    /// All containers are being put back to the beginning.
    pub(crate) restarts_all: bool,
}

impl Plan {
    fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |old| old.min(at)));
    }
}

/// Decides the next steps of a pod.
pub(crate) fn plan(input: &Input<'_>) -> Plan {
    let mut plan = Plan::default();
    if input.terminating {
        return plan;
    }
    match home::sandbox(input, &mut plan) {
        SandboxState::Good(id) => {
            doubled(input, &id, &mut plan);
            if rules::restart_all(input, &id, &mut plan) {
                return plan;
            }
            guests::start(input, &id, &mut plan);
            match init::progress(input, &id, &mut plan) {
                init::Progress::Done => {
                    plan.initialized = true;
                    apps(input, Some(&id), &mut plan);
                }
                init::Progress::Busy => {}
                init::Progress::Failed => plan.finished = true,
            }
        }
        SandboxState::New => match input.wanted.init.first() {
            Some(first) => start(input, first, None, &mut plan),
            None => {
                plan.initialized = true;
                apps(input, None, &mut plan);
            }
        },
        SandboxState::Later => {}
        SandboxState::NotNeeded => plan.finished = true,
    }
    plan
}

/// Two live containers of one name must never be: what is not the newest of its name here goes first.
fn doubled(input: &Input<'_>, sandbox: &SandboxId, plan: &mut Plan) {
    let live = |c: &&Instance| matches!(c.state, InstanceState::Running | InstanceState::Unknown);
    for instance in input.observed.containers.iter().filter(live) {
        let newest = input.observed.newest_in(&instance.name, sandbox);
        if newest.is_none_or(|newest| newest.id != instance.id) {
            kill(instance, KillReason::Doubled, plan);
        }
    }
}

/// Main containers, one by one in spec order; `sandbox` is `None` when a new one is about to be made.
fn apps(input: &Input<'_>, sandbox: Option<&SandboxId>, plan: &mut Plan) {
    let mut over = true;
    for member in &input.wanted.apps {
        // What lives in this sandbox counts first, then the newest that ever was.
        let here = sandbox.and_then(|id| input.observed.newest_in(&member.name, id)).filter(|c| c.is_live());
        let newest = here.or_else(|| input.observed.newest(&member.name));
        match (newest.map(|c| c.state), here) {
            (Some(InstanceState::Running), Some(instance)) => {
                over = false;
                if instance.hash != member.hash {
                    kill(instance, KillReason::DefinitionChanged, plan);
                    start(input, member, None, plan);
                } else if input.resized.contains(&instance.id) {
                    kill(instance, KillReason::Resized, plan);
                    start(input, member, None, plan);
                } else if let Some(kind) = input.probed(instance).failed {
                    replace(input, member, instance, kind, plan);
                }
            }
            (Some(InstanceState::Created), Some(instance)) if instance.hash == member.hash => {
                over = false;
                adopt(input, instance, plan);
            }
            (Some(InstanceState::Unknown), Some(instance)) => {
                over = false;
                kill(instance, KillReason::StateUnknown, plan);
                start(input, member, None, plan);
            }
            (Some(InstanceState::Exited), _) => {
                if let Some(instance) = newest
                    && member.comes_back(instance)
                {
                    over = false;
                    restart(input, member, instance, plan);
                }
            }
            (Some(InstanceState::Running | InstanceState::Unknown), None)
                if newest.is_some_and(|instance| is_over(member, instance)) => {}
            (None | Some(InstanceState::Running | InstanceState::Created | InstanceState::Unknown), _) => {
                over = false;
                start(input, member, None, plan);
            }
        }
    }
    // With no main container left the sidecars have no purpose.
    plan.finished = over && !input.wanted.apps.is_empty();
}

/// An exit counts as a failure also when the kernel killed for memory and the code says 0.
pub(crate) fn failed(instance: &Instance) -> bool {
    instance.exit_code != 0 || instance.reason == "OOMKilled"
}

fn kill(instance: &Instance, reason: KillReason, plan: &mut Plan) {
    plan.actions.push(Action::Kill { id: instance.id.clone(), name: instance.name.clone(), reason });
}

/// Kills a container whose probe failed, and starts it anew in the same breath unless a restart delay is still on or the
/// pod never restarts anything.
fn replace(input: &Input<'_>, member: &Member, instance: &Instance, kind: ProbeKind, plan: &mut Plan) {
    let again = member.restart != Restart::Never;
    kill(instance, KillReason::Probe { kind, again }, plan);
    if !again {
        return;
    }
    // As upstream: the delay is counted from the exit before this one. If it is still on, the next plan sees the new exit.
    let exited = |c: &&Instance| c.name == member.name && c.state == InstanceState::Exited;
    let Some(last) = input.observed.containers.iter().find(exited) else { return start(input, member, None, plan) };
    let finished = at(last.finished_at, input.now);
    let entry = input.backoffs.get(&member.name);
    if entry.and_then(|e| e.until(&member.hash, finished, input.now)).is_none_or(|until| until <= input.now) {
        start(input, member, Some(finished), plan);
    }
}

fn adopt(input: &Input<'_>, instance: &Instance, plan: &mut Plan) {
    if held(input, &instance.name, plan) {
        return;
    }
    plan.actions.push(Action::Start {
        name: instance.name.clone(),
        attempt: instance.attempt,
        adopt: Some(instance.id.clone()),
        after_exit: None,
    });
}

/// Says whether a container waits after a failed try, and notes when that ends.
fn held(input: &Input<'_>, name: &str, plan: &mut Plan) -> bool {
    match input.holds.get(name) {
        Some(until) if *until > input.now => {
            plan.wake_at(*until);
            true
        }
        _ => false,
    }
}

fn start(input: &Input<'_>, member: &Member, after_exit: Option<Timestamp>, plan: &mut Plan) {
    if held(input, &member.name, plan) {
        return;
    }
    let observed = input.observed.containers.iter().filter(|c| c.name == member.name).map(|c| c.attempt).max();
    let attempt = observed.max(input.counted.get(&member.name).copied()).map_or(0, |last| last.saturating_add(1));
    plan.actions.push(Action::Start { name: member.name.clone(), attempt, adopt: None, after_exit });
}

/// Starts again after an exit, or waits for the end of the restart delay.
fn restart(input: &Input<'_>, member: &Member, instance: &Instance, plan: &mut Plan) {
    let finished = at(instance.finished_at, input.now);
    let entry = input.backoffs.get(&member.name);
    if let Some(until) = entry.and_then(|e| e.until(&member.hash, finished, input.now))
        && until > input.now
    {
        plan.wake_at(until);
        plan.held_back.push(HeldBack {
            name: member.name.clone(),
            attempt: instance.attempt,
            since: finished,
            until,
            delay: entry.map_or(Duration::ZERO, |e| Duration::from_millis(e.delay_ms)),
        });
        return;
    }
    start(input, member, Some(finished), plan);
}

/// A moment from the runtime; one in the future (a clock that stepped) or absent counts as now.
pub(crate) fn at(nanos: i64, now: Timestamp) -> Timestamp {
    if nanos <= 0 {
        return now;
    }
    Timestamp::from_nanosecond(i128::from(nanos)).map_or(now, |t| t.min(now))
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// `time` plus `by`, at most the last representable moment.
pub(crate) fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(signed(by)).unwrap_or(Timestamp::MAX)
}
