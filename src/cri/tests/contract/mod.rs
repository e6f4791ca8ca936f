//! What every runtime must do, written once and run on the fake (`contract_fake.rs`) and on real ones (the integration
//! package). Where the fake passes and a real runtime does not, the fake lies.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a contract fails by panicking")]

mod containers;
mod images;
mod sandboxes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use longshore_cri::{CriError, SharedImages, SharedRuntime, labels, v1};
use tokio::time::Instant;

/// A process that the contract needs. A real runtime runs `command`, the fake a program set for `name`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    /// Name of the container.
    pub(crate) name: &'static str,
    /// What it runs.
    pub(crate) command: &'static str,
}

/// Runs until it is asked to end, then ends with code 7.
pub(crate) const POLITE: Job =
    Job { name: "polite", command: "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done" };
/// Runs until it is killed.
pub(crate) const STUBBORN: Job = Job { name: "stubborn", command: "trap '' TERM; while :; do sleep 0.05; done" };
/// Ends by itself with code 3.
pub(crate) const FAILS: Job = Job { name: "fails", command: "sleep 0.2; exit 3" };
/// Ends by itself with code 0.
pub(crate) const SUCCEEDS: Job = Job { name: "succeeds", command: "echo hello; sleep 0.2" };

/// A runtime under test.
#[derive(Debug)]
pub(crate) struct Subject {
    /// Its sandboxes and containers.
    pub(crate) runtime: SharedRuntime,
    /// Its images.
    pub(crate) images: SharedImages,
    /// An image that it has, with `/bin/sh`.
    pub(crate) image: String,
    /// The cgroup below which pods go.
    pub(crate) cgroup: String,
    /// Where logs go.
    pub(crate) logs: PathBuf,
    /// Whether it has the event stream.
    pub(crate) has_events: bool,
    /// Whether pods get an address of their own.
    pub(crate) has_network: bool,
}

/// Runs the whole contract.
pub(crate) async fn holds(subject: &Subject) {
    sandboxes::names_itself(subject).await;
    sandboxes::live_and_die(subject).await;
    sandboxes::keep_their_name(subject).await;
    sandboxes::take_their_containers_along(subject).await;
    sandboxes::have_an_address(subject).await;
    containers::live_and_die(subject).await;
    containers::keep_their_name(subject).await;
    containers::tell_how_they_ended(subject).await;
    containers::are_killed_after_their_grace(subject).await;
    containers::run_commands(subject).await;
    containers::show_figures(subject).await;
    containers::that_are_not_there(subject).await;
    containers::tell_events(subject).await;
    images::are_looked_up(subject).await;
}

/// A pod of the contract; removed by [`Pod::end`].
struct Pod<'a> {
    subject: &'a Subject,
    config: v1::PodSandboxConfig,
    id: String,
}

fn image(name: &str) -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec { image: name.to_owned(), ..Default::default() })
}

fn config(subject: &Subject, uid: &str, attempt: u32, network: v1::NamespaceMode) -> v1::PodSandboxConfig {
    let mut namespaces = v1::NamespaceOption::default();
    namespaces.set_network(network);
    namespaces.set_pid(v1::NamespaceMode::Container);
    let context = v1::LinuxSandboxSecurityContext { namespace_options: Some(namespaces), ..Default::default() };
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "contract".to_owned(),
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            attempt,
        }),
        log_directory: subject.logs.join(uid).to_string_lossy().into_owned(),
        labels: BTreeMap::from([
            (labels::POD_NAME.to_owned(), "contract".to_owned()),
            (labels::POD_UID.to_owned(), uid.to_owned()),
        ]),
        annotations: BTreeMap::from([("example.com/note".to_owned(), "kept".to_owned())]),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: subject.cgroup.clone(),
            security_context: Some(context),
            ..Default::default()
        }),
        ..Default::default()
    }
}

impl<'a> Pod<'a> {
    async fn run(subject: &'a Subject, uid: &str) -> Pod<'a> {
        Self::run_with(subject, config(subject, uid, 0, v1::NamespaceMode::Node)).await
    }

    async fn run_with(subject: &'a Subject, config: v1::PodSandboxConfig) -> Pod<'a> {
        std::fs::create_dir_all(&config.log_directory).unwrap();
        let request = v1::RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
        let id = subject.runtime.run_pod_sandbox(request).await.unwrap().pod_sandbox_id;
        Self { subject, config, id }
    }

    fn request(&self, job: Job, attempt: u32) -> v1::CreateContainerRequest {
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: job.name.to_owned(), attempt }),
            image: image(&self.subject.image),
            command: vec!["/bin/sh".to_owned(), "-c".to_owned(), job.command.to_owned()],
            log_path: format!("{}_{attempt}.log", job.name),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            linux: Some(v1::LinuxContainerConfig {
                security_context: Some(v1::LinuxContainerSecurityContext {
                    namespace_options: self.config.linux.as_ref().and_then(|linux| {
                        linux.security_context.as_ref().and_then(|context| context.namespace_options.clone())
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        v1::CreateContainerRequest {
            pod_sandbox_id: self.id.clone(),
            config: Some(config),
            sandbox_config: Some(self.config.clone()),
        }
    }

    async fn create(&self, job: Job, attempt: u32) -> String {
        self.subject.runtime.create_container(self.request(job, attempt)).await.unwrap().container_id
    }

    async fn start(&self, job: Job) -> String {
        let id = self.create(job, 0).await;
        let request = v1::StartContainerRequest { container_id: id.clone() };
        self.subject.runtime.start_container(request).await.unwrap();
        id
    }

    async fn status(&self) -> Result<v1::PodSandboxStatus, CriError> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: self.id.clone(), verbose: false };
        Ok(self.subject.runtime.pod_sandbox_status(request).await?.status.unwrap())
    }

    async fn stop(&self) {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: self.id.clone() };
        // Older runtimes make an error of a sandbox that is gone already.
        if let Err(error) = self.subject.runtime.stop_pod_sandbox(request).await {
            assert!(error.is_not_found(), "{error}");
        }
    }

    async fn end(&self) {
        self.stop().await;
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: self.id.clone() };
        self.subject.runtime.remove_pod_sandbox(request).await.unwrap();
    }
}

impl Subject {
    async fn container(&self, id: &str) -> Result<v1::ContainerStatus, CriError> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        Ok(self.runtime.container_status(request).await?.status.unwrap())
    }

    async fn stop(&self, id: &str, timeout: i64) -> Result<(), CriError> {
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout };
        self.runtime.stop_container(request).await.map(drop)
    }

    async fn remove(&self, id: &str) -> Result<(), CriError> {
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        self.runtime.remove_container(request).await.map(drop)
    }

    async fn ended(&self, id: &str) -> v1::ContainerStatus {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let status = self.container(id).await.unwrap();
            if status.state() == v1::ContainerState::ContainerExited {
                return status;
            }
            assert!(Instant::now() < until, "{id} does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn containers(&self, filter: v1::ContainerFilter) -> Vec<v1::Container> {
        let request = v1::ListContainersRequest { filter: Some(filter) };
        self.runtime.list_containers(request).await.unwrap().containers
    }

    async fn sandboxes(&self, filter: v1::PodSandboxFilter) -> Vec<v1::PodSandbox> {
        let request = v1::ListPodSandboxRequest { filter: Some(filter) };
        self.runtime.list_pod_sandbox(request).await.unwrap().items
    }
}

fn of(uid: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(labels::POD_UID.to_owned(), uid.to_owned())])
}
