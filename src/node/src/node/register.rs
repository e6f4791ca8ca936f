//! Making the Node object, or putting right what an older one of that name says.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::NodeOptions;

pub(super) const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The architecture as Kubernetes names it.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

/// Labels that every node carries and that are asserted again at each status update.
pub(super) fn platform_labels() -> [(&'static str, &'static str); 4] {
    let arch = architecture();
    [
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", arch),
    ]
}

fn default_labels(options: &NodeOptions) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> =
        platform_labels().map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    labels.insert("kubernetes.io/hostname".to_owned(), options.name.clone());
    labels
}

/// The object as it is made the first time, without its status.
pub(super) fn initial(options: &NodeOptions) -> Node {
    let mut labels = default_labels(options);
    labels.extend(options.labels.clone());
    let mut annotations = BTreeMap::new();
    if options.controller_attach_detach {
        annotations.insert(ATTACH_DETACH.to_owned(), "true".to_owned());
    }
    if options.external_cloud && !options.node_ips.is_empty() {
        annotations.insert(PROVIDED_IP.to_owned(), provided_ips(options));
    }
    let taints = taints(options);
    Node {
        metadata: ObjectMeta {
            name: Some(options.name.clone()),
            labels: Some(labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: options.provider_id.clone(),
            taints: (!taints.is_empty()).then_some(taints),
            unschedulable: (!options.schedulable).then_some(true),
            ..NodeSpec::default()
        }),
        status: None,
    }
}

fn provided_ips(options: &NodeOptions) -> String {
    options.node_ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Configured taints, one per key and effect, and the one that a cloud controller takes away.
fn taints(options: &NodeOptions) -> Vec<Taint> {
    let mut taints: Vec<Taint> = Vec::new();
    let cloud = options.external_cloud.then(|| Taint {
        key: UNINITIALIZED.to_owned(),
        value: Some("true".to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    });
    for taint in options.taints.iter().cloned().chain(cloud) {
        if !taints.iter().any(|have| have.key == taint.key && have.effect == taint.effect) {
            taints.push(taint);
        }
    }
    taints
}

/// What must change in a Node that stands already; `None` when nothing. Taints and further labels are left: they are
/// their owner's once the object exists.
pub(super) fn reconcile(existing: &Node, options: &NodeOptions) -> Option<Value> {
    let mut labels = Map::new();
    let have = existing.metadata.labels.as_ref();
    let mut wanted = default_labels(options);
    for (key, value) in &options.labels {
        if wanted.contains_key(key) {
            wanted.insert(key.clone(), value.clone());
        }
    }
    for (key, value) in wanted {
        if have.and_then(|have| have.get(&key)) != Some(&value) {
            labels.insert(key, Value::String(value));
        }
    }
    let mut annotations = Map::new();
    let have = existing.metadata.annotations.as_ref().and_then(|have| have.get(ATTACH_DETACH));
    match (options.controller_attach_detach, have.map(String::as_str)) {
        (true, Some("true")) | (false, None) => {}
        (true, _) => drop(annotations.insert(ATTACH_DETACH.to_owned(), json!("true"))),
        (false, Some(_)) => drop(annotations.insert(ATTACH_DETACH.to_owned(), Value::Null)),
    }
    let mut metadata = Map::new();
    if !labels.is_empty() {
        metadata.insert("labels".to_owned(), Value::Object(labels));
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
    (!metadata.is_empty()).then(|| json!({ "metadata": metadata }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_node_carries_labels_taints_and_annotation() {
        let mut options = NodeOptions::new("node-1");
        options.labels.insert("zone".into(), "a".into());
        options.external_cloud = true;
        let taint = |value: &str| Taint {
            key: "k".into(),
            value: Some(value.into()),
            effect: "NoSchedule".into(),
            time_added: None,
        };
        options.taints = vec![taint("1"), taint("2")];
        let node = initial(&options);
        let labels = node.metadata.labels.unwrap();
        assert_eq!(labels["kubernetes.io/hostname"], "node-1");
        assert_eq!(labels["kubernetes.io/os"], "linux");
        assert_eq!(labels["zone"], "a");
        assert_eq!(labels.len(), 6);
        assert_eq!(node.metadata.annotations.unwrap()[ATTACH_DETACH], "true");
        let taints = node.spec.unwrap().taints.unwrap();
        assert_eq!(taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), ["k", UNINITIALIZED]);
        assert_eq!(taints[0].value.as_deref(), Some("1"));
    }

    #[test]
    fn an_old_node_keeps_what_is_its_owners() {
        let mut options = NodeOptions::new("node-1");
        options.labels.insert("zone".into(), "b".into());
        let mut node = initial(&options);
        assert_eq!(reconcile(&node, &options), None);
        node.metadata.labels.as_mut().unwrap().remove("zone");
        assert_eq!(reconcile(&node, &options), None, "custom labels are not put back");
        node.metadata.labels.as_mut().unwrap().insert("kubernetes.io/arch".into(), "other".into());
        options.controller_attach_detach = false;
        let arch = architecture();
        assert_eq!(
            reconcile(&node, &options),
            Some(json!({"metadata": {"labels": {"kubernetes.io/arch": arch}, "annotations": {ATTACH_DETACH: null}}}))
        );
    }
}
