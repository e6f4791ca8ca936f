//! The seam to the pure rules: turns their findings into causes.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::error::Cause;
use super::object::meta;
use super::resources::{NameRule, Resource};
use longshore_api::names;

/// Checks name, labels and annotations.
pub(crate) fn metadata_causes(resource: &Resource, object: &Value) -> Vec<Cause> {
    let name = meta(object, "name");
    if name.is_empty() {
        return vec![Cause::required("metadata.name", "name or generateName is required")];
    }
    let texts = match resource.name_rule {
        NameRule::Subdomain => names::dns1123_subdomain(name),
        NameRule::Label => names::dns1123_label(name),
        NameRule::ServiceLabel => names::dns1035_label(name),
        NameRule::PathSegment => path_segment(name),
    };
    let mut causes: Vec<Cause> =
        texts.iter().map(|detail| Cause::invalid("metadata.name", &json!(name), detail)).collect();
    let pairs = |map: &str| object.pointer(&format!("/metadata/{map}")).and_then(Value::as_object);
    for (key, value) in pairs("labels").into_iter().flatten() {
        for detail in names::qualified_name(key) {
            causes.push(Cause::invalid("metadata.labels", &json!(key), &detail));
        }
        for detail in names::label_value(value.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid("metadata.labels", value, &detail));
        }
    }
    let mut total = 0;
    for (key, value) in pairs("annotations").into_iter().flatten() {
        for detail in names::qualified_name(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &json!(key), &detail));
        }
        total += key.len() + value.as_str().map_or(0, str::len);
    }
    if total > 256 << 10 {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            message: "Too long: may not be more than 262144 bytes".to_owned(),
            field: "metadata.annotations".to_owned(),
        });
    }
    causes
}

/// Checks a name that only must fit into a path.
pub(crate) fn path_segment(name: &str) -> Vec<String> {
    let mut texts = Vec::new();
    if name == "." || name == ".." {
        texts.push(format!("may not be '{name}'"));
    }
    for part in ["/", "%"].into_iter().filter(|part| name.contains(part)) {
        texts.push(format!("may not contain '{part}'"));
    }
    texts
}

/// Checks a pod's specification.
pub(crate) fn pod_causes(pod: &Value) -> Vec<Cause> {
    let found = longshore_api::validate::pod(pod).into_iter();
    found.map(|fault| Cause { reason: fault.kind.reason(), message: fault.message, field: fault.path }).collect()
}

/// Returns a pod's class of service. Types were checked before.
pub(crate) fn qos(pod: &Value) -> &'static str {
    longshore_api::shape::read::<Pod>(pod).map_or("BestEffort", |pod| longshore_api::qos::of(&pod).as_str())
}
