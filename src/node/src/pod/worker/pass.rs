//! One pass of a pod that should run: look, plan, act, show.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{Pull, Stage, Waiting, Worker};
use crate::event::{ContainerGroup, EventTarget};
use crate::journal::EndFacts;
use crate::pod::observed::{Instance, InstanceState};
use crate::pod::plan::{Action, Input, Plan, Role, plan};
use crate::pod::slots::Slot;
use crate::pod::{read, wanted};

/// Reason and text of a pod that ran longer than `activeDeadlineSeconds`.
const DEADLINE_REASON: &str = "DeadlineExceeded";
const DEADLINE_MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

impl Worker {
    /// Takes all steps that can be taken now. May be dropped at any await: the next pass looks anew.
    pub(super) async fn pass(&mut self) {
        self.wake_at = None;
        if !self.fresh && !self.look().await {
            return;
        }
        if self.is_past_deadline() {
            self.inbox.nudge();
            return;
        }
        self.owed_hooks().await;
        loop {
            let plan = self.plan();
            self.note_held_back(&plan);
            self.restarts_all = plan.restarts_all;
            if plan.finished {
                self.order_end(EndFacts::default());
                self.inbox.nudge();
                return;
            }
            self.publish(false);
            if let Some(at) = plan.wake {
                self.wake_by(at);
            }
            if self.waits_for_network(&plan) {
                return;
            }
            if !self.prepared && !self.prepare().await {
                self.publish(false);
                return;
            }
            // What needs no new start comes first: the pod has grown before anything larger starts in it.
            self.put_into_force().await;
            if plan.actions.is_empty() || !self.act(plan.actions).await {
                break;
            }
        }
        self.publish(false);
    }

    /// Reads the pod from the runtime; on failure asks for a later try.
    pub(in crate::pod) async fn look(&mut self) -> bool {
        match read::pod(&*self.cx.options.runtime, &self.desired.uid, &self.observed).await {
            Ok(mut observed) => {
                self.undo_cut_off(&mut observed).await;
                self.took(observed);
                self.fresh = true;
                self.succeeded("look");
                true
            }
            Err(error) => {
                let at = self.retry_at("look", None);
                self.wake_by(at);
                tracing::warn!(pod = %self.desired.key, %error, "runtime cannot be asked about the pod");
                false
            }
        }
    }

    pub(super) fn plan(&self) -> Plan {
        let mut counted: BTreeMap<String, u32> = self
            .facts
            .containers
            .iter()
            .filter_map(|(name, c)| Some((name.clone(), c.instances.first().map(|i| i.attempt).max(c.counted)?)))
            .collect();
        // Another agent's restarts count on.
        let status = self.desired.pod.status.as_ref();
        let lists = status.map(|s| [s.container_statuses.as_deref(), s.init_container_statuses.as_deref()]);
        for known in lists.into_iter().flatten().flatten().flatten() {
            if known.container_id.as_deref().is_some_and(|id| !id.is_empty())
                && let Ok(count) = u32::try_from(known.restart_count)
            {
                let entry = counted.entry(known.name.clone()).or_insert(count);
                *entry = count.max(*entry);
            }
        }
        let probes = self.probed();
        let resized = self.resized();
        let backoffs =
            self.facts.containers.iter().filter_map(|(name, c)| Some((name.clone(), c.backoff.clone()?))).collect();
        plan(&Input {
            wanted: &self.wanted,
            observed: &self.observed,
            backoffs: &backoffs,
            holds: &self.holds,
            probes: &probes,
            resized: &resized,
            counted: &counted,
            terminating: self.stage != Stage::Sync,
            now: self.now(),
        })
    }

    /// Tells once per exit that a container is held back.
    fn note_held_back(&mut self, plan: &Plan) {
        for held in &plan.held_back {
            if self.told.get(&held.name) == Some(&held.attempt) {
                continue;
            }
            self.told.insert(held.name.clone(), held.attempt);
            let message = format!(
                "Back-off restarting failed container {} in pod {}_{}({})",
                held.name, self.desired.key.name, self.desired.key.namespace, self.desired.uid
            );
            self.events().warning(&self.container_target(&held.name), "BackOff", message);
        }
        self.held_back.clone_from(&plan.held_back);
        let now = self.now();
        for held in &plan.held_back {
            let shown_from = crate::pod::status::crash_loop_shown_from(held);
            if shown_from > now {
                self.wake_by(shown_from);
            }
        }
    }

