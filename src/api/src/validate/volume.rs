//! Volumes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::report::Report;
use super::{env, items, number, part, text};
use crate::names;
use crate::quantity::Quantity;

/// All kinds of volume that the API knows.
const KINDS: [&str; 30] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",
];
const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Checks all volumes; returns their names.
pub(super) fn volumes(spec: &Value, out: &mut Report) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for (path, volume) in items(spec, "spec", "volumes") {
        let name = text(volume, "name");
        let at = format!("{path}.name");
        if name.is_empty() {
            out.required(at, "");
        } else {
            let faults = names::dns1123_label(name);
            if faults.is_empty() && !known.insert(name.to_owned()) {
                out.duplicate(at, name);
            } else {
                out.texts(&at, name, faults);
            }
        }
        source(volume, &path, out);
    }
    known
}

fn source(volume: &Value, path: &str, out: &mut Report) {
    let mut kinds = KINDS.iter().filter(|kind| part(volume, kind).is_some());
    let Some(kind) = kinds.next() else {
        out.required(path, "must specify a volume type");
        return;
    };
    for more in kinds {
        out.forbidden(format!("{path}.{more}"), "may not specify more than 1 volume type");
    }
    let at = format!("{path}.{kind}");
    let Some(source) = part(volume, kind) else { return };
    match *kind {
        "hostPath" => host_path(source, &at, out),
        "emptyDir" => empty_dir(source, &at, out),
        "secret" => object(source, &at, "secretName", out),
        "configMap" => object(source, &at, "name", out),
        "downwardAPI" => {
            mode(source, &at, "defaultMode", out);
            downward(source, &at, out);
        }
        "projected" => projected(source, &at, out),
        "persistentVolumeClaim" if text(source, "claimName").is_empty() => {
            out.required(format!("{at}.claimName"), "");
        }
        _ => {}
    }
}

fn host_path(source: &Value, at: &str, out: &mut Report) {
    let path = text(source, "path");
    if path.is_empty() {
        out.required(format!("{at}.path"), "");
        return;
    }
    no_steps_back(&format!("{at}.path"), path, out);
    let kind = text(source, "type");
    if !HOST_PATH_TYPES.contains(&kind) {
        out.unsupported(format!("{at}.type"), kind, &HOST_PATH_TYPES);
    }
}

fn empty_dir(source: &Value, at: &str, out: &mut Report) {
    let limit = text(source, "sizeLimit");
    if Quantity::parse(limit).is_ok_and(|limit| limit.is_negative()) {
        out.forbidden(format!("{at}.sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}

fn object(source: &Value, at: &str, name: &str, out: &mut Report) {
    if text(source, name).is_empty() {
        out.required(format!("{at}.{name}"), "");
    }
    mode(source, at, "defaultMode", out);
    keys(source, at, out);
}

fn keys(source: &Value, at: &str, out: &mut Report) {
    for (path, item) in items(source, at, "items") {
        if text(item, "key").is_empty() {
            out.required(format!("{path}.key"), "");
        }
        file_path(item, &path, out);
        mode(item, &path, "mode", out);
    }
}

fn file_path(item: &Value, at: &str, out: &mut Report) {
    let path = text(item, "path");
    if path.is_empty() {
        out.required(format!("{at}.path"), "");
    } else {
        local_path(&format!("{at}.path"), path, out);
        if path.starts_with("..") && !path.starts_with("../") {
            out.invalid(format!("{at}.path"), path, "must not start with '..'");
        }
    }
}

fn mode(source: &Value, at: &str, key: &str, out: &mut Report) {
    if let Some(mode) = number(source, key).filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        out.invalid(format!("{at}.{key}"), mode, detail);
    }
}

fn downward(source: &Value, at: &str, out: &mut Report) {
    for (path, item) in items(source, at, "items") {
        file_path(item, &path, out);
        match (part(item, "fieldRef"), part(item, "resourceFieldRef")) {
            (Some(_), Some(_)) => {
                out.invalid(
                    path.as_str(),
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
            (Some(field), None) => env::field(field, &format!("{path}.fieldRef"), env::Place::Volume, out),
            (None, Some(resource)) => {
                env::resource(resource, &format!("{path}.resourceFieldRef"), env::Place::Volume, out);
            }
            (None, None) => out.required(path.as_str(), "one of fieldRef and resourceFieldRef is required"),
        }
        mode(item, &path, "mode", out);
    }
}

fn projected(source: &Value, at: &str, out: &mut Report) {
    mode(source, at, "defaultMode", out);
    for (path, one) in items(source, at, "sources") {
        let kinds =
            ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];
        let mut given = kinds.into_iter().filter(|kind| part(one, kind).is_some());
        let Some(kind) = given.next() else {
            out.required(path, "must specify a volume type");
            continue;
        };
        for more in given {
            out.forbidden(format!("{path}.{more}"), "may not specify more than 1 volume type per source");
        }
        let at = format!("{path}.{kind}");
        let Some(source) = part(one, kind) else { continue };
        match kind {
            "secret" | "configMap" => {
                if text(source, "name").is_empty() {
                    out.required(format!("{at}.name"), "");
                }
                keys(source, &at, out);
            }
            "downwardAPI" => downward(source, &at, out),
            "serviceAccountToken" => token(source, &at, out),
            _ => {}
        }
    }
}

fn token(source: &Value, at: &str, out: &mut Report) {
    let life = number(source, "expirationSeconds").unwrap_or(3600);
    if life < 600 {
        out.invalid(format!("{at}.expirationSeconds"), life, "may not specify a duration less than 10 minutes");
    } else if life > 1 << 32 {
        out.invalid(format!("{at}.expirationSeconds"), life, "may not specify a duration larger than 2^32 seconds");
    }
    file_path(source, at, out);
}

/// A path below a folder: relative and never upwards.
pub(super) fn local_path(at: &str, path: &str, out: &mut Report) {
    if path.starts_with('/') {
        out.invalid(at, path, "must be a relative path");
    }
    no_steps_back(at, path, out);
}

fn no_steps_back(at: &str, path: &str, out: &mut Report) {
    if path.split('/').any(|part| part == "..") {
        out.invalid(at, path, "must not contain '..'");
    }
}
