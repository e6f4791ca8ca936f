//! Who belongs to whom: only objects that have owners are kept, by their keys in the store.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use crate::apiserver::object::{list, meta, text};
use crate::apiserver::registry::Registry;
use crate::apiserver::resources::Resource;

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) resource: &'static Resource,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Resource {}

impl Place {
    pub(super) fn of(registry: &Registry, object: &Value) -> Option<Self> {
        let resource = registry.kind(text(object, "/apiVersion"), text(object, "/kind"))?;
        Some(Self { resource, namespace: meta(object, "namespace").to_owned(), name: meta(object, "name").to_owned() })
    }

    pub(super) fn key(&self) -> String {
        self.resource.key(&self.namespace, &self.name)
    }
}

/// One owner of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: Arc<str>,
    /// Nothing for kinds that are not served: nobody can say that such an owner is gone.
    pub(super) place: Option<Place>,
    /// Whether the owner must wait for this object when it goes in the foreground.
    pub(super) blocks: bool,
}

/// An object that has owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) place: Place,
    pub(super) owners: Vec<Owner>,
}

impl Child {
    /// Returns nothing for an object without owners.
    pub(super) fn of(registry: &Registry, object: &Value) -> Option<Self> {
        let references = list(object, "/metadata/ownerReferences");
        if references.is_empty() {
            return None;
        }
        let place = Place::of(registry, object)?;
        let owners = references.iter().map(|reference| Owner::of(registry, reference, &place)).collect();
        Some(Self { place, owners })
    }
}

impl Owner {
    fn of(registry: &Registry, reference: &Value, child: &Place) -> Self {
        let resource = registry.kind(text(reference, "/apiVersion"), text(reference, "/kind"));
        // An object outside namespaces cannot belong to one inside.
        let resource = resource.map(|row| row.stored()).filter(|row| !row.namespaced || child.resource.namespaced);
        let place = resource.map(|resource| Place {
            resource,
            namespace: if resource.namespaced { child.namespace.clone() } else { String::new() },
            name: text(reference, "/name").to_owned(),
        });
        let blocks = reference.get("blockOwnerDeletion").and_then(Value::as_bool).unwrap_or(false);
        Self { uid: text(reference, "/uid").into(), place, blocks }
    }
}

/// All objects that have owners.
#[derive(Debug, Default)]
pub(super) struct Graph {
    children: HashMap<Arc<str>, Child>,
    by_owner: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl Graph {
    pub(super) fn child(&self, key: &str) -> Option<&Child> {
        self.children.get(key)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.children.contains_key(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    pub(super) fn keys(&self) -> Vec<Arc<str>> {
        self.children.keys().cloned().collect()
    }

    /// Returns the keys of what belongs to an object.
    pub(super) fn of_owner(&self, uid: &str) -> Vec<Arc<str>> {
        self.by_owner.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Takes note of how an object's owners are now. Returns whether they changed.
    pub(super) fn set(&mut self, key: &Arc<str>, child: Option<Child>) -> bool {
        if self.children.get(key) == child.as_ref() {
            return false;
        }
        if let Some(old) = self.children.remove(key) {
            for owner in old.owners {
                if let Some(keys) = self.by_owner.get_mut(&owner.uid) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.by_owner.remove(&owner.uid);
                    }
                }
            }
        }
        if let Some(child) = child {
            for owner in &child.owners {
                self.by_owner.entry(Arc::clone(&owner.uid)).or_default().insert(Arc::clone(key));
            }
            self.children.insert(Arc::clone(key), child);
        }
        true
    }
}
