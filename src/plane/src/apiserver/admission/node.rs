//! What node agents may write: their own node, lease and pods, and mirrors of their own manifests.

use serde_json::Value;

use super::pod::{MIRROR, forbidden_reference, is_mirror};
use crate::apiserver::error::ApiError;
use crate::apiserver::identity::UserInfo;
use crate::apiserver::object::{child, list, meta, text};
use crate::apiserver::registry::{Part, Registry};
use crate::apiserver::resources::{CSINODES, LEASES, NODES, PERSISTENTVOLUMECLAIMS, PODS, Resource};

/// Where node leases live.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Labels of the system that a node may give itself.
const OWN_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Domains whose labels are a node's own.
const OWN_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Domain of labels that belong to administrators.
const RESERVED_DOMAIN: &str = "node-restriction.kubernetes.io";

fn node_of(user: Option<&UserInfo>) -> Option<&str> {
    user.and_then(UserInfo::node_name)
}

pub(super) fn create(
    registry: &Registry,
    resource: &Resource,
    object: &Value,
    user: Option<&UserInfo>,
) -> Result<(), ApiError> {
    let Some(node) = node_of(user) else { return Ok(()) };
    let name = meta(object, "name");
    let refuse = |text: String| Err(ApiError::forbidden(resource, name, &text));
    if std::ptr::eq(resource, &PODS) {
        return create_pod(registry, object, node);
    }
    if std::ptr::eq(resource, &NODES) && name != node {
        return refuse(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    if std::ptr::eq(resource, &NODES)
        && let Some(label) = reserved_label_change(object, None)
    {
        return refuse(format!("is not allowed to set the following labels: {label}"));
    }
    if std::ptr::eq(resource, &LEASES) && (meta(object, "namespace") != LEASE_NAMESPACE || name != node) {
        return refuse(format!("can only access node lease with the same name as the requesting node {node:?}"));
    }
    if std::ptr::eq(resource, &CSINODES) && name != node {
        return refuse("can only access CSINode with the same name as the requesting node".to_owned());
    }
    Ok(())
}

fn create_pod(registry: &Registry, pod: &Value, node: &str) -> Result<(), ApiError> {
    let refuse = |text: String| Err(ApiError::forbidden(&PODS, meta(pod, "name"), &text));
    if !is_mirror(pod) {
        return refuse(format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"));
    }
    if text(pod, "/spec/nodeName") != node {
        return refuse(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let [owner] = list(pod, "/metadata/ownerReferences") else {
        return refuse(format!("node {node:?} can only create pods with a single owner reference set to itself"));
    };
    if text(owner, "/kind") != "Node" || text(owner, "/apiVersion") != "v1" || text(owner, "/name") != node {
        return refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
    }
    if owner.get("controller").and_then(Value::as_bool) != Some(true) {
        return refuse(format!("node {node:?} can only create pods with a controller owner reference set to itself"));
    }
    if owner.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true) {
        return refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let found = registry.find(&NODES, "", node)?;
    if found.as_ref().map(|found| meta(found, "uid")) != Some(text(owner, "/uid")) {
        return refuse(format!("node {node:?} UID mismatch: expected the uid of the node as stored"));
    }
    if let Some(cause) = forbidden_reference(pod) {
        return refuse(format!("node {node:?} can not create pods that reference {}", cause.field));
    }
    Ok(())
}

pub(super) fn update(
    _registry: &Registry,
    resource: &Resource,
    part: Part,
    object: &Value,
    old: &Value,
    user: Option<&UserInfo>,
) -> Result<(), ApiError> {
    // What a mirror shows is decided by its manifest, for every writer.
    if std::ptr::eq(resource, &PODS) && mirror_note(object) != mirror_note(old) {
        return Err(ApiError::forbidden(&PODS, meta(old, "name"), "may not change the mirror annotation"));
    }
    let Some(node) = node_of(user) else { return Ok(()) };
    let name = meta(old, "name");
    let refuse = |text: String| Err(ApiError::forbidden(resource, name, &text));
    if std::ptr::eq(resource, &PODS) {
        if part != Part::Status {
            return refuse(format!("node {node:?} can only update pod status"));
        }
        if text(old, "/spec/nodeName") != node {
            return refuse(format!(
                "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
            ));
        }
        if object.pointer("/metadata/labels") != old.pointer("/metadata/labels") {
            return refuse(format!("node {node:?} cannot update labels through pod status"));
        }
    }
    if std::ptr::eq(resource, &NODES) {
        if name != node {
            return refuse(format!("node {node:?} is not allowed to modify node {name:?}"));
        }
        // An owner that is not there would have the node collected, and made anew without its taints (CVE-2025-5187).
        if object.pointer("/metadata/ownerReferences") != old.pointer("/metadata/ownerReferences") {
            return refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
        }
        if part == Part::Main && object.pointer("/spec/taints") != old.pointer("/spec/taints") {
            return refuse(format!("node {node:?} is not allowed to modify taints"));
        }
        if let Some(label) = reserved_label_change(object, Some(old)) {
            return refuse(format!("is not allowed to modify labels: {label}"));
        }
    }
    if std::ptr::eq(resource, &PERSISTENTVOLUMECLAIMS) {
        let fixed = |claim: &Value| {
            let mut claim = claim.clone();
            for key in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
                child(&mut claim, "status").remove(key);
            }
            claim
        };
        if part != Part::Status || fixed(object) != fixed(old) {
            return refuse(format!(
                "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
            ));
        }
    }
    if std::ptr::eq(resource, &LEASES) && (meta(old, "namespace") != LEASE_NAMESPACE || name != node) {
        return refuse(format!("can only access node lease with the same name as the requesting node {node:?}"));
    }
    if std::ptr::eq(resource, &CSINODES) && name != node {
        return refuse("can only access CSINode with the same name as the requesting node".to_owned());
    }
    Ok(())
}

/// Administrators place pods by these labels: a node must not give them to itself, nor take them off.
fn reserved_label_change(object: &Value, old: Option<&Value>) -> Option<String> {
    let labels = |object: Option<&Value>| {
        object
            .and_then(|object| object.pointer("/metadata/labels"))
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let (before, after) = (labels(old), labels(Some(object)));
    let is_reserved = |key: &&String| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let within = |root: &str| domain == root || domain.strip_suffix(root).is_some_and(|rest| rest.ends_with('.'));
        let own = OWN_LABELS.contains(&key.as_str()) || OWN_DOMAINS.iter().any(|root| within(root));
        within(RESERVED_DOMAIN) || ((within("kubernetes.io") || within("k8s.io")) && !own)
    };
    let changed = |key: &&String| before.get(*key) != after.get(*key);
    before.keys().chain(after.keys()).filter(is_reserved).find(changed).cloned()
}

fn mirror_note(pod: &Value) -> Option<&Value> {
    pod.pointer("/metadata/annotations").and_then(|notes| notes.get(MIRROR))
}

pub(super) fn delete(
    _registry: &Registry,
    resource: &Resource,
    old: &Value,
    user: Option<&UserInfo>,
) -> Result<(), ApiError> {
    let Some(node) = node_of(user) else { return Ok(()) };
    let name = meta(old, "name");
    if std::ptr::eq(resource, &PODS) && text(old, "/spec/nodeName") != node {
        let text = format!("node {node:?} can only delete pods with spec.nodeName set to itself");
        return Err(ApiError::forbidden(resource, name, &text));
    }
    if std::ptr::eq(resource, &NODES) {
        let text = format!("node {node:?} cannot delete nodes");
        return Err(ApiError::forbidden(resource, name, &text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(labels: Value) -> Value {
        json!({"metadata": {"name": "n1", "labels": labels}})
    }

    #[test]
    fn a_node_leaves_the_administrators_labels_alone() {
        let key = "node-restriction.kubernetes.io/zone";
        let plain = node(json!({"zone": "a"}));
        let given = node(json!({key: "a", "zone": "b"}));
        assert_eq!(reserved_label_change(&plain, None), None);
        assert_eq!(reserved_label_change(&given, Some(&given)), None);
        assert_eq!(reserved_label_change(&node(json!({key: "a"})), Some(&given)), None);
        for (object, old) in [(&given, None), (&given, Some(&plain)), (&plain, Some(&given))] {
            assert_eq!(reserved_label_change(object, old).as_deref(), Some(key));
        }
        let below = node(json!({"team.node-restriction.kubernetes.io/x": "y"}));
        assert!(reserved_label_change(&below, None).is_some());
        assert!(reserved_label_change(&node(json!({"anode-restriction.example.com/x": "y"})), None).is_none());
    }

    #[test]
    fn a_node_gives_itself_only_its_own_labels_of_the_system() {
        for (key, own) in [
            ("kubernetes.io/hostname", true),
            ("topology.kubernetes.io/zone", true),
            ("node.kubernetes.io/anything", true),
            ("sub.kubelet.kubernetes.io/x", true),
            ("example.com/x", true),
            ("plain", true),
            ("node-role.kubernetes.io/control-plane", false),
            ("kubernetes.io/other", false),
            ("x.k8s.io/y", false),
        ] {
            assert_eq!(reserved_label_change(&node(json!({key: "v"})), None).is_none(), own, "{key}");
        }
    }
}
