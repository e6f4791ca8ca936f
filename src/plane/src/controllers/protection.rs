//! Lets go of claims that no pod uses any more and of volumes that no claim is bound to, once they are deleted.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use crate::apiserver::error::ApiError;
use crate::apiserver::object::{list, metadata, text};
use crate::apiserver::registry::{Part, Registry, WriteOptions};
use crate::apiserver::resources::{PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, PODS, Resource};
use crate::apiserver::{CLAIM_FINALIZER, VOLUME_FINALIZER};

pub(super) async fn run(registry: Registry, token: CancellationToken) {
    let mut claims = Feed::new(&registry, &PERSISTENTVOLUMECLAIMS);
    let mut volumes = Feed::new(&registry, &PERSISTENTVOLUMES);
    let mut pods = Feed::new(&registry, &PODS);
    loop {
        let namespaces: BTreeSet<String> = tokio::select! {
            biased;
            () = token.cancelled() => return,
            keys = claims.next() => keys.into_iter().map(|(namespace, _)| namespace).collect(),
            keys = volumes.next() => keys.into_iter().map(|_| String::new()).collect(),
            keys = pods.next() => keys.into_iter().map(|(namespace, _)| namespace).collect(),
        };
        for namespace in namespaces {
            let done = if namespace.is_empty() {
                release_volumes(&registry).await
            } else {
                release_claims(&registry, &namespace).await
            };
            if let Err(error) = done {
                tracing::warn!(%namespace, %error, "claims or volumes that are not in use could not be released");
            }
        }
    }
}

fn is_held(object: &Value, finalizer: &str) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
        && list(object, "/metadata/finalizers").iter().any(|own| own == finalizer)
}

async fn release_claims(registry: &Registry, namespace: &str) -> Result<(), ApiError> {
    if registry.count(&PERSISTENTVOLUMECLAIMS, namespace) == 0 {
        return Ok(());
    }
    let (claims, _) = registry.list_values(&PERSISTENTVOLUMECLAIMS, namespace)?;
    let held: Vec<&Value> = claims.iter().filter(|claim| is_held(claim, CLAIM_FINALIZER)).collect();
    if held.is_empty() {
        return Ok(());
    }
    let (pods, _) = registry.list_values(&PODS, namespace)?;
    for claim in held {
        let name = text(claim, "/metadata/name");
        let used = pods.iter().any(|pod| {
            let ended = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
            !ended
                && list(pod, "/spec/volumes")
                    .iter()
                    .any(|volume| text(volume, "/persistentVolumeClaim/claimName") == name)
        });
        if !used {
            release(registry, &PERSISTENTVOLUMECLAIMS, namespace, name, CLAIM_FINALIZER).await?;
        }
    }
    Ok(())
}

async fn release_volumes(registry: &Registry) -> Result<(), ApiError> {
    let (volumes, _) = registry.list_values(&PERSISTENTVOLUMES, "")?;
    for volume in volumes.iter().filter(|volume| is_held(volume, VOLUME_FINALIZER)) {
        if text(volume, "/status/phase") != "Bound" {
            release(registry, &PERSISTENTVOLUMES, "", text(volume, "/metadata/name"), VOLUME_FINALIZER).await?;
        }
    }
    Ok(())
}

async fn release(
    registry: &Registry,
    resource: &'static Resource,
    namespace: &str,
    name: &str,
    finalizer: &str,
) -> Result<(), ApiError> {
    let change = |mut object: Value| {
        let mut finalizers = list(&object, "/metadata/finalizers").to_vec();
        finalizers.retain(|own| own != finalizer);
        metadata(&mut object).insert("finalizers".to_owned(), json!(finalizers));
        Ok(Some(object))
    };
    match registry.modify(resource, namespace, name, Part::Whole, &WriteOptions::default(), change).await {
        Err(error) if !error.is_not_found() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}
