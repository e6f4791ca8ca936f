//! Init containers: each to success, in order; sidecars count as through once they run.

use super::{Action, Input, KillReason, Member, Plan, Role, failed, kill, replace, restart, start};
use crate::model::SandboxId;
use crate::pod::observed::{Instance, InstanceState};
use crate::probe::ProbeKind;

/// How far the init containers are.
pub(super) enum Progress {
    /// Main containers may run.
    Done,
    /// Something runs, starts or waits.
    Busy,
    /// One failed for good.
    Failed,
}

/// Decides over the init containers of the present sandbox; the scan goes from the last one to the first.
pub(super) fn progress(input: &Input<'_>, sandbox: &SandboxId, plan: &mut Plan) -> Progress {
    let init = &input.wanted.init;
    if init.is_empty() {
        return Progress::Done;
    }
    // A main container that was made proves that init is through, also when the records of init are gone.
    let mains =
        input.wanted.apps.iter().filter_map(|m| input.observed.newest_in(&m.name, sandbox)).collect::<Vec<&Instance>>();
    let mut later = mains.iter().any(|c| c.is_live());
    let mut done = !mains.is_empty();
    let mut failed_for_good = false;
    let mut begun = done;
    // Steps are found last to first but carried out first to last.
    let mut steps: Vec<Vec<Action>> = Vec::new();
    for (index, member) in init.iter().enumerate().rev() {
        let Some(instance) = input.observed.newest_in(&member.name, sandbox) else {
            if member.role == Role::Sidecar && later {
                steps.push(step(|plan| start(input, member, None, plan), plan));
            }
            continue;
        };
        begun = true;
        let last = index + 1 == init.len();
        if member.role == Role::Init && (later || done) {
            later = true;
            continue;
        }
        match verdict(input, member, instance) {
            Verdict::Through => {
                if last {
                    done = true;
                } else if !later && !done {
                    let next = &init[index + 1];
                    steps.push(step(|plan| start(input, next, None, plan), plan));
                }
                let changed = match instance.hash == member.hash {
                    false => Some(KillReason::DefinitionChanged),
                    true => input.resized.contains(&instance.id).then_some(KillReason::Resized),
                };
                if let Some(reason) = changed.filter(|_| member.role == Role::Sidecar) {
                    steps.push(step(
                        |plan| {
                            kill(instance, reason, plan);
                            start(input, member, None, plan);
                        },
                        plan,
                    ));
                } else if let Some(kind) = sidecar_failure(input, member, instance) {
                    steps.push(step(|plan| replace(input, member, instance, kind, plan), plan));
                }
            }
            Verdict::NotStarted(kind) => steps.push(step(|plan| replace(input, member, instance, kind, plan), plan)),
            Verdict::Wait => {}
            Verdict::Adopt => steps.push(step(|plan| super::adopt(input, instance, plan), plan)),
            Verdict::Again => steps.push(step(|plan| restart(input, member, instance, plan), plan)),
            Verdict::Replace => steps.push(step(
                |plan| {
                    kill(instance, KillReason::StateUnknown, plan);
                    start(input, member, None, plan);
                },
                plan,
            )),
            Verdict::Failed => failed_for_good = true,
        }
        later = true;
    }
    if failed_for_good {
        return Progress::Failed;
    }
    if !begun {
        start(input, &init[0], None, plan);
        return Progress::Busy;
    }
    plan.actions.extend(steps.into_iter().rev().flatten());
    if done { Progress::Done } else { Progress::Busy }
}

/// Runs `decide` on a scratch plan and keeps its waits; the actions are put in order by the caller.
fn step(decide: impl FnOnce(&mut Plan), plan: &mut Plan) -> Vec<Action> {
    let mut scratch = Plan::default();
    decide(&mut scratch);
    if let Some(wake) = scratch.wake {
        plan.wake_at(wake);
    }
    plan.held_back.append(&mut scratch.held_back);
    scratch.actions
}

enum Verdict {
    Through,
    Wait,
    /// Its startup probe has given up.
    NotStarted(ProbeKind),
    Adopt,
    Again,
    Replace,
    Failed,
}

/// The probe that failed of a sidecar that runs.
fn sidecar_failure(input: &Input<'_>, member: &Member, instance: &Instance) -> Option<ProbeKind> {
    let runs = member.role == Role::Sidecar && instance.state == InstanceState::Running;
    input.probed(instance).failed.filter(|_| runs)
}

fn verdict(input: &Input<'_>, member: &Member, instance: &Instance) -> Verdict {
    match (member.role, instance.state) {
        (_, InstanceState::Created) => Verdict::Adopt,
        (Role::Sidecar, InstanceState::Running) => match input.probed(instance) {
            super::Probed { started: true, .. } => Verdict::Through,
            super::Probed { failed: Some(kind), .. } => Verdict::NotStarted(kind),
            super::Probed { started: false, failed: None } => Verdict::Wait,
        },
        (_, InstanceState::Running) => Verdict::Wait,
        (Role::Sidecar, InstanceState::Exited) => Verdict::Again,
        (_, InstanceState::Exited) if !failed(instance) => Verdict::Through,
        (_, InstanceState::Exited) if member.comes_back(instance) => Verdict::Again,
        (_, InstanceState::Exited) => Verdict::Failed,
        (Role::Sidecar, InstanceState::Unknown) => Verdict::Replace,
        (_, InstanceState::Unknown) if member.restart == super::Restart::Never => Verdict::Failed,
        (_, InstanceState::Unknown) => Verdict::Replace,
    }
}
