//! Replacing and patching: one loop that reads, changes, checks and writes unless somebody else was faster.

use serde_json::{Map, Value, json};

use super::create::{bad_types, check_size};
use super::{FieldValidation, Registry, TRIES, WriteOptions};
use crate::apiserver::admission;
use crate::apiserver::error::{ApiError, Cause};
use crate::apiserver::known::Known;
use crate::apiserver::object::{
    Object, child, copy, default, draft, drop_nulls, list, meta, metadata, text, tidy_metadata,
};
use crate::apiserver::patch::Patch;
use crate::apiserver::resources::{NAMESPACES, Resource};
use crate::apiserver::rules;
use crate::apiserver::strategy;
use crate::store::{Entry, StoreError};

/// Which part of an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status.
    Main,
    /// The status, labels and annotations.
    Status,
    /// A namespace's finalizers.
    Finalize,
    /// A pod's ephemeral containers.
    EphemeralContainers,
    /// A pod's container resources.
    Resize,
    /// The decision about a request for a certificate.
    Approval,
    /// Everything, by the server itself: nothing is carried over or refused.
    Whole,
}

/// What became of one try.
pub(super) enum Step {
    Done(Object),
    Raced,
}

impl Registry {
    /// Replaces an object (or part of it) by what the caller sends. Returns it as stored and whether it is new.
    pub async fn update(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        part: Part,
        object: Value,
        options: &WriteOptions,
    ) -> Result<(Object, bool), ApiError> {
        check_place(resource, namespace, name, &object)?;
        let versioned = !meta(&object, "resourceVersion").is_empty();
        let (key, mut turn) = (resource.key(namespace, name), None);
        if !versioned && !resource.unconditional_update && self.store.get(&key).is_some() {
            let cause = Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            return Err(ApiError::invalid(resource, name, vec![cause]));
        }
        for tries in 0..TRIES {
            self.turns.wait(&key, tries, &mut turn).await;
            let Some(entry) = self.store.get(&key) else {
                if resource.create_on_update && part == Part::Main && !versioned {
                    // A creation waits for whoever empties a namespace, and that one may wait for this turn.
                    drop(turn);
                    return self.create(resource, namespace, object, options).await.map(|made| (made, true));
                }
                return Err(ApiError::not_found(resource, name));
            };
            let old = resource.read(&entry.clone().into())?;
            let (sent, stored) = (meta(&object, "uid"), meta(&old, "uid"));
            if !sent.is_empty() && sent != stored {
                let text = format!("Precondition failed: UID in precondition: {sent}, UID in object meta: {stored}");
                return Err(ApiError::conflict(resource, name, resource.plural, &text));
            }
            match self.write(resource, part, &entry, &old, object.clone(), options).await? {
                Step::Done(object) => return Ok((object, false)),
                Step::Raced if versioned => return Err(ApiError::stale(resource, name)),
                Step::Raced => {}
            }
        }
        Err(ApiError::stale(resource, name))
    }

