//! Creating: what the server decides at birth, admission, rules, store.

use serde_json::{Value, json};

use super::{Part, Registry, WriteOptions};
use crate::apiserver::admission;
use crate::apiserver::error::ApiError;
use crate::apiserver::object::{Object, default, draft, drop_nulls, meta, metadata, text, tidy_metadata};
use crate::apiserver::quota;
use crate::apiserver::resources::{NAMESPACES, PODS, RESOURCEQUOTAS, Resource, SERVICES};
use crate::apiserver::rules;
use crate::apiserver::strategy;
use crate::store::{Draft, StoreError};

/// Tries of a generated name that turns out to be taken.
const NAME_TRIES: usize = 8;

/// Longest base that a generated name keeps: 63 less the five letters behind it.
const NAME_BASE: usize = 58;

impl Registry {
    /// Creates an object and returns it as stored.
    pub async fn create(
        &self,
        resource: &'static Resource,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Object, ApiError> {
        let _stays = if resource.namespaced { Some(self.namespaces.read().await) } else { None };
        self.require_namespace(resource, namespace, meta(&object, "name"))?;
        let mut tries = 0;
        loop {
            let generated = meta(&object, "name").is_empty() && !meta(&object, "generateName").is_empty();
            let made = self.create_once(resource, namespace, object.clone(), options).await;
            tries += 1;
            match made {
                Err(error) if generated && error.is_already_exists() && tries < NAME_TRIES => {}
                Ok(None) if tries < NAME_TRIES => {}
                Ok(None) => return Err(ApiError::internal("failed to allocate a serviceIP: others take them first")),
                Ok(Some(object)) => return Ok(object),
                Err(error) => return Err(error),
            }
        }
    }

    /// One try; `None` when another apiserver gave the address of this service away in the same moment.
    async fn create_once(
        &self,
        resource: &'static Resource,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Option<Object>, ApiError> {
        resource.strategy.decode(&object).map_err(|detail| bad_types(resource, &detail))?;
        // In a custom kind null can be a value; its strategy knows where.
        if resource.custom.is_none() {
            let conditions = object.get("status").cloned();
            drop_nulls(&mut object);
            if let Some(status) = conditions {
                object["status"] = status;
            }
        }
        self.stamp(resource, namespace, &mut object)?;
        resource.strategy.defaults(&mut object);
        super::owners::enter(resource, Part::Main, None, &mut object, options, &self.now());
        resource.strategy.prepare_create(&mut object);
        admission::create(self, resource, &mut object, options.user.as_deref())?;
        // Admission adds volumes and the like, which have defaults too.
        resource.strategy.defaults(&mut object);

        let is_service = std::ptr::eq(resource, &SERVICES);
        let _choosing = if is_service { Some(self.addresses.lock().await) } else { None };
        if is_service {
            admission::service_address(self, &mut object)?;
        }
        let name = meta(&object, "name").to_owned();
        let mut causes = rules::metadata_causes(resource, &object);
        causes.extend(resource.strategy.validate_new(&object));
        if std::ptr::eq(resource, &PODS) {
            causes.extend(strategy::guests::at_birth(&object));
        }
        if !causes.is_empty() {
            return Err(ApiError::invalid(resource, &name, causes));
        }
        let counted = resource.namespaced && self.count(&RESOURCEQUOTAS, namespace) > 0;
        let _counting = if counted { Some(self.quotas.lock().await) } else { None };
        if counted {
            quota::check(self, resource, &object)?;
        }
        let new = draft(resource, &object);
        check_size(&new)?;
        let key = resource.key(namespace, &name);
        if options.dry_run {
            if self.store.get(&key).is_some() {
                return Err(ApiError::already_exists(resource, &name));
            }
            return Ok(Some(Object::unstored(&object)));
        }
        match self.store.create(&key, new).await {
            Ok(entry) if is_service && self.shares_its_address(&object).await? => {
                // Whoever looks after both were written gives way; the other one may have been answered already.
                self.store.delete(&key, entry.revision, draft(resource, &object)).await.ok();
                Ok(None)
            }
            Ok(entry) => Ok(Some(entry.into())),
            Err(StoreError::Exists { .. }) => Err(ApiError::already_exists(resource, &name)),
            Err(error) => Err(ApiError::from_store(&error, resource, &name)),
        }
    }

    /// Says whether a service that was just written has its address in common with another one.
    async fn shares_its_address(&self, service: &Value) -> Result<bool, ApiError> {
        let address = text(service, "/spec/clusterIP");
        if address.is_empty() || address == "None" {
            return Ok(false);
        }
        self.store.settle().await.map_err(|error| ApiError::from_store(&error, &SERVICES, meta(service, "name")))?;
        let (services, _) = self.list_values(&SERVICES, "")?;
        let own = meta(service, "uid");
        Ok(services.iter().any(|other| meta(other, "uid") != own && text(other, "/spec/clusterIP") == address))
    }

    fn stamp(&self, resource: &Resource, namespace: &str, object: &mut Value) -> Result<(), ApiError> {
        let own = meta(object, "namespace");
        if resource.namespaced && !own.is_empty() && own != namespace {
            let text = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::bad_request(text));
        }
        if !meta(object, "resourceVersion").is_empty() {
            return Err(ApiError::internal("resourceVersion should not be set on objects to be created"));
        }
        if let Some(map) = object.as_object_mut() {
            map.insert("kind".to_owned(), resource.kind.into());
            map.insert("apiVersion".to_owned(), resource.api_version().into());
        }
        let (name, base) = (meta(object, "name").to_owned(), meta(object, "generateName").to_owned());
        let meta = metadata(object);
        if name.is_empty() && !base.is_empty() {
            let kept: String = base.chars().take(NAME_BASE).collect();
            meta.insert("name".to_owned(), format!("{kept}{}", suffix()).into());
        }
        if resource.namespaced {
            meta.insert("namespace".to_owned(), namespace.into());
        } else {
            meta.remove("namespace");
        }
        for gone in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion"] {
            meta.remove(gone);
        }
        meta.insert("uid".to_owned(), uuid::Uuid::new_v4().to_string().into());
        meta.insert("creationTimestamp".to_owned(), self.now().into());
        if resource.has_generation {
            default(meta, "generation", || json!(1));
        }
        tidy_metadata(object);
        Ok(())
    }

    /// Objects live only in namespaces that are there and not going away.
    fn require_namespace(&self, resource: &Resource, namespace: &str, name: &str) -> Result<(), ApiError> {
        if !resource.namespaced {
            return Ok(());
        }
        let Some(found) = self.find(&NAMESPACES, "", namespace)? else {
            return Err(ApiError::not_found(&NAMESPACES, namespace));
        };
        if found.pointer("/metadata/deletionTimestamp").is_some() {
            return Err(ApiError::namespace_terminating(resource, name, namespace));
        }
        Ok(())
    }
}

/// Largest object that is stored, as etcd's limit on requests makes it for a stock server.
const MAX_OBJECT: usize = 3 << 19;

/// Refuses objects that no other store would take either.
pub(super) fn check_size(draft: &Draft) -> Result<(), ApiError> {
    if draft.len() > MAX_OBJECT { Err(ApiError::too_large(MAX_OBJECT)) } else { Ok(()) }
}

/// The stock server's answer to a body whose fields have wrong types.
pub(crate) fn bad_types(resource: &Resource, detail: &str) -> ApiError {
    ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: {detail}",
        kind = resource.kind,
        version = resource.version
    ))
}

/// Returns five random letters without those that make words or look alike.
pub(crate) fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let random = uuid::Uuid::new_v4();
    random.as_bytes().iter().take(5).map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}
