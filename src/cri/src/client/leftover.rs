//! Removal of what containerd itself leaves behind. When the caller of `StartContainer` goes away at the wrong moment, its
//! CRI side shows the container as exited (`StartError`) and forgets the task it had made already; every removal of the
//! container, and of its sandbox, is then refused because there is a task, and no call of the CRI ends a task of an exited
//! container. containerd's own API on the same socket does. Runtimes without that API are left alone.

use std::time::Duration;

use tonic::{Code, Request, Status};

use self::tasks::tasks_client::TasksClient;
use super::CriClient;
use crate::{CriError, ErrorKind, RuntimeService as _, containerd, v1};

/// Messages and client of the part of containerd's API that is needed here, generated from `proto/containerd-tasks.proto`.
#[expect(clippy::all, unreachable_pub, reason = "generated code")]
pub(super) mod tasks {
    tonic::include_proto!("containerd.services.tasks.v1");
}

/// For each call; a task that was killed ends within it.
const PATIENCE: Duration = Duration::from_secs(10);
const SIGKILL: u32 = 9;

impl CriClient {
    /// Removes a container, and before that a task of it that the runtime forgot, when that is why the removal is refused.
    pub(super) async fn remove_container_wholly(
        &self,
        request: v1::RemoveContainerRequest,
    ) -> Result<v1::RemoveContainerResponse, CriError> {
        match self.send_remove_container(request.clone()).await {
            Err(refusal) if is_refusal(&refusal) => {
                if self.end_forgotten_task(&request.container_id).await {
                    self.send_remove_container(request).await
                } else {
                    Err(refusal)
                }
            }
            other => other,
        }
    }

    /// Removes a sandbox; its exited containers go first when they are why the removal is refused.
    pub(super) async fn remove_pod_sandbox_wholly(
        &self,
        request: v1::RemovePodSandboxRequest,
    ) -> Result<v1::RemovePodSandboxResponse, CriError> {
        let refusal = match self.send_remove_pod_sandbox(request.clone()).await {
            Err(refusal) if is_refusal(&refusal) => refusal,
            other => return other,
        };
        let filter = v1::ContainerFilter { pod_sandbox_id: request.pod_sandbox_id.clone(), ..Default::default() };
        let listed = self.list_containers(v1::ListContainersRequest { filter: Some(filter) }).await;
        let mut removed = false;
        for container in listed.map(|listed| listed.containers).unwrap_or_default() {
            if container.state() == v1::ContainerState::ContainerExited {
                let request = v1::RemoveContainerRequest { container_id: container.id };
                removed |= self.remove_container_wholly(request).await.is_ok();
            }
        }
        if removed { self.send_remove_pod_sandbox(request).await } else { Err(refusal) }
    }

    async fn send_remove_container(
        &self,
        request: v1::RemoveContainerRequest,
    ) -> Result<v1::RemoveContainerResponse, CriError> {
        let mut client = self.runtime();
        let limit = Some(self.options.request_timeout);
        self.call("RemoveContainer", "remove_container", limit, request, |request| client.remove_container(request))
            .await
    }

    async fn send_remove_pod_sandbox(
        &self,
        request: v1::RemovePodSandboxRequest,
    ) -> Result<v1::RemovePodSandboxResponse, CriError> {
        let mut client = self.runtime();
        let limit = Some(self.options.request_timeout);
        self.call("RemovePodSandbox", "remove_podsandbox", limit, request, |request| client.remove_pod_sandbox(request))
            .await
    }

    /// Ends the task of a container that the runtime shows as exited; returns whether there is none any more.
    async fn end_forgotten_task(&self, container: &str) -> bool {
        let request = v1::ContainerStatusRequest { container_id: container.to_owned(), verbose: false };
        let shown = self.container_status(request).await.ok().and_then(|answer| answer.status);
        if shown.is_none_or(|status| status.state() != v1::ContainerState::ContainerExited) {
            return false;
        }
        match tokio::time::timeout(PATIENCE * 2, self.end_task(container)).await {
            Ok(Ok(())) => {
                tracing::info!(container, "ended a task that the runtime had forgotten");
                true
            }
            Ok(Err(status)) => {
                tracing::debug!(container, error = %status.message(), "the runtime's own task cannot be ended");
                false
            }
            Err(_) => false,
        }
    }

    async fn end_task(&self, container: &str) -> Result<(), Status> {
        let mut client = TasksClient::new(self.channel.clone());
        let container_id = container.to_owned();
        let task = match client.get(ask(tasks::GetRequest { container_id: container_id.clone() })).await {
            Err(status) if status.code() == Code::NotFound => return Ok(()),
            answer => answer?.into_inner().process.unwrap_or_default(),
        };
        if task.status() != tasks::Status::Stopped {
            let kill = tasks::KillRequest { container_id: container_id.clone(), signal: SIGKILL, all: true };
            missing_is_fine(client.kill(ask(kill)).await.map(drop))?;
            let wait = tasks::WaitRequest { container_id: container_id.clone() };
            missing_is_fine(client.wait(ask(wait)).await.map(drop))?;
        }
        missing_is_fine(client.delete(ask(tasks::DeleteTaskRequest { container_id })).await.map(drop))
    }
}

fn ask<T>(message: T) -> Request<T> {
    let mut request = containerd::request(message);
    request.set_timeout(PATIENCE);
    request
}

/// What is being ended may end by itself at any moment.
fn missing_is_fine(result: Result<(), Status>) -> Result<(), Status> {
    match result {
        Err(status) if status.code() == Code::NotFound => Ok(()),
        other => other,
    }
}

/// containerd's code for an object that is not in the state that the call needs.
fn is_refusal(error: &CriError) -> bool {
    error.kind == ErrorKind::Other(Code::FailedPrecondition)
}

#[cfg(test)]
mod tests;
