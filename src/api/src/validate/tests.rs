use serde_json::{Value, json};

use super::pod;

fn findings(spec: Value) -> Vec<String> {
    let mut object = json!({"metadata": {"name": "p"}, "spec": spec});
    crate::defaults::pod(&mut object);
    pod(&object).iter().map(ToString::to_string).collect()
}

fn container(change: Value) -> Value {
    let mut container = json!({"name": "c", "image": "i:1"});
    container.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    json!({"containers": [container]})
}

#[test]
fn the_recorded_refusal_comes_out_again() {
    let got =
        findings(json!({"containers": [{"name": "c", "image": "", "restartPolicy": "x"}, {"name": "c", "image": "i"}],
        "restartPolicy": "Sometimes"}));
    assert_eq!(
        got,
        [
            "spec.containers[0].image: Required value",
            "spec.containers[0].restartPolicy: Unsupported value: \"x\": supported values: \"Always\", \"Never\", \"OnFailure\"",
            "spec.containers[1].name: Duplicate value: \"c\"",
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ]
    );
}

#[test]
fn every_recorded_pod_is_accepted() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integration/golden/recorded");
    let mut seen = 0;
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path().join("object.json");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        // Names stand in for what differs from run to run; they are no names of the API.
        let text = text.replace("NODE", "node").replace("XXXXX", "xxxxx");
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(pod(&object), [], "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 20);
}

