//! Requests for certificates: who asks is what login says, never what the request says.

use serde_json::{Value, json};

use crate::apiserver::identity::UserInfo;
use crate::apiserver::object::child;
use crate::apiserver::registry::Part;

/// Returns what a change does to a request that needs a right on its signer.
pub(super) fn verb(part: Part, object: &Value, old: &Value) -> Option<&'static str> {
    match part {
        Part::Approval if object.pointer("/status/conditions") != old.pointer("/status/conditions") => Some("approve"),
        Part::Status
            if ["/status/certificate", "/status/conditions"].iter().any(|at| object.pointer(at) != old.pointer(at)) =>
        {
            Some("sign")
        }
        _ => None,
    }
}

pub(super) fn sign(request: &mut Value, user: &UserInfo) {
    let spec = child(request, "spec");
    for key in ["username", "uid", "groups", "extra"] {
        spec.remove(key);
    }
    spec.insert("username".to_owned(), json!(user.name));
    if !user.uid.is_empty() {
        spec.insert("uid".to_owned(), json!(user.uid));
    }
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
}
