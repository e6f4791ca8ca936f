//! From a manifest to a static pod: one Pod of `v1`, defaulted, named after the node, validated, free of references to
//! the API. Pure; what comes in is hostile.

use k8s_openapi::api::core::v1::Pod;
use longshore_api::{defaults, hash, names, shape, validate};
use longshore_util::yaml;
use serde_json::{Map, Value, json};

use crate::model::annotations::{CONFIG_HASH, CONFIG_MIRROR, CONFIG_REVISION, CONFIG_SEEN, CONFIG_SOURCE};

/// The longest text of a fault that is logged; manifests may hold anything.
const MAX_FAULT: usize = 400;

/// A manifest that gives no pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ManifestError {
    /// Another kind or version.
    #[error("found {found}, wanted a Pod of v1")]
    Kind {
        /// `apiVersion` and `kind` as given.
        found: String,
    },
    /// A field of a wrong type.
    #[error("not a Pod: {0}")]
    Shape(String),
    /// Against the rules of the API.
    #[error("invalid Pod: {0}")]
    Invalid(String),
    /// Static pods may not use API objects.
    #[error("static pods may not refer to API objects: {0}")]
    Reference(String),
}

/// Reads the text of a file as [`static_pod`] takes it; what is wrong is one line for a log.
pub(crate) fn read(text: &str, node: &str, origin: &str) -> Result<Pod, String> {
    let manifest = yaml::to_value(text).map_err(|error| one_line(&error.to_string()))?;
    if manifest.is_null() {
        return Err("the file is empty".to_owned());
    }
    static_pod(manifest, node, origin).map_err(|error| error.to_string())
}

/// Makes a static pod of a manifest; `origin` is `file:<path>` or `url:<url>`, `node` the node's name.
pub(crate) fn static_pod(mut manifest: Value, node: &str, origin: &str) -> Result<Pod, ManifestError> {
    let text = |field: &str| manifest[field].as_str().unwrap_or_default();
    if text("apiVersion") != "v1" || text("kind") != "Pod" {
        let found = format!("apiVersion {:?}, kind {:?}", text("apiVersion"), text("kind"));
        return Err(ManifestError::Kind { found: one_line(&found) });
    }
    strip(&mut manifest);
    // Types first: the defaults and rules below expect a Pod's shape.
    typed(&manifest)?;
    // Of the manifest as it is written: an agent with other defaults must not take a running pod for another one.
    let hash = hash::static_pod_uid(&manifest, node, origin);
    defaults::pod(&mut manifest);
    identify(&mut manifest, node, hash)?;
    let faults = faults(&manifest);
    if !faults.is_empty() {
        return Err(ManifestError::Invalid(one_line(&faults.join(", "))));
    }
    if let Some(reference) = api_reference(&manifest["spec"]) {
        return Err(ManifestError::Reference(one_line(&reference)));
    }
    typed(&manifest)
}

fn typed(manifest: &Value) -> Result<Pod, ManifestError> {
    shape::read(manifest).map_err(|error| ManifestError::Shape(one_line(&error)))
}

/// Takes out what belongs to an object of the API: a manifest is often such an object written to a file.
fn strip(manifest: &mut Value) {
    if let Value::Object(pod) = manifest {
        pod.insert("status".to_owned(), json!({"phase": "Pending"}));
        if let Some(Value::Object(metadata)) = pod.get_mut("metadata") {
            for field in [
                "resourceVersion",
                "generation",
                "creationTimestamp",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "managedFields",
                "ownerReferences",
                "finalizers",
                "selfLink",
                "generateName",
            ] {
                metadata.remove(field);
            }
        }
    }
}

/// Gives the pod its identity on this node. `hash` is the same for ever for the same content, host and place: the uid
/// unless the manifest gives one.
fn identify(manifest: &mut Value, node: &str, hash: String) -> Result<(), ManifestError> {
    let given = manifest["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let (uid, revision) = if given.is_empty() { (hash, None) } else { (given, Some(hash)) };
    // The uid becomes the name of a folder.
    let is_plain = uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') && uid.len() <= 63;
    if !is_plain || uid.starts_with('-') {
        return Err(ManifestError::Invalid(one_line(&format!(
            "metadata.uid: Invalid value: {uid:?}: not usable as an id"
        ))));
    }
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(ManifestError::Invalid(
            "metadata.name: Required value: name or generateName is required".to_owned(),
        ));
    }
    let metadata = object(&mut manifest["metadata"]);
    metadata.insert("name".to_owned(), Value::String(format!("{name}-{}", node.to_lowercase())));
    metadata.insert("uid".to_owned(), Value::String(uid.clone()));
    if metadata.get("namespace").and_then(Value::as_str).unwrap_or_default().is_empty() {
        metadata.insert("namespace".to_owned(), "default".into());
    }
    let annotations = object(metadata.entry("annotations").or_insert_with(|| json!({})));
    for own in [CONFIG_MIRROR, CONFIG_SOURCE, CONFIG_SEEN, CONFIG_REVISION] {
        annotations.remove(own);
    }
    annotations.insert(CONFIG_HASH.to_owned(), Value::String(uid));
    annotations.extend(revision.map(|revision| (CONFIG_REVISION.to_owned(), Value::String(revision))));
    let spec = object(&mut manifest["spec"]);
    spec.insert("nodeName".to_owned(), node.into());
    // Taints must never end a pod that no scheduler could place anew.
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    if let Value::Array(list) = tolerations {
        list.push(json!({"operator": "Exists", "effect": "NoExecute"}));
    } else {
        *tolerations = json!([{"operator": "Exists", "effect": "NoExecute"}]);
    }
    Ok(())
}

