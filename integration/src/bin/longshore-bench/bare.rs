//! The same pods by bare CRI calls: no agent, no API, nothing but the runtime. This is the floor.

use std::time::Duration;

use anyhow::Context as _;
use longshore_cri::v1;
use longshore_cri::{CriClient, ImageService as _, RuntimeService as _};
use tokio::time::Instant;

use crate::same::{self, Files};

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
    name: String,
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
        let files = Files::make(name)?;
        let sandbox_config = same::sandbox(name, &self.cgroup_parent, &files);
        let container_config = same::container(&self.image, &files);
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
        Ok((BarePod { name: name.to_owned(), sandbox, container }, begin.elapsed()))
    }

    /// Stops and removes a pod; returns how long stopping and removing took.
    pub(crate) async fn remove(&self, pod: &BarePod) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        self.client
            .stop_container(v1::StopContainerRequest { container_id: pod.container.clone(), timeout: 30 })
            .await?;
        self.client.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: pod.sandbox.clone() }).await?;
        self.client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: pod.sandbox.clone() }).await?;
        let took = begin.elapsed();
        Files::remove(&pod.name)?;
        Ok(took)
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
