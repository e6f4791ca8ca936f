//! Where pods come from: the apiserver, the manifest directory, a manifest URL. Each source tells the mux its set; the mux
//! tells the pod table what changed, and when every source has spoken.

mod api;
mod file;
mod http;
pub(crate) mod manifest;
mod mux;
mod recall;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_api::kubelet_config::{KubeletConfiguration, SecretHeaders};
use longshore_util::Tasks;
use longshore_util::clock::SharedClock;

use crate::event::EventRecorder;
use crate::mirror::Mirrors;
use crate::model::{PodSink, SourceKind};
use mux::Mux;
use recall::Recall;
pub use recall::RecallOptions;

/// Reads the text of a manifest as the sources do, for tests of other crates.
#[cfg(feature = "fakes")]
pub fn read_manifest(text: &str, node: &str, origin: &str) -> Result<k8s_openapi::api::core::v1::Pod, String> {
    manifest::read(text, node, origin)
}

/// What the sources need to know.
#[derive(Clone)]
pub struct SourceOptions {
    /// The node's name.
    pub node_name: String,
    /// The manifest directory or file, if any.
    pub static_pods: Option<PathBuf>,
    /// How often it is looked at in full.
    pub file_check: Duration,
    /// The manifest URL, if any.
    pub url: Option<String>,
    /// Headers for it.
    pub url_headers: SecretHeaders,
    /// How often it is asked.
    pub http_check: Duration,
    /// The apiserver, unless the node stands alone.
    pub client: Option<kube::Client>,
    /// Who looks after mirrors; none without an apiserver.
    pub mirrors: Option<Arc<Mirrors>>,
    /// Where pods of the API are kept for a start without it; none = they are not.
    pub recall: Option<RecallOptions>,
    /// Where refused pods are told.
    pub events: EventRecorder,
    /// Wall time, for `config.seen`.
    pub clock: SharedClock,
}

impl std::fmt::Debug for SourceOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceOptions")
            .field("node_name", &self.node_name)
            .field("static_pods", &self.static_pods)
            .field("url", &self.url)
            .field("api", &self.client.is_some())
            .finish_non_exhaustive()
    }
}

impl SourceOptions {
    /// Takes what the configuration says; `client` and `mirrors` are added by the caller.
    pub fn new(config: &KubeletConfiguration, node_name: &str, events: EventRecorder, clock: SharedClock) -> Self {
        let text = |value: &str| (!value.is_empty()).then(|| value.to_owned());
        Self {
            node_name: node_name.to_owned(),
            static_pods: text(&config.static_pod_path).map(PathBuf::from),
            file_check: config.file_check_frequency.as_std(),
            url: text(&config.static_pod_url),
            url_headers: config.static_pod_url_header.clone(),
            http_check: config.http_check_frequency.as_std(),
            client: None,
            mirrors: None,
            recall: None,
            events,
            clock,
        }
    }
}

/// The running sources; they end with their tasks.
#[derive(Debug)]
pub struct Sources(());

impl Sources {
    /// Starts every configured source on a branch of `tasks`.
    pub fn start(options: SourceOptions, sink: Arc<dyn PodSink>, tasks: &Tasks) -> Self {
        let mut kinds = Vec::new();
        kinds.extend(options.client.as_ref().map(|_| SourceKind::Api));
        kinds.extend(options.static_pods.as_ref().map(|_| SourceKind::File));
        kinds.extend(options.url.as_ref().map(|_| SourceKind::Http));
        let SourceOptions { node_name, events, clock, mirrors, recall, .. } = options;
        let sink: Arc<dyn PodSink> = match &mirrors {
            Some(mirrors) => Arc::new(mirrors.tap(sink)),
            None => sink,
        };
        let recall =
            recall.filter(|_| options.client.is_some()).map(|recall| Arc::new(Recall::new(recall, Arc::clone(&sink))));
        let sink = match &recall {
            Some(recall) => Arc::clone(recall) as Arc<dyn PodSink>,
            None => sink,
        };
        if !manifest::is_node_name(&node_name) {
            tracing::error!(node = node_name, "the node's name is no DNS name; static pods will be refused");
        }
        let mux = Arc::new(Mux::new(kinds, sink, clock, events));
        if let Some(recall) = recall {
            recall.start(Arc::clone(&mux), tasks);
        }
        if let Some(client) = options.client {
            api::start(client, &node_name, Arc::clone(&mux), mirrors, tasks);
        }
        if let Some(path) = options.static_pods {
            file::start(path, options.file_check, node_name.clone(), Arc::clone(&mux), tasks);
        }
        if let Some(url) = options.url {
            http::start(url, options.url_headers, options.http_check, node_name, mux, tasks);
        }
        Self(())
    }
}

#[cfg(test)]
pub(crate) mod fixture;
