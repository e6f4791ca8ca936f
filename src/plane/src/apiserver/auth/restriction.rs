//! What a node may write, where that stands in the body: called by admission for users that are nodes.

use serde_json::Value;

use super::objects::{MIRROR, text};
use crate::apiserver::identity::UserInfo;

/// Labels below these belong to the administrator: pods are placed by them, so a node must not give them to itself.
const RESERVED_LABELS: &str = "node-restriction.kubernetes.io/";

/// Checks an object that `user` creates, or writes over `old`. The text of a refusal stands behind "is forbidden: ".
pub fn restrict(
    user: &UserInfo,
    resource: &str,
    subresource: &str,
    old: Option<&Value>,
    object: &Value,
) -> Result<(), String> {
    let Some(node) = user.node_name() else { return Ok(()) };
    match (resource, subresource, old) {
        ("pods", "", None) => mirror_pod(node, object),
        ("pods", "", Some(_)) => Err(format!("node {node:?} may only update the status of pods")),
        ("nodes", "", _) => own_node(node, old, object),
        ("leases" | "csinodes", "", None) if text(object, "/metadata/name") != node => {
            Err(format!("node {node:?} may only create an object of its own name"))
        }
        _ => Ok(()),
    }
}

fn mirror_pod(node: &str, pod: &Value) -> Result<(), String> {
    let is_mirror = pod.get("metadata").and_then(|meta| meta.get("annotations")?.get(MIRROR)).is_some();
    if !is_mirror {
        return Err(format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"));
    }
    if text(pod, "/spec/nodeName") != node {
        return Err(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array).map(Vec::as_slice);
    for owner in owners.unwrap_or_default() {
        if text(owner, "/kind") != "Node" || text(owner, "/name") != node {
            return Err(format!("node {node:?} can only create pods with an owner reference set to itself"));
        }
    }
    // A mirror pod must not open the node a way to objects that no real pod of it names.
    if !text(pod, "/spec/serviceAccountName").is_empty() && text(pod, "/spec/serviceAccountName") != "default" {
        return Err(format!("node {node:?} can not create pods that reference a service account"));
    }
    let facts = super::objects::PodFacts::of(&without_mirror(pod));
    if let Some(secret) = facts.secrets.first() {
        return Err(format!("node {node:?} can not create pods that reference secrets ({secret})"));
    }
    if let Some(configmap) = facts.configmaps.first() {
        return Err(format!("node {node:?} can not create pods that reference configmaps ({configmap})"));
    }
    Ok(())
}

fn without_mirror(pod: &Value) -> Value {
    let mut pod = pod.clone();
    if let Some(annotations) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(MIRROR);
    }
    pod
}

fn own_node(node: &str, old: Option<&Value>, object: &Value) -> Result<(), String> {
    if text(object, "/metadata/name") != node {
        return Err(format!("node {node:?} is not allowed to modify node {:?}", text(object, "/metadata/name")));
    }
    let labels = |object: Option<&Value>| {
        let labels = object.and_then(|object| object.pointer("/metadata/labels")).and_then(Value::as_object);
        labels.cloned().unwrap_or_default()
    };
    let (before, after) = (labels(old), labels(Some(object)));
    let changed = |key: &&String| before.get(*key) != after.get(*key);
    if let Some(key) = before.keys().chain(after.keys()).filter(changed).find(|key| key.contains(RESERVED_LABELS)) {
        return Err(format!("is not allowed to modify labels: {key}"));
    }
    let taints = |object: &Value| object.pointer("/spec/taints").cloned().unwrap_or_default();
    match old {
        Some(old) if taints(old) != taints(object) => Err(format!("node {node:?} is not allowed to modify taints")),
        _ => Ok(()),
    }
}
