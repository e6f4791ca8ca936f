//! Keeps the facts of the pod in step with what is observed, and fills what the runtime has forgotten from the facts.

use longshore_cri::v1;

use super::{Stage, Worker, memory};
use crate::journal::{ExitFacts, FirstFailure, InstanceFacts};
use crate::pod::observed::{Instance, InstanceState, Observed};
use crate::pod::{probing, read, resize, wanted};
use crate::probe::Known;

/// Shown for a container that ran and that the runtime no longer has.
const LOST_REASON: &str = "ContainerStatusUnknown";
const LOST_MESSAGE: &str = "The container could not be located when the pod was terminated";
const LOST_CODE: i32 = 137;
/// What the runtime says of a container whose start it broke off itself: nothing of the user's ran in it. A container that
/// ended in any other way may have done its work and is never made anew under its number.
const CUT_OFF_CODE: i32 = 128;
const CUT_OFF_REASON: &str = "StartError";

impl Worker {
    /// Takes over a look at the runtime.
    pub(super) fn took(&mut self, observed: Observed) {
        self.observed = observed;
        for index in 0..self.observed.containers.len() {
            self.note(index);
        }
        if let Some(sandbox) = self.observed.sandboxes.first_mut() {
            let own = self.facts.ips_of.as_ref() == Some(&sandbox.id);
            if sandbox.ips.is_empty() && sandbox.ready && own {
                // A runtime that was started again may have forgotten it; the sandbox still has what it was given.
                sandbox.ips.clone_from(&self.facts.ips);
            }
            if !sandbox.ips.is_empty() && (self.facts.ips != sandbox.ips || !own) {
                self.facts.ips.clone_from(&sandbox.ips);
                self.facts.ips_of = Some(sandbox.id.clone());
                self.unsaved = true;
            }
        }
        self.recall();
    }

    /// Undoes starts that the end of an earlier agent cut off: runtimes then kill the half-started process, and the
    /// container would count as one that ran and failed. It is made anew under the same number.
    pub(super) async fn undo_cut_off(&mut self, observed: &mut Observed) {
        let cut_off: Vec<Instance> = observed.containers.iter().filter(|c| self.was_cut_off(c)).cloned().collect();
        for instance in cut_off {
            if self.undo(&instance).await {
                observed.containers.retain(|c| c.id != instance.id);
            }
        }
    }

    /// Removes a container whose start was cut off; returns whether it is gone.
    pub(in crate::pod) async fn undo(&mut self, instance: &Instance) -> bool {
        self.cx.options.cgroups.clear(&self.desired, &instance.id).await;
        let request = v1::RemoveContainerRequest { container_id: instance.id.to_string() };
        if let Err(error) = self.cx.options.runtime.remove_container(request).await {
            tracing::warn!(pod = %self.desired.key, container = %instance.name, %error, "a start that was cut off cannot be undone");
            return false;
        }
        tracing::info!(pod = %self.desired.key, container = %instance.name, id = %instance.id, "undid a start that was cut off");
        self.observed.containers.retain(|c| c.id != instance.id);
        if let Some(facts) = self.facts.containers.get_mut(&instance.name) {
            facts.instances.retain(|known| known.id != instance.id);
            self.unsaved = true;
        }
        true
    }

    /// Made by an earlier agent, never seen to run, and an end that is the runtime's own doing. The runtime may take
    /// seconds to come to that end: until then it shows the container as created, and refuses to start it.
    pub(in crate::pod) fn was_cut_off(&self, instance: &Instance) -> bool {
        let Some(facts) = self.facts.containers.get(&instance.name) else { return false };
        let unseen = match facts.instance(&instance.id) {
            Some(known) => known.exit.is_none() && known.started_at == 0,
            None => facts.intent == Some(instance.attempt),
        };
        unseen
            && self.made.get(&instance.name) != Some(&instance.id)
            && instance.state == InstanceState::Exited
            && instance.reason == CUT_OFF_REASON
            && instance.exit_code == CUT_OFF_CODE
    }

    /// Takes over one instance.
    pub(in crate::pod) fn took_instance(&mut self, instance: Instance) {
        let id = instance.id.clone();
        self.observed.put(instance);
        if let Some(index) = self.observed.containers.iter().position(|c| c.id == id) {
            self.note(index);
        }
    }

