//! What single kinds do beyond the common rules: types, defaults, preparation, validation.

pub(crate) mod guests;
mod namespace;
mod pod;
pub(crate) mod sizes;
mod small;

use std::fmt;

use serde_json::Value;

use super::error::Cause;

pub(crate) use namespace::{Namespaces, Nodes};
pub(crate) use pod::{Pods, grace_of};
pub(crate) use small::{
    ConfigMaps, CsiDrivers, CsiNodes, Events, Leases, PriorityClasses, RuntimeClasses, Secrets, ServiceAccounts,
    Services,
};

/// Rules of one kind. Called in this order: `decode`, `defaults`, `prepare_…`, `validate…`.
pub trait Strategy: Sync + fmt::Debug {
    /// Checks that all known fields have the right types; returns what the decoder says. With `again`, returns the
    /// object as the known fields alone make it.
    fn decode(&self, object: &Value, again: bool) -> Result<Option<Value>, String>;

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

fn typed<T>(object: &Value, again: bool) -> Result<Option<Value>, String>
where
    T: serde::de::DeserializeOwned + serde::Serialize,
{
    let decoded = longshore_api::shape::read::<T>(object)?;
    if again { serde_json::to_value(decoded).map(Some).map_err(|error| error.to_string()) } else { Ok(None) }
}
