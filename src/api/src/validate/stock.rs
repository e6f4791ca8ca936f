use serde_json::{Value, json};

use super::*;

fn base() -> Value {
    let mut pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    crate::defaults::pod(&mut pod);
    pod
}

/// Puts a value at a pointer whose parents exist or are made.
fn with(pointer: &str, value: Value) -> Value {
    let mut pod = base();
    let mut place = &mut pod;
    for part in pointer.trim_start_matches('/').split('/') {
        place = match part.parse::<usize>() {
            Ok(index) => {
                if place.is_null() {
                    *place = json!([]);
                }
                let items = place.as_array_mut().unwrap();
                if items.len() <= index {
                    items.push(json!({}));
                }
                &mut items[index]
            }
            Err(_) => &mut place[part],
        };
    }
    *place = value;
    pod
}

fn texts(value: &Value) -> Vec<String> {
    pod(value).iter().map(ToString::to_string).collect()
}

#[test]
fn a_plain_pod_has_no_faults() {
    assert_eq!(texts(&base()), Vec::<String>::new());
}

#[test]
fn the_recorded_pod_has_the_recorded_faults() {
    let mut sent = json!({"spec": {"containers": [{"name": "c", "image": "", "restartPolicy": "x"},
        {"name": "c", "image": "i"}], "restartPolicy": "Sometimes"}});
    crate::defaults::pod(&mut sent);
    assert_eq!(
        texts(&sent),
        [
            r#"spec.containers[0].image: Required value"#,
            r#"spec.containers[0].restartPolicy: Unsupported value: "x": supported values: "Always", "Never", "OnFailure""#,
            r#"spec.containers[1].name: Duplicate value: "c""#,
            r#"spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never""#,
        ]
    );
}

#[test]
fn each_rule_finds_its_fault() {
    let container = |key: &str, value: Value| with(&format!("/spec/containers/0/{key}"), value);
    for (sent, want) in [
        (with("/spec/containers", json!([])), "spec.containers: Required value"),
        (container("name", json!("A")), "spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label"),
        (container("image", json!(" i")), "must not have leading or trailing whitespace"),
        (
            container("ports", json!([{"containerPort": 70000, "protocol": "TCP"}])),
            "must be between 1 and 65535, inclusive",
        ),
        (
            container("ports", json!([{"containerPort": 1, "protocol": "X"}])),
            "supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ),
        (container("env", json!([{"name": ""}])), "spec.containers[0].env[0].name: Required value"),
        (container("env", json!([{"name": "A", "valueFrom": {}}])), "must specify one of: `fieldRef`"),
        (
            container("env", json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}])),
            "valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\"",
        ),
        (
            container("volumeMounts", json!([{"name": "v", "mountPath": "/v"}])),
            "volumeMounts[0].name: Not found: \"v\"",
        ),
        (
            container("volumeMounts", json!([{"name": "v", "mountPath": "/v", "subPath": "../x"}])),
            "subPath: Invalid value: \"../x\": must not contain '..'",
        ),
        (container("imagePullPolicy", json!("Maybe")), "supported values: \"Always\", \"IfNotPresent\", \"Never\""),
        (
            container("resources", json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})),
            "resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (container("resources", json!({"limits": {"widgets": "1"}})), "must be a standard resource for containers"),
        (container("resources", json!({"limits": {"cpu": "lots"}})), "resources.limits[cpu]: Invalid value: \"lots\""),
        (container("livenessProbe", json!({})), "livenessProbe: Required value: must specify a handler type"),
        (
            container("livenessProbe", json!({"exec": {"command": ["x"]}, "successThreshold": 2})),
            "livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            container("securityContext", json!({"privileged": true, "allowPrivilegeEscalation": false})),
            "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        ),
        (with("/spec/volumes", json!([{"name": "v"}])), "spec.volumes[0]: Required value: must specify a volume type"),
        (
            with("/spec/volumes", json!([{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}])),
            "spec.volumes[1].name: Duplicate value: \"v\"",
        ),
        (
            with("/spec/volumes", json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}])),
            "may not specify more than 1 volume type",
        ),
        (with("/spec/volumes", json!([{"name": "v", "hostPath": {"path": "/a/../b"}}])), "must not contain '..'"),
        (
            with(
                "/spec/volumes",
                json!([{"name": "v", "configMap": {"name": "m", "items": [{"key": "k", "path": "..data"}]}}]),
            ),
            "must not start with '..'",
        ),
        (with("/spec/activeDeadlineSeconds", json!(0)), "must be between 1 and 2147483647, inclusive"),
        (with("/spec/hostname", json!("a.b")), "spec.hostname: Invalid value: \"a.b\""),
        (
            with("/spec/dnsPolicy", json!("None")),
            "spec.dnsConfig.nameservers: Required value: must provide at least one",
        ),
        (with("/spec/tolerations", json!([{"key": "k", "operator": "Is"}])), "supported values: \"Equal\", \"Exists\""),
        (
            with("/spec/initContainers", json!([{"name": "i", "image": "i", "lifecycle": {"preStop": {}}}])),
            "may not be set for init containers without restartPolicy=Always",
        ),
        (with("/spec/initContainers", json!([{"name": "c", "image": "i"}])), "spec.initContainers[0].name: Duplicate"),
    ] {
        let found = texts(&sent);
        assert!(found.iter().any(|text| text.contains(want)), "wanted {want}, found {found:?}");
    }
}

#[test]
fn parts_of_a_wrong_type_do_no_harm() {
    for sent in
        [json!(null), json!({"spec": 3}), json!({"spec": {"containers": {}, "volumes": [1], "restartPolicy": []}})]
    {
        assert!(!pod(&sent).is_empty());
    }
}
