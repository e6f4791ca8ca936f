//! Rules by exit code: a container may come back for some codes only, or take the whole pod back to its beginning.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerRestartRule};

use super::{Action, Input, KillReason, Member, Plan, Wanted, failed};
use crate::model::SandboxId;
use crate::pod::observed::{Instance, InstanceState};

/// What one rule says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExitRule {
    /// Exit codes.
    codes: Vec<i32>,
    /// Whether the rule is for all codes but these.
    but: bool,
    /// Whether all containers begin anew, not this one alone.
    all: bool,
}

impl ExitRule {
    /// Reads the rules of a container; they count only beside a restart policy of its own.
    pub(crate) fn of(container: &Container) -> Vec<Self> {
        if container.restart_policy.is_none() {
            return Vec::new();
        }
        container.restart_policy_rules.iter().flatten().filter_map(Self::read).collect()
    }

    fn read(rule: &ContainerRestartRule) -> Option<Self> {
        let codes = rule.exit_codes.as_ref()?;
        let but = match codes.operator.as_str() {
            "In" => false,
            "NotIn" => true,
            _ => return None,
        };
        let all = match rule.action.as_str() {
            "Restart" => false,
            "RestartAllContainers" => true,
            _ => return None,
        };
        Some(Self { codes: codes.values.clone().unwrap_or_default(), but, all })
    }

    fn is_for(&self, code: i32) -> bool {
        self.codes.contains(&code) != self.but
    }
}

impl Wanted {
    /// Says whether some exit takes the whole pod back to its beginning.
    pub(crate) fn may_restart_all(&self) -> bool {
        self.init.iter().chain(&self.apps).any(|member| member.rules.iter().any(|rule| rule.all))
    }
}

impl Member {
    fn rule(&self, instance: &Instance) -> Option<&ExitRule> {
        self.rules.iter().find(|rule| rule.is_for(instance.exit_code))
    }

    /// Says whether an instance that has exited is followed by another one.
    pub(super) fn comes_back(&self, instance: &Instance) -> bool {
        self.rule(instance).is_some() || self.restart.wants(failed(instance))
    }
}

/// Takes the pod back to its beginning if an exit asks for it: everything that lives is stopped, then the records go, the
/// one that asked for it last, so that whoever comes in between sees that this is not finished. Returns whether it is so.
pub(super) fn restart_all(input: &Input<'_>, sandbox: &SandboxId, plan: &mut Plan) -> bool {
    let members = || input.wanted.init.iter().chain(&input.wanted.apps);
    let asks = |instance: &Instance| {
        instance.state == InstanceState::Exited
            && instance.sandbox == *sandbox
            && input.observed.newest_in(&instance.name, sandbox).is_some_and(|newest| newest.id == instance.id)
            && members()
                .find(|member| member.name == instance.name)
                .and_then(|member| member.rule(instance))
                .is_some_and(|rule| rule.all)
    };
    // Who fails again and again waits as any other container does; the rest runs on meanwhile.
    let is_held = |instance: &Instance| {
        let member = members().find(|member| member.name == instance.name);
        let entry = input.backoffs.get(&instance.name);
        let until =
            member.zip(entry).and_then(|(member, entry)| entry.until(&member.hash, ended(input, instance), input.now));
        until.is_some_and(|until| until > input.now)
    };
    if !input.observed.containers.iter().any(|instance| asks(instance) && !is_held(instance)) {
        return false;
    }
    plan.restarts_all = true;
    let own = || input.observed.containers.iter().filter(|c| members().any(|member| member.name == c.name));
    for live in own().filter(|c| c.is_live()) {
        plan.actions.push(Action::Kill {
            id: live.id.clone(),
            name: live.name.clone(),
            reason: KillReason::PodRestarts,
        });
    }
    if plan.actions.is_empty() {
        let (last, first): (Vec<&Instance>, Vec<&Instance>) = own().partition(|c| asks(c));
        for gone in first.into_iter().chain(last) {
            let after_exit = asks(gone).then(|| ended(input, gone));
            plan.actions.push(Action::Remove { id: gone.id.clone(), name: gone.name.clone(), after_exit });
        }
    }
    true
}

fn ended(input: &Input<'_>, instance: &Instance) -> Timestamp {
    super::at(instance.finished_at, input.now)
}