/// The first few things that the rules of the API say against a pod. Name and namespace become parts of paths.
fn faults(manifest: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut faults = Vec::new();
    let (name, namespace) = (text(&manifest["metadata"]["name"]), text(&manifest["metadata"]["namespace"]));
    let bad = |path: &str, value: &str, why: String| format!("{path}: Invalid value: {value:?}: {why}");
    faults.extend(names::dns1123_subdomain(&name).into_iter().map(|why| bad("metadata.name", &name, why)));
    faults.extend(names::dns1123_label(&namespace).into_iter().map(|why| bad("metadata.namespace", &namespace, why)));
    if items(&manifest["spec"]["ephemeralContainers"]).next().is_some() {
        faults.push("spec.ephemeralContainers: Forbidden: cannot be set on create".to_owned());
    }
    // The node's name is not the manifest's.
    let found = validate::pod(manifest).into_iter().filter(|fault| fault.path != "spec.nodeName");
    faults.extend(found.take(5).map(|fault| fault.to_string()));
    faults
}

/// The object at a place, made one if it is not.
fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(object) => object,
        // Made an object just above.
        _ => unreachable!("the value was replaced by an object"),
    }
}

/// The first thing in a spec that would need an object of the API, by its path.
fn api_reference(spec: &Value) -> Option<String> {
    const VOLUMES: [&str; 7] =
        ["configMap", "secret", "csi", "persistentVolumeClaim", "ephemeral", "azureFile", "glusterfs"];
    let set =
        |value: &Value| !(value.is_null() || value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty));
    for field in ["serviceAccountName", "serviceAccount", "imagePullSecrets", "resourceClaims"] {
        if set(&spec[field]) {
            return Some(format!("spec.{field}"));
        }
    }
    for (index, volume) in items(&spec["volumes"]) {
        if let Some(kind) = VOLUMES.iter().find(|kind| set(&volume[**kind])) {
            return Some(format!("spec.volumes[{index}].{kind}"));
        }
        // Plugins of old that log in somewhere name the secret beside their other settings.
        let login = volume.as_object().into_iter().flatten().find(|(_, source)| set(&source["secretRef"]));
        if let Some((kind, _)) = login {
            return Some(format!("spec.volumes[{index}].{kind}.secretRef"));
        }
        for (part, source) in items(&volume["projected"]["sources"]) {
            let other =
                source.as_object().into_iter().flatten().find(|(key, value)| *key != "downwardAPI" && set(value));
            if let Some((kind, _)) = other {
                return Some(format!("spec.volumes[{index}].projected.sources[{part}].{kind}"));
            }
        }
    }
    for group in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in items(&spec[group]) {
            for (number, entry) in items(&container["env"]) {
                for kind in ["configMapKeyRef", "secretKeyRef"] {
                    if set(&entry["valueFrom"][kind]) {
                        return Some(format!("spec.{group}[{index}].env[{number}].valueFrom.{kind}"));
                    }
                }
            }
            for (number, entry) in items(&container["envFrom"]) {
                for kind in ["configMapRef", "secretRef"] {
                    if set(&entry[kind]) {
                        return Some(format!("spec.{group}[{index}].envFrom[{number}].{kind}"));
                    }
                }
            }
        }
    }
    None
}

fn items(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}

/// Text for one line of a log: no control characters, cut.
pub(crate) fn one_line(text: &str) -> String {
    let plain = text.chars().map(|character| if character.is_control() { ' ' } else { character });
    let cut: String = plain.take(MAX_FAULT).collect();
    if text.chars().count() > MAX_FAULT { format!("{cut}…") } else { cut }
}

/// Says whether a node's name can be part of a pod's name.
pub(crate) fn is_node_name(node: &str) -> bool {
    names::dns1123_subdomain(node).is_empty()
}

#[cfg(test)]
mod tests;
