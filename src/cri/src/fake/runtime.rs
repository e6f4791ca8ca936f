//! The fake's sandboxes and containers, call by call. Errors have the shape of containerd's.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use tokio_stream::wrappers::BroadcastStream;
use tonic::Code;

use super::view;
use super::world::{Container, Sandbox, State, World};
use crate::service::Streaming;
use crate::v1::{ContainerEventType as Event, ContainerState, PodSandboxState};
use crate::{CriError, ErrorKind, EventStream, RuntimeService, v1};

pub(super) fn unimplemented(rpc: &'static str) -> CriError {
    CriError::new(rpc, ErrorKind::Unimplemented, format!("method {rpc} not implemented"))
}

fn unknown(rpc: &'static str, message: String) -> CriError {
    CriError::new(rpc, ErrorKind::Other(Code::Unknown), message)
}

fn no_container(rpc: &'static str, id: &str) -> CriError {
    let message = format!("an error occurred when try to find container \"{id}\": not found");
    CriError::new(rpc, ErrorKind::NotFound, message)
}

fn no_sandbox(rpc: &'static str, id: &str) -> CriError {
    let message = format!("an error occurred when try to find sandbox \"{id}\": not found");
    CriError::new(rpc, ErrorKind::NotFound, message)
}

fn missing(rpc: &'static str, what: &str) -> CriError {
    CriError::new(rpc, ErrorKind::InvalidArgument, format!("{what} is missing"))
}

fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

impl State {
    /// Takes a name, or says who has it.
    fn reserve(&mut self, rpc: &'static str, kind: &str, name: &str, id: &str) -> Result<(), CriError> {
        if let Some(owner) = self.names.get(name) {
            let message =
                format!("failed to reserve {kind} name \"{name}\": name \"{name}\" is reserved for \"{owner}\"");
            return Err(unknown(rpc, message));
        }
        self.names.insert(name.to_owned(), id.to_owned());
        Ok(())
    }

    fn running(&self, rpc: &'static str, id: &str) -> Result<&Container, CriError> {
        let container = self.containers.get(id).ok_or_else(|| no_container(rpc, id))?;
        match container.status.state() {
            ContainerState::ContainerRunning => Ok(container),
            state => Err(unknown(rpc, format!("container is in {} state", state.as_str_name()))),
        }
    }
}

fn pod_address(number: usize) -> String {
    format!("10.88.{}.{}", number / 250 % 250, number % 250 + 2)
}

fn sandbox_status(
    id: &str,
    request: &v1::RunPodSandboxRequest,
    config: &v1::PodSandboxConfig,
    now: i64,
    address: usize,
) -> v1::PodSandboxStatus {
    let context = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let options = context.and_then(|context| context.namespace_options.clone());
    let on_host = options.as_ref().is_some_and(|options| options.network() == v1::NamespaceMode::Node);
    let ip = if on_host { String::new() } else { pod_address(address) };
    v1::PodSandboxStatus {
        id: id.to_owned(),
        metadata: config.metadata.clone(),
        state: PodSandboxState::SandboxReady.into(),
        created_at: now,
        network: Some(v1::PodSandboxNetworkStatus { ip, additional_ips: Vec::new() }),
        linux: Some(v1::LinuxPodSandboxStatus { namespaces: Some(v1::Namespace { options }) }),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        runtime_handler: request.runtime_handler.clone(),
    }
}

fn write_log(path: &str, output: &[String], clock: &longshore_util::clock::SharedClock) -> std::io::Result<()> {
    use std::io::Write as _;
    let path = Path::new(path);
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    for line in output {
        writeln!(file, "{:.9} stdout F {line}", clock.now())?;
    }
    Ok(())
}

