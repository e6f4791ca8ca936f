//! Server-side apply: an object laid over what is there, or made if nothing is.

use longshore_api::managed::{self, ApplyError, Managed, Write};
use longshore_api::schema::schema;
use serde_json::Value;

use super::update::{Step, check_place};
use super::{Part, Registry, TRIES, WriteOptions, owners};
use crate::apiserver::error::ApiError;
use crate::apiserver::known::Known;
use crate::apiserver::object::{Object, drop_nulls, meta, metadata};
use crate::apiserver::resources::Resource;

/// What is applied.
#[derive(Debug, Clone)]
pub struct Apply {
    /// The fields that its manager wants.
    pub object: Value,
    /// Take what others own.
    pub force: bool,
}

impl Registry {
    /// Applies an object. Returns it as stored and whether it is new.
    pub async fn apply(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        part: Part,
        apply: Apply,
        options: &WriteOptions,
    ) -> Result<(Object, bool), ApiError> {
        let Some(known) = Known::of(resource) else { return Err(ApiError::unsupported_media_type()) };
        let Apply { object: mut applied, force } = apply;
        if resource.custom.is_none() {
            drop_nulls(&mut applied);
        }
        check_place(resource, namespace, name, &applied)?;
        if applied.pointer("/metadata/managedFields").is_some() {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        metadata(&mut applied).insert("name".to_owned(), name.into());
        let (api_version, now) = (resource.api_version(), self.now());
        let write = Write {
            manager: options.manager.as_deref().unwrap_or_default(),
            api_version: &api_version,
            subresource: part.subresource(),
            now: &now,
            untouched: part.untouched(resource),
        };
        let options = WriteOptions { owners_given: true, ..options.clone() };
        let (key, mut turn) = (resource.key(namespace, name), None);
        for tries in 0..TRIES {
            self.turns.wait(&key, tries, &mut turn).await;
            let entry = self.store.get(&key);
            let old = entry.clone().map(|entry| resource.read(&entry.into())).transpose()?;
            let books = old.as_ref().and_then(|old| old.pointer("/metadata/managedFields"));
            let books = books.and_then(Managed::read).unwrap_or_default();
            let made = managed::apply(schema(), known.root(), &write, old.as_ref(), &applied, books, force)
                .map_err(|error| refusal(resource, namespace, name, error))?;
            let mut object = made.object;
            owners::put(&mut object, &made.managed);
            let (Some(entry), Some(old)) = (entry, old) else {
                if part != Part::Main {
                    return Err(ApiError::not_found(resource, name));
                }
                let uid = meta(&applied, "uid");
                if !uid.is_empty() {
                    let text = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(ApiError::conflict(resource, name, resource.plural, &text));
                }
                // A creation waits for whoever empties a namespace, and that one may wait for this turn.
                turn = None;
                match self.create(resource, namespace, object, &options).await {
                    Ok(made) => return Ok((made, true)),
                    Err(error) if error.is_already_exists() => continue,
                    Err(error) => return Err(error),
                }
            };
            let (sent, stored) = (meta(&object, "uid"), meta(&old, "uid"));
            if sent != stored {
                let text = format!("Precondition failed: UID in precondition: {sent}, UID in object meta: {stored}");
                return Err(ApiError::conflict(resource, name, resource.plural, &text));
            }
            if let Step::Done(object) = self.write(resource, part, &entry, &old, object, &options).await? {
                return Ok((object, false));
            }
        }
        Err(ApiError::stale(resource, name))
    }
}

fn refusal(resource: &Resource, namespace: &str, name: &str, error: ApplyError) -> ApiError {
    match error {
        ApplyError::Misfit(text) => ApiError::plain_internal(format!(
            "failed to create typed patch object ({namespace}/{name}; {}/{}, Kind={}): {text}",
            resource.group, resource.version, resource.kind
        )),
        ApplyError::Conflicts(conflicts) => ApiError::apply_conflicts(&conflicts),
    }
}