    /// Writes an observed instance into the facts; an exit that was noted before stands.
    fn note(&mut self, index: usize) {
        let Some(instance) = self.observed.containers.get_mut(index) else { return };
        let known = self.facts.containers.get(&instance.name).and_then(|c| c.instance(&instance.id)).cloned();
        let mut exit = known.as_ref().and_then(|k| k.exit.clone());
        let in_force = known.as_ref().and_then(|k| k.in_force.clone());
        if instance.state == InstanceState::Exited {
            match &exit {
                Some(exit) => fill(instance, exit),
                None => {
                    if let Some(message) = read::termination_message(&self.desired.pod, instance) {
                        instance.message = message;
                    }
                    if self.stage == Stage::Sync {
                        memory::judge(&self.cx.options, &self.desired, instance);
                    }
                    exit = Some(ExitFacts {
                        code: instance.exit_code,
                        reason: instance.reason.clone(),
                        message: instance.message.clone(),
                        finished_at: instance.finished_at,
                    });
                    let kind = wanted::container_type(&self.desired.pod, &instance.name);
                    self.cx.options.metrics.container_ended(kind, instance.exit_code, &instance.reason);
                    tracing::info!(
                        pod = %self.desired.key, container = %instance.name, id = %instance.id,
                        code = instance.exit_code, reason = %instance.reason, "container exited"
                    );
                }
            }
        }
        // A verdict stands for the life of the process, whoever asks.
        let known = match (instance.state, known) {
            (InstanceState::Running | InstanceState::Unknown, Some(known)) if known.started_at != 0 => {
                Known { started: known.started, ready: known.ready }
            }
            (InstanceState::Running, _) => probing::first_known(&self.desired.pod, instance),
            (InstanceState::Created | InstanceState::Exited | InstanceState::Unknown, _) => Known::default(),
        };
        let own = self.made.get(&instance.name) == Some(&instance.id);
        let in_force = in_force.or_else(|| resize::first_size(&self.facts, &self.desired.pod, &instance.name, own));
        let facts = InstanceFacts {
            id: instance.id.clone(),
            attempt: instance.attempt,
            sandbox: Some(instance.sandbox.clone()),
            started_at: instance.started_at,
            ready: known.ready,
            started: known.started,
            hash: instance.hash.clone(),
            image: instance.image.clone(),
            image_ref: instance.image_ref.clone(),
            user: instance.user.clone(),
            in_force,
            exit,
        };
        let entry = self.facts.containers.entry(instance.name.clone()).or_default();
        if let Some(exit) = facts.exit.as_ref().filter(|exit| exit.code != 0)
            && entry.first_failure.is_none()
        {
            entry.first_failure = Some(FirstFailure { attempt: instance.attempt, exit: exit.clone() });
            self.unsaved = true;
        }
        if entry.intent.is_some_and(|intent| intent <= instance.attempt) {
            entry.intent = None;
            self.unsaved = true;
        }
        if entry.put(facts) {
            self.unsaved = true;
        }
    }

    /// Adds instances that only the facts know: one that exited stays exited, one that ran is lost.
    pub(super) fn recall(&mut self) {
        for (name, facts) in &self.facts.containers {
            for known in &facts.instances {
                if self.observed.containers.iter().any(|c| c.id == known.id) {
                    continue;
                }
                let lost = known.exit.is_none();
                if lost && known.started_at == 0 {
                    // Made but never started: nothing is owed to it.
                    continue;
                }
                let exit = known.exit.clone().unwrap_or_else(|| ExitFacts {
                    code: LOST_CODE,
                    reason: LOST_REASON.to_owned(),
                    message: LOST_MESSAGE.to_owned(),
                    finished_at: 0,
                });
                let mut instance = Instance {
                    id: known.id.clone(),
                    name: name.clone(),
                    attempt: known.attempt,
                    sandbox: known.sandbox.clone().unwrap_or_else(|| "".into()),
                    state: InstanceState::Exited,
                    created_at: 0,
                    started_at: known.started_at,
                    finished_at: 0,
                    exit_code: 0,
                    reason: String::new(),
                    message: String::new(),
                    image: known.image.clone(),
                    image_ref: known.image_ref.clone(),
                    hash: known.hash.clone(),
                    termination_file: None,
                    log_path: String::new(),
                    user: known.user.clone(),
                    stop_signal: None,
                    actual: None,
                };
                fill(&mut instance, &exit);
                self.observed.containers.push(instance);
            }
        }
        self.observed.sort();
    }
}

fn fill(instance: &mut Instance, exit: &ExitFacts) {
    instance.exit_code = exit.code;
    instance.reason.clone_from(&exit.reason);
    instance.message.clone_from(&exit.message);
    instance.finished_at = exit.finished_at;
}