impl World {
    fn create(&self, request: v1::CreateContainerRequest) -> Result<v1::CreateContainerResponse, CriError> {
        const RPC: &str = "CreateContainer";
        let config = request.config.ok_or_else(|| missing(RPC, "container config"))?;
        let metadata = config.metadata.clone().ok_or_else(|| missing(RPC, "container metadata"))?;
        let mut state = self.state.lock();
        let Some(sandbox) = state.sandboxes.get(&request.pod_sandbox_id) else {
            let message = format!("failed to find sandbox id \"{}\": not found", request.pod_sandbox_id);
            return Err(CriError::new(RPC, ErrorKind::NotFound, message));
        };
        let pod = sandbox.status.metadata.clone().unwrap_or_default();
        let log_path = Path::new(&sandbox.log_directory).join(&config.log_path).to_string_lossy().into_owned();
        let wanted = config.image.as_ref().map_or("", |image| &image.image);
        let Some(image) = state.image(wanted).cloned() else {
            let message = format!("failed to get image from containerd \"{wanted}\": image \"{wanted}\": not found");
            return Err(CriError::new(RPC, ErrorKind::NotFound, message));
        };
        let id = state.new_id();
        let name = format!("{}_{}_{}_{}_{}", metadata.name, pod.name, pod.namespace, pod.uid, metadata.attempt);
        state.reserve(RPC, "container", &name, &id)?;
        let now = state.now(&self.options.clock);
        let context = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        let user = self.options.container_user.then(|| v1::ContainerUser {
            linux: Some(v1::LinuxContainerUser {
                uid: context.and_then(|context| context.run_as_user.as_ref()).map_or(0, |user| user.value),
                gid: context.and_then(|context| context.run_as_group.as_ref()).map_or(0, |group| group.value),
                supplemental_groups: context.map(|context| context.supplemental_groups.clone()).unwrap_or_default(),
            }),
        });
        let resources = config.linux.as_ref().and_then(|linux| linux.resources.clone());
        let status = v1::ContainerStatus {
            id: id.clone(),
            metadata: Some(metadata.clone()),
            state: ContainerState::ContainerCreated.into(),
            created_at: now,
            image: Some(v1::ImageSpec {
                image: image.repo_tags.first().cloned().unwrap_or_default(),
                ..Default::default()
            }),
            image_ref: image.repo_digests.first().cloned().unwrap_or_default(),
            image_id: image.id,
            labels: config.labels,
            annotations: config.annotations,
            mounts: config.mounts,
            log_path,
            resources: resources.map(|linux| v1::ContainerResources { linux: Some(linux), windows: None }),
            user,
            ..Default::default()
        };
        let program = state.program(&metadata.name);
        state
            .containers
            .insert(id.clone(), Container { status, sandbox: request.pod_sandbox_id.clone(), name, program });
        self.emit(&state, Event::ContainerCreatedEvent, &id, &request.pod_sandbox_id, now);
        Ok(v1::CreateContainerResponse { container_id: id })
    }

    fn start(&self, id: &str) -> Result<(), CriError> {
        const RPC: &str = "StartContainer";
        let mut state = self.state.lock();
        let now = state.now(&self.options.clock);
        let container = state.containers.get(id).ok_or_else(|| no_container(RPC, id))?;
        if container.status.state() != ContainerState::ContainerCreated {
            let found = container.status.state().as_str_name();
            let message = format!("failed to set starting state for container \"{id}\": container is in {found} state");
            return Err(unknown(RPC, message));
        }
        let sandbox = container.sandbox.clone();
        let ready = state.sandboxes.get(&sandbox).map(|sandbox| sandbox.status.state());
        if ready != Some(PodSandboxState::SandboxReady) {
            return Err(unknown(RPC, format!("sandbox container \"{sandbox}\" is not running")));
        }
        let Some(container) = state.containers.get_mut(id) else { return Err(no_container(RPC, id)) };
        container.status.set_state(ContainerState::ContainerRunning);
        container.status.started_at = now;
        let (program, log_path) = (container.program.clone(), container.status.log_path.clone());
        self.emit(&state, Event::ContainerStartedEvent, id, &sandbox, now);
        drop(state);
        if self.options.log_files {
            write_log(&log_path, &program.output, &self.options.clock)
                .map_err(|error| unknown(RPC, format!("failed to create container loggers: {log_path}: {error}")))?;
        }
        self.run(id, &program);
        Ok(())
    }
}

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
        state.reserve(RPC, "sandbox", &name, &id)?;
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
        self.kill_containers(&request.pod_sandbox_id);
        self.sandbox_ended(&request.pod_sandbox_id);
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
