//! Removes pods of nodes that are gone: nobody else would ever end them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longshore_api::selector::Outline;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use crate::apiserver::error::ApiError;
use crate::apiserver::object::{meta, text};
use crate::apiserver::registry::{DeleteOptions, ListOptions, Registry, Selection};
use crate::apiserver::resources::{NODES, PODS};

/// A node that is missing for a moment may come back: agents register anew after their object was deleted.
const QUARANTINE: Duration = Duration::from_secs(40);

pub(super) async fn run(registry: Registry, token: CancellationToken) {
    let mut nodes = Feed::new(&registry, &NODES);
    let mut missing: BTreeMap<String, Instant> = BTreeMap::new();
    let mut first = true;
    loop {
        let due = missing.values().min().copied();
        let changed = tokio::select! {
            biased;
            () = token.cancelled() => return,
            changed = nodes.next() => changed,
            () = sleep_until(due) => Default::default(),
        };
        let now = Instant::now();
        for (_, name) in changed {
            if registry.get(&NODES, "", &name).is_ok() {
                missing.remove(&name);
            } else {
                missing.entry(name).or_insert(now + QUARANTINE);
            }
        }
        // Nodes that were deleted while we did not run.
        if std::mem::take(&mut first) {
            for name in nodes_of_pods(&registry).into_iter().filter(|name| registry.get(&NODES, "", name).is_err()) {
                missing.entry(name).or_insert(now + QUARANTINE);
            }
        }
        for name in ripe(&missing, now) {
            match remove(&registry, &name).await {
                Ok(()) => {
                    missing.remove(&name);
                }
                Err(error) => {
                    tracing::warn!(node = %name, %error, "pods of a node that is gone could not be removed");
                    missing.insert(name, now + QUARANTINE);
                }
            }
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn ripe(missing: &BTreeMap<String, Instant>, now: Instant) -> Vec<String> {
    missing.iter().filter(|(_, due)| **due <= now).map(|(name, _)| name.clone()).collect()
}

fn nodes_of_pods(registry: &Registry) -> BTreeSet<String> {
    let outline = Outline::of(["spec.nodeName"]);
    let pods = registry.list(&PODS, "", &ListOptions::default()).unwrap_or_default();
    let nodes = pods.items.iter().filter_map(|pod| outline.read(&pod.bytes()).ok());
    nodes.map(|pod| text(&pod, "/spec/nodeName").to_owned()).filter(|name| !name.is_empty()).collect()
}

async fn remove(registry: &Registry, node: &str) -> Result<(), ApiError> {
    if registry.get(&NODES, "", node).is_ok() {
        return Ok(());
    }
    let selection = Selection::parse(&PODS, "", &format!("spec.nodeName={node}"))?;
    let pods = registry.list(&PODS, "", &ListOptions { selection, ..ListOptions::default() })?;
    for pod in &pods.items {
        let pod = &pod.value()?;
        let options =
            DeleteOptions { grace: Some(0), uid: Some(meta(pod, "uid").to_owned()), ..DeleteOptions::default() };
        match registry.delete(&PODS, meta(pod, "namespace"), meta(pod, "name"), &options).await {
            Ok(_) => tracing::info!(pod = %format!("{}/{}", meta(pod, "namespace"), meta(pod, "name")), %node,
                "removed a pod of a node that is gone"),
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
