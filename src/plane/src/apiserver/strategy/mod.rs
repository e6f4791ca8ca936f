//! What single kinds do beyond the common rules: types, defaults, preparation, validation.

mod checks;
mod described;
mod events;
pub(crate) mod guests;
pub(crate) mod kinds;
mod namespace;
mod paths;
mod pod;
pub(crate) mod sizes;
mod small;

use std::fmt;

use serde_json::Value;

use super::error::Cause;

pub(crate) use checks::{percent, selector_of, selects};
pub(crate) use events::{Events, EventsFace};
pub(crate) use namespace::{Namespaces, Nodes};
pub(crate) use pod::{Pods, grace_of};
pub(crate) use small::{
    ConfigMaps, CsiDrivers, CsiNodes, Leases, PriorityClasses, RuntimeClasses, SYSTEM_PRIORITIES, Scales, Secrets,
    ServiceAccounts, Services,
};

/// Rules of one kind. Called in this order: `decode`, `defaults`, `prepare_…`, `validate…`.
pub trait Strategy: Sync + fmt::Debug {
    /// Checks that all known fields have the right types; the error is what the decoder says.
    fn decode(&self, object: &Value) -> Result<(), String>;

    /// Fills defaults.
    fn defaults(&self, _object: &mut Value) {}

    /// Sets what the server decides at birth.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Carries over what an update may not touch.
    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}

    /// Carries over what a status update may not touch, beyond everything that is not status.
    fn prepare_status(&self, _object: &mut Value, _old: &Value) {}

    /// Finds broken rules in what is made new.
    fn validate_new(&self, object: &Value) -> Vec<Cause> {
        self.validate(object)
    }

    /// Finds broken rules.
    fn validate(&self, _object: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Finds forbidden changes.
    fn validate_update(&self, _object: &Value, _old: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Finds broken rules in what takes the place of an old object, and forbidden changes.
    fn validate_again(&self, object: &Value, old: &Value) -> Vec<Cause> {
        let mut causes = self.validate(object);
        causes.extend(self.validate_update(object, old));
        causes
    }

    /// Whether a change makes a new generation, for kinds that count them.
    fn is_new_generation(&self, object: &Value, old: &Value) -> bool {
        object.get("spec") != old.get("spec")
    }

    /// Returns a stored object as this face of its kind shows it.
    fn shown(&self, object: Value) -> Value {
        object
    }

    /// Returns an object that was sent to this face of its kind as it is stored.
    fn kept(&self, object: Value) -> Value {
        object
    }
}

/// Checks an object against the type of its kind.
pub(super) fn typed<T: serde::de::DeserializeOwned>(object: &Value) -> Result<(), String> {
    longshore_api::shape::read::<T>(object).map(drop)
}
