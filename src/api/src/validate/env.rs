//! Variables and what they refer to.

use serde_json::Value;

use super::container::Names;
use super::report::Report;
use super::{items, part, text};
use crate::names;
use crate::quantity::Quantity;

/// Where a reference to the pod itself stands; volumes may show more fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Env,
    Volume,
}

const ENV_FIELDS: [&str; 9] = [
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
const VOLUME_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SOURCES: &str = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`";

pub(super) fn variables(container: &Value, path: &str, known: &Names, out: &mut Report) {
    for (path, source) in items(container, path, "envFrom") {
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            out.texts(&format!("{path}.prefix"), prefix, names::env_name(prefix));
        }
        let given: Vec<&str> =
            ["configMapRef", "secretRef"].into_iter().filter(|kind| part(source, kind).is_some()).collect();
        match given.as_slice() {
            [] => out.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            [kind] => {
                if source.get(*kind).is_some_and(|reference| text(reference, "name").is_empty()) {
                    out.required(format!("{path}.{kind}.name"), "");
                }
            }
            _ => out.invalid(path, "", "may not have more than one field specified at a time"),
        }
    }
    for (path, variable) in items(container, path, "env") {
        let name = text(variable, "name");
        if name.is_empty() {
            out.required(format!("{path}.name"), "");
        } else {
            out.texts(&format!("{path}.name"), name, names::env_name(name));
        }
        if let Some(source) = part(variable, "valueFrom") {
            value_from(source, variable, &format!("{path}.valueFrom"), known, out);
        }
    }
}

fn value_from(source: &Value, variable: &Value, at: &str, known: &Names, out: &mut Report) {
    let kinds = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let given: Vec<&str> = kinds.into_iter().filter(|kind| part(source, kind).is_some()).collect();
    if given.is_empty() {
        out.invalid(at, "", SOURCES);
    } else if !text(variable, "value").is_empty() {
        out.invalid(at, "", "may not be specified when `value` is not empty");
    } else if given.len() > 1 {
        out.invalid(at, "", "may not have more than one field specified at a time");
    }
    for kind in given {
        let path = format!("{at}.{kind}");
        let Some(reference) = part(source, kind) else { continue };
        match kind {
            "fieldRef" => field(reference, &path, Place::Env, out),
            "resourceFieldRef" => resource(reference, &path, Place::Env, out),
            "configMapKeyRef" | "secretKeyRef" => {
                if text(reference, "name").is_empty() {
                    out.required(format!("{path}.name"), "");
                }
                let key = text(reference, "key");
                if key.is_empty() {
                    out.required(format!("{path}.key"), "");
                } else {
                    out.texts(&format!("{path}.key"), key, names::config_key(key));
                }
            }
            _ => file_key(reference, &path, known, out),
        }
    }
}

fn file_key(reference: &Value, at: &str, known: &Names, out: &mut Report) {
    let (volume, key) = (text(reference, "volumeName"), text(reference, "key"));
    if volume.is_empty() {
        out.required(format!("{at}.volumeName"), "");
    } else if !known.volumes.contains(volume) {
        out.not_found(format!("{at}.volumeName"), volume);
    }
    let path = text(reference, "path");
    if path.is_empty() {
        out.required(format!("{at}.path"), "");
    }
    super::volume::local_path(&format!("{at}.path"), path, out);
    if key.is_empty() {
        out.required(format!("{at}.key"), "");
    } else {
        out.texts(&format!("{at}.key"), key, names::env_name(key));
    }
}

pub(super) fn field(reference: &Value, at: &str, place: Place, out: &mut Report) {
    if text(reference, "apiVersion").is_empty() {
        out.required(format!("{at}.apiVersion"), "");
    }
    let path = text(reference, "fieldPath");
    let at = format!("{at}.fieldPath");
    if path.is_empty() {
        out.required(at, "");
        return;
    }
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        match map {
            "metadata.annotations" => out.texts(&at, path, names::qualified_name(&key.to_lowercase())),
            "metadata.labels" => out.texts(&at, path, names::qualified_name(key)),
            _ => out.invalid(at, path, "does not support subscript"),
        }
        return;
    }
    let known: &[&str] = if place == Place::Env { &ENV_FIELDS } else { &VOLUME_FIELDS };
    if known.contains(&path) {
        return;
    }
    if ENV_FIELDS.contains(&path)
        || VOLUME_FIELDS.contains(&path)
        || matches!(path, "status.phase" | "spec.restartPolicy")
    {
        out.unsupported(at, path, known);
    } else {
        out.invalid(at, path, &format!("error converting fieldPath: field label not supported: {path}"));
    }
}

pub(super) fn resource(reference: &Value, at: &str, place: Place, out: &mut Report) {
    if place == Place::Volume && text(reference, "containerName").is_empty() {
        out.required(format!("{at}.containerName"), "");
    }
    let name = text(reference, "resource");
    if name.is_empty() {
        out.required(format!("{at}.resource"), "");
        return;
    }
    let huge = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    if !RESOURCES.contains(&name) && !huge {
        out.unsupported(format!("{at}.resource"), name, &RESOURCES);
    }
    let divisor = text(reference, "divisor");
    if divisor.is_empty() || Quantity::parse(divisor).is_ok_and(|divisor| divisor.is_zero()) {
        return;
    }
    let (allowed, text): (&[&str], &str) = if name.ends_with(".cpu") {
        (&["1m", "1"], "only divisor's values 1m and 1 are supported with the cpu resource")
    } else {
        (
            &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"],
            "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource",
        )
    };
    if !allowed.contains(&divisor) {
        out.invalid(format!("{at}.divisor"), divisor, text);
    }
}
