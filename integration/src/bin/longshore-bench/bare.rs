//! The same pods by bare CRI calls: no agent, no API, nothing but the runtime. This is the floor.

use std::time::Duration;

use anyhow::Context as _;
use longshore_cri::v1;
use longshore_cri::{CriClient, ImageService as _, RuntimeService as _};
use tokio::time::Instant;

/// A container that ends at once on TERM.
pub(crate) const COMMAND: [&str; 3] = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"];

/// The runtime, used directly.
#[derive(Debug)]
pub(crate) struct Bare {
    client: CriClient,
    image: String,
    cgroup_parent: String,
}

/// A pod made by bare calls.
#[derive(Debug, Clone)]
pub(crate) struct BarePod {
    sandbox: String,
    container: String,
}

impl Bare {
    /// Connects and finds the image's id.
    pub(crate) async fn connect(endpoint: &str, image: &str, cgroup_parent: &str) -> anyhow::Result<Self> {
        let client = CriClient::connect(endpoint, longshore_cri::ClientOptions::default())?;
        let spec = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
        let status = client.image_status(v1::ImageStatusRequest { image: Some(spec), verbose: false }).await?;
        let found = status.image.with_context(|| format!("image {image} is not on the node: import it first"))?;
        Ok(Self { client, image: found.id, cgroup_parent: cgroup_parent.to_owned() })
    }

    /// Returns the runtime's name and version.
    pub(crate) async fn runtime_name(&self) -> anyhow::Result<String> {
        let version = self.client.version(v1::VersionRequest { version: "0.1.0".to_owned() }).await?;
        Ok(format!("{} {}", version.runtime_name, version.runtime_version))
    }

    /// Makes a pod: sandbox, container, start; returns how long the three calls took.
    pub(crate) async fn start(&self, name: &str) -> anyhow::Result<(BarePod, Duration)> {
        let logs = std::env::temp_dir().join("longshore-bench-logs").join(name);
        std::fs::create_dir_all(logs.join("c")).with_context(|| format!("create {}", logs.display()))?;
        let sandbox_config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("bench-{name}"),
                namespace: "bare".to_owned(),
                attempt: 0,
            }),
            hostname: name.to_owned(),
            log_directory: logs.display().to_string(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/{name}", self.cgroup_parent),
                ..Default::default()
            }),
            ..Default::default()
        };
        let container_config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "c".to_owned(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: self.image.clone(), ..Default::default() }),
            command: COMMAND.map(str::to_owned).to_vec(),
            log_path: "c/0.log".to_owned(),
            linux: Some(v1::LinuxContainerConfig::default()),
            ..Default::default()
        };
        let begin = Instant::now();
        let sandbox = self
            .client
            .run_pod_sandbox(v1::RunPodSandboxRequest {
                config: Some(sandbox_config.clone()),
                runtime_handler: String::new(),
            })
            .await?
            .pod_sandbox_id;
        let container = self
            .client
            .create_container(v1::CreateContainerRequest {
                pod_sandbox_id: sandbox.clone(),
                config: Some(container_config),
                sandbox_config: Some(sandbox_config),
            })
            .await?
            .container_id;
        self.client.start_container(v1::StartContainerRequest { container_id: container.clone() }).await?;
        Ok((BarePod { sandbox, container }, begin.elapsed()))
    }

    /// Stops and removes a pod; returns how long stopping and removing took.
    pub(crate) async fn remove(&self, pod: &BarePod) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        self.client
            .stop_container(v1::StopContainerRequest { container_id: pod.container.clone(), timeout: 30 })
            .await?;
        self.client.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: pod.sandbox.clone() }).await?;
        self.client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: pod.sandbox.clone() }).await?;
        Ok(begin.elapsed())
    }

    /// Returns the host's process id of a container's first process.
    pub(crate) async fn pid_of(&self, container: &str) -> anyhow::Result<i32> {
        let status = self
            .client
            .container_status(v1::ContainerStatusRequest { container_id: container.to_owned(), verbose: true })
            .await?;
        let info = status.info.get("info").context("the runtime gave no verbose info")?;
        let info: serde_json::Value = serde_json::from_str(info)?;
        let pid = info.get("pid").and_then(serde_json::Value::as_i64).context("no pid in the runtime's info")?;
        Ok(i32::try_from(pid)?)
    }
}
