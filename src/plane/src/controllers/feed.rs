//! Tells which objects of a kind may have changed. Loses nothing: when it falls behind, it names all that there are.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::apiserver::object::meta;
use crate::apiserver::registry::Registry;
use crate::apiserver::resources::Resource;
use crate::store::{EventKind, Revision, Watch};

/// Namespace (empty for kinds without) and name.
pub(super) type Key = (String, String);

/// Until a watch that cannot be had is tried again.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Feed {
    registry: Registry,
    resource: &'static Resource,
    prefix: String,
    watch: Option<Watch>,
    known: BTreeSet<Key>,
}

impl Feed {
    /// Returns a feed whose first answer names all objects.
    pub(super) fn new(registry: &Registry, resource: &'static Resource) -> Self {
        let prefix = resource.prefix("");
        Self { registry: registry.clone(), resource, prefix, watch: None, known: BTreeSet::new() }
    }

    /// Waits for objects that were made, changed or removed. Cancel-safe.
    pub(super) async fn next(&mut self) -> BTreeSet<Key> {
        loop {
            let Some(watch) = &mut self.watch else {
                match self.all() {
                    Ok((keys, watch)) => {
                        self.watch = Some(watch);
                        // What vanished unseen is named as well.
                        let gone = std::mem::replace(&mut self.known, keys.clone());
                        return keys.into_iter().chain(gone).collect();
                    }
                    Err(error) => {
                        tracing::warn!(kind = self.resource.kind, %error, "watching failed, trying again");
                        tokio::time::sleep(AGAIN).await;
                        continue;
                    }
                }
            };
            match watch.next().await {
                Ok(events) => {
                    let mut keys = BTreeSet::new();
                    for event in events {
                        let Some(key) = key(&self.prefix, self.resource, &event.key) else { continue };
                        match event.kind {
                            EventKind::Deleted => self.known.remove(&key),
                            EventKind::Created | EventKind::Updated => self.known.insert(key.clone()),
                        };
                        keys.insert(key);
                    }
                    return keys;
                }
                Err(error) => {
                    tracing::debug!(kind = self.resource.kind, %error, "watch ended, listing again");
                    self.watch = None;
                }
            }
        }
    }

    fn all(&self) -> Result<(BTreeSet<Key>, Watch), Box<dyn std::error::Error + Send + Sync>> {
        let (objects, revision): (_, Revision) = self.registry.list_values(self.resource, "")?;
        let keys = objects.iter().map(|object| (meta(object, "namespace").to_owned(), meta(object, "name").to_owned()));
        Ok((keys.collect(), self.registry.watch(self.resource, "", revision)?))
    }
}

fn key(prefix: &str, resource: &Resource, key: &str) -> Option<Key> {
    let rest = key.strip_prefix(prefix)?;
    if resource.namespaced {
        let (namespace, name) = rest.split_once('/')?;
        Some((namespace.to_owned(), name.to_owned()))
    } else {
        Some((String::new(), rest.to_owned()))
    }
}
