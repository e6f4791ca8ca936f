//! Definitions of custom kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use longshore_api::custom::{define, definition};
use serde_json::{Value, json};

use crate::apiserver::error::Cause;
use crate::apiserver::object::child;
use crate::apiserver::strategy::described::Described;
use crate::apiserver::strategy::typed;

pub(crate) static CUSTOM_RESOURCE_DEFINITIONS: Described = Described {
    fill: Some(definition::defaults),
    birth: Some(birth),
    carry: Some(carry),
    rules_after: Some(|object, old, causes| {
        causes.extend(define::validate_after(object, old).into_iter().map(Cause::from));
    }),
    changes: Some(|object, old, causes| {
        causes.extend(define::validate_update(object, old).into_iter().map(Cause::from));
    }),
    ..Described::new(typed::<CustomResourceDefinition>)
};

fn birth(object: &mut Value) {
    object["status"] = json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null});
    definition::note_storage(object);
}

fn carry(object: &mut Value, _old: &Value) {
    // Objects may be stored in every version that was ever the one for that.
    child(object, "status");
    definition::note_storage(object);
}
