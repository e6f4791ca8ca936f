//! The end of a pod: hooks and stops under one shared deadline, sandbox down, final status, everything released.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use longshore_cri::v1;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Stage, Worker};
use crate::model::SandboxId;
use crate::pod::observed::{Instance, InstanceState};
use crate::pod::plan::Role;
use crate::pod::ports::Failure;
use crate::pod::stop::{self, Stopped, Turn};
use crate::pod::wanted;

/// How long the end waits for a create or start in flight, so that what it makes can be stopped with the rest.
const IN_FLIGHT: Duration = Duration::from_secs(10);

impl Worker {
    /// Ends the pod. Returns early, to be called again, when a step failed.
    pub(super) async fn end(&mut self) {
        // Acknowledged: from here on nothing of the pod starts.
        self.pulls.clear();
        self.held_back.clear();
        self.restarts_all = false;
        self.save();
        let calls = Arc::clone(&self.calls);
        if tokio::time::timeout(IN_FLIGHT, calls.lock()).await.is_err() {
            tracing::warn!(pod = %self.desired.key, "a runtime call hangs, ending the pod beside it");
        }
        self.waiting.clear();
        loop {
            self.absorb();
            if !self.fresh && !self.look().await {
                self.pause_for_retry().await;
                continue;
            }
            self.publish(false);
            if self.step_down().await {
                break;
            }
            self.pause_for_retry().await;
        }
        self.drop_resize();
        self.publish(false);
        self.cx.options.probes.forget(&self.desired.uid);
        while !self.release().await {
            self.pause_for_retry().await;
        }
        self.facts.ended = true;
        self.unsaved = true;
        self.save();
        self.stage = Stage::Ended;
        self.wake_at = None;
        self.shown.set_over();
        self.table.room_appeared();
        self.publish(true);
        tracing::info!(pod = %self.desired.key, uid = %self.desired.uid, "pod ended");
    }

    /// Stops containers, then sandboxes; returns whether all is down.
    async fn step_down(&mut self) -> bool {
        let live: Vec<Instance> = self.observed.containers.iter().filter(|c| c.is_live()).cloned().collect();
        if !live.is_empty() && !self.stop_containers(live).await {
            return false;
        }
        let sandboxes: Vec<SandboxId> =
            self.observed.sandboxes.iter().filter(|s| s.ready).map(|s| s.id.clone()).collect();
        for id in sandboxes {
            if !self.stop_sandbox(&id).await {
                return false;
            }
        }
        !self.observed.has_live_containers()
    }

    /// What is left of the grace the pod was given, in whole seconds; at least one.
    fn grace(&self) -> Duration {
        // Settled where orders are merged (`order_end`), which records of older agents pass, too.
        let grace = self.facts.end.as_ref().and_then(|end| end.grace_seconds);
        Duration::from_secs(grace.and_then(|grace| u64::try_from(grace.max(1)).ok()).unwrap_or(1))
    }

    /// Stops all containers under one deadline. All hooks begin at once; the stop signal reaches the main containers side by
    /// side, then the sidecars in reverse order.
    async fn stop_containers(&mut self, live: Vec<Instance>) -> bool {
        let begin = Instant::now();
        let (deadline, seen) = watch::channel(begin + self.grace());
        let turns: Vec<(usize, Instance)> = live.into_iter().map(|c| (self.turn_of(&c), c)).collect();
        let mut left: Vec<usize> = turns.iter().map(|(turn, _)| *turn).collect();
        let (turn, now) = watch::channel(left.iter().min().copied().unwrap_or(0));
        let mut stops = FuturesUnordered::new();
        for (own, instance) in turns {
            if instance.state == InstanceState::Running {
                let text = format!("Stopping container {}", instance.name);
                self.events().normal(&self.container_target(&instance.name), "Killing", text);
            }
            let hook = self.pre_stop(&instance);
            let runtime = Arc::clone(&self.cx.options.runtime);
            let (turn, seen) = (Turn::new(now.clone(), own), seen.clone());
            stops.push(Box::pin(async move { (own, stop::stop(runtime, instance, hook, Some(turn), seen).await) }));
        }
        let inbox = Arc::clone(&self.inbox);
        let mut good = true;
        loop {
            tokio::select! {
                biased;
                () = inbox.urgent() => {
                    self.absorb();
                    let shorter = begin + self.grace();
                    deadline.send_if_modified(|at| std::mem::replace(at, (*at).min(shorter)) > shorter);
                }
                done = stops.next() => {
                    let Some((own, stopped)) = done else { break };
                    if let Some(place) = left.iter().position(|turn| *turn == own) {
                        left.swap_remove(place);
                    }
                    turn.send_replace(left.iter().min().copied().unwrap_or(own));
                    self.stopped(stopped, &mut good).await;
                }
                // Readiness goes on to be asked for, so that traffic leaves a pod that says it is no longer ready.
                () = inbox.rung() => {
                    self.absorb();
                    if self.probe() {
                        self.publish(false);
                    }
                }
            }
        }
        good
    }