    /// Notes the end of a pod that has run too long, or when that will be.
    fn is_past_deadline(&mut self) -> bool {
        let seconds = self.desired.pod.spec.as_ref().and_then(|s| s.active_deadline_seconds);
        let (Some(seconds), Some(start)) = (seconds, self.facts.start_time) else { return false };
        let end = start.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        if end > self.now() {
            self.wake_by(end);
            return false;
        }
        self.events().normal(&self.target(), DEADLINE_REASON, DEADLINE_MESSAGE);
        self.order_end(EndFacts {
            reason: Some(DEADLINE_REASON.to_owned()),
            message: Some(DEADLINE_MESSAGE.to_owned()),
            ..EndFacts::default()
        });
        true
    }

    /// Makes cgroup and volumes stand, side by side.
    async fn prepare(&mut self) -> bool {
        // Before anything of the pod is on the machine: what an agent left that was killed here is found by the facts.
        self.save_and_wait().await;
        let options = &self.cx.options;
        let (cgroup, volumes) = tokio::join!(
            options.cgroups.ensure(&self.desired, self.facts.resize.is_some()),
            options.prepare.volumes(&self.desired)
        );
        let failure = match (cgroup, volumes) {
            (Ok(()), Ok(())) => {
                self.prepared = true;
                self.stuck = None;
                self.succeeded("prepare");
                return true;
            }
            (Err(failure), _) | (_, Err(failure)) => failure,
        };
        tracing::warn!(pod = %self.desired.key, error = %failure.message, "pod cannot be prepared");
        self.events().event(
            &self.target(),
            crate::event::EventType::Warning,
            failure.reason.clone(),
            failure.message.clone(),
        );
        self.stuck_on(failure.message);
        let at = self.retry_at("prepare", failure.retry_after);
        self.wake_by(at);
        false
    }

    /// Carries out the steps; returns whether another plan makes sense at once.
    async fn act(&mut self, actions: Vec<Action>) -> bool {
        let mut slot: Option<Slot> = None;
        let mut again = false;
        let mut starts = Vec::new();
        let due: Vec<String> = actions
            .iter()
            .filter_map(|a| match a {
                Action::Start { name, adopt: None, .. } => Some(name.clone()),
                Action::Start { .. }
                | Action::Kill { .. }
                | Action::Remove { .. }
                | Action::StopSandbox(_)
                | Action::CreateSandbox { .. } => None,
            })
            .collect();
        let makes_sandbox = actions.iter().any(|a| matches!(a, Action::CreateSandbox { .. }));
        if !makes_sandbox {
            // Images come while what is to be replaced ends, so that nothing lies between its end and the next start.
            self.pull(&due);
        }
        for action in actions {
            match action {
                Action::Kill { id, name, reason } => {
                    let begun = self.now();
                    if !self.kill_one(&id, &name, reason).await {
                        return false;
                    }
                    if self.ended_before(&id, begun) {
                        // What follows was planned for one that runs; it may not come back at all.
                        return true;
                    }
                    let runs = |c: &Instance| c.id == id && c.state == InstanceState::Running;
                    again |= !self.observed.containers.iter().any(runs);
                }
                Action::Remove { id, name, after_exit } => {
                    if !self.forget_container(&id, &name, after_exit).await {
                        return false;
                    }
                    again = true;
                }
                Action::StopSandbox(id) => {
                    // Nothing runs in a dead one: the next need not wait until the runtime is through with it.
                    let lives = self.observed.sandboxes.iter().any(|s| s.id == id && s.ready);
                    if !self.stop_sandbox(&id).await && lives {
                        return false;
                    }
                }
                Action::CreateSandbox { attempt, changed } => {
                    // A handler of its own may be missing, and may want its images its own way: first it must stand.
                    if self.desired.runtime_class().is_none() {
                        self.pull(&due);
                    }
                    if slot.is_none() {
                        slot = Some(self.cx.starts.take().await);
                    }
                    if !self.create_sandbox(attempt, changed, &mut slot).await {
                        return false;
                    }
                    self.publish(false);
                }
                Action::Start { .. } => starts.push(action),
            }
        }
        self.pull(&due);
        self.start_all(starts, slot).await || again
    }

