//! Removes what belonged to objects that are gone, and does what deletions in the foreground and with orphans wait for.
//!
//! ```text
//! owner gone ─────────────────────────▶ what has no other owner is deleted, else the reference is taken off
//! owner waits, `foregroundDeletion` ──▶ what belongs to it is deleted, then the finalizer is taken off
//! owner waits, `orphan` ──────────────▶ references to it are taken off, then the finalizer
//! ```
//!
//! One watch on everything feeds a small graph of objects with owners. Whether an owner is there is always asked of the
//! store itself, so nothing is deleted on hearsay.

mod graph;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longshore_api::selector::Outline;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::apiserver::error::ApiError;
use crate::apiserver::object::{list, meta, metadata, text};
use crate::apiserver::registry::{DeleteOptions, FOREGROUND, ORPHAN, Part, Propagation, Registry, WriteOptions};
use crate::store::{Event, EventKind, StoreError, Watch};
use graph::{Child, Graph, Owner, Place};

/// Until what failed is tried again.
const AGAIN: Duration = Duration::from_secs(2);

pub(super) async fn run(registry: Registry, token: CancellationToken) {
    let outline = Outline::of(READ);
    let (todo, failed) = (BTreeSet::new(), BTreeSet::new());
    let mut collector = Collector { registry, outline, graph: Graph::default(), todo, failed };
    let mut watch = None;
    loop {
        if watch.is_none() {
            match collector.start() {
                Ok(started) => watch = Some(started),
                Err(error) => tracing::warn!(%error, "the garbage collector cannot watch, trying again"),
            }
        }
        collector.work().await;
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            events = next(&mut watch) => match events {
                Ok(events) => events.iter().for_each(|event| collector.see(event)),
                Err(_) => watch = None,
            },
            () = tokio::time::sleep(AGAIN), if watch.is_none() || !collector.failed.is_empty() => {
                collector.todo.append(&mut collector.failed);
            }
        }
    }
}

async fn next(watch: &mut Option<Watch>) -> Result<Vec<Arc<Event>>, StoreError> {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

/// What an owner is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// There, or of a kind that nobody here knows.
    Solid,
    /// Going in the foreground: it waits for what belongs to it.
    Waits,
    /// Not there any more.
    Gone,
}

/// What of an object tells to whom it belongs and whether it waits.
const READ: [&str; 8] = [
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.ownerReferences",
    "metadata.deletionTimestamp",
    "metadata.finalizers",
];

struct Collector {
    registry: Registry,
    outline: Outline,
    graph: Graph,
    /// Keys of objects to look at.
    todo: BTreeSet<Arc<str>>,
    /// Keys of objects to look at again later.
    failed: BTreeSet<Arc<str>>,
}

impl Collector {
    /// Reads everything once and watches from there.
    fn start(&mut self) -> Result<Watch, StoreError> {
        let (entries, watch) = self.registry.everything()?;
        self.graph = Graph::default();
        for entry in entries {
            let bytes = entry.value.bytes();
            if concerns(&bytes) {
                self.take(&entry.key, &bytes);
            }
        }
        self.todo.extend(self.graph.keys());
        Ok(watch)
    }

    fn take(&mut self, key: &Arc<str>, bytes: &[u8]) {
        let Ok(object) = self.outline.read(bytes) else { return };
        if self.graph.set(key, Child::of(&self.registry, &object)) {
            self.todo.insert(Arc::clone(key));
        }
        if waits_for(&object).is_some() {
            self.todo.insert(Arc::clone(key));
        }
    }

    fn see(&mut self, event: &Event) {
        let bytes = event.object();
        if event.kind != EventKind::Deleted {
            if concerns(&bytes) || self.graph.has(&event.key) {
                self.take(&event.key, &bytes);
            }
            return;
        }
        if self.graph.is_empty() {
            return;
        }
        let Ok(object) = self.outline.read(&bytes) else { return };
        self.todo.extend(self.graph.of_owner(meta(&object, "uid")));
        // An owner may have waited for this one.
        let owners = self.graph.child(&event.key).map(|child| child.owners.clone()).unwrap_or_default();
        self.todo.extend(owners.iter().filter_map(|owner| owner.place.as_ref()).map(|place| place.key().into()));
        self.graph.set(&event.key, None);
    }

    async fn work(&mut self) {
        while let Some(key) = self.todo.pop_first() {
            if let Err(error) = self.look(&key).await {
                if error.is_not_found() || error.is_conflict() {
                    continue;
                }
                tracing::warn!(%key, %error, "garbage could not be collected, trying again");
                self.failed.insert(key);
            }
        }
    }

