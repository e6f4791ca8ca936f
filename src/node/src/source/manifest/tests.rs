use super::*;
use crate::source::fixture::manifest;

fn error(manifest: Value) -> String {
    static_pod(manifest, "node-1", "file:/m/a.yaml").unwrap_err().to_string()
}

/// A manifest with more in its spec.
fn with_spec(more: Value) -> Value {
    let mut pod = manifest("a", "i");
    if let (Value::Object(spec), Value::Object(more)) = (&mut pod["spec"], more) {
        spec.extend(more);
    }
    pod
}

#[test]
fn a_static_pod_has_the_identity_of_its_node() {
    let pod = static_pod(manifest("a", "i"), "node-1", "file:/m/a.yaml").unwrap();
    let meta = &pod.metadata;
    assert_eq!((meta.name.as_deref(), meta.namespace.as_deref()), (Some("a-node-1"), Some("default")));
    let uid = meta.uid.clone().unwrap();
    assert_eq!(uid.len(), 32);
    assert_eq!(meta.annotations.clone().unwrap(), [(CONFIG_HASH.to_owned(), uid.clone())].into());
    let spec = pod.spec.unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("node-1"));
    assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
    let toleration = spec.tolerations.unwrap().pop().unwrap();
    assert_eq!((toleration.operator.as_deref(), toleration.effect.as_deref()), (Some("Exists"), Some("NoExecute")));
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Pending"));
    // The same for ever for the same content, host and place; another for each difference.
    let uid_of = |image, node, origin| static_pod(manifest("a", image), node, origin).unwrap().metadata.uid.unwrap();
    assert_eq!(uid_of("i", "node-1", "file:/m/a.yaml"), uid);
    assert_ne!(uid_of("j", "node-1", "file:/m/a.yaml"), uid);
    assert_ne!(uid_of("i", "node-2", "file:/m/a.yaml"), uid);
    assert_ne!(uid_of("i", "node-1", "file:/m/b.yaml"), uid);
}

#[test]
fn a_given_uid_is_kept_and_what_belongs_to_the_api_is_not() {
    let mut pod = manifest("a", "i");
    pod["metadata"]["uid"] = json!("my-uid-1");
    for (field, value) in [
        ("resourceVersion", json!("5")),
        ("deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("finalizers", json!(["a/b"])),
        ("annotations", json!({CONFIG_MIRROR: "x", CONFIG_SOURCE: "api", "note": "kept"})),
    ] {
        pod["metadata"][field] = value;
    }
    pod["status"] = json!({"phase": "Running"});
    let meta = static_pod(pod, "n", "file:/a").unwrap().metadata;
    assert_eq!(
        (meta.uid.as_deref(), meta.resource_version, meta.deletion_timestamp, meta.finalizers),
        (Some("my-uid-1"), None, None, None)
    );
    let notes = meta.annotations.unwrap();
    assert_eq!(notes.keys().map(String::as_str).collect::<Vec<_>>(), [CONFIG_HASH, CONFIG_REVISION, "note"]);
}

#[test]
fn where_the_uid_is_given_the_revision_tells_one_manifest_from_the_next() {
    let revision = |image: &str, faked: &str| {
        let mut pod = manifest("a", image);
        pod["metadata"]["uid"] = json!("u");
        pod["metadata"]["annotations"] = json!({CONFIG_REVISION: faked, "note": "x"});
        static_pod(pod, "n", "file:/a").unwrap().metadata.annotations.unwrap()[CONFIG_REVISION].clone()
    };
    assert_eq!(revision("i", "1").len(), 32);
    assert_eq!(revision("i", "1"), revision("i", "1"));
    assert_ne!(revision("i", "1"), revision("j", "1"));
    assert!(
        !static_pod(manifest("a", "i"), "n", "file:/a")
            .unwrap()
            .metadata
            .annotations
            .unwrap()
            .contains_key(CONFIG_REVISION)
    );
}

#[test]
fn a_debug_container_has_no_place_in_a_manifest() {
    let debug = json!([{"name": "d", "image": "i"}]);
    assert!(
        error(with_spec(json!({"ephemeralContainers": debug})))
            .contains("spec.ephemeralContainers: Forbidden: cannot be set on create")
    );
}

#[test]
fn what_is_no_pod_is_refused_in_one_line() {
    assert_eq!(
        error(json!({"apiVersion": "v1", "kind": "List"})),
        "found apiVersion \"v1\", kind \"List\", wanted a Pod of v1"
    );
    assert_eq!(error(json!([1])), "found apiVersion \"\", kind \"\", wanted a Pod of v1");
    assert!(error(with_spec(json!({"containers": "x"}))).starts_with("not a Pod: "));
    assert!(error(json!({"apiVersion": "v1", "kind": "Pod", "metadata": [], "spec": {}})).starts_with("not a Pod: "));
    assert!(error(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})).contains("invalid Pod: "));
    assert!(error(manifest("", "i")).contains("metadata.name: Required value"));
    assert!(error(manifest("a/../b", "i")).contains("metadata.name: Invalid value: \"a/../b-node-1\""));
    for uid in ["../x", "a/b", "-a", "a.b", &"a".repeat(64)] {
        let mut pod = manifest("a", "i");
        pod["metadata"]["uid"] = json!(uid);
        assert!(error(pod).contains("metadata.uid"), "{uid}");
    }
    let mut pod = manifest("a", "i");
    pod["metadata"]["namespace"] = json!("../etc");
    assert!(error(pod).contains("metadata.namespace"));
    let long =
        error(with_spec(json!({"restartPolicy": "\n".repeat(5000) , "containers": [{"name": "x".repeat(5000)}]})));
    assert!(long.len() < 600 && long.lines().count() == 1, "{long}");
}

