//! Volumes and claims: held while they are in use, and claims without a class get the default one.

use serde_json::{Value, json};

use crate::apiserver::error::ApiError;
use crate::apiserver::object::{child, meta, metadata};
use crate::apiserver::registry::Registry;
use crate::apiserver::resources::{PERSISTENTVOLUMECLAIMS, Resource, STORAGECLASSES};

/// Holds a claim while a pod uses it.
pub(crate) const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";

/// Holds a volume while a claim is bound to it.
pub(crate) const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

pub(super) fn create(registry: &Registry, resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
    let is_claim = std::ptr::eq(resource, &PERSISTENTVOLUMECLAIMS);
    let finalizer = if is_claim { CLAIM_FINALIZER } else { VOLUME_FINALIZER };
    let finalizers = metadata(object).entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|own| own == finalizer)
    {
        finalizers.push(json!(finalizer));
    }
    if is_claim && object.pointer("/spec/storageClassName").is_none() {
        let (classes, _) = registry.list_values(&STORAGECLASSES, "")?;
        let note = |class: &Value| class.pointer("/metadata/annotations")?.get(DEFAULT_CLASS).cloned();
        let defaults = classes.iter().filter(|class| note(class) == Some(json!("true")));
        // The newest of several, as upstream chooses.
        if let Some(class) = defaults.max_by_key(|class| meta(class, "creationTimestamp").to_owned()) {
            child(object, "spec").insert("storageClassName".to_owned(), json!(meta(class, "name")));
        }
    }
    Ok(())
}