    /// Changes an object (or part of it) by a patch.
    pub async fn patch(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        part: Part,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Object, ApiError> {
        let (key, mut turn) = (resource.key(namespace, name), None);
        for tries in 0..TRIES {
            self.turns.wait(&key, tries, &mut turn).await;
            let Some(entry) = self.store.get(&key) else {
                return Err(ApiError::not_found(resource, name));
            };
            let old = resource.read(&entry.clone().into())?;
            let mut object = patch.apply(resource, &old)?;
            if let Some(known) = Known::of(resource) {
                let sent = (options.fields == FieldValidation::Strict).then(|| object.to_string());
                let findings = known.prune(&mut object);
                options.judge(&findings).map_err(|text| ApiError::bad_result(&sent.unwrap_or_default(), &text))?;
            }
            check_place(resource, namespace, name, &object)?;
            if meta(&object, "uid") != meta(&old, "uid") {
                if meta(&object, "uid").is_empty() {
                    copy(metadata(&mut object), old.get("metadata"), "uid");
                } else {
                    let cause = Cause::invalid("metadata.uid", &json!(meta(&object, "uid")), "field is immutable");
                    return Err(ApiError::invalid(resource, name, vec![cause.clone(), cause]));
                }
            }
            match self.write(resource, part, &entry, &old, object, options).await? {
                Step::Done(object) => return Ok(object),
                // Applied to the newer object it may well fit; a version inside the patch is checked again then.
                Step::Raced => {}
            }
        }
        Err(ApiError::stale(resource, name))
    }

    /// Changes an object by a function of its present state until no other writer comes between. The function returns
    /// nothing if there is nothing to do.
    pub async fn modify(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        part: Part,
        options: &WriteOptions,
        change: impl Fn(Value) -> Result<Option<Value>, ApiError> + Send,
    ) -> Result<Object, ApiError> {
        let (key, mut turn) = (resource.key(namespace, name), None);
        for tries in 0..TRIES {
            self.turns.wait(&key, tries, &mut turn).await;
            let Some(entry) = self.store.get(&key) else {
                return Err(ApiError::not_found(resource, name));
            };
            let old = resource.read(&entry.clone().into())?;
            let Some(object) = change(old.clone())? else { return Ok(entry.into()) };
            if let Step::Done(object) = self.write(resource, part, &entry, &old, object, options).await? {
                return Ok(object);
            }
        }
        Err(ApiError::stale(resource, name))
    }

    /// Conditions that were sent without times have those of now.
    fn date_decisions(&self, object: &mut Value) {
        let now = self.now();
        let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
            for key in ["lastUpdateTime", "lastTransitionTime"] {
                default(condition, key, || json!(now));
            }
        }
    }

    pub(super) async fn write(
        &self,
        resource: &'static Resource,
        part: Part,
        entry: &Entry,
        old: &Value,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Step, ApiError> {
        let name = meta(old, "name").to_owned();
        let sent = meta(&object, "resourceVersion");
        if !sent.is_empty() && sent != entry.revision.to_string() {
            return Err(ApiError::stale(resource, &name));
        }
        resource.strategy.decode(&object).map_err(|detail| bad_types(resource, &detail))?;
        if resource.custom.is_none() {
            drop_nulls(&mut object);
        }
        inherit(resource, &mut object, old);
        let sent = (part == Part::Resize).then(|| object.clone());
        merge_part(resource, part, &mut object, old);
        match part {
            Part::Status => resource.strategy.prepare_status(&mut object, old),
            Part::Main => resource.strategy.prepare_update(&mut object, old),
            Part::Approval => self.date_decisions(&mut object),
            Part::Finalize | Part::EphemeralContainers | Part::Resize | Part::Whole => {}
        }
        resource.strategy.defaults(&mut object);
        super::owners::enter(resource, part, Some(old), &mut object, options, &self.now());
        tidy_metadata(&mut object);
        admission::update(self, resource, part, &object, old, options.user.as_deref())?;

        let mut causes = rules::metadata_causes(resource, &object);
        causes.extend(new_finalizers(&object, old));
        if part == Part::Main || (part == Part::Status && resource.custom.is_some()) {
            causes.extend(resource.strategy.validate_again(&object, old));
        }
        if part == Part::EphemeralContainers {
            causes.extend(resource.strategy.validate(&object));
            causes.extend(strategy::guests::causes(&object, old));
        }
        if part == Part::Approval {
            causes.extend(strategy::kinds::approval_causes(&object, old));
        }
        if let Some(sent) = &sent {
            causes.extend(resource.strategy.validate(&object));
            causes.extend(strategy::sizes::causes(&object, old, sent));
        }
        if !causes.is_empty() {
            return Err(ApiError::invalid(resource, &name, causes));
        }
        if resource.has_generation && resource.strategy.is_new_generation(&object, old) {
            bump_generation(&mut object);
        }
        let stored_well = resource.custom.is_none_or(|custom| custom.is_stored_well(&entry.value.bytes()));
        if object == *old && stored_well {
            return Ok(Step::Done(entry.clone().into()));
        }
        if options.dry_run {
            return Ok(Step::Done(Object::unstored(&object)));
        }
        let draft = draft(resource, &object);
        check_size(&draft)?;
        let written = if is_released(resource, &object) {
            self.store.delete(&entry.key, entry.revision, draft).await
        } else {
            self.store.update(&entry.key, entry.revision, draft).await
        };
        match written {
            Ok(entry) => Ok(Step::Done(entry.into())),
            Err(StoreError::Conflict { .. }) => Ok(Step::Raced),
            Err(error) => Err(ApiError::from_store(&error, resource, &name)),
        }
    }
}

pub(super) fn check_place(resource: &Resource, namespace: &str, name: &str, object: &Value) -> Result<(), ApiError> {
    let own = meta(object, "name");
    if !own.is_empty() && own != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({own}) does not match the name on the URL ({name})"
        )));
    }
    let own = meta(object, "namespace");
    if resource.namespaced && !own.is_empty() && own != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Carries over what no update may touch.
