//! Volumes: a name of their own and exactly one source.

use std::collections::HashSet;

use serde_json::Value;

use super::{Faults, has, list, number, text};
use crate::names;
use crate::quantity::Quantity;

/// Keys of a volume that are no source.
const NO_SOURCE: [&str; 1] = ["name"];

/// Checks all volumes and returns their names.
pub(super) fn volumes<'a>(spec: &'a Value, path: &str, faults: &mut Faults) -> HashSet<&'a str> {
    let mut seen = HashSet::new();
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let path = format!("{path}.volumes[{index}]");
        source(volume, &path, faults);
        let name = text(volume, "name");
        if name.is_empty() {
            faults.required(format!("{path}.name"), "");
            continue;
        }
        faults.name(format!("{path}.name"), name, names::dns1123_label);
        if !seen.insert(name) {
            faults.duplicate(format!("{path}.name"), name);
        }
    }
    seen
}

fn source(volume: &Value, path: &str, faults: &mut Faults) {
    let keys = volume.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    let sources: Vec<&str> = keys.filter(|key| !NO_SOURCE.contains(key) && has(volume, key)).collect();
    if sources.is_empty() {
        faults.required(path, "must specify a volume type");
    }
    for extra in sources.iter().skip(1) {
        faults.forbidden(format!("{path}.{extra}"), "may not specify more than 1 volume type");
    }
    let Some(kind) = sources.first() else { return };
    let body = volume.get(*kind).unwrap_or(&Value::Null);
    let path = format!("{path}.{kind}");
    match *kind {
        "hostPath" => {
            let place = text(body, "path");
            if place.is_empty() {
                faults.required(format!("{path}.path"), "");
            }
            faults.no_backsteps(&format!("{path}.path"), place);
            let known =
                ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
            faults.supported(format!("{path}.type"), text(body, "type"), &known);
        }
        "emptyDir" => {
            let size = text(body, "sizeLimit");
            if !size.is_empty() && Quantity::parse(size).is_ok_and(|size| size.is_negative()) {
                let detail = "SizeLimit field must be a valid resource quantity";
                faults.forbidden(format!("{path}.sizeLimit"), detail);
            }
        }
        "configMap" | "secret" => {
            let key = if *kind == "secret" { "secretName" } else { "name" };
            if text(body, key).is_empty() {
                faults.required(format!("{path}.{key}"), "");
            }
            faults.mode(format!("{path}.defaultMode"), number(body, "defaultMode"));
            items(body, &path, faults);
        }
        "downwardAPI" => {
            faults.mode(format!("{path}.defaultMode"), number(body, "defaultMode"));
            downward(body, &path, faults);
        }
        "projected" => projected(body, &path, faults),
        "persistentVolumeClaim" if text(body, "claimName").is_empty() => {
            faults.required(format!("{path}.claimName"), "");
        }
        "csi" if text(body, "driver").is_empty() => faults.required(format!("{path}.driver"), ""),
        _ => {}
    }
}

/// A path inside the volume: relative, no steps back, and none of the names that the writer uses itself.
fn inner_path(path: &str, value: &str, faults: &mut Faults) {
    faults.relative_path(path, value);
    if value.starts_with("..") && value != ".." && !value.starts_with("../") {
        faults.invalid_text(path, value, "must not start with '..'");
    }
}

fn items(body: &Value, path: &str, faults: &mut Faults) {
    for (index, item) in list(body, "items").iter().enumerate() {
        let path = format!("{path}.items[{index}]");
        if text(item, "key").is_empty() {
            faults.required(format!("{path}.key"), "");
        }
        match text(item, "path") {
            "" => faults.required(format!("{path}.path"), ""),
            inner => inner_path(&format!("{path}.path"), inner, faults),
        }
        faults.mode(format!("{path}.mode"), number(item, "mode"));
    }
}

fn downward(body: &Value, path: &str, faults: &mut Faults) {
    for (index, item) in list(body, "items").iter().enumerate() {
        let path = format!("{path}.items[{index}]");
        match text(item, "path") {
            "" => faults.required(format!("{path}.path"), ""),
            inner => inner_path(&format!("{path}.path"), inner, faults),
        }
        match (has(item, "fieldRef"), has(item, "resourceFieldRef")) {
            (true, true) => {
                faults.invalid_text(
                    path.clone(),
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
            (false, false) => faults.required(path.clone(), "one of fieldRef and resourceFieldRef is required"),
            _ => {}
        }
        faults.mode(format!("{path}.mode"), number(item, "mode"));
    }
}

fn projected(body: &Value, path: &str, faults: &mut Faults) {
    faults.mode(format!("{path}.defaultMode"), number(body, "defaultMode"));
    for (index, source) in list(body, "sources").iter().enumerate() {
        let path = format!("{path}.sources[{index}]");
        let known =
            ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];
        let given: Vec<&str> = known.into_iter().filter(|key| has(source, key)).collect();
        for extra in given.iter().skip(1) {
            faults.forbidden(format!("{path}.{extra}"), "may not specify more than 1 volume type");
        }
        let Some(kind) = given.first() else { continue };
        let inner = source.get(*kind).unwrap_or(&Value::Null);
        let path = format!("{path}.{kind}");
        match *kind {
            "secret" | "configMap" => {
                if text(inner, "name").is_empty() {
                    faults.required(format!("{path}.name"), "");
                }
                items(inner, &path, faults);
            }
            "downwardAPI" => downward(inner, &path, faults),
            "serviceAccountToken" => {
                if number(inner, "expirationSeconds").is_some_and(|seconds| seconds < 600) {
                    let value = number(inner, "expirationSeconds").unwrap_or(0);
                    let detail = "may not specify a duration less than 10 minutes";
                    faults.invalid(format!("{path}.expirationSeconds"), &value.into(), detail);
                }
                match text(inner, "path") {
                    "" => faults.required(format!("{path}.path"), ""),
                    inner => inner_path(&format!("{path}.path"), inner, faults),
                }
            }
            _ => {}
        }
    }
}
