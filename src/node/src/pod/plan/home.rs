//! The sandbox: whether the present one is good, and what a new one is made for.

use super::{Action, Input, KillReason, Member, Plan, Restart, SANDBOX_HOLD, held};
use crate::model::SandboxId;
use crate::pod::observed::{Instance, InstanceState};

/// Where the pod's containers can live.
pub(super) enum SandboxState {
    Good(SandboxId),
    New,
    Later,
    NotNeeded,
}

/// Says whether the sandbox is good; otherwise plans its end and a new one, where anything would run in it.
pub(super) fn sandbox(input: &Input<'_>, plan: &mut Plan) -> SandboxState {
    let observed = input.observed;
    let ready = observed.sandboxes.iter().filter(|s| s.ready).count();
    if let Some(newest) = observed.newest_sandbox()
        && newest.ready
        && ready == 1
        && (input.wanted.host_network || !newest.ips.is_empty())
    {
        return SandboxState::Good(newest.id.clone());
    }
    let changed = !observed.sandboxes.is_empty();
    if changed && !worth_a_new_sandbox(input) {
        return SandboxState::NotNeeded;
    }
    if held(input, SANDBOX_HOLD, plan) {
        return SandboxState::Later;
    }
    for instance in observed.containers.iter().filter(|c| c.state != InstanceState::Exited) {
        plan.actions.push(Action::Kill {
            id: instance.id.clone(),
            name: instance.name.clone(),
            reason: KillReason::SandboxChanged,
        });
    }
    // The newest also when it is dead, as after a reboot: only its stop gives its address back.
    for (_, old) in observed.sandboxes.iter().enumerate().filter(|(place, s)| s.ready || *place == 0) {
        plan.actions.push(Action::StopSandbox(old.id.clone()));
    }
    let attempt = observed.newest_sandbox().map_or(0, |s| s.attempt.saturating_add(1));
    plan.actions.push(Action::CreateSandbox { attempt, changed });
    SandboxState::New
}

/// Says whether anything would run in a new sandbox.
fn worth_a_new_sandbox(input: &Input<'_>) -> bool {
    let ran = !input.observed.containers.is_empty();
    // A container with a policy of its own may come back in a pod that never restarts anything.
    if ran && input.wanted.restart == Restart::Never && input.wanted.apps.iter().all(never_restarts) {
        return false;
    }
    let done = |member: &Member| input.observed.newest(&member.name).is_some_and(|c| is_over(member, c));
    !input.wanted.apps.iter().all(done)
}

fn never_restarts(member: &Member) -> bool {
    member.restart == Restart::Never && member.rules.is_empty()
}

/// Says whether a container of an earlier sandbox is not followed by another one. What lives there will be killed: it has
/// run, so one that never restarts has had its turn.
pub(super) fn is_over(member: &Member, instance: &Instance) -> bool {
    match instance.state {
        InstanceState::Exited => !member.comes_back(instance),
        InstanceState::Running | InstanceState::Unknown => never_restarts(member),
        InstanceState::Created => false,
    }
}
