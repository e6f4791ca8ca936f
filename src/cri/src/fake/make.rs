//! How the fake makes sandboxes and containers, and the errors that it has in common with containerd.

use std::path::Path;
use std::time::Duration;

use tonic::Code;

use super::world::{Container, State, World};
use crate::v1::{ContainerEventType as Event, ContainerState, PodSandboxState};
use crate::{CriError, ErrorKind, v1};

pub(super) fn unimplemented(rpc: &'static str) -> CriError {
    CriError::new(rpc, ErrorKind::Unimplemented, format!("method {rpc} not implemented"))
}

pub(super) fn unknown(rpc: &'static str, message: String) -> CriError {
    CriError::new(rpc, ErrorKind::Other(Code::Unknown), message)
}

pub(super) fn no_container(rpc: &'static str, id: &str) -> CriError {
    let message = format!("an error occurred when try to find container \"{id}\": not found");
    CriError::new(rpc, ErrorKind::NotFound, message)
}

pub(super) fn no_sandbox(rpc: &'static str, id: &str) -> CriError {
    let message = format!("an error occurred when try to find sandbox \"{id}\": not found");
    CriError::new(rpc, ErrorKind::NotFound, message)
}

pub(super) fn missing(rpc: &'static str, what: &str) -> CriError {
    CriError::new(rpc, ErrorKind::InvalidArgument, format!("{what} is missing"))
}

pub(super) fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

impl World {
    /// Takes a name, or says who has it.
    pub(super) fn reserve(
        &self,
        state: &mut State,
        rpc: &'static str,
        what: &str,
        name: &str,
        id: &str,
    ) -> Result<(), CriError> {
        if let Some(owner) = state.names.get(name) {
            let code = if self.options.old_answers { Code::Unknown } else { Code::FailedPrecondition };
            let hint = match rpc {
                "CreateContainer" if !self.options.old_answers => {
                    "; check if another CreateContainer request is in progress"
                }
                _ => "",
            };
            let message =
                format!("failed to reserve {what} name \"{name}\"{hint}: name \"{name}\" is reserved for \"{owner}\"");
            return Err(CriError::new(rpc, ErrorKind::Other(code), message));
        }
        state.names.insert(name.to_owned(), id.to_owned());
        Ok(())
    }
}

impl State {
    pub(super) fn running(&self, rpc: &'static str, id: &str) -> Result<&Container, CriError> {
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

pub(super) fn sandbox_status(
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
    pub(super) fn create(&self, request: v1::CreateContainerRequest) -> Result<v1::CreateContainerResponse, CriError> {
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
        self.reserve(&mut state, RPC, "container", &name, &id)?;
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

    pub(super) fn start(&self, id: &str) -> Result<(), CriError> {
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
        let program =
            container.status.metadata.as_ref().map(|metadata| state.program(&metadata.name)).unwrap_or_default();
        let Some(container) = state.containers.get_mut(id) else { return Err(no_container(RPC, id)) };
        container.program = program;
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
