//! Lifecycle hooks. The command hooks and the pause are run here; the HTTP hook says that it is not supported yet.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::LifecycleHandler;
use longshore_cri::{SharedRuntime, v1};

use super::plan::KillReason;
use super::ports::Failure;
use super::wanted;
use super::worker::Worker;
use crate::model::ContainerId;

impl Worker {
    /// Runs the hook after a start; a failure kills the container.
    pub(super) async fn post_start(&mut self, name: &str, id: &ContainerId) {
        let pod = Arc::clone(&self.desired.pod);
        let hook = wanted::find(&pod, name).and_then(|(c, _)| c.lifecycle.as_ref()?.post_start.as_ref());
        let Some(hook) = hook else { return };
        if let Err(message) = run(&self.cx.options.runtime, id, hook).await {
            let target = self.container_target(name);
            self.events().warning(&target, "FailedPostStartHook", format!("PostStartHook failed: {message}"));
            self.kill_one(id, name, KillReason::StateUnknown).await;
            self.container_failed(name, &Failure::new("PostStartHookError", message));
        }
    }
}

/// The hook that a container wants before it is stopped.
pub(super) fn pre_stop(pod: &k8s_openapi::api::core::v1::Pod, name: &str) -> Option<LifecycleHandler> {
    wanted::find(pod, name).and_then(|(c, _)| c.lifecycle.as_ref()?.pre_stop.clone())
}

/// Runs one hook to its end. The caller puts its deadline around it.
pub(super) async fn run(runtime: &SharedRuntime, id: &ContainerId, hook: &LifecycleHandler) -> Result<(), String> {
    if let Some(exec) = &hook.exec {
        let request = v1::ExecSyncRequest {
            container_id: id.to_string(),
            cmd: exec.command.clone().unwrap_or_default(),
            timeout: 0,
        };
        let answer = runtime.exec_sync(request).await.map_err(|error| error.to_string())?;
        if answer.exit_code != 0 {
            let output =
                String::from_utf8_lossy(&answer.stdout).into_owned() + &String::from_utf8_lossy(&answer.stderr);
            return Err(format!("command exited with {}: {}", answer.exit_code, output.trim_end()));
        }
        return Ok(());
    }
    if let Some(sleep) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
        return Ok(());
    }
    if hook.http_get.is_some() {
        return Err("httpGet hooks are not supported by this agent yet".to_owned());
    }
    Err("the hook names no action that can be run".to_owned())
}
