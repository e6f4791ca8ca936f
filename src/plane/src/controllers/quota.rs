//! Keeps the status of resource quotas: what may be held, and what is.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::apiserver::error::ApiError;
use crate::apiserver::object::meta;
use crate::apiserver::quota;
use crate::apiserver::registry::{Part, Registry, WriteOptions};
use crate::apiserver::resources::{RESOURCEQUOTAS, Resource};

/// How long changes are gathered before they are counted.
const GATHER: Duration = Duration::from_millis(200);

/// Until a watch that cannot be had is tried again.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) async fn run(registry: Registry, token: CancellationToken) {
    loop {
        let watched = watch(&registry);
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            () = watched => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Watches everything until that fails.
async fn watch(registry: &Registry) {
    let Ok(mut watch) = registry.watch_all() else { return };
    let mut changed: BTreeSet<String> = all(registry);
    loop {
        for namespace in std::mem::take(&mut changed) {
            if let Err(error) = count(registry, &namespace).await {
                tracing::warn!(%namespace, %error, "quotas could not be brought up to date");
            }
        }
        let Ok(events) = watch.next().await else { return };
        // Where nobody has a quota, this is all that a write costs.
        if registry.count(&RESOURCEQUOTAS, "") == 0 {
            continue;
        }
        let rows = registry.stored();
        changed.extend(events.iter().filter_map(|event| namespace(&rows, &event.key)));
        if changed.is_empty() {
            continue;
        }
        tokio::time::sleep(GATHER).await;
        while let Ok(Some(events)) = watch.try_next() {
            let rows = registry.stored();
            changed.extend(events.iter().filter_map(|event| namespace(&rows, &event.key)));
        }
    }
}

fn all(registry: &Registry) -> BTreeSet<String> {
    let quotas = registry.list_values(&RESOURCEQUOTAS, "").map(|(quotas, _)| quotas).unwrap_or_default();
    quotas.iter().map(|quota| meta(quota, "namespace").to_owned()).collect()
}

/// Returns the namespace of what is stored under a key.
fn namespace(rows: &[&Resource], key: &str) -> Option<String> {
    let mut rows = rows.iter().filter(|row| row.namespaced);
    let rest = rows.find_map(|row| key.strip_prefix(&row.prefix("")))?;
    rest.split_once('/').map(|(namespace, _)| namespace.to_owned())
}

async fn count(registry: &Registry, namespace: &str) -> Result<(), ApiError> {
    if registry.count(&RESOURCEQUOTAS, namespace) == 0 {
        return Ok(());
    }
    let (quotas, _) = registry.list_values(&RESOURCEQUOTAS, namespace)?;
    for found in quotas {
        let texts = |amounts: quota::Amounts| -> Value {
            amounts.into_iter().map(|(name, amount)| (name, json!(amount.to_string()))).collect()
        };
        let status = json!({"hard": texts(quota::hard(&found)), "used": texts(quota::used(registry, &found)?)});
        let change = |mut current: Value| {
            if current.get("status") == Some(&status) {
                return Ok(None);
            }
            current["status"] = status.clone();
            Ok(Some(current))
        };
        let own = WriteOptions::default();
        let name = meta(&found, "name");
        match registry.modify(&RESOURCEQUOTAS, namespace, name, Part::Status, &own, change).await {
            Err(error) if !error.is_not_found() => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_their_namespace() {
        let rows: Vec<&Resource> = crate::apiserver::resources::built_in().collect();
        assert_eq!(namespace(&rows, "pods/a/p").as_deref(), Some("a"));
        assert_eq!(namespace(&rows, "apps/deployments/b/d").as_deref(), Some("b"));
        assert_eq!(namespace(&rows, "nodes/n"), None);
        assert_eq!(namespace(&rows, "storage.k8s.io/storageclasses/x"), None);
    }
}
