//! The files that a configmap, a secret or the downward API gives. Pure: the objects come in read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret};
use longshore_api::downward;

use super::atomic::{FileEntry, Payload};

/// Default mode of files.
pub(super) const MODE: i32 = 0o644;

pub(super) fn mode(mode: Option<i32>, default: Option<i32>) -> u32 {
    u32::try_from(mode.or(default).unwrap_or(MODE)).unwrap_or(0o644) & 0o777
}

fn entry(data: &[u8], mode: u32) -> FileEntry {
    FileEntry { data: data.to_vec(), mode, owner: None }
}

/// Puts the wanted keys; all of them where no items are named.
fn pick(
    data: &BTreeMap<&str, &[u8]>,
    items: Option<&[KeyToPath]>,
    default: Option<i32>,
    optional: bool,
    missing: &str,
    out: &mut Payload,
) -> Result<(), String> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        out.extend(data.iter().map(|(key, bytes)| (PathBuf::from(key), entry(bytes, mode(None, default)))));
        return Ok(());
    };
    for item in items {
        match data.get(item.key.as_str()) {
            Some(bytes) => {
                out.insert(PathBuf::from(&item.path), entry(bytes, mode(item.mode, default)));
            }
            None if optional => {}
            None => return Err(format!("{missing}: {}", item.key)),
        }
    }
    Ok(())
}

pub(super) fn config_map(
    object: &ConfigMap,
    items: Option<&[KeyToPath]>,
    default: Option<i32>,
    optional: bool,
    out: &mut Payload,
) -> Result<(), String> {
    let text = object.data.iter().flatten().map(|(key, value)| (key.as_str(), value.as_bytes()));
    let binary = object.binary_data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.as_slice()));
    let data: BTreeMap<&str, &[u8]> = text.chain(binary).collect();
    pick(&data, items, default, optional, "configmap references non-existent config key", out)
}

pub(super) fn secret(
    object: &Secret,
    items: Option<&[KeyToPath]>,
    default: Option<i32>,
    optional: bool,
    out: &mut Payload,
) -> Result<(), String> {
    let data: BTreeMap<&str, &[u8]> =
        object.data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.as_slice())).collect();
    pick(&data, items, default, optional, "references non-existent secret key", out)
}

pub(super) fn downward_items(
    pod: &Pod,
    items: Option<&[DownwardAPIVolumeFile]>,
    default: Option<i32>,
    facts: downward::Facts<'_>,
    out: &mut Payload,
) -> Result<(), String> {
    for item in items.unwrap_or_default() {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => downward::field(pod, &field.field_path, facts)?,
            (None, Some(resource)) => downward::resource(pod, resource, "", facts)?,
            (None, None) => return Err(format!("downward API item {:?} names no source", item.path)),
        };
        out.insert(PathBuf::from(&item.path), entry(text.as_bytes(), mode(item.mode, default)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn files(items: Value, optional: bool) -> Result<Vec<String>, String> {
        let object: ConfigMap =
            serde_json::from_value(json!({"metadata": {}, "data": {"a": "1"}, "binaryData": {"b": "/w=="}})).unwrap();
        let items: Option<Vec<KeyToPath>> = serde_json::from_value(items).unwrap();
        let mut out = Payload::new();
        config_map(&object, items.as_deref(), Some(0o640), optional, &mut out)?;
        Ok(out.iter().map(|(path, entry)| format!("{} {:o} {:?}", path.display(), entry.mode, entry.data)).collect())
    }

    #[test]
    fn all_keys_or_the_named_ones_with_their_modes() {
        assert_eq!(files(json!(null), false).unwrap(), ["a 640 [49]", "b 640 [255]"]);
        assert_eq!(files(json!([{"key": "a", "path": "x/y", "mode": 0o400}]), false).unwrap(), ["x/y 400 [49]"]);
    }

    #[test]
    fn a_missing_key_is_named_unless_optional() {
        let items = json!([{"key": "z", "path": "z"}]);
        assert_eq!(files(items.clone(), false).unwrap_err(), "configmap references non-existent config key: z");
        assert!(files(items, true).unwrap().is_empty());
    }
}
