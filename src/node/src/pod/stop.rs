//! Stops containers: the hook before the stop and the stop itself share one deadline, which may come closer at any time.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use longshore_cri::{CriError, SharedRuntime, v1};
use tokio::sync::watch;
use tokio::time::Instant;

use super::hooks::{Hook, Ran};
use super::observed::{Instance, InstanceState, Observed};
use super::plan::{KillReason, Role};
use super::worker::Worker;
use super::{read, wanted};
use crate::model::ContainerId;

/// The runtime gets at least this long between the stop signal and the kill.
const LEAST_STOP: Duration = Duration::from_secs(2);

impl Worker {
    /// Kills one container of a pod that lives on; returns whether it was seen after that.
    pub(super) async fn kill_one(&mut self, id: &ContainerId, name: &str, reason: KillReason) -> bool {
        let Some(instance) = self.observed.containers.iter().find(|c| c.id == *id).cloned() else { return false };
        if instance.state == InstanceState::Exited {
            // It ended by itself while one before it was being stopped.
            return true;
        }
        self.events().normal(&self.container_target(name), "Killing", self.kill_text(name, reason));
        let grace = match reason {
            KillReason::Probe { kind, .. } => wanted::probe_grace(&self.desired.pod, name, kind),
            KillReason::DefinitionChanged
            | KillReason::Resized
            | KillReason::StateUnknown
            | KillReason::SandboxChanged
            | KillReason::PostStartFailed
            | KillReason::Doubled => wanted::spec_grace(&self.desired.pod),
            KillReason::PodRestarts => 0,
        };
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        // Nothing moves this deadline: an order to end the pod drops the whole pass.
        let (_keep, deadline) = watch::channel(Instant::now() + grace);
        let hook = self.pre_stop(&instance).filter(|_| !grace.is_zero());
        let mut stopping = Box::pin(stop(Arc::clone(&self.cx.options.runtime), instance, hook, None, deadline));
        let inbox = Arc::clone(&self.inbox);
        let mut rung = false;
        let mut looking = None;
        let stopped = loop {
            tokio::select! {
                biased;
                stopped = &mut stopping => break stopped,
                // A long stop must not hide what becomes of the other containers and what the probes say of them.
                found = found(&mut looking), if looking.is_some() => {
                    looking = None;
                    if self.took_beside(id, found) | self.probe() {
                        self.publish(false);
                    }
                }
                () = inbox.rung(), if looking.is_none() => {
                    rung = true;
                    looking = Some(self.look_beside());
                }
            }
        };
        if rung {
            // What it rang for is still to be done.
            inbox.nudge();
        }
        if stopped.hooked {
            self.hooked.insert(id.clone());
        }
        self.tell_pre_stop(name, stopped.hook, stopped.pause_cut);
        match stopped.result {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(pod = %self.desired.key, container = name, %id, %error, "container cannot be stopped");
                self.fresh = false;
                let at = self.retry_at("stop", None);
                self.wake_by(at);
                return false;
            }
        }
        self.see(id).await
    }

    /// Looks at the pod without holding up anything else.
    fn look_beside(&self) -> Look {
        let (options, uid, old) = (Arc::clone(&self.cx.options), self.desired.uid.clone(), self.observed.clone());
        Box::pin(async move { read::pod(&*options.runtime, &uid, &old).await })
    }

    /// Takes over what became of the other containers while one is being stopped, whose own end is for the step that
    /// stops it; returns whether that is news. What cannot be read now is read when the stop is over.
    fn took_beside(&mut self, stopping: &ContainerId, found: Result<Observed, CriError>) -> bool {
        let Ok(found) = found else { return false };
        let mut news = false;
        for instance in found.containers {
            let known = self.observed.containers.iter().find(|known| known.id == instance.id);
            let changed = known.is_some_and(|known| known.state != instance.state);
            if changed && instance.id != *stopping && !self.was_cut_off(&instance) {
                self.took_instance(instance);
                news = true;
            }
        }
        news
    }

    fn kill_text(&self, name: &str, reason: KillReason) -> String {
        match reason {
            KillReason::DefinitionChanged => format!("Container {name} definition changed, will be restarted"),
            KillReason::Resized => format!("Container {name} resize requires restart"),
            KillReason::StateUnknown => format!("Container {name} is in unknown state, try killing it before restart"),
            KillReason::SandboxChanged | KillReason::Doubled | KillReason::PodRestarts => {
                format!("Stopping container {name}")
            }
            KillReason::PostStartFailed => "FailedPostStartHook".to_owned(),
            KillReason::Probe { kind, again } => match wanted::find(&self.desired.pod, name) {
                Some((_, Role::Init | Role::Sidecar)) => {
                    format!("Init container {name} failed {} probe", kind.lower())
                }
                Some((_, Role::App | Role::Ephemeral)) | None => {
                    let then = if again { ", will be restarted" } else { "" };
                    format!("Container {name} failed {} probe{then}", kind.lower())
                }
            },
        }
    }
}

