//! Tells which objects of a kind may have changed. Loses nothing: when it falls behind, it names all that there are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::apiserver::registry::Registry;
use crate::apiserver::resources::Resource;
use crate::store::{EventKind, StoreError, Watch};

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
    /// Keys in the store, which shares their text.
    known: BTreeSet<Arc<str>>,
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
                        let gone = std::mem::replace(&mut self.known, keys);
                        return self.known.union(&gone).filter_map(|key| self.named(key)).collect();
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
                        match event.kind {
                            EventKind::Deleted => self.known.remove(&event.key),
                            EventKind::Created | EventKind::Updated => self.known.insert(Arc::clone(&event.key)),
                        };
                        keys.extend(self.named(&event.key));
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

    fn all(&self) -> Result<(BTreeSet<Arc<str>>, Watch), StoreError> {
        let (keys, revision) = self.registry.keys(self.resource)?;
        Ok((keys.into_iter().collect(), self.registry.watch(self.resource, "", revision)?))
    }

    /// Returns namespace and name of what is stored under a key.
    fn named(&self, key: &str) -> Option<Key> {
        let rest = key.strip_prefix(&self.prefix)?;
        if self.resource.namespaced {
            let (namespace, name) = rest.split_once('/')?;
            Some((namespace.to_owned(), name.to_owned()))
        } else {
            Some((String::new(), rest.to_owned()))
        }
    }
}
