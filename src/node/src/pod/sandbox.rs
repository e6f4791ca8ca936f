//! Makes and stops sandboxes on behalf of one pod.

use std::future::Future;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore_cri::{CriError, v1};

use super::plan::SANDBOX_HOLD;
use super::read;
use super::slots::Slot;
use super::worker::Worker;
use crate::model::SandboxId;
use crate::telemetry::ContainerType;

/// How soon a sandbox is tried again that the runtime, or this agent, refused to make.
const REFUSED_RETRY: Duration = Duration::from_secs(3);
/// How soon to look again for a sandbox or container that the runtime is still making.
const STILL_MADE_RETRY: Duration = Duration::from_millis(500);

impl Worker {
    /// Runs a call that must not be cut off half-way: when the pass is interrupted, the call still comes to its end (it
    /// has a deadline of its own), and what comes next waits for it.
    pub(super) async fn uncut<T, F>(&self, work: F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let guard = Arc::clone(&self.calls).lock_owned().await;
        let call = async move {
            let output = work.await;
            drop(guard);
            output
        };
        longshore_util::spawn(&self.cx.tasks, "pod-call", Box::pin(call)).await.ok()
    }

    /// Makes the sandbox; returns whether it stands.
    pub(super) async fn create_sandbox(&mut self, attempt: u32, changed: bool, slot: &mut Option<Slot>) -> bool {
        if changed {
            self.events().normal(
                &self.target(),
                "SandboxChanged",
                "Pod sandbox changed, it will be killed and re-created.",
            );
        }
        let runtime_handler = match self.cx.options.prepare.runtime_handler(&self.desired).await {
            Ok(handler) => handler,
            Err(failure) => return self.sandbox_failed(&failure.message, REFUSED_RETRY),
        };
        let config = match self.cx.options.prepare.sandbox_config(&self.desired, attempt, true).await {
            Ok(config) => config,
            Err(failure) => return self.sandbox_failed(&failure.message, REFUSED_RETRY),
        };
        if let Err(error) = make_log_folder(Path::new(&config.log_directory)) {
            let message = format!("make the log folder {}: {error}", config.log_directory);
            return self.sandbox_failed(&message, REFUSED_RETRY);
        }
        self.facts.sandbox_intent = Some(attempt);
        self.save_and_wait().await;
        let runtime = Arc::clone(&self.cx.options.runtime);
        let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler };
        let call = self.uncut(async move { runtime.run_pod_sandbox(request).await });
        let answer = match slot {
            Some(slot) => slot.run(call).await,
            None => call.await,
        };
        let id = match answer {
            Some(Ok(answer)) => SandboxId::from(answer.pod_sandbox_id),
            Some(Err(error)) => return self.sandbox_uncertain(attempt, &error).await,
            None => return false,
        };
        let runtime = &self.cx.options.runtime;
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_string(), verbose: false };
        match runtime.pod_sandbox_status(request).await {
            Ok(answer) => {
                if let Some(status) = &answer.status {
                    self.took_sandbox(status);
                }
                self.succeeded("sandbox");
                true
            }
            Err(error) => {
                self.events().warning(
                    &self.target(),
                    "FailedPodSandBoxStatus",
                    format!("Unable to get pod sandbox status: {error}"),
                );
                self.fresh = false;
                let at = self.retry_at("sandbox", None);
                self.wake_by(at);
                false
            }
        }
    }

    fn took_sandbox(&mut self, status: &v1::PodSandboxStatus) {
        let sandbox = read::sandbox(status);
        if !sandbox.ips.is_empty() {
            self.facts.ips.clone_from(&sandbox.ips);
            self.facts.ips_of = Some(sandbox.id.clone());
        }
        self.facts.sandbox_intent = None;
        self.stuck = None;
        self.unsaved = true;
        tracing::info!(pod = %self.desired.key, uid = %self.desired.uid, id = %sandbox.id, "sandbox runs");
        self.cx.options.metrics.started_pods.inc();
        self.cx.options.metrics.container_started(ContainerType::Sandbox);
        self.observed.put_sandbox(sandbox);
    }

    /// The call failed, which does not say that nothing was made: look before trying again.
    async fn sandbox_uncertain(&mut self, attempt: u32, error: &CriError) -> bool {
        self.fresh = false;
        if self.look().await && self.observed.sandboxes.iter().any(|s| s.attempt == attempt && s.ready) {
            self.facts.sandbox_intent = None;
            self.unsaved = true;
            return true;
        }
        if error.is_still_being_made() {
            let at = self.retry_at("sandbox", Some(STILL_MADE_RETRY));
            self.holds.insert(SANDBOX_HOLD.to_owned(), at);
            self.fresh = false;
            self.wake_by(at);
            return false;
        }
        // A runtime that is away may be back at once; what it refuses it will refuse again.
        let least = if error.is_unavailable() { Duration::ZERO } else { REFUSED_RETRY };
        self.sandbox_failed(&error.to_string(), least)
    }

    fn sandbox_failed(&mut self, message: &str, least: Duration) -> bool {
        tracing::warn!(pod = %self.desired.key, error = message, "sandbox cannot be made");
        self.cx.options.metrics.started_pods_errors.inc();
        self.stuck_on(format!("Failed to create pod sandbox: {message}"));
        self.events().warning(
            &self.target(),
            "FailedCreatePodSandBox",
            format!("Failed to create pod sandbox: {message}"),
        );
        let soonest = super::plan::later(self.now(), least);
        let at = self.retry_at("sandbox", None).max(soonest);
        self.wake_by(at);
        self.holds.insert(SANDBOX_HOLD.to_owned(), at);
        false
    }

    /// Stops a sandbox; returns whether it is down.
    pub(super) async fn stop_sandbox(&mut self, id: &SandboxId) -> bool {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_string() };
        let mut slot = self.cx.stops.take().await;
        match slot.run(self.cx.options.runtime.stop_pod_sandbox(request)).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(pod = %self.desired.key, %id, %error, "sandbox cannot be stopped");
                self.events().warning(
                    &self.target(),
                    "FailedKillPod",
                    format!("error killing pod: failed to \"KillPodSandbox\" for \"{}\" with KillPodSandboxError: \"{error}\"", self.desired.uid),
                );
                self.fresh = false;
                let at = self.retry_at("stop", None);
                self.wake_by(at);
                return false;
            }
        }
        for sandbox in self.observed.sandboxes.iter_mut().filter(|s| s.id == *id) {
            sandbox.ready = false;
        }
        true
    }
}

/// Makes a folder of logs, readable for all as upstream's.
pub(super) fn make_log_folder(path: &Path) -> std::io::Result<()> {
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}