fn inherit(resource: &Resource, object: &mut Value, old: &Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert("kind".to_owned(), resource.kind.into());
        map.insert("apiVersion".to_owned(), resource.api_version().into());
    }
    let meta = metadata(object);
    for key in [
        "name",
        "generateName",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ] {
        copy(meta, old.get("metadata"), key);
    }
}

/// Leaves of the sent object only what its path may write.
fn merge_part(resource: &Resource, part: Part, object: &mut Value, old: &Value) {
    // What a client sends beside the part is mostly what is there already: nothing is copied then.
    let take_over = |object: &mut Value, keep: &str| {
        let (Some(map), Some(old)) = (object.as_object_mut(), old.as_object()) else { return };
        let is_sent = |key: &str| key == "metadata" || key == keep;
        map.retain(|key, _| is_sent(key) || old.contains_key(key));
        for (key, value) in old.iter().filter(|(key, _)| !is_sent(key)) {
            if map.get(key) != Some(value) {
                map.insert(key.clone(), value.clone());
            }
        }
    };
    match part {
        Part::Main if resource.has_status => {
            if let Some(map) = object.as_object_mut()
                && map.get("status") != old.get("status")
            {
                copy(map, Some(old), "status");
            }
        }
        Part::Main | Part::Whole => {}
        Part::Status => take_over(object, "status"),
        Part::Approval => {
            let conditions = object.pointer("/status/conditions").cloned();
            take_over(object, "metadata");
            if let Some(conditions) = conditions {
                child(object, "status").insert("conditions".to_owned(), conditions);
            }
        }
        Part::Finalize => {
            let finalizers = list(object, "/spec/finalizers").to_vec();
            take_over(object, "metadata");
            child(object, "spec").insert("finalizers".to_owned(), finalizers.into());
        }
        Part::EphemeralContainers => {
            let containers = object.pointer("/spec/ephemeralContainers").cloned();
            *object = old.clone();
            let spec = child(object, "spec");
            match containers {
                Some(containers) => drop(spec.insert("ephemeralContainers".to_owned(), containers)),
                None => drop(spec.remove("ephemeralContainers")),
            }
        }
        Part::Resize => {
            let sent = std::mem::replace(object, old.clone());
            strategy::sizes::take_over(object, &sent);
        }
    }
}

fn new_finalizers(object: &Value, old: &Value) -> Option<Cause> {
    old.pointer("/metadata/deletionTimestamp")?;
    let before = list(old, "/metadata/finalizers");
    let new: Vec<&str> = list(object, "/metadata/finalizers")
        .iter()
        .filter(|finalizer| !before.contains(finalizer))
        .filter_map(Value::as_str)
        .collect();
    if new.is_empty() {
        return None;
    }
    let text = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        new.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
    );
    Some(Cause::forbidden("metadata.finalizers", &text))
}

pub(super) fn bump_generation(object: &mut Value) {
    let meta: &mut Map<String, Value> = metadata(object);
    let generation = meta.get("generation").and_then(Value::as_i64).unwrap_or(0);
    meta.insert("generation".to_owned(), json!(generation + 1));
}

/// Whether the last finalizer of an object that waits for deletion has gone.
fn is_released(resource: &Resource, object: &Value) -> bool {
    let waits = !text(object, "/metadata/deletionTimestamp").is_empty();
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let held = !list(object, "/metadata/finalizers").is_empty()
        || (std::ptr::eq(resource, &NAMESPACES) && !list(object, "/spec/finalizers").is_empty());
    waits && grace == 0 && !held
}
