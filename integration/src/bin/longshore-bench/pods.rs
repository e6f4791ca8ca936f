//! Pods through the apiserver, with the moment at which the API showed each change.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use tokio::sync::watch;
use tokio::time::Instant;

/// Namespace of the measured pods; the bench makes and empties it.
const NAMESPACE: &str = "longshore-bench";

/// When the API showed what of one pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// The condition Ready became True.
    pub(crate) ready: Option<Instant>,
    /// The first container was shown terminated.
    pub(crate) terminated: Option<Instant>,
    /// The object was deleted.
    pub(crate) gone: Option<Instant>,
    /// The first container's id, without its prefix.
    pub(crate) container: Option<String>,
}

type Board = Arc<HashMap<String, Seen>>;

/// The API's side of the bench.
#[derive(Debug)]
pub(crate) struct Pods {
    api: Api<Pod>,
    node: String,
    image: String,
    board: watch::Receiver<Board>,
    watcher: tokio::task::JoinHandle<()>,
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl Pods {
    /// Connects, makes the namespace and starts to watch it.
    pub(crate) async fn connect(kubeconfig: &Path, node: &str, image: &str) -> anyhow::Result<Self> {
        let file = kube::config::Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("read {}", kubeconfig.display()))?;
        let config = kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?;
        let client = kube::Client::try_from(config)?;
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": NAMESPACE}}))?;
        match namespaces.create(&PostParams::default(), &namespace).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).context("create the namespace"),
        }
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
        let deadline = Instant::now() + Duration::from_secs(10);
        while accounts.get_opt("default").await?.is_none() {
            anyhow::ensure!(Instant::now() < deadline, "no default service account in {NAMESPACE} after 10 s");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let api: Api<Pod> = Api::namespaced(client, NAMESPACE);
        let version = api.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
        let (sender, board) = watch::channel(Board::default());
        #[expect(clippy::disallowed_methods, reason = "one watcher, ended with the struct that owns it")]
        let watcher = tokio::spawn(follow(api.clone(), version, sender));
        Ok(Self { api, node: node.to_owned(), image: image.to_owned(), board, watcher })
    }

    /// Posts a pod of one container that runs until it is told to stop, and returns when the request was sent.
    pub(crate) async fn post(&self, name: &str, restart: &str) -> anyhow::Result<Instant> {
        let spec = serde_json::json!({
            "restartPolicy": restart, "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "c", "image": self.image, "imagePullPolicy": "IfNotPresent",
                            "command": super::same::COMMAND}]
        });
        self.create(name, spec).await
    }

    /// The image of the pods.
    pub(crate) fn image(&self) -> &str {
        &self.image
    }

    /// Posts a pod of any kind on the node, and returns when the request was sent.
    pub(crate) async fn create(&self, name: &str, mut spec: serde_json::Value) -> anyhow::Result<Instant> {
        spec["nodeName"] = self.node.as_str().into();
        let pod: Pod = serde_json::from_value(serde_json::json!({"metadata": {"name": name}, "spec": spec}))?;
        let at = Instant::now();
        self.api.create(&PostParams::default(), &pod).await.with_context(|| format!("create pod {name}"))?;
        Ok(at)
    }

    /// Deletes a pod and returns when the request was sent.
    pub(crate) async fn delete(&self, name: &str) -> anyhow::Result<Instant> {
        let at = Instant::now();
        self.api.delete(name, &DeleteParams::default()).await.with_context(|| format!("delete pod {name}"))?;
        Ok(at)
    }

    /// Waits until `what` is known of the pod.
    pub(crate) async fn wait<T>(&self, name: &str, what: impl Fn(&Seen) -> Option<T>) -> anyhow::Result<T> {
        let mut board = self.board.clone();
        let found = tokio::time::timeout(Duration::from_secs(180), async {
            let board = board.wait_for(|board| board.get(name).is_some_and(|seen| what(seen).is_some())).await.ok()?;
            board.get(name).and_then(&what)
        });
        found.await.with_context(|| format!("pod {name}: not seen within 180 s"))?.context("the watch ended")
    }
}

async fn follow(api: Api<Pod>, mut version: String, board: watch::Sender<Board>) {
    loop {
        let Ok(stream) = api.watch(&WatchParams::default().timeout(280), &version).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut stream = stream.boxed();
        while let Some(Ok(event)) = stream.next().await {
            let now = Instant::now();
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    version = pod.metadata.resource_version.clone().unwrap_or_default();
                    board.send_modify(|board| note(Arc::make_mut(board), &pod, now, false));
                }
                WatchEvent::Deleted(pod) => {
                    version = pod.metadata.resource_version.clone().unwrap_or_default();
                    board.send_modify(|board| note(Arc::make_mut(board), &pod, now, true));
                }
                WatchEvent::Bookmark(mark) => version = mark.metadata.resource_version,
                WatchEvent::Error(_) => break,
            }
        }
    }
}

fn note(board: &mut HashMap<String, Seen>, pod: &Pod, now: Instant, gone: bool) {
    let seen = board.entry(pod.metadata.name.clone().unwrap_or_default()).or_default();
    if gone {
        seen.gone.get_or_insert(now);
    }
    let Some(status) = &pod.status else { return };
    if status.conditions.iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
        seen.ready.get_or_insert(now);
    }
    let Some(container) = status.container_statuses.iter().flatten().next() else { return };
    if seen.container.is_none() {
        seen.container =
            container.container_id.as_deref().and_then(|id| id.split_once("://")).map(|(_, id)| id.to_owned());
    }
    let over = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
        state.as_ref().is_some_and(|state| state.terminated.is_some())
    };
    if over(&container.state) || over(&container.last_state) {
        seen.terminated.get_or_insert(now);
    }
}
