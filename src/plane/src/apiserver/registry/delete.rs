//! Deleting: preconditions, the grace of pods, finalizers, namespaces that empty first.
//!
//! ```text
//! stored ──delete, grace > 0──▶ waiting ──delete, shorter grace──▶ waiting (earlier)
//!    │                             │ grace 0
//!    └──delete, grace 0────────────┴──▶ gone, or held by finalizers until the last one is taken off
//! ```

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use longshore_api::custom::accept::set_condition;

use super::update::bump_generation;
use super::{ListOptions, Registry, TRIES, WriteOptions};
use crate::apiserver::admission;
use crate::apiserver::error::ApiError;
use crate::apiserver::object::{Object, draft, list, meta, metadata, text, time};
use crate::apiserver::resources::{CUSTOMRESOURCEDEFINITIONS, NAMESPACES, PODS, Resource};
use crate::apiserver::strategy::grace_of;
use crate::store::{Entry, StoreError};

/// Finalizer of what waits until what belongs to it has been set free.
pub const ORPHAN: &str = "orphan";

/// Finalizer of what waits until what belongs to it is gone.
pub const FOREGROUND: &str = "foregroundDeletion";

/// Finalizer of a definition that waits until the objects of its kind are gone.
pub const CUSTOM_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What becomes of what belongs to a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// It stays and belongs to nobody.
    Orphan,
    /// It goes after the object.
    Background,
    /// It goes before the object.
    Foreground,
}

/// How to delete.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// What becomes of what belongs to it; as finalizers and kind say if none.
    pub propagation: Option<Propagation>,
    /// Seconds that a pod gets; its own if none.
    pub grace: Option<i64>,
    /// Only the object of this uid.
    pub uid: Option<String>,
    /// Only this version.
    pub resource_version: Option<String>,
    /// Who deletes, and whether for real.
    pub write: WriteOptions,
}

/// A deletion's answer.
#[derive(Debug, Clone)]
pub struct Deletion {
    /// The object as it was last.
    pub object: Object,
    /// Whether it is gone; it waits otherwise.
    pub gone: bool,
}

enum Next {
    Gone(Value),
    Waits(Value),
    AsIs,
}

