//! Each kind told by tables: defaults, refusals, what may not change, and the columns it is shown with.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Server;
use crate::apiserver::resources::{ALL, Resource};

/// A small good object of each kind that is not tested elsewhere.
pub(super) fn samples() -> Vec<(&'static str, Value)> {
    let template = |policy: &str| {
        json!({"metadata": {"labels": {"app": "x"}},
            "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i:1"}]}})
    };
    let selector = json!({"matchLabels": {"app": "x"}});
    let rule = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let group = "rbac.authorization.k8s.io";
    let csr = "-----BEGIN CERTIFICATE REQUEST-----\nMA==\n-----END CERTIFICATE REQUEST-----\n";
    let csr = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, csr);
    vec![
        ("deployments", json!({"spec": {"selector": selector, "template": template("Always")}})),
        ("replicasets", json!({"spec": {"selector": selector, "template": template("Always")}})),
        ("daemonsets", json!({"spec": {"selector": selector, "template": template("Always")}})),
        (
            "statefulsets",
            json!({"spec": {"selector": selector, "serviceName": "s", "template": template("Always"),
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}]}}),
        ),
        ("controllerrevisions", json!({"revision": 1, "data": {"a": 1}})),
        ("replicationcontrollers", json!({"spec": {"template": template("Always")}})),
        ("podtemplates", json!({"template": template("Always")})),
        ("jobs", json!({"spec": {"template": template("Never")}})),
        (
            "cronjobs",
            json!({"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": template("Never")}}}}),
        ),
        ("poddisruptionbudgets", json!({"spec": {"minAvailable": 1, "selector": selector}})),
        ("endpoints", json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]})),
        (
            "endpointslices",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]}),
        ),
        ("limitranges", json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}})),
        ("resourcequotas", json!({"spec": {"hard": {"pods": "10", "limits.cpu": "2000m"}}})),
        (
            "persistentvolumes",
            json!({"spec": {"capacity": {"storage": "1024Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}}),
        ),
        (
            "persistentvolumeclaims",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        ("storageclasses", json!({"provisioner": "example.com/x"})),
        (
            "volumeattachments",
            json!({"spec": {"attacher": "a", "nodeName": "n1", "source": {"persistentVolumeName": "pv"}}}),
        ),
        (
            "ingresses",
            json!({"spec": {"rules": [{"http": {"paths": [{"path": "/", "pathType": "Prefix",
            "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}}),
        ),
        ("ingressclasses", json!({"spec": {"controller": "example.com/x"}})),
        ("networkpolicies", json!({"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}})),
        ("roles", json!({"rules": rule})),
        ("clusterroles", json!({"rules": rule})),
        (
            "rolebindings",
            json!({"roleRef": {"apiGroup": group, "kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]}),
        ),
        (
            "clusterrolebindings",
            json!({"roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "u", "namespace": "a"}]}),
        ),
        (
            "certificatesigningrequests",
            json!({"spec": {"request": csr, "signerName": "example.com/x", "usages": ["client auth"]}}),
        ),
        ("priorityclasses", json!({"value": 5})),
    ]
}

pub(super) fn row(plural: &str) -> &'static Resource {
    ALL.iter().copied().find(|row| row.plural == plural).unwrap()
}

pub(super) fn path_of(row: &Resource) -> String {
    let base = if row.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/v1", row.group) };
    if row.namespaced { format!("{base}/namespaces/a/{}", row.plural) } else { format!("{base}/{}", row.plural) }
}

async fn made(server: &Server, plural: &str, mut object: Value) -> super::Answer {
    object["metadata"] = json!({"name": "x"});
    server.post(&path_of(row(plural)), object).await
}

#[tokio::test]
async fn every_kind_is_made_shown_and_deleted() {
    let server = Server::start().await;
    for (plural, object) in samples() {
        let row = row(plural);
        let answer = made(&server, plural, object).await;
        assert_eq!(answer.code, StatusCode::CREATED, "{plural}: {}", answer.body);
        assert_eq!(answer.body["kind"], row.kind);
        // What was made is what an update without a change makes: defaults are stable.
        let path = format!("{}/x", path_of(row));
        let again = server.put(&path, answer.body.clone()).await;
        assert_eq!(again.code, StatusCode::OK, "{plural}: {}", again.body);
        assert_eq!(again.body, answer.body, "{plural}");
        let table = server
            .send(Method::GET, &path_of(row), &[("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")], "")
            .await
            .body;
        let (columns, cells) = (&table["columnDefinitions"], &table["rows"][0]["cells"]);
        assert_eq!(columns.as_array().unwrap().len(), cells.as_array().unwrap().len(), "{plural}");
        assert_eq!(cells[0], "x");
        let gone = server.delete(&path, Value::Null).await;
        assert_eq!(gone.code, StatusCode::OK, "{plural}: {}", gone.body);
    }
}

#[tokio::test]
async fn a_status_is_written_through_its_own_path_only() {
    let server = Server::start().await;
    for (plural, object) in samples().into_iter().filter(|(plural, _)| row(plural).has_status) {
        let mut sent = object.clone();
        sent["status"] = json!({"observedGeneration": 7});
        let answer = made(&server, plural, sent.clone()).await;
        assert_eq!(answer.code, StatusCode::CREATED, "{plural}: {}", answer.body);
        assert_ne!(answer.body["status"]["observedGeneration"], 7, "{plural}");
        let path = format!("{}/x", path_of(row(plural)));
        let patch =
            json!({"metadata": {"labels": {"seen": "yes"}}, "status": {"conditions": []}, "spec": {"bogus": 1}});
        let answer = server.patch("merge-patch", &format!("{path}/status"), patch).await;
        assert_eq!(answer.code, StatusCode::OK, "{plural}: {}", answer.body);
        assert_eq!(answer.body["metadata"]["labels"]["seen"], "yes", "{plural}");
        assert_eq!(answer.body["spec"].get("bogus"), None, "{plural}");
    }
}

/// What must be refused, and how the message ends.
const REFUSED: &[(&str, &str, &str, &str)] = &[
    ("deployments", "/spec/replicas", "-1", "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
    (
        "deployments",
        "/spec/selector",
        "{}",
        "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
    ),
    (
        "deployments",
        "/spec/template/spec/containers/0/image",
        "\"\"",
        "spec.template.spec.containers[0].image: Required value",
    ),
    (
        "deployments",
        "/spec/template/spec/restartPolicy",
        "\"Never\"",
        "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
    ),
    (
        "jobs",
        "/spec/template/spec/restartPolicy",
        "\"Always\"",
        "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
    ),
    (
        "cronjobs",
        "/spec/schedule",
        "\"x\"",
        "spec.schedule: Invalid value: \"x\": expected exactly 5 fields, found 1: [x]",
    ),
    (
        "persistentvolumeclaims",
        "/spec/accessModes",
        "[]",
        "spec.accessModes: Required value: at least 1 access mode is required",
    ),
    ("persistentvolumes", "/spec/hostPath", "null", "spec: Required value: must specify a volume type"),
    ("storageclasses", "/provisioner", "\"\"", "provisioner: Required value"),
    (
        "poddisruptionbudgets",
        "/spec/minAvailable",
        "-1",
        "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "rolebindings",
        "/roleRef/kind",
        "\"X\"",
        "roleRef.kind: Unsupported value: \"X\": supported values: \"ClusterRole\", \"Role\"",
    ),
    ("roles", "/rules/0/verbs", "[]", "rules[0].verbs: Required value: verbs must contain at least one value"),
    (
        "ingresses",
        "/spec/rules/0/http/paths/0/pathType",
        "null",
        "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
    ),
    (
        "priorityclasses",
        "/value",
        "1000000001",
        "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
    ),
];

#[tokio::test]
async fn broken_rules_are_told_with_path_and_words() {
    let server = Server::start().await;
    for (plural, pointer, value, message) in REFUSED {
        let (_, mut object) = samples().into_iter().find(|(own, _)| own == plural).unwrap();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let value: Value = serde_json::from_str(value).unwrap();
        match object.pointer_mut(parent).unwrap() {
            Value::Array(items) => items[field.parse::<usize>().unwrap()] = value,
            map => map[field] = value,
        }
        let answer = made(&server, plural, object).await;
        assert_eq!(answer.code, StatusCode::UNPROCESSABLE_ENTITY, "{plural} {pointer}: {}", answer.body);
        let text = answer.body["message"].as_str().unwrap();
        assert!(text.contains(message), "{plural} {pointer}:\n got {text}\nwant {message}");
    }
}

/// Changes that must be refused.
const FROZEN: &[(&str, &str, &str)] = &[
    ("deployments", r#"{"spec": {"selector": {"matchLabels": {"b": "c"}}}}"#, "spec.selector"),
    ("statefulsets", r#"{"spec": {"serviceName": "other"}}"#, "updates to statefulset spec for fields other than"),
    ("jobs", r#"{"spec": {"completions": 9}}"#, "spec.completions"),
    ("storageclasses", r#"{"provisioner": "other"}"#, "updates to provisioner are forbidden."),
    ("persistentvolumeclaims", r#"{"spec": {"accessModes": ["ReadOnlyMany"]}}"#, "spec is immutable after creation"),
    ("persistentvolumes", r#"{"spec": {"hostPath": {"path": "/y"}}}"#, "is immutable after creation"),
    ("rolebindings", r#"{"roleRef": {"name": "other"}}"#, "cannot change roleRef"),
    ("volumeattachments", r#"{"spec": {"nodeName": "other"}}"#, "field is immutable"),
    ("controllerrevisions", r#"{"data": {"a": 2}}"#, "field is immutable"),
    ("ingressclasses", r#"{"spec": {"controller": "example.com/y"}}"#, "field is immutable"),
    ("endpointslices", r#"{"addressType": "IPv6"}"#, "field is immutable"),
];

#[tokio::test]
async fn what_may_not_change_does_not() {
    let server = Server::start().await;
    for (plural, object) in samples() {
        made(&server, plural, object).await;
    }
    for (plural, patch, message) in FROZEN {
        let path = format!("{}/x", path_of(row(plural)));
        let answer = server.patch("merge-patch", &path, serde_json::from_str(patch).unwrap()).await;
        assert_eq!(answer.code, StatusCode::UNPROCESSABLE_ENTITY, "{plural}: {}", answer.body);
        assert!(answer.body["message"].as_str().unwrap().contains(message), "{plural}: {}", answer.body);
    }
}

#[tokio::test]
async fn workloads_are_scaled_through_their_scale() {
    let server = Server::start().await;
    for plural in ["deployments", "replicasets", "statefulsets", "replicationcontrollers"] {
        let (_, object) = samples().into_iter().find(|(own, _)| *own == plural).unwrap();
        made(&server, plural, object).await;
        let path = format!("{}/x", path_of(row(plural)));
        let scale = server.get(&format!("{path}/scale")).await.body;
        assert_eq!(scale["spec"]["replicas"], 1, "{plural}");
        assert_eq!(scale["status"]["selector"], "app=x", "{plural}");
        let answer = server.patch("merge-patch", &format!("{path}/scale"), json!({"spec": {"replicas": 3}})).await;
        assert_eq!(answer.body["spec"]["replicas"], 3, "{plural}: {}", answer.body);
        let object = server.get(&path).await.body;
        assert_eq!(object["spec"]["replicas"], 3, "{plural}");
        assert_eq!(object["metadata"]["generation"], 2, "{plural}");
        let stale = server.put(&format!("{path}/scale"), scale).await;
        assert_eq!(stale.code, StatusCode::CONFLICT, "{plural}: {}", stale.body);
    }
}

#[tokio::test]
async fn events_have_two_faces() {
    let server = Server::start().await;
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Test",
        "reportingController": "example.com/x", "reportingInstance": "i", "reason": "Because", "type": "Normal",
        "note": "hello", "regarding": {"kind": "Pod", "namespace": "a", "name": "p"}});
    let new = "/apis/events.k8s.io/v1/namespaces/a/events";
    let answer = server.post(new, event.clone()).await;
    assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.body);
    assert_eq!(answer.body["note"], "hello");
    assert_eq!(answer.body["apiVersion"], "events.k8s.io/v1");
    let old = server.get("/api/v1/namespaces/a/events/e").await.body;
    assert_eq!((&old["message"], &old["involvedObject"]["name"]), (&json!("hello"), &json!("p")));
    assert_eq!(old["reportingComponent"], "example.com/x");
    let patch = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    let answer = server.patch("strategic-merge-patch", &format!("{new}/e"), patch).await;
    assert_eq!(answer.body["series"]["count"], 2, "{}", answer.body);
    assert_eq!(answer.body["note"], "hello");
    let list = server.get(&format!("{new}?fieldSelector=regarding.name%3Dp")).await.body;
    assert_eq!(list["items"][0]["regarding"]["name"], "p");
    assert_eq!(list["kind"], "EventList");
    let mut bad = event;
    bad["metadata"]["name"] = json!("f");
    bad["action"] = json!("");
    let answer = server.post(new, bad).await;
    assert!(answer.body["message"].as_str().unwrap().contains("action: Required value"), "{}", answer.body);
    assert_eq!(server.delete(&format!("{new}/e"), Value::Null).await.code, StatusCode::OK);
    assert_eq!(server.get("/api/v1/namespaces/a/events/e").await.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_decision_about_a_certificate_stands() {
    let server = Server::start().await;
    let (_, object) = samples().into_iter().find(|(own, _)| *own == "certificatesigningrequests").unwrap();
    let made = made(&server, "certificatesigningrequests", object).await.body;
    assert_eq!(made["spec"]["username"], "admin");
    assert_eq!(made["spec"]["groups"], json!(["system:masters"]));
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests/x";
    let decide = |kind: &str| json!({"status": {"conditions": [{"type": kind, "status": "True", "reason": "r"}]}});
    let answer = server.patch("merge-patch", path, decide("Approved")).await;
    assert_eq!(answer.body["status"], json!({}), "the main path decides nothing");
    let answer = server.patch("merge-patch", &format!("{path}/status"), decide("Approved")).await;
    assert_eq!(answer.body["status"], json!({}), "nor does the status, which takes no right on the signer");
    let answer = server.patch("merge-patch", &format!("{path}/approval"), decide("Approved")).await;
    assert_eq!(answer.code, StatusCode::OK, "{}", answer.body);
    assert_eq!(answer.body["status"]["conditions"][0]["lastUpdateTime"], "2026-01-01T00:00:00Z");
    let failed = json!({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "r"}]}});
    let answer = server.patch("merge-patch", &format!("{path}/status"), failed).await;
    let kinds: Vec<&Value> =
        answer.body["status"]["conditions"].as_array().unwrap().iter().map(|own| &own["type"]).collect();
    assert_eq!(kinds, ["Approved", "Failed"], "a status takes no decision back");
    let answer = server.patch("merge-patch", &format!("{path}/approval"), decide("Denied")).await;
    assert_eq!(answer.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.body);
}
