//! Empties deleted namespaces and takes their finalizer off when nothing is left.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use crate::apiserver::error::ApiError;
use crate::apiserver::object::{child, list, meta, text};
use crate::apiserver::registry::{DeleteOptions, Part, Propagation, Registry, WriteOptions};
use crate::apiserver::resources::NAMESPACES;

/// Between two looks at a namespace that is not empty yet: its pods take their time.
const EVERY: Duration = Duration::from_millis(250);

/// How long others may take to hear of a deletion (upstream waits as long).
const OTHERS: Duration = Duration::from_secs(5);

/// The finalizer that we are for.
const FINALIZER: &str = "kubernetes";

pub(super) async fn run(registry: Registry, token: CancellationToken) {
    let mut namespaces = Feed::new(&registry, &NAMESPACES);
    let mut waiting = BTreeSet::new();
    loop {
        let changed = tokio::select! {
            biased;
            () = token.cancelled() => return,
            changed = namespaces.next() => changed.into_iter().map(|(_, name)| name).collect(),
            () = tokio::time::sleep(EVERY), if !waiting.is_empty() => std::mem::take(&mut waiting),
        };
        for namespace in changed {
            match empty(&registry, &namespace).await {
                Ok(true) => {
                    waiting.remove(&namespace);
                }
                Ok(false) => {
                    waiting.insert(namespace);
                }
                Err(error) => {
                    tracing::warn!(%namespace, %error, "emptying the namespace failed, trying again");
                    waiting.insert(namespace);
                }
            }
        }
    }
}

/// Takes a step; returns whether there is nothing (more) to do.
async fn empty(registry: &Registry, namespace: &str) -> Result<bool, ApiError> {
    let Some(found) = registry.find(&NAMESPACES, "", namespace)? else { return Ok(true) };
    if text(&found, "/metadata/deletionTimestamp").is_empty() || !has_finalizer(&found) {
        return Ok(true);
    }
    let mut left = 0;
    for resource in registry.stored().into_iter().filter(|resource| resource.namespaced) {
        if registry.count(resource, namespace) == 0 {
            continue;
        }
        let (objects, _) = registry.list_values(resource, namespace)?;
        for object in objects {
            let waits = !text(&object, "/metadata/deletionTimestamp").is_empty();
            let gone = !waits && {
                let uid = Some(meta(&object, "uid").to_owned());
                let propagation = Some(Propagation::Background);
                let options = DeleteOptions { uid, propagation, ..DeleteOptions::default() };
                match registry.delete(resource, namespace, meta(&object, "name"), &options).await {
                    Ok(deletion) => deletion.gone,
                    Err(error) if error.is_not_found() || error.is_conflict() => false,
                    Err(error) => return Err(error),
                }
            };
            left += usize::from(!gone);
        }
    }
    if left > 0 || is_young(registry, &found) {
        return Ok(false);
    }
    // Who looked at the namespace before it was deleted may still be writing into it.
    let _nobody = registry.nothing_is_made().await;
    if registry.stored().into_iter().any(|resource| resource.namespaced && registry.count(resource, namespace) > 0) {
        return Ok(false);
    }
    let change = |mut namespace: Value| {
        let mut finalizers = list(&namespace, "/spec/finalizers").to_vec();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        child(&mut namespace, "spec").insert("finalizers".to_owned(), json!(finalizers));
        Ok(Some(namespace))
    };
    match registry.modify(&NAMESPACES, "", namespace, Part::Finalize, &WriteOptions::default(), change).await {
        Err(error) if !error.is_not_found() => Err(error),
        Ok(_) | Err(_) => Ok(true),
    }
}

/// Whether another apiserver may still be creating something that it allowed before it knew of the deletion.
fn is_young(registry: &Registry, namespace: &Value) -> bool {
    let deleted = text(namespace, "/metadata/deletionTimestamp").parse::<jiff::Timestamp>();
    let age = deleted.map(|deleted| registry.clock().now().duration_since(deleted));
    registry.engine() == "etcd" && age.is_ok_and(|age| age.unsigned_abs() < OTHERS)
}

fn has_finalizer(namespace: &Value) -> bool {
    list(namespace, "/spec/finalizers").iter().any(|finalizer| finalizer == FINALIZER)
}