/// A look at the pod that is under way.
type Look = Pin<Box<dyn Future<Output = Result<Observed, CriError>> + Send>>;

async fn found(looking: &mut Option<Look>) -> Result<Observed, CriError> {
    match looking {
        Some(look) => look.await,
        None => std::future::pending().await,
    }
}

/// The turns of an ending pod: main containers have the first, sidecars follow in reverse order.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    /// The turn that it is now.
    now: watch::Receiver<usize>,
    /// Whose turn the container has.
    own: usize,
}

impl Turn {
    pub(super) fn new(now: watch::Receiver<usize>, own: usize) -> Self {
        Self { now, own }
    }

    async fn come(&mut self) {
        let own = self.own;
        // A sender that is gone means that nobody is left to wait for.
        drop(self.now.wait_for(|now| *now >= own).await);
    }
}

/// What came of a stop.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) instance: Instance,
    pub(super) hook: Ran,
    /// There was a hook, and it came to its end or to the end of the grace: it is not owed again.
    pub(super) hooked: bool,
    /// The hook was a pause and the grace was over before it.
    pub(super) pause_cut: bool,
    pub(super) result: Result<(), CriError>,
}

/// Runs the hook, waits for the container's turn, then stops it; all share the deadline, which may come closer at any time.
pub(super) async fn stop(
    runtime: SharedRuntime,
    instance: Instance,
    hook: Option<Hook>,
    mut turn: Option<Turn>,
    mut deadline: watch::Receiver<Instant>,
) -> Stopped {
    let hooked = hook.is_some();
    let mut ran = Ok(None);
    let mut pause_cut = false;
    if let Some(hook) = hook {
        let mut end = deadline.clone();
        tokio::select! {
            biased;
            result = hook.run() => ran = result,
            () = passed(&mut end) => pause_cut = hook.is_pause(),
        }
        if ran.is_err() && !runs(&runtime, &instance.id).await {
            // It ended by itself in the meantime: nothing failed but the race.
            ran = Ok(None);
        }
    }
    if instance.state == InstanceState::Created {
        // It has no process; the runtime would not take note of a stop.
        let request = v1::RemoveContainerRequest { container_id: instance.id.to_string() };
        let result = runtime.remove_container(request).await.map(drop);
        return Stopped { instance, hook: ran, hooked, pause_cut, result };
    }
    if let Some(turn) = &mut turn {
        let mut end = deadline.clone();
        tokio::select! {
            biased;
            () = turn.come() => {}
            () = passed(&mut end) => {}
        }
    }
    loop {
        let until = *deadline.borrow_and_update();
        let left = until.saturating_duration_since(Instant::now()).max(LEAST_STOP);
        // Rounded: the hook may have cost no time at all, and whole seconds are what the runtime takes.
        let seconds = i64::try_from((left + Duration::from_millis(500)).as_secs()).unwrap_or(i64::MAX);
        let call = send_stop(&runtime, &instance.id, seconds);
        tokio::select! {
            biased;
            result = call => return Stopped { instance, hook: ran, hooked, pause_cut, result },
            // The grace shrank: the runtime is asked anew with less time.
            Ok(()) = deadline.changed() => {}
        }
    }
}

/// Whether the container still runs, as far as the runtime can say.
async fn runs(runtime: &SharedRuntime, id: &ContainerId) -> bool {
    let request = v1::ContainerStatusRequest { container_id: id.to_string(), verbose: false };
    match runtime.container_status(request).await {
        Ok(answer) => answer.status.is_some_and(|status| status.state() == v1::ContainerState::ContainerRunning),
        Err(error) => !error.is_not_found(),
    }
}

async fn send_stop(runtime: &SharedRuntime, id: &ContainerId, seconds: i64) -> Result<(), CriError> {
    let request = v1::StopContainerRequest { container_id: id.to_string(), timeout: seconds };
    runtime.stop_container(request).await.map(drop)
}

/// Waits until the deadline, wherever it moves.
async fn passed(deadline: &mut watch::Receiver<Instant>) {
    loop {
        let until = *deadline.borrow_and_update();
        tokio::select! {
            biased;
            changed = deadline.changed() => {
                if changed.is_err() {
                    tokio::time::sleep_until(until).await;
                    return;
                }
            }
            () = tokio::time::sleep_until(until) => return,
        }
    }
}