    /// Whose turn a container has: 0 for all but sidecars, which follow from the last to the first.
    fn turn_of(&self, instance: &Instance) -> usize {
        if !matches!(wanted::find(&self.desired.pod, &instance.name), Some((_, Role::Sidecar))) {
            return 0;
        }
        let place = self.wanted.init.iter().position(|m| m.name == instance.name).unwrap_or(0);
        self.wanted.init.len() - place
    }

    async fn stopped(&mut self, stopped: Stopped, good: &mut bool) {
        let Stopped { instance, hook, hooked, pause_cut, result } = stopped;
        if hooked {
            self.hooked.insert(instance.id.clone());
        }
        self.tell_pre_stop(&instance.name, hook, pause_cut);
        match result {
            Ok(()) if instance.state == InstanceState::Created => {
                self.observed.containers.retain(|c| c.id != instance.id);
            }
            Ok(()) => {
                self.see(&instance.id).await;
            }
            Err(error) if error.is_not_found() => self.fresh = false,
            Err(error) => {
                *good = false;
                self.fresh = false;
                tracing::warn!(pod = %self.desired.key, container = %instance.name, %error, "container cannot be stopped");
                let message = format!(
                    "error killing pod: failed to \"KillContainer\" for \"{}\" with KillContainerError: \"{error}\"",
                    instance.name
                );
                self.events().warning(&self.target(), "FailedKillPod", message);
            }
        }
    }

    /// Gives back volumes and cgroup; returns whether both are gone.
    async fn release(&mut self) -> bool {
        let options = Arc::clone(&self.cx.options);
        let volumes = options.prepare.release(&self.desired.uid).await;
        let cgroup = options.cgroups.remove(&self.desired).await;
        let mut good = true;
        for (step, outcome) in [("volumes", volumes), ("cgroup", cgroup)] {
            let Err(failure) = outcome else { continue };
            good = false;
            if self.is_news(step, &failure) {
                tracing::warn!(pod = %self.desired.key, error = %failure.message, "pod cannot be released");
            }
        }
        good
    }

    /// Says whether a step of the end fails otherwise than it was last told.
    fn is_news(&mut self, step: &'static str, failure: &Failure) -> bool {
        self.complaints.insert(step, failure.message.clone()).is_none_or(|told| told != failure.message)
    }

    /// Waits before a step of the end is tried again; a shorter grace ends the wait.
    async fn pause_for_retry(&mut self) {
        let at = self.retry_at("end", None);
        self.wake_at = None;
        let pause = Duration::try_from(at.duration_since(self.now())).unwrap_or_default();
        tokio::select! {
            biased;
            () = self.inbox.urgent() => {}
            () = tokio::time::sleep(pause) => {}
        }
        self.fresh = false;
    }

    /// The pod has ended: keep saying so until its source lets go of it, then clean up. Returns whether it is gone.
    pub(super) async fn after_end(&mut self) -> bool {
        self.wake_at = None;
        self.publish(true);
        if !self.removed {
            return false;
        }
        if !self.clean().await {
            let at = self.retry_at("clean", None);
            self.wake_by(at);
            return false;
        }
        self.cx.options.statuses.forget(&self.desired.uid);
        drop(self.cx.options.journal.forget(&self.desired.uid));
        true
    }

    /// Removes the dead containers, sandboxes, logs and folders of a pod that no source wants any more.
    async fn clean(&mut self) -> bool {
        self.fresh = false;
        if !self.look().await {
            return false;
        }
        let options = Arc::clone(&self.cx.options);
        let mut good = true;
        // An API object that went by force may leave something alive behind a call that hung.
        if self.observed.has_live_containers() || self.observed.sandboxes.iter().any(|s| s.ready) {
            self.facts.end.get_or_insert_default().grace_seconds = Some(1);
            if !self.step_down().await {
                return false;
            }
        }
        for instance in &self.observed.containers {
            let key = &self.desired.key;
            let link = crate::pod::container::legacy_link(
                &options.legacy_logs,
                &key.name,
                &key.namespace,
                &instance.name,
                &instance.id,
            );
            drop(std::fs::remove_file(link));
        }
        for sandbox in &self.observed.sandboxes {
            let request = v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox.id.to_string() };
            let mut slot = self.cx.stops.take().await;
            if let Err(error) = slot.run(options.runtime.remove_pod_sandbox(request)).await
                && !error.is_not_found()
            {
                good = false;
                tracing::warn!(pod = %self.desired.key, id = %sandbox.id, %error, "sandbox cannot be removed");
            }
        }
        if let Err(failure) = options.prepare.forget(&self.desired).await {
            good = false;
            if self.is_news("folder", &failure) {
                tracing::warn!(pod = %self.desired.key, error = %failure.message, "pod folder cannot be removed");
            }
        }
        good
    }
}
