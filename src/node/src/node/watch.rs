//! Sees the own Node object as others change it.

use std::sync::Arc;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use longshore_transport::client::Typed;
use longshore_util::Tasks;
use tokio::sync::watch;

/// Keeps `node` at what the API shows.
pub(super) fn start(client: kube::Client, name: &str, node: Arc<watch::Sender<Option<Arc<Node>>>>, tasks: &Tasks) {
    let api: Api<Typed<Node>> = Api::all(client);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let token = tasks.token().clone();
    tasks.essential("node-watch", async move {
        let mut stream = Box::pin(watcher(api, config).default_backoff().touched_objects());
        loop {
            let next = tokio::select! {
                biased;
                () = token.cancelled() => return,
                next = stream.next() => next,
            };
            match next {
                Some(Ok(Typed(mut object))) => {
                    object.metadata.managed_fields = None;
                    node.send_replace(Some(Arc::new(object)));
                }
                Some(Err(error)) => tracing::debug!(%error, "watch of the own node"),
                None => return,
            }
        }
    });
}