    /// Does what an object needs now.
    async fn look(&mut self, key: &Arc<str>) -> Result<(), ApiError> {
        let Some(object) = self.registry.at_key(key)? else { return Ok(()) };
        if let Some(finalizer) = waits_for(&object) {
            return self.finish(&object, finalizer).await;
        }
        // The owners that it has now: the graph may not have heard yet that it was set free.
        let Some(child) = Child::of(&self.registry, &object) else { return Ok(()) };
        if !text(&object, "/metadata/deletionTimestamp").is_empty() {
            return Ok(());
        }
        let mut standing = Vec::with_capacity(child.owners.len());
        for owner in &child.owners {
            standing.push((owner, self.standing(owner)?));
        }
        let has = |wanted: Standing| standing.iter().any(|(_, own)| *own == wanted);
        if has(Standing::Solid) {
            let gone: Vec<&str> =
                standing.iter().filter(|(_, own)| *own != Standing::Solid).map(|(owner, _)| &*owner.uid).collect();
            return if gone.is_empty() { Ok(()) } else { self.release(&child.place, &gone).await };
        }
        let finalizers = list(&object, "/metadata/finalizers");
        let has_finalizer = |name: &str| finalizers.iter().any(|own| own == name);
        let has_children = !self.graph.of_owner(meta(&object, "uid")).is_empty();
        let policy = if has_finalizer(ORPHAN) {
            Propagation::Orphan
        } else if has_finalizer(FOREGROUND) || (has(Standing::Waits) && has_children) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        let Place { resource, namespace, name } = &child.place;
        let options = DeleteOptions {
            uid: Some(meta(&object, "uid").to_owned()),
            // So that an owner given in between keeps it.
            resource_version: Some(meta(&object, "resourceVersion").to_owned()),
            propagation: Some(policy),
            ..DeleteOptions::default()
        };
        let done = self.registry.delete(resource, namespace, name, &options).await;
        if done.as_ref().is_err_and(ApiError::is_conflict) {
            self.failed.insert(Arc::clone(key));
        }
        done.map(drop)
    }

    fn standing(&self, owner: &Owner) -> Result<Standing, ApiError> {
        let Some(Place { resource, namespace, name }) = &owner.place else { return Ok(Standing::Solid) };
        let Some(found) = self.registry.find(resource, namespace, name)? else { return Ok(Standing::Gone) };
        Ok(if meta(&found, "uid") != &*owner.uid {
            Standing::Gone
        } else if waits_for(&found) == Some(FOREGROUND) {
            Standing::Waits
        } else {
            Standing::Solid
        })
    }

    /// Takes a step for an object that waits for what belongs to it.
    async fn finish(&mut self, object: &Value, finalizer: &'static str) -> Result<(), ApiError> {
        let uid = meta(object, "uid");
        let children = self.graph.of_owner(uid);
        if finalizer == ORPHAN {
            for key in children {
                let Some(child) = self.graph.child(&key).cloned() else { continue };
                match self.release(&child.place, &[uid]).await {
                    Err(error) if !error.is_not_found() => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
        } else {
            let blocks = |key: &Arc<str>| {
                let owners = self.graph.child(key).map(|child| child.owners.as_slice()).unwrap_or_default();
                owners.iter().any(|owner| owner.blocks && &*owner.uid == uid)
            };
            let blocked = children.iter().any(blocks);
            self.todo.extend(children);
            if blocked {
                return Ok(());
            }
        }
        let Some(Place { resource, namespace, name }) = Place::of(&self.registry, object) else { return Ok(()) };
        let change = |mut object: Value| {
            if meta(&object, "uid") != uid {
                return Ok(None);
            }
            let mut finalizers = list(&object, "/metadata/finalizers").to_vec();
            finalizers.retain(|own| own != finalizer);
            metadata(&mut object).insert("finalizers".to_owned(), json!(finalizers));
            Ok(Some(object))
        };
        let own = WriteOptions::default();
        self.registry.modify(resource, &namespace, &name, Part::Whole, &own, change).await.map(drop)
    }

    /// Takes references to these owners off an object.
    async fn release(&self, place: &Place, owners: &[&str]) -> Result<(), ApiError> {
        let change = |mut object: Value| {
            let mut references = list(&object, "/metadata/ownerReferences").to_vec();
            references.retain(|reference| !owners.contains(&text(reference, "/uid")));
            metadata(&mut object).insert("ownerReferences".to_owned(), json!(references));
            Ok(Some(object))
        };
        let own = WriteOptions::default();
        self.registry.modify(place.resource, &place.namespace, &place.name, Part::Whole, &own, change).await.map(drop)
    }
}

/// Returns the finalizer of ours that an object which is being deleted has.
fn waits_for(object: &Value) -> Option<&'static str> {
    if text(object, "/metadata/deletionTimestamp").is_empty() {
        return None;
    }
    let finalizers = list(object, "/metadata/finalizers");
    [ORPHAN, FOREGROUND].into_iter().find(|name| finalizers.iter().any(|own| own == name))
}

/// Whether an object's text may be of interest, without reading it: most writes are heartbeats and states.
fn concerns(bytes: &[u8]) -> bool {
    let has = |needle: &[u8]| memchr::memmem::find(bytes, needle).is_some();
    has(b"\"ownerReferences\"") || (has(b"\"deletionTimestamp\"") && has(b"\"finalizers\""))
}