    /// Says whether a container was already over at that moment, as when the runtime lost the event of its end.
    fn ended_before(&self, id: &crate::model::ContainerId, moment: Timestamp) -> bool {
        let ended = |c: &&Instance| c.id == *id && c.state == InstanceState::Exited && c.finished_at > 0;
        let found = self.observed.containers.iter().find(ended);
        found.is_some_and(|c| i128::from(c.finished_at) < moment.as_nanosecond())
    }

    /// Starts containers in spec order; one whose image is still on its way does not hold up the others.
    async fn start_all(&mut self, mut starts: Vec<Action>, mut slot: Option<Slot>) -> bool {
        let mut progress = false;
        while !starts.is_empty() {
            let ready = starts.iter().position(|action| match action {
                Action::Start { name, adopt: None, .. } => {
                    self.pulls.get(name).is_none_or(|p| p.outcome.lock().is_some())
                }
                Action::Start { .. }
                | Action::Kill { .. }
                | Action::Remove { .. }
                | Action::StopSandbox(_)
                | Action::CreateSandbox { .. } => true,
            });
            let Some(index) = ready else {
                // Not while others wait for a place.
                slot = None;
                self.inbox.rung().await;
                let arrived = self.pulls.values().any(|p| p.outcome.lock().is_some());
                if !arrived {
                    // The bell rang for something else: that pass comes first, the pulls go on.
                    self.inbox.nudge();
                    return false;
                }
                continue;
            };
            if let Action::Start { name, attempt, adopt, after_exit } = starts.remove(index) {
                if slot.is_none() {
                    slot = Some(self.cx.starts.take().await);
                }
                progress |= self.start(&name, attempt, adopt, after_exit, &mut slot).await;
            }
        }
        // News that came in while the bell was used for pulls must not be slept through.
        self.inbox.nudge();
        progress
    }

    /// Begins to make images present.
    fn pull(&mut self, names: &[String]) {
        for name in names {
            if self.pulls.contains_key(name) {
                continue;
            }
            let outcome: std::sync::Arc<parking_lot::Mutex<_>> = std::sync::Arc::default();
            let cell = std::sync::Arc::clone(&outcome);
            let prepare = std::sync::Arc::clone(&self.cx.options.prepare);
            let (desired, name, inbox) = (self.desired.clone(), name.clone(), std::sync::Arc::clone(&self.inbox));
            let container = name.clone();
            let work = async move {
                let result = prepare.image(&desired, &container).await;
                *cell.lock() = Some(result);
                inbox.nudge();
            };
            let task = longshore_util::spawn(&self.cx.tasks, "pull", Box::pin(work)).abort_handle();
            self.pulls.insert(name, Pull { outcome, task });
        }
    }

    /// A container's try failed: shown in its status, tried again later.
    pub(in crate::pod) fn container_failed(&mut self, name: &str, failure: &crate::pod::Failure) {
        self.cx
            .options
            .metrics
            .container_start_failed(wanted::container_type(&self.desired.pod, name), &failure.reason);
        let at = self.retry_at(name, failure.retry_after);
        self.holds.insert(name.to_owned(), at);
        self.wake_by(at);
        let waiting = Waiting { reason: failure.reason.clone(), message: failure.message.clone() };
        self.waiting.insert(name.to_owned(), waiting);
    }

    pub(in crate::pod) fn container_target(&self, name: &str) -> EventTarget {
        let group = match wanted::role(&self.desired.pod, name) {
            Some(Role::Init | Role::Sidecar) => ContainerGroup::Init,
            Some(Role::Ephemeral) => ContainerGroup::Ephemeral,
            Some(Role::App) | None => ContainerGroup::Main,
        };
        EventTarget::container(&self.desired, group, name)
    }
}
