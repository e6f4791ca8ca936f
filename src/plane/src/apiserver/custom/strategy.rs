//! The rules of custom kinds, as their definitions say them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use longshore_api::custom;
use serde_json::{Value, json};

use super::Custom;
use crate::apiserver::error::Cause;
use crate::apiserver::object::{copy, drop_nulls, metadata};
use crate::apiserver::strategy::Strategy;

/// A custom kind's rules.
#[derive(Debug)]
pub(super) struct CustomKind(pub(super) &'static Custom);

impl CustomKind {
    /// Rules are asked of objects that fit their schema only: they may count on types.
    fn causes(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let Some(served) = self.0.served() else { return Vec::new() };
        let node = &served.schema().node;
        let found = custom::check::object(node, object, old);
        if found.is_empty() {
            return custom::rules::object(node, object, old).into_iter().map(Cause::from).collect();
        }
        let mut causes: Vec<Cause> = found.into_iter().map(Cause::from).collect();
        if node.has_rules() {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors \
                          to complete validation";
            causes.push(Cause::invalid("<nil>", &Value::Null, detail));
        }
        causes
    }
}

impl Strategy for CustomKind {
    fn decode(&self, object: &Value) -> Result<(), String> {
        match object.get("metadata") {
            None | Some(Value::Null) => Ok(()),
            Some(meta) => {
                longshore_api::shape::read::<ObjectMeta>(meta).map(drop).map_err(|error| format!("metadata.{error}"))
            }
        }
    }

    fn defaults(&self, object: &mut Value) {
        drop_nulls(object.get_mut("metadata").unwrap_or(&mut Value::Null));
        if let Some(served) = self.0.served() {
            custom::fill::object(&served.schema().node, object);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        if self.0.served().is_some_and(|served| served.version().has_status)
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
    }

    fn prepare_status(&self, object: &mut Value, old: &Value) {
        // Nothing of the metadata is written by this path.
        let mut meta = old.get("metadata").cloned().unwrap_or_else(|| json!({}));
        if let Some(map) = meta.as_object_mut() {
            copy(map, object.get("metadata"), "managedFields");
        }
        metadata(object);
        object["metadata"] = meta;
    }

    fn validate_new(&self, object: &Value) -> Vec<Cause> {
        self.causes(object, None)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<Cause> {
        self.causes(object, Some(old))
    }

    fn is_new_generation(&self, object: &Value, old: &Value) -> bool {
        let has_status = self.0.served().is_some_and(|served| served.version().has_status);
        let counted = |key: &str| key != "metadata" && !(has_status && key == "status");
        let rest = |object: &Value| -> Option<Vec<(String, Value)>> {
            let rest = object.as_object()?.iter().filter(|(key, _)| counted(key));
            Some(rest.map(|(key, value)| (key.clone(), value.clone())).collect())
        };
        rest(object) != rest(old)
    }
}
