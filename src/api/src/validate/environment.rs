//! Variables and where their values come from.

use serde_json::Value;

use super::{Faults, has, list, text};
use crate::names;

/// Sources of a value; exactly one may be given.
const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];

pub(super) fn environment(container: &Value, path: &str, faults: &mut Faults) {
    for (index, variable) in list(container, "env").iter().enumerate() {
        let path = format!("{path}.env[{index}]");
        let name = text(variable, "name");
        if name.is_empty() {
            faults.required(format!("{path}.name"), "");
        } else {
            faults.name(format!("{path}.name"), name, names::env_name);
        }
        if let Some(from) = variable.get("valueFrom").filter(|from| !from.is_null()) {
            value_from(variable, from, &format!("{path}.valueFrom"), faults);
        }
    }
    for (index, from) in list(container, "envFrom").iter().enumerate() {
        let path = format!("{path}.envFrom[{index}]");
        let prefix = text(from, "prefix");
        if !prefix.is_empty() {
            faults.name(format!("{path}.prefix"), prefix, names::env_name);
        }
        let given: Vec<&str> = ["configMapRef", "secretRef"].into_iter().filter(|key| has(from, key)).collect();
        match given.as_slice() {
            [] => faults.invalid_text(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            [one] => {
                if from.get(*one).is_none_or(|reference| text(reference, "name").is_empty()) {
                    faults.required(format!("{path}.{one}.name"), "");
                }
            }
            _ => faults.invalid_text(path, "", "may not have more than one field specified at a time"),
        }
    }
}

fn value_from(variable: &Value, from: &Value, path: &str, faults: &mut Faults) {
    let given: Vec<&str> = SOURCES.into_iter().filter(|key| has(from, key)).collect();
    if given.is_empty() {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
                      `fileKeyRef`";
        faults.invalid_text(path, "", detail);
        return;
    }
    if !text(variable, "value").is_empty() {
        faults.invalid_text(path, "", "may not be specified when `value` is not empty");
    }
    if given.len() > 1 {
        faults.invalid_text(path, "", "may not have more than one field specified at a time");
    }
    for source in given {
        let reference = from.get(source).unwrap_or(&Value::Null);
        let path = format!("{path}.{source}");
        match source {
            "fieldRef" => field_ref(reference, &path, faults),
            "resourceFieldRef" if text(reference, "resource").is_empty() => {
                faults.required(format!("{path}.resource"), "");
            }
            "configMapKeyRef" | "secretKeyRef" => {
                if text(reference, "name").is_empty() {
                    faults.required(format!("{path}.name"), "");
                }
                match text(reference, "key") {
                    "" => faults.required(format!("{path}.key"), ""),
                    key => faults.name(format!("{path}.key"), key, names::config_key),
                }
            }
            _ => {}
        }
    }
}

fn field_ref(reference: &Value, path: &str, faults: &mut Faults) {
    let field = text(reference, "fieldPath");
    if field.is_empty() {
        faults.required(format!("{path}.fieldPath"), "");
        return;
    }
    let known = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    let keyed = ["metadata.labels['", "metadata.annotations['"].iter().any(|start| field.starts_with(start));
    if !(keyed && field.ends_with("']")) {
        faults.supported(format!("{path}.fieldPath"), field, &known);
    }
}
