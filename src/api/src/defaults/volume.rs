//! Defaults of one volume.

use serde_json::{Value, json};

use super::{Object, container::value_source, field, objects, set, set_number};
use crate::image_name;

const FILE_MODE: i64 = 0o644;

pub(super) fn volume(volume: &mut Object) {
    if !volume.keys().any(|key| key != "name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    if let Some(path) = field(volume, "hostPath") {
        set(path, "type", || json!(""));
    }
    for key in ["secret", "configMap"] {
        if let Some(source) = field(volume, key) {
            set_mode(source);
        }
    }
    if let Some(source) = field(volume, "downwardAPI") {
        set_mode(source);
        downward_items(source);
    }
    if let Some(projected) = field(volume, "projected") {
        set_mode(projected);
        for source in objects(projected, "sources") {
            if let Some(token) = field(source, "serviceAccountToken") {
                set(token, "expirationSeconds", || json!(3600));
            }
            if let Some(downward) = field(source, "downwardAPI") {
                downward_items(downward);
            }
        }
    }
    if let Some(image) = field(volume, "image") {
        let policy =
            image_name::default_pull_policy(image.get("reference").and_then(Value::as_str).unwrap_or_default());
        set(image, "pullPolicy", || json!(policy));
    }
    if let Some(iscsi) = field(volume, "iscsi") {
        set(iscsi, "iscsiInterface", || json!("default"));
    }
    if let Some(claim) = field(volume, "ephemeral")
        .and_then(|ephemeral| field(ephemeral, "volumeClaimTemplate"))
        .and_then(|template| field(template, "spec"))
    {
        set(claim, "volumeMode", || json!("Filesystem"));
    }
}

/// Zero is a mode that may be wanted, so only an absent mode is filled.
fn set_mode(source: &mut Object) {
    if source.get("defaultMode").is_none_or(Value::is_null) {
        set_number(source, "defaultMode", FILE_MODE);
    }
}

fn downward_items(source: &mut Object) {
    for item in objects(source, "items") {
        value_source(item);
    }
}