#[test]
fn one_finding_each() {
    let volume = |change: Value| {
        let mut volume = json!({"name": "v"});
        volume.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({"volumes": [volume], "containers": [{"name": "c", "image": "i:1"}]})
    };
    let with = |change: Value| {
        let mut spec = container(json!({}));
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        spec
    };
    let mounts = |mounts: Value| json!({"volumes": [{"name": "v"}], "containers": [{"name": "c", "image": "i:1", "volumeMounts": mounts}]});
    for (spec, want) in [
        (json!({"containers": []}), "spec.containers: Required value"),
        (
            container(json!({"name": "../x"})),
            "spec.containers[0].name: Invalid value: \"../x\": a lowercase RFC 1123 label",
        ),
        (
            container(json!({"image": " i"})),
            "spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace",
        ),
        (container(json!({"imagePullPolicy": "x"})), "spec.containers[0].imagePullPolicy: Unsupported value: \"x\""),
        (
            container(json!({"ports": [{"containerPort": 0}]})),
            "spec.containers[0].ports[0].containerPort: Required value",
        ),
        (
            container(json!({"ports": [{"containerPort": 70000}]})),
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            container(json!({"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]})),
            "spec.containers[0].ports[1].name: Duplicate value: \"a\"",
        ),
        (
            container(json!({"ports": [{"containerPort": 1, "protocol": "ICMP"}]})),
            "spec.containers[0].ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ),
        (container(json!({"env": [{"name": "a=b"}]})), "spec.containers[0].env[0].name: Invalid value: \"a=b\""),
        (
            container(json!({"env": [{"name": "A", "valueFrom": {}}]})),
            "spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of",
        ),
        (
            container(json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}]})),
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"metadata.labels\"",
        ),
        (
            container(json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]})),
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\": error converting fieldPath: field label not supported: spec.x",
        ),
        (
            container(json!({"envFrom": [{}]})),
            "spec.containers[0].envFrom[0]: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
        ),
        (
            container(json!({"livenessProbe": {}})),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
        (
            container(json!({"livenessProbe": {"exec": {"command": ["a"]}, "successThreshold": 2}})),
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            container(json!({"readinessProbe": {"exec": {"command": ["a"]}, "periodSeconds": -1}})),
            "spec.containers[0].readinessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            container(json!({"readinessProbe": {"httpGet": {"port": 0}}})),
            "spec.containers[0].readinessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (
            container(json!({"lifecycle": {"preStop": {"exec": {}}}})),
            "spec.containers[0].lifecycle.preStop.exec.command: Required value",
        ),
        (
            container(json!({"lifecycle": {"stopSignal": "SIGTERM"}})),
            "spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`",
        ),
        (
            container(json!({"env": [{"name": "A", "valueFrom": {"fileKeyRef": {
                "volumeName": "gone", "path": "a", "key": "K"
            }}}]})),
            "spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: \"gone\"",
        ),
        (
            container(json!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}})),
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            container(json!({"securityContext": {"runAsUser": -1}})),
            "spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ),
        (
            container(
                json!({"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "../x"}}}),
            ),
            "spec.containers[0].securityContext.seccompProfile.localhostProfile: Invalid value: \"../x\": must not contain '..'",
        ),
        (
            mounts(json!([{"name": "x", "mountPath": "/x"}])),
            "spec.containers[0].volumeMounts[0].name: Not found: \"x\"",
        ),
        (
            mounts(json!([{"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}])),
            "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/x\": must be unique",
        ),
        (
            mounts(json!([{"name": "v", "mountPath": "/x", "subPath": "a/../../b"}])),
            "spec.containers[0].volumeMounts[0].subPath: Invalid value: \"a/../../b\": must not contain '..'",
        ),
        (
            mounts(json!([{"name": "v", "mountPath": "/x", "subPath": "/b"}])),
            "spec.containers[0].volumeMounts[0].subPath: Invalid value: \"/b\": must be a relative path",
        ),
        (
            mounts(json!([{"name": "v", "mountPath": "/x", "mountPropagation": "Bidirectional"}])),
            "spec.containers[0].volumeMounts[0].mountPropagation: Forbidden: Bidirectional",
        ),
        (volume(json!({"name": ""})), "spec.volumes[0].name: Required value"),
        (
            volume(json!({"hostPath": {"path": "/a/../b"}})),
            "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        (
            volume(json!({"hostPath": {"path": "/a", "type": "x"}})),
            "spec.volumes[0].hostPath.type: Unsupported value: \"x\": supported values: \"\", \"BlockDevice\"",
        ),
        (
            volume(json!({"hostPath": {"path": "/a"}, "emptyDir": {}})),
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (volume(json!({"strange": {}})), "spec.volumes[0]: Required value: must specify a volume type"),
        (
            volume(json!({"configMap": {"name": "c", "defaultMode": 512}})),
            "spec.volumes[0].configMap.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
        ),
        (
            volume(json!({"configMap": {"name": "c", "items": [{"key": "k", "path": "../x"}]}})),
            "spec.volumes[0].configMap.items[0].path: Invalid value: \"../x\": must not contain '..'",
        ),
        (
            volume(json!({"secret": {"secretName": "s", "items": [{"key": "k", "path": "..x"}]}})),
            "spec.volumes[0].secret.items[0].path: Invalid value: \"..x\": must not start with '..'",
        ),
        (volume(json!({"secret": {}})), "spec.volumes[0].secret.secretName: Required value"),
        (
            volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 5}}]}})),
            "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes",
        ),
        (with(json!({"volumes": [{"name": "v"}, {"name": "v"}]})), "spec.volumes[1].name: Duplicate value: \"v\""),
        (
            with(json!({"initContainers": [{"name": "c", "image": "i:1"}]})),
            "spec.initContainers[0].name: Duplicate value: \"c\"",
        ),
        (
            with(
                json!({"initContainers": [{"name": "i", "image": "i:1", "livenessProbe": {"exec": {"command": ["a"]}}}]}),
            ),
            "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
        ),
        (with(json!({"dnsPolicy": "x"})), "spec.dnsPolicy: Unsupported value: \"x\""),
        (
            with(json!({"dnsPolicy": "None"})),
            "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver",
        ),
        (with(json!({"hostname": "a.b"})), "spec.hostname: Invalid value: \"a.b\""),
        (
            with(json!({"activeDeadlineSeconds": 0})),
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ),
        (
            with(json!({"hostAliases": [{"ip": "x"}]})),
            "spec.hostAliases[0].ip: Invalid value: \"x\": must be a valid IP address",
        ),
        (
            with(json!({"tolerations": [{"operator": "Equal", "value": "x"}]})),
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists",
        ),
        (
            with(json!({"hostPID": true, "shareProcessNamespace": true})),
            "spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
        ),
    ] {
        let got = findings(spec.clone());
        assert!(got.len() == 1 && got[0].starts_with(want), "{spec}\n got {got:?}\nwant {want}");
    }
}

#[test]
fn host_ports_clash_between_containers() {
    let got = findings(json!({"containers": [
        {"name": "a", "image": "i:1", "ports": [{"containerPort": 1, "hostPort": 80}]},
        {"name": "b", "image": "i:1", "ports": [{"containerPort": 1, "hostPort": 80}]}]}));
    assert_eq!(got, ["spec.containers[1].ports[0].hostPort: Duplicate value: \"TCP//80\""]);
}

#[test]
fn wrong_types_do_not_panic() {
    for odd in [
        json!(null),
        json!([]),
        json!({}),
        json!({"spec": 1}),
        json!({"spec": {"containers": 1, "volumes": "x"}}),
        json!({"spec": {"containers": [1, null, {"name": 5, "env": {}, "ports": [{"containerPort": "x"}]}]}}),
    ] {
        pod(&odd);
    }
}
