//! `longshore ps`: the node's own view of its pods, straight from the runtime, with no apiserver in between.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use longshore_cri::{ClientOptions, CriClient, ImageService as _, RuntimeService as _, labels, v1};
use serde_json::json;

use super::print::{self, Output};
use super::pulls;
use crate::app::fail::Hint;
use crate::app::paths::Paths;

const ATTEMPT: &str = "io.kubernetes.container.restartCount";

/// Flags of `ps`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Also containers and pods that have ended
    #[arg(short, long)]
    all: bool,
    /// The runtime's socket [default: the one of `up`, then containerd's]
    #[arg(long, value_name = "unix:///PATH")]
    runtime_endpoint: Option<String>,
    /// The agent's root, where pulls under way are noted
    #[arg(long, value_name = "FOLDER", default_value = Paths::KUBELET)]
    root_dir: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let endpoint = arguments.runtime_endpoint.clone().unwrap_or_else(endpoint);
    let options = ClientOptions { request_timeout: Duration::from_secs(10), ..ClientOptions::default() };
    let client = CriClient::connect(&endpoint, options)?;
    let hint = || Hint::new(endpoint.clone(), "longshore up starts a runtime; or pass --runtime-endpoint");
    let sandboxes = client.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await.with_context(hint)?.items;
    let containers = client.list_containers(v1::ListContainersRequest::default()).await.with_context(hint)?.containers;
    let images = image_names(&client).await;
    let now = i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
    let mut rows = Vec::new();
    for sandbox in &sandboxes {
        let ready = sandbox.state == v1::PodSandboxState::SandboxReady as i32;
        let label = |name: &str| sandbox.labels.get(name).cloned().unwrap_or_default();
        let mut mine: Vec<&v1::Container> =
            containers.iter().filter(|container| container.pod_sandbox_id == sandbox.id).collect();
        mine.sort_by_key(|container| container.created_at);
        if !arguments.all && !ready {
            continue;
        }
        for container in &mine {
            let running = container.state == v1::ContainerState::ContainerRunning as i32;
            if !arguments.all && !running {
                continue;
            }
            let image = container.image.as_ref().map_or("", |image| {
                if image.user_specified_image.is_empty() { &image.image } else { &image.user_specified_image }
            });
            rows.push(Row {
                namespace: label(labels::POD_NAMESPACE),
                pod: label(labels::POD_NAME),
                container: container.metadata.as_ref().map_or_else(String::new, |data| data.name.clone()),
                state: state(container.state).to_owned(),
                restarts: container.annotations.get(ATTEMPT).cloned().unwrap_or_else(|| "0".to_owned()),
                age: print::age(Duration::from_nanos(u64::try_from(now - container.created_at).unwrap_or(0))),
                image: images.get(image).cloned().unwrap_or_else(|| image.to_owned()),
                id: container.id.chars().take(13).collect(),
            });
        }
        if mine.is_empty() {
            rows.push(Row {
                namespace: label(labels::POD_NAMESPACE),
                pod: label(labels::POD_NAME),
                container: "-".to_owned(),
                state: if ready { "no container yet" } else { "ended" }.to_owned(),
                restarts: "0".to_owned(),
                age: print::age(Duration::from_nanos(u64::try_from(now - sandbox.created_at).unwrap_or(0))),
                image: String::new(),
                id: sandbox.id.chars().take(13).collect(),
            });
        }
    }
    rows.sort_by(|a, b| (&a.namespace, &a.pod, &a.container).cmp(&(&b.namespace, &b.pod, &b.container)));
    let pulls = pulls::under_way(&arguments.root_dir, &client).await;
    let items: Vec<serde_json::Value> =
        rows.iter().map(Row::value).chain(pulls.iter().map(pulls::Pull::value)).collect();
    arguments.output.show(&json!(items), || {
        let mut table = vec![
            ["NAMESPACE", "POD", "CONTAINER", "STATE", "RESTARTS", "AGE", "IMAGE", "ID"].map(str::to_owned).to_vec(),
        ];
        table.extend(rows.iter().map(Row::cells));
        table.extend(pulls.iter().map(pulls::Pull::cells));
        print::table(&table)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Names of images by their ids: older runtimes tell only the id of a container's image.
async fn image_names(client: &CriClient) -> HashMap<String, String> {
    let listed = client.list_images(v1::ListImagesRequest::default()).await;
    let images = listed.map(|answer| answer.images).unwrap_or_default();
    images.into_iter().filter_map(|image| Some((image.id, image.repo_tags.into_iter().next()?))).collect()
}

struct Row {
    namespace: String,
    pod: String,
    container: String,
    state: String,
    restarts: String,
    age: String,
    image: String,
    id: String,
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let Self { namespace, pod, container, state, restarts, age, image, id } = self;
        [namespace, pod, container, state, restarts, age, image, id].map(Clone::clone).to_vec()
    }

    fn value(&self) -> serde_json::Value {
        json!({
            "namespace": self.namespace, "pod": self.pod, "container": self.container, "state": self.state,
            "restarts": self.restarts, "age": self.age, "image": self.image, "id": self.id,
        })
    }
}

fn state(state: i32) -> &'static str {
    match v1::ContainerState::try_from(state) {
        Ok(v1::ContainerState::ContainerRunning) => "running",
        Ok(v1::ContainerState::ContainerCreated) => "created",
        Ok(v1::ContainerState::ContainerExited) => "exited",
        Ok(v1::ContainerState::ContainerUnknown) | Err(_) => "unknown",
    }
}

fn endpoint() -> String {
    let own = std::path::Path::new(Paths::RUN).join("containerd.sock");
    if own.exists() { format!("unix://{}", own.display()) } else { "unix:///run/containerd/containerd.sock".to_owned() }
}
