//! What single kinds do beyond the common rules: types, defaults, preparation, validation.

mod namespace;
mod pod;
mod small;

use std::fmt;

use serde_json::Value;

use super::error::Cause;

pub(crate) use namespace::{Namespaces, Nodes};
pub(crate) use pod::{Pods, grace_of};
pub(crate) use small::{
    ConfigMaps, CsiDrivers, CsiNodes, Events, Plain, PriorityClasses, RuntimeClasses, Secrets, Services,
};

/// Rules of one kind. Called in this order: `check`, `defaults`, `prepare_…`, `validate…`.
pub trait Strategy: Sync + fmt::Debug {
    /// Checks that all known fields have the right types; returns what the decoder says.
    fn check(&self, object: &Value) -> Result<(), String> {
        metadata_types(object)
    }

    /// Fills defaults.
    fn defaults(&self, _object: &mut Value) {}

    /// Sets what the server decides at birth.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Carries over what an update may not touch.
    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}

    /// Carries over what a status update may not touch, beyond everything that is not status.
    fn prepare_status(&self, _object: &mut Value, _old: &Value) {}

    /// Finds broken rules.
    fn validate(&self, _object: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Finds forbidden changes.
    fn validate_update(&self, _object: &Value, _old: &Value) -> Vec<Cause> {
        Vec::new()
    }
}

fn metadata_types(object: &Value) -> Result<(), String> {
    let empty = Value::Object(serde_json::Map::new());
    typed::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>(object.get("metadata").unwrap_or(&empty))
}

fn typed<'a, T: serde::Deserialize<'a>>(object: &'a Value) -> Result<(), String> {
    T::deserialize(object).map(drop).map_err(|error| error.to_string())
}
