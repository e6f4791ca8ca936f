//! The fake's sandboxes and containers, call by call. Errors have the shape of containerd's.

use async_trait::async_trait;
use futures_util::StreamExt as _;
use tokio_stream::wrappers::BroadcastStream;
use tonic::Code;

use super::make::{missing, no_container, no_sandbox, sandbox_status, seconds, unimplemented, unknown};
use super::view;
use super::world::{Sandbox, World};
use crate::service::Streaming;
use crate::v1::{ContainerEventType as Event, ContainerState, PodSandboxState};
use crate::{CriError, ErrorKind, EventStream, RuntimeService, v1};

#[async_trait]
impl RuntimeService for World {
    async fn version(&self, _: v1::VersionRequest) -> Result<v1::VersionResponse, CriError> {
        Ok(v1::VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "fake".to_owned(),
            runtime_version: self.options.version.to_owned(),
            runtime_api_version: "v1".to_owned(),
        })
    }

    async fn run_pod_sandbox(&self, request: v1::RunPodSandboxRequest) -> Result<v1::RunPodSandboxResponse, CriError> {
        const RPC: &str = "RunPodSandbox";
        let config = request.config.as_ref().ok_or_else(|| missing(RPC, "sandbox config"))?;
        let metadata = config.metadata.as_ref().ok_or_else(|| missing(RPC, "sandbox metadata"))?;
        let mut state = self.state.lock();
        let id = state.new_id();
        let name = format!("{}_{}_{}_{}", metadata.name, metadata.namespace, metadata.uid, metadata.attempt);
        self.reserve(&mut state, RPC, "sandbox", &name, &id)?;
        let now = state.now(&self.options.clock);
        let status = sandbox_status(&id, &request, config, now, state.sandboxes.len());
        let sandbox = Sandbox { status, log_directory: config.log_directory.clone(), name };
        state.sandboxes.insert(id.clone(), sandbox);
        self.emit(&state, Event::ContainerCreatedEvent, &id, &id, now);
        self.emit(&state, Event::ContainerStartedEvent, &id, &id, now);
        Ok(v1::RunPodSandboxResponse { pod_sandbox_id: id })
    }

    async fn stop_pod_sandbox(
        &self,
        request: v1::StopPodSandboxRequest,
    ) -> Result<v1::StopPodSandboxResponse, CriError> {
        let id = &request.pod_sandbox_id;
        if self.options.old_answers && !self.state.lock().sandboxes.contains_key(id) {
            return Err(no_sandbox("StopPodSandbox", id));
        }
        self.kill_containers(id);
        self.sandbox_ended(id);
        Ok(v1::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: v1::RemovePodSandboxRequest,
    ) -> Result<v1::RemovePodSandboxResponse, CriError> {
        let id = &request.pod_sandbox_id;
        self.kill_containers(id);
        self.sandbox_ended(id);
        let inside: Vec<_> = {
            let state = self.state.lock();
            let inside = state.containers.iter().filter(|(_, container)| container.sandbox == *id);
            inside.map(|(id, _)| id.clone()).collect()
        };
        for container in inside {
            self.remove(&container);
        }
        let mut state = self.state.lock();
        let now = state.now(&self.options.clock);
        if let Some(sandbox) = state.sandboxes.remove(id) {
            state.names.remove(&sandbox.name);
            self.emit(&state, Event::ContainerDeletedEvent, id, id, now);
        }
        Ok(v1::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: v1::PodSandboxStatusRequest,
    ) -> Result<v1::PodSandboxStatusResponse, CriError> {
        let state = self.state.lock();
        let id = &request.pod_sandbox_id;
        let sandbox = state.sandboxes.get(id).ok_or_else(|| no_sandbox("PodSandboxStatus", id))?;
        Ok(v1::PodSandboxStatusResponse { status: Some(sandbox.status.clone()), ..Default::default() })
    }

    async fn list_pod_sandbox(
        &self,
        request: v1::ListPodSandboxRequest,
    ) -> Result<v1::ListPodSandboxResponse, CriError> {
        let state = self.state.lock();
        let items = state.sandboxes.values().filter(|sandbox| view::sandbox_matches(sandbox, request.filter.as_ref()));
        Ok(v1::ListPodSandboxResponse { items: items.map(view::sandbox_row).collect() })
    }

    async fn create_container(
        &self,
        request: v1::CreateContainerRequest,
    ) -> Result<v1::CreateContainerResponse, CriError> {
        self.create(request)
    }

    async fn start_container(
        &self,
        request: v1::StartContainerRequest,
    ) -> Result<v1::StartContainerResponse, CriError> {
        self.start(&request.container_id)?;
        Ok(v1::StartContainerResponse {})
    }

    async fn stop_container(&self, request: v1::StopContainerRequest) -> Result<v1::StopContainerResponse, CriError> {
        self.stop(&request.container_id, seconds(request.timeout)).await;
        Ok(v1::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: v1::RemoveContainerRequest,
    ) -> Result<v1::RemoveContainerResponse, CriError> {
        self.remove(&request.container_id);
        Ok(v1::RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: v1::ListContainersRequest,
    ) -> Result<v1::ListContainersResponse, CriError> {
        let state = self.state.lock();
        let rows =
            state.containers.values().filter(|container| view::container_matches(container, request.filter.as_ref()));
        Ok(v1::ListContainersResponse { containers: rows.map(view::container_row).collect() })
    }

    async fn container_status(
        &self,
        request: v1::ContainerStatusRequest,
    ) -> Result<v1::ContainerStatusResponse, CriError> {
        let state = self.state.lock();
        let id = &request.container_id;
        let container = state.containers.get(id).ok_or_else(|| no_container("ContainerStatus", id))?;
        Ok(v1::ContainerStatusResponse { status: Some(container.status.clone()), ..Default::default() })
    }

    async fn update_container_resources(
        &self,
        request: v1::UpdateContainerResourcesRequest,
    ) -> Result<v1::UpdateContainerResourcesResponse, CriError> {
        let mut state = self.state.lock();
        let id = &request.container_id;
        let container = state.containers.get_mut(id).ok_or_else(|| no_container("UpdateContainerResources", id))?;
        container.status.resources = Some(v1::ContainerResources { linux: request.linux, windows: None });
        Ok(v1::UpdateContainerResourcesResponse {})
    }

    async fn reopen_container_log(
        &self,
        request: v1::ReopenContainerLogRequest,
    ) -> Result<v1::ReopenContainerLogResponse, CriError> {
        self.state.lock().running("ReopenContainerLog", &request.container_id)?;
        Ok(v1::ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, request: v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse, CriError> {
        let state = self.state.lock();
        state.running("ExecSync", &request.container_id)?;
        let reply = state.exec(&request);
        Ok(v1::ExecSyncResponse { stdout: reply.stdout, stderr: reply.stderr, exit_code: reply.exit_code })
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<v1::ExecResponse, CriError> {
        let state = self.state.lock();
        state.running("Exec", &request.container_id)?;
        Ok(v1::ExecResponse { url: format!("{}/exec/{}", state.stream_url, request.container_id) })
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<v1::AttachResponse, CriError> {
        let state = self.state.lock();
        state.running("Attach", &request.container_id)?;
        Ok(v1::AttachResponse { url: format!("{}/attach/{}", state.stream_url, request.container_id) })
    }

    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<v1::PortForwardResponse, CriError> {
        let state = self.state.lock();
        let id = &request.pod_sandbox_id;
        let sandbox = state.sandboxes.get(id).ok_or_else(|| no_sandbox("PortForward", id))?;
        if sandbox.status.state() != PodSandboxState::SandboxReady {
            return Err(unknown("PortForward", format!("sandbox container \"{id}\" is not running")));
        }
        Ok(v1::PortForwardResponse { url: format!("{}/portforward/{id}", state.stream_url) })
    }

    async fn container_stats(
        &self,
        request: v1::ContainerStatsRequest,
    ) -> Result<v1::ContainerStatsResponse, CriError> {
        let mut state = self.state.lock();
        let now = state.now(&self.options.clock);
        let id = &request.container_id;
        let container = state.containers.get(id).ok_or_else(|| no_container("ContainerStats", id))?;
        Ok(v1::ContainerStatsResponse { stats: Some(view::container_figures(&state, container, now)) })
    }

    async fn list_container_stats(
        &self,
        request: v1::ListContainerStatsRequest,
    ) -> Result<v1::ListContainerStatsResponse, CriError> {
        let mut state = self.state.lock();
        let now = state.now(&self.options.clock);
        let filter = request.filter.map(|filter| v1::ContainerFilter {
            id: filter.id,
            pod_sandbox_id: filter.pod_sandbox_id,
            label_selector: filter.label_selector,
            state: None,
        });
        let wanted = state.containers.values().filter(|container| {
            container.status.state() == ContainerState::ContainerRunning
                && view::container_matches(container, filter.as_ref())
        });
        let stats = wanted.map(|container| view::container_figures(&state, container, now)).collect();
        Ok(v1::ListContainerStatsResponse { stats })
    }

    async fn pod_sandbox_stats(
        &self,
        request: v1::PodSandboxStatsRequest,
    ) -> Result<v1::PodSandboxStatsResponse, CriError> {
        if !self.options.events {
            return Err(unimplemented("PodSandboxStats"));
        }
        let mut state = self.state.lock();
        let now = state.now(&self.options.clock);
        let id = &request.pod_sandbox_id;
        let sandbox = state.sandboxes.get(id).ok_or_else(|| no_sandbox("PodSandboxStats", id))?;
        Ok(v1::PodSandboxStatsResponse { stats: Some(view::sandbox_figures(&state, sandbox, now)) })
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: v1::ListPodSandboxStatsRequest,
    ) -> Result<v1::ListPodSandboxStatsResponse, CriError> {
        if !self.options.events {
            return Err(unimplemented("ListPodSandboxStats"));
        }
        let mut state = self.state.lock();
        let now = state.now(&self.options.clock);
        let filter = request.filter.map(|filter| v1::PodSandboxFilter {
            id: filter.id,
            label_selector: filter.label_selector,
            state: None,
        });
        let wanted = state.sandboxes.values().filter(|sandbox| {
            sandbox.status.state() == PodSandboxState::SandboxReady && view::sandbox_matches(sandbox, filter.as_ref())
        });
        let stats = wanted.map(|sandbox| view::sandbox_figures(&state, sandbox, now)).collect();
        Ok(v1::ListPodSandboxStatsResponse { stats })
    }

    async fn update_runtime_config(
        &self,
        _: v1::UpdateRuntimeConfigRequest,
    ) -> Result<v1::UpdateRuntimeConfigResponse, CriError> {
        Ok(v1::UpdateRuntimeConfigResponse {})
    }

    async fn status(&self, _: v1::StatusRequest) -> Result<v1::StatusResponse, CriError> {
        let conditions = self.state.lock().conditions.values().cloned().collect();
        Ok(v1::StatusResponse { status: Some(v1::RuntimeStatus { conditions }), ..Default::default() })
    }

    async fn runtime_config(&self, _: v1::RuntimeConfigRequest) -> Result<v1::RuntimeConfigResponse, CriError> {
        let driver = self.options.cgroup_driver.ok_or_else(|| unimplemented("RuntimeConfig"))?;
        Ok(v1::RuntimeConfigResponse { linux: Some(v1::LinuxRuntimeConfiguration { cgroup_driver: driver.into() }) })
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: v1::UpdatePodSandboxResourcesRequest,
    ) -> Result<v1::UpdatePodSandboxResourcesResponse, CriError> {
        if !self.options.events {
            return Err(unimplemented("UpdatePodSandboxResources"));
        }
        let id = &request.pod_sandbox_id;
        match self.state.lock().sandboxes.contains_key(id) {
            true => Ok(v1::UpdatePodSandboxResourcesResponse {}),
            false => Err(no_sandbox("UpdatePodSandboxResources", id)),
        }
    }

    async fn container_events(&self) -> Result<EventStream, CriError> {
        const RPC: &str = "GetContainerEvents";
        if !self.options.events {
            return Err(unimplemented(RPC));
        }
        let lost = |_| CriError::new(RPC, ErrorKind::Other(Code::ResourceExhausted), "subscriber is too slow");
        Ok(BroadcastStream::new(self.subscribe()).map(move |event| event.map_err(lost)).boxed())
    }

    async fn checkpoint_container(
        &self,
        _: v1::CheckpointContainerRequest,
    ) -> Result<v1::CheckpointContainerResponse, CriError> {
        Err(unimplemented("CheckpointContainer"))
    }

    async fn list_metric_descriptors(
        &self,
        _: v1::ListMetricDescriptorsRequest,
    ) -> Result<v1::ListMetricDescriptorsResponse, CriError> {
        Err(unimplemented("ListMetricDescriptors"))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: v1::ListPodSandboxMetricsRequest,
    ) -> Result<v1::ListPodSandboxMetricsResponse, CriError> {
        Err(unimplemented("ListPodSandboxMetrics"))
    }

    async fn stream_pod_sandboxes(
        &self,
        _: v1::StreamPodSandboxesRequest,
    ) -> Result<Streaming<v1::StreamPodSandboxesResponse>, CriError> {
        Err(unimplemented("StreamPodSandboxes"))
    }

    async fn stream_containers(
        &self,
        _: v1::StreamContainersRequest,
    ) -> Result<Streaming<v1::StreamContainersResponse>, CriError> {
        Err(unimplemented("StreamContainers"))
    }

    async fn stream_container_stats(
        &self,
        _: v1::StreamContainerStatsRequest,
    ) -> Result<Streaming<v1::StreamContainerStatsResponse>, CriError> {
        Err(unimplemented("StreamContainerStats"))
    }

    async fn stream_pod_sandbox_stats(
        &self,
        _: v1::StreamPodSandboxStatsRequest,
    ) -> Result<Streaming<v1::StreamPodSandboxStatsResponse>, CriError> {
        Err(unimplemented("StreamPodSandboxStats"))
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: v1::StreamPodSandboxMetricsRequest,
    ) -> Result<Streaming<v1::StreamPodSandboxMetricsResponse>, CriError> {
        Err(unimplemented("StreamPodSandboxMetrics"))
    }
}