impl Registry {
    /// Deletes an object, or starts its deletion.
    pub async fn delete(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deletion, ApiError> {
        for _ in 0..TRIES {
            let Some(entry) = self.store.get(&resource.key(namespace, name)) else {
                self.absent(&resource.key(namespace, name))?;
                return Err(ApiError::not_found(resource, name));
            };
            let old = resource.read(&entry.clone().into())?;
            check_preconditions(resource, name, &entry, &old, options)?;
            admission::delete(self, resource, &old, options.write.user.as_deref())?;
            let (object, gone) = match self.next(resource, old, options)? {
                Next::AsIs => return Ok(Deletion { object: entry.into(), gone: false }),
                Next::Gone(object) => (object, true),
                Next::Waits(object) => (object, false),
            };
            if options.write.dry_run {
                return Ok(Deletion { object: Object::unstored(&object), gone });
            }
            let draft = draft(resource, &object);
            let written = if gone {
                self.store.delete(&entry.key, entry.revision, draft).await
            } else {
                self.store.update(&entry.key, entry.revision, draft).await
            };
            match written {
                Ok(entry) => return Ok(Deletion { object: entry.into(), gone }),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(ApiError::from_store(&error, resource, name)),
            }
        }
        Err(ApiError::stale(resource, name))
    }

    /// Deletes what a selection finds; returns what was found. One that goes away in between is not an error.
    pub async fn delete_collection(
        &self,
        resource: &'static Resource,
        namespace: &str,
        selection: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Vec<Object>, ApiError> {
        let found = self.list(resource, namespace, selection)?;
        let mut deleted = Vec::with_capacity(found.items.len());
        for item in found.items {
            let object = resource.read(&item)?;
            match self.delete(resource, meta(&object, "namespace"), meta(&object, "name"), options).await {
                Ok(deletion) => deleted.push(deletion.object),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }

    fn next(&self, resource: &Resource, mut object: Value, options: &DeleteOptions) -> Result<Next, ApiError> {
        let now = self.clock.now();
        if std::ptr::eq(resource, &NAMESPACES) {
            return delete_namespace(resource, object, now);
        }
        let propagated = propagate(resource, &mut object, options.propagation);
        if std::ptr::eq(resource, &CUSTOMRESOURCEDEFINITIONS) && deletion_time(&object).is_none() {
            hold_definition(&mut object, &time(now));
        }
        let held = !list(&object, "/metadata/finalizers").is_empty();
        let waiting = deletion_time(&object);
        if std::ptr::eq(resource, &PODS) {
            match waiting {
                None => {
                    let grace = grace_of(&object, options.grace);
                    mark(&mut object, now, grace);
                    if resource.has_generation {
                        bump_generation(&mut object);
                    }
                    return Ok(if grace == 0 && !held { Next::Gone(object) } else { Next::Waits(object) });
                }
                Some(due) => {
                    let present =
                        object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
                    let Some(wanted) = options.grace else {
                        return Ok(if present == 0 && !held { Next::Gone(object) } else { as_is(propagated, object) });
                    };
                    // Grace may only shrink: a later delete with a longer one changes nothing.
                    let wanted = grace_of(&object, Some(wanted));
                    if wanted >= present {
                        return Ok(if present == 0 && !held { Next::Gone(object) } else { as_is(propagated, object) });
                    }
                    let started = due.checked_sub(SignedDuration::from_secs(present)).unwrap_or(now);
                    mark(&mut object, started, wanted);
                    return Ok(if wanted == 0 && !held { Next::Gone(object) } else { Next::Waits(object) });
                }
            }
        }
        match (held, waiting) {
            (false, _) => Ok(Next::Gone(object)),
            (true, Some(_)) => Ok(as_is(propagated, object)),
            (true, None) => {
                mark(&mut object, now, 0);
                if resource.has_generation {
                    bump_generation(&mut object);
                }
                Ok(Next::Waits(object))
            }
        }
    }
}

/// A deletion that changes nothing but perhaps what becomes of others.
fn as_is(propagated: bool, object: Value) -> Next {
    if propagated { Next::Waits(object) } else { Next::AsIs }
}

/// Sets the finalizer that stands for what becomes of others. Returns whether that changed something.
fn propagate(resource: &Resource, object: &mut Value, wanted: Option<Propagation>) -> bool {
    let before = list(object, "/metadata/finalizers").to_vec();
    let has = |name: &str| before.iter().any(|own| own == name);
    let wanted = match wanted {
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Background) => None,
        None if has(ORPHAN) => Some(ORPHAN),
        None if has(FOREGROUND) => Some(FOREGROUND),
        None => resource.orphans.then_some(ORPHAN),
    };
    let mut now = before.clone();
    now.retain(|own| (own != ORPHAN && own != FOREGROUND) || wanted.is_some_and(|wanted| own == wanted));
    if let Some(wanted) = wanted
        && !now.iter().any(|own| own == wanted)
    {
        now.push(json!(wanted));
    }
    if now == before {
        return false;
    }
    if now.is_empty() {
        metadata(object).remove("finalizers");
    } else {
        metadata(object).insert("finalizers".to_owned(), json!(now));
    }
    true
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    entry: &Entry,
    old: &Value,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let own = meta(old, "uid");
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != own) {
        let text = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({own}). The object might have been \
             deleted and then recreated"
        );
        return Err(ApiError::conflict(resource, name, resource.kind, &text));
    }
    let own = entry.revision.to_string();
    if let Some(version) = options.resource_version.as_deref().filter(|version| *version != own) {
        let text = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({own}). \
             The object might have been modified"
        );
        return Err(ApiError::conflict(resource, name, resource.kind, &text));
    }
    Ok(())
}

fn deletion_time(object: &Value) -> Option<Timestamp> {
    object.pointer("/metadata/deletionTimestamp").and_then(Value::as_str)?.parse().ok()
}

fn mark(object: &mut Value, started: Timestamp, grace: i64) {
    let due = started.checked_add(SignedDuration::from_secs(grace)).unwrap_or(started);
    let meta = metadata(object);
    meta.insert("deletionTimestamp".to_owned(), time(due).into());
    meta.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
}

/// A namespace goes when it is empty: the loop that empties it takes its finalizer off.
fn delete_namespace(resource: &Resource, mut object: Value, now: Timestamp) -> Result<Next, ApiError> {
    let held = !list(&object, "/spec/finalizers").is_empty();
    if deletion_time(&object).is_none() {
        metadata(&mut object).insert("deletionTimestamp".to_owned(), time(now).into());
        object["status"]["phase"] = json!("Terminating");
        return Ok(if held { Next::Waits(object) } else { Next::Gone(object) });
    }
    if held {
        let text = "The system is ensuring all content is removed from this namespace.  Upon completion, this \
                    namespace will automatically be purged by the system.";
        return Err(ApiError::conflict(resource, text_name(&object), resource.plural, text));
    }
    if list(&object, "/metadata/finalizers").is_empty() { Ok(Next::Gone(object)) } else { Ok(Next::AsIs) }
}

/// A definition goes when no object of its kind is left: the loop that removes them takes the finalizer off.
fn hold_definition(object: &mut Value, now: &str) {
    let mut finalizers = list(object, "/metadata/finalizers").to_vec();
    if !finalizers.iter().any(|own| own == CUSTOM_CLEANUP) {
        finalizers.push(json!(CUSTOM_CLEANUP));
    }
    metadata(object).insert("finalizers".to_owned(), json!(finalizers));
    let text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(&mut object["status"], "Terminating", "True", "InstanceDeletionPending", text, now);
}

fn text_name(object: &Value) -> &str {
    text(object, "/metadata/name")
}