#[test]
fn references_to_the_api_are_refused_by_their_path() {
    for (spec, path) in [
        (json!({"serviceAccountName": "x"}), "spec.serviceAccountName"),
        (json!({"imagePullSecrets": [{"name": "x"}]}), "spec.imagePullSecrets"),
        (json!({"volumes": [{"name": "v", "configMap": {"name": "x"}}]}), "spec.volumes[0].configMap"),
        (json!({"volumes": [{"name": "v", "secret": {"secretName": "x"}}]}), "spec.volumes[0].secret"),
        (
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]}),
            "spec.volumes[0].persistentVolumeClaim",
        ),
        (
            json!({"volumes": [{"name": "v", "iscsi": {"targetPortal": "x", "iqn": "iqn.2001-04.com.example:a", "lun": 0, "secretRef": {"name": "x"}}}]}),
            "spec.volumes[0].iscsi.secretRef",
        ),
        (json!({"resourceClaims": [{"name": "r", "resourceClaimName": "x"}]}), "spec.resourceClaims"),
        (
            json!({"volumes": [{"name": "v", "projected": {"sources": [{"downwardAPI": {}}, {"secret": {"name": "x"}}]}}]}),
            "spec.volumes[0].projected.sources[1].secret",
        ),
        (
            json!({"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}]}]}),
            "spec.containers[0].env[0].valueFrom.secretKeyRef",
        ),
        (
            json!({"containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "x"}}]}]}),
            "spec.containers[0].envFrom[0].configMapRef",
        ),
    ] {
        assert_eq!(error(with_spec(spec)), format!("static pods may not refer to API objects: {path}"));
    }
    let fine = json!({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/x"}},
        {"name": "c", "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}}]});
    assert!(static_pod(with_spec(fine), "n", "file:/a").is_ok());
}

#[test]
fn the_static_pods_that_kubeadm_writes_are_taken() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/kubeadm");
    let mut seen = 0;
    for entry in std::fs::read_dir(recorded).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let manifest = longshore_util::yaml::to_value(&text).unwrap();
        static_pod(manifest, "cp-1", "file:/etc/kubernetes/manifests/x.yaml")
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        seen += 1;
    }
    assert_eq!(seen, 4);
}
