//! Gives custom kinds their names and establishes them; removes their objects when they go.
//!
//! ```text
//! written ──names free──▶ NamesAccepted, Established ──delete──▶ Terminating, finalizer ──no object left──▶ gone
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use longshore_api::custom::accept;
use longshore_api::custom::definition::Names;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use crate::apiserver::error::ApiError;
use crate::apiserver::object::{list, meta, metadata, text};
use crate::apiserver::registry::{CUSTOM_CLEANUP, DeleteOptions, Part, Registry, WriteOptions};
use crate::apiserver::resources::CUSTOMRESOURCEDEFINITIONS;

/// Between two looks at a kind whose objects go: they may have finalizers.
const EVERY: Duration = Duration::from_millis(250);

pub(super) async fn run(registry: Registry, token: CancellationToken) {
    let mut definitions = Feed::new(&registry, &CUSTOMRESOURCEDEFINITIONS);
    let mut waiting = BTreeSet::new();
    loop {
        let changed: BTreeSet<String> = tokio::select! {
            biased;
            () = token.cancelled() => return,
            changed = definitions.next() => changed.into_iter().map(|(_, name)| name).collect(),
            () = tokio::time::sleep(EVERY), if !waiting.is_empty() => std::mem::take(&mut waiting),
        };
        // Watches of what changed end now, not with the next request.
        registry.kinds().refresh();
        let mut todo = changed;
        while let Some(name) = todo.pop_first() {
            match look(&registry, &name).await {
                Ok(Done::Nothing) => {
                    waiting.remove(&name);
                }
                // A name that is free now may be one that another has waited for.
                Ok(Done::Freed(group)) => {
                    waiting.remove(&name);
                    todo.extend(registry.kinds().wanting(&group).into_iter().filter(|other| *other != name));
                }
                Ok(Done::Waits) => {
                    waiting.insert(name);
                }
                Err(error) => {
                    tracing::warn!(definition = %name, %error, "a custom kind could not be looked after, trying again");
                    waiting.insert(name);
                }
            }
        }
    }
}

enum Done {
    Nothing,
    /// Names of this group may be free.
    Freed(String),
    Waits,
}

/// Takes a step.
async fn look(registry: &Registry, name: &str) -> Result<Done, ApiError> {
    let group = || name.split_once('.').map(|(_, group)| group.to_owned()).unwrap_or_default();
    let Some(found) = registry.find(&CUSTOMRESOURCEDEFINITIONS, "", name)? else { return Ok(Done::Freed(group())) };
    if !text(&found, "/metadata/deletionTimestamp").is_empty() {
        let ours = list(&found, "/metadata/finalizers").iter().any(|own| own == CUSTOM_CLEANUP);
        return if ours { empty(registry, name).await } else { Ok(Done::Nothing) };
    }
    let own = WriteOptions::default();
    let now = registry.now();
    let change = |mut definition: Value| {
        let others = registry.kinds().names(text(&definition, "/spec/group"), name);
        let others: Vec<&Names> = others.iter().collect();
        let Some(status) = accept::status(&definition, &others, &now) else { return Ok(None) };
        definition["status"] = status;
        Ok(Some(definition))
    };
    let before = found.pointer("/status/acceptedNames").cloned();
    let written = registry.modify(&CUSTOMRESOURCEDEFINITIONS, "", name, Part::Whole, &own, change).await;
    match written {
        Ok(written) if written.value()?.pointer("/status/acceptedNames").cloned() != before => Ok(Done::Freed(group())),
        Err(error) if !error.is_not_found() => Err(error),
        Ok(_) | Err(_) => Ok(Done::Nothing),
    }
}

/// Removes the objects of a kind, then lets it go.
async fn empty(registry: &Registry, name: &str) -> Result<Done, ApiError> {
    let mut left = 0;
    if let Some(row) = registry.kinds().of_definition(name) {
        if registry.count(row, "") > 0 {
            let text = "CustomResource deletion is in progress";
            told(registry, name, "True", "InstanceDeletionInProgress", text).await?;
        }
        let (objects, _) = registry.list_values(row, "")?;
        for object in objects {
            if !text(&object, "/metadata/deletionTimestamp").is_empty() {
                left += 1;
                continue;
            }
            let options = DeleteOptions { uid: Some(meta(&object, "uid").to_owned()), ..DeleteOptions::default() };
            match registry.delete(row, meta(&object, "namespace"), meta(&object, "name"), &options).await {
                Ok(deletion) => left += usize::from(!deletion.gone),
                Err(error) if error.is_not_found() => {}
                Err(error) if error.is_conflict() => left += 1,
                Err(error) => return Err(error),
            }
        }
    }
    if left > 0 {
        return Ok(Done::Waits);
    }
    told(registry, name, "False", "InstanceDeletionCompleted", "removed all instances").await?;
    let change = |mut definition: Value| {
        let mut finalizers = list(&definition, "/metadata/finalizers").to_vec();
        finalizers.retain(|own| own != CUSTOM_CLEANUP);
        metadata(&mut definition).insert("finalizers".to_owned(), json!(finalizers));
        Ok(Some(definition))
    };
    let own = WriteOptions::default();
    match registry.modify(&CUSTOMRESOURCEDEFINITIONS, "", name, Part::Whole, &own, change).await {
        Err(error) if !error.is_not_found() => Err(error),
        Ok(_) | Err(_) => Ok(Done::Nothing),
    }
}

/// Says how far the deletion is.
async fn told(registry: &Registry, name: &str, value: &str, reason: &str, message: &str) -> Result<(), ApiError> {
    let now = registry.now();
    let change = |mut definition: Value| {
        let before = definition["status"].clone();
        accept::set_condition(&mut definition["status"], "Terminating", value, reason, message, &now);
        Ok((definition["status"] != before).then_some(definition))
    };
    let own = WriteOptions::default();
    match registry.modify(&CUSTOMRESOURCEDEFINITIONS, "", name, Part::Whole, &own, change).await {
        Err(error) if !error.is_not_found() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}
