use serde_json::{Value, json};

use super::pod;

fn defaulted(mut value: Value) -> Value {
    pod(&mut value);
    let once = value.clone();
    pod(&mut value);
    assert_eq!(once, value, "defaulting twice changes nothing");
    value
}

#[test]
fn minimal_pod_gets_the_recorded_defaults() {
    let got = defaulted(json!({"spec": {"containers": [{"name": "c", "image": "localhost/busybox:1"}]}}));
    assert_eq!(
        got["spec"],
        json!({
            "containers": [{
                "image": "localhost/busybox:1", "imagePullPolicy": "IfNotPresent", "name": "c", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"
            }],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
            "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30
        })
    );
}

#[test]
fn zero_grace_and_zero_mode_are_kept() {
    let got = defaulted(json!({"spec": {"terminationGracePeriodSeconds": 0, "containers": [],
        "volumes": [{"name": "v", "configMap": {"name": "c", "defaultMode": 0}}]}}));
    assert_eq!(got["spec"]["terminationGracePeriodSeconds"], 0);
    assert_eq!(got["spec"]["volumes"][0]["configMap"]["defaultMode"], 0);
}

#[test]
fn limits_become_requests_one_by_one() {
    let got = defaulted(json!({"spec": {"containers": [
        {"name": "c", "image": "i:1", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "500m"}}}]}}));
    assert_eq!(
        got["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}})
    );
}

#[test]
fn host_network_ports_are_host_ports() {
    let got = defaulted(json!({"spec": {"hostNetwork": true, "containers": [
        {"name": "c", "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 1, "hostPort": 2}]}]}}));
    assert_eq!(
        got["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}, {"containerPort": 1, "hostPort": 2, "protocol": "TCP"}])
    );
    assert_eq!(got["spec"]["containers"][0]["imagePullPolicy"], "Always");
}

#[test]
fn volumes_get_their_modes_and_types() {
    let got = defaulted(json!({"spec": {"containers": [], "volumes": [
        {"name": "e"},
        {"name": "h", "hostPath": {"path": "/x"}},
        {"name": "p", "projected": {"sources": [
            {"serviceAccountToken": {"path": "t"}},
            {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}},
                                       {"path": "c", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}}]}}]}}]}}));
    assert_eq!(
        got["spec"]["volumes"],
        json!([
            {"name": "e", "emptyDir": {}},
            {"name": "h", "hostPath": {"path": "/x", "type": ""}},
            {"name": "p", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                {"downwardAPI": {"items": [
                    {"path": "n", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
                    {"path": "c", "resourceFieldRef": {"containerName": "c", "divisor": "0", "resource": "limits.cpu"}}]}}]}}
        ])
    );
}

#[test]
fn probes_and_hooks_get_their_numbers() {
    let got = defaulted(json!({"spec": {"containers": [{"name": "c", "image": "i",
        "readinessProbe": {"httpGet": {"port": 8080}, "periodSeconds": 1},
        "lifecycle": {"preStop": {"httpGet": {"port": 1}}}}]}}));
    assert_eq!(
        got["spec"]["containers"][0]["readinessProbe"],
        json!({"failureThreshold": 3, "httpGet": {"path": "/", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 1,
               "successThreshold": 1, "timeoutSeconds": 1})
    );
    assert_eq!(got["spec"]["containers"][0]["lifecycle"]["preStop"]["httpGet"]["scheme"], "HTTP");
}

#[test]
fn nulls_empty_lists_and_plain_false_go() {
    let got = defaulted(
        json!({"metadata": {"labels": {}, "annotations": null}, "spec": {"hostPID": false, "nodeSelector": {},
        "tolerations": [], "volumes": null, "containers": [{"name": "c", "image": "i", "command": [], "tty": false}]}}),
    );
    assert_eq!(got["metadata"], json!({}));
    for gone in ["hostPID", "nodeSelector", "tolerations", "volumes"] {
        assert!(got["spec"].get(gone).is_none(), "{gone}");
    }
    assert!(got["spec"]["containers"][0].get("command").is_none());
}

#[test]
fn wrong_types_survive_untouched() {
    for odd in [json!(null), json!([]), json!({"spec": 1}), json!({"spec": {"containers": "x", "volumes": [1, null]}})]
    {
        let mut value = odd.clone();
        pod(&mut value);
    }
}

#[test]
fn the_old_account_name_is_mirrored() {
    let got = defaulted(json!({"spec": {"containers": [], "serviceAccount": "old"}}));
    assert_eq!(got["spec"]["serviceAccountName"], "old");
}
