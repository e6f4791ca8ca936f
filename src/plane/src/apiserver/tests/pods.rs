//! What pods get at birth, who may change what, and how they go.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Server, pod};

const PODS: &str = "/api/v1/namespaces/a/pods";

async fn as_node(server: &Server, method: Method, path: &str, media: &str, body: &Value) -> super::Answer {
    let headers = [("user", "system:node:n1"), ("content-type", media)];
    server.send(method, path, &headers, &body.to_string()).await
}

#[tokio::test]
async fn a_pod_is_born_like_a_stock_one() {
    let server = Server::start().await;
    let mut sent = pod("p", "n1");
    sent["status"] = json!({"phase": "Running", "qosClass": "Guaranteed"});
    let made = server.post(PODS, sent).await.body;
    assert_eq!(made["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    assert_eq!(made["metadata"]["generation"], 1);
    let spec = &made["spec"];
    assert_eq!((&spec["priority"], &spec["serviceAccount"]), (&json!(0), &json!("default")));
    let volume = &spec["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == 21, "{name}");
    assert_eq!(
        spec["containers"][0]["volumeMounts"],
        json!([{"name": name, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}])
    );
    assert_eq!(
        volume["projected"],
        json!({"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace",
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]})
    );
    // Sent again as stored, nothing is added twice.
    let again = server.put(&format!("{PODS}/p"), made.clone()).await.body;
    assert_eq!(again, made);
}

#[tokio::test]
async fn accounts_classes_and_runtime_classes_must_be_there() {
    let server = Server::start().await;
    for (field, value, want) in [
        ("serviceAccountName", "none", "error looking up service account a/none: serviceaccount \"none\" not found"),
        ("priorityClassName", "none", "no PriorityClass with name none was found"),
        ("runtimeClassName", "none", "RuntimeClass \"none\" not found"),
    ] {
        let mut sent = pod("p", "");
        sent["spec"][field] = json!(value);
        let answer = server.post(PODS, sent).await;
        assert_eq!(answer.code, StatusCode::FORBIDDEN);
        assert!(answer.body["message"].as_str().unwrap().contains(want), "{answer:?}");
    }
    let mut sent = pod("p", "");
    sent["spec"]["priorityClassName"] = json!("system-node-critical");
    assert_eq!(server.post(PODS, sent).await.body["spec"]["priority"], 2_000_001_000);
}

#[tokio::test]
async fn a_runtime_class_brings_its_overhead_selector_and_tolerations() {
    let server = Server::start().await;
    let class = json!({"metadata": {"name": "vm"}, "handler": "kata", "overhead": {"podFixed": {"memory": "64Mi"}},
        "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}});
    assert_eq!(server.post("/apis/node.k8s.io/v1/runtimeclasses", class).await.code, StatusCode::CREATED);
    let mut sent = pod("p", "");
    sent["spec"]["runtimeClassName"] = json!("vm");
    let made = server.post(PODS, sent).await.body;
    assert_eq!(made["spec"]["overhead"], json!({"memory": "64Mi"}));
    assert_eq!(made["spec"]["nodeSelector"], json!({"vm": "yes"}));
    assert!(made["spec"]["tolerations"].as_array().unwrap().contains(&json!({"key": "vm", "operator": "Exists"})));
}

#[tokio::test]
async fn guests_are_added_through_their_own_path_and_never_changed_or_removed() {
    let server = Server::start().await;
    let mut born = pod("p", "n1");
    born["spec"]["ephemeralContainers"] = json!([{"name": "dbg", "image": "i"}]);
    let answer = server.post(PODS, born).await;
    let message = answer.body["message"].as_str().unwrap();
    assert!(message.contains("spec.ephemeralContainers: Forbidden: cannot be set on create"), "{message}");
    server.post(PODS, pod("p", "n1")).await;
    let path = format!("{PODS}/p/ephemeralcontainers");
    let put = async |guests: Value| {
        let mut sent = server.get(&format!("{PODS}/p")).await.body;
        sent["spec"]["ephemeralContainers"] = guests;
        // What else is sent along does not count.
        sent["spec"]["priority"] = json!(7);
        server.put(&path, sent).await
    };
    let first = json!({"name": "dbg", "image": "i"});
    let stored = put(json!([first])).await.body;
    assert_eq!((&stored["spec"]["priority"], &stored["metadata"]["generation"]), (&json!(0), &json!(2)));
    let guest = stored["spec"]["ephemeralContainers"][0].clone();
    assert_eq!(guest["terminationMessagePath"], "/dev/termination-log");
    for (guests, want) in [
        (json!([]), "existing ephemeral containers \"dbg\" may not be removed"),
        (json!([{"name": "dbg", "image": "other"}]), "existing ephemeral containers \"dbg\" may not be changed"),
        (json!([guest, {"name": "dbg", "image": "i"}]), "Duplicate value: \"dbg\""),
        (
            json!([guest, {"name": "two", "image": "i", "targetContainerName": "none"}]),
            "spec.ephemeralContainers[1].targetContainerName: Not found: \"none\"",
        ),
        (
            json!([guest, {"name": "two", "image": "i", "readinessProbe": {"tcpSocket": {"port": 1}}}]),
            "cannot be set for an Ephemeral Container",
        ),
    ] {
        let answer = put(guests).await;
        assert_eq!(answer.code, StatusCode::UNPROCESSABLE_ENTITY, "{want}");
        assert!(answer.body["message"].as_str().unwrap().contains(want), "{want}: {}", answer.body["message"]);
    }
    let both = put(json!([guest, {"name": "two", "image": "i"}])).await;
    assert_eq!(both.body["spec"]["ephemeralContainers"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn grace_only_shrinks_and_ends_at_once_where_nothing_runs() {
    let server = Server::start().await;
    server.post(PODS, pod("run", "n1")).await;
    let path = format!("{PODS}/run");
    let first = server.delete(&path, Value::Null).await.body;
    assert_eq!(first["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(first["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    assert_eq!(first["metadata"]["generation"], 2);
    let shorter = server.delete(&path, json!({"gracePeriodSeconds": 4})).await.body;
    assert_eq!(shorter["metadata"]["deletionTimestamp"], "2026-01-01T00:00:04Z");
    for longer in [json!({"gracePeriodSeconds": 60}), Value::Null] {
        assert_eq!(server.delete(&path, longer).await.body["metadata"]["deletionGracePeriodSeconds"], 4);
    }
    assert_eq!(server.delete(&format!("{path}?gracePeriodSeconds=0"), Value::Null).await.code, StatusCode::OK);
    assert_eq!(server.get(&path).await.code, StatusCode::NOT_FOUND);

    server.post(PODS, pod("unscheduled", "")).await;
    server.delete(&format!("{PODS}/unscheduled"), Value::Null).await;
    assert_eq!(server.get(&format!("{PODS}/unscheduled")).await.code, StatusCode::NOT_FOUND);

    server.post(PODS, pod("over", "n1")).await;
    let done = json!({"status": {"phase": "Succeeded"}});
    server.patch("strategic-merge-patch", &format!("{PODS}/over/status"), done).await;
    server.delete(&format!("{PODS}/over"), Value::Null).await;
    assert_eq!(server.get(&format!("{PODS}/over")).await.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_held_pod_stays_after_its_grace_until_the_last_finalizer_goes() {
    let server = Server::start().await;
    let mut sent = pod("p", "n1");
    sent["metadata"]["finalizers"] = json!(["x.io/hold"]);
    server.post(PODS, sent).await;
    let path = format!("{PODS}/p");
    server.delete(&path, Value::Null).await;
    // While it still has grace, the last finalizer does not end it: the agent does.
    server.patch("merge-patch", &path, json!({"metadata": {"finalizers": ["x.io/hold", ]}})).await;
    server.delete(&path, json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(server.get(&path).await.body["metadata"]["deletionGracePeriodSeconds"], 0);
    server.patch("merge-patch", &path, json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(server.get(&path).await.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_node_shows_mirrors_of_its_own_and_nothing_else() {
    let server = Server::start().await;
    let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}});
    let made = as_node(&server, Method::POST, "/api/v1/nodes", "application/json", &node).await;
    assert_eq!(made.code, StatusCode::CREATED);
    let owned =
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "u"}]}});
    for path in ["/api/v1/nodes/n1", "/api/v1/nodes/n1/status"] {
        let refused = as_node(&server, Method::PATCH, path, "application/merge-patch+json", &owned).await;
        assert_eq!(refused.code, StatusCode::FORBIDDEN, "{}", refused.body);
        assert!(refused.body["message"].as_str().unwrap().contains("not allowed to modify ownerReferences"));
    }
    let other = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n2"}});
    let refused = as_node(&server, Method::POST, "/api/v1/nodes", "application/json", &other).await;
    assert_eq!(refused.code, StatusCode::FORBIDDEN);

    let mut mirror = pod("static-n1", "n1");
    let create = |pod: Value| {
        let server = &server;
        async move { as_node(server, Method::POST, PODS, "application/json", &pod).await }
    };
    let refused = create(mirror.clone()).await;
    assert!(refused.body["message"].as_str().unwrap().contains("can only create mirror pods"), "{refused:?}");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    assert_eq!(create(mirror.clone()).await.code, StatusCode::FORBIDDEN);
    mirror["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": "n1",
        "controller": true, "uid": made.body["metadata"]["uid"]}]);
    let stored = create(mirror.clone()).await;
    assert_eq!(stored.code, StatusCode::CREATED, "{stored:?}");
    assert!(stored.body["spec"].get("volumes").is_none(), "a mirror gets no token");
    assert!(stored.body["spec"].get("serviceAccountName").is_none());
    mirror["spec"]["nodeName"] = json!("n2");
    mirror["metadata"]["name"] = json!("static-n2");
    assert_eq!(create(mirror).await.code, StatusCode::FORBIDDEN);

    let status = json!({"status": {"phase": "Running"}});
    let media = "application/strategic-merge-patch+json";
    let path = format!("{PODS}/static-n1/status");
    assert_eq!(as_node(&server, Method::PATCH, &path, media, &status).await.code, StatusCode::OK);
    server.post(PODS, pod("theirs", "n2")).await;
    let path = format!("{PODS}/theirs/status");
    assert_eq!(as_node(&server, Method::PATCH, &path, media, &status).await.code, StatusCode::FORBIDDEN);
    let path = format!("{PODS}/theirs");
    let now = json!({"gracePeriodSeconds": 0});
    let refused = as_node(&server, Method::DELETE, &path, "application/json", &now).await;
    assert_eq!(refused.code, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn ephemeral_containers_have_a_path_of_their_own() {
    let server = Server::start().await;
    server.post(PODS, pod("p", "n1")).await;
    let ephemeral = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}],
        "containers": [{"name": "c", "image": "sneaky"}]}});
    let path = format!("{PODS}/p/ephemeralcontainers");
    let mut ephemeral = ephemeral;
    ephemeral["metadata"] =
        json!({"labels": {"app": "y"}, "finalizers": ["example.com/stay"], "annotations": {"a": "b"}});
    let changed = server.patch("strategic-merge-patch", &path, ephemeral.clone()).await.body;
    assert_eq!(changed["metadata"]["labels"], json!({"app": "x"}));
    assert!(changed["metadata"]["finalizers"].is_null() && changed["metadata"]["annotations"].is_null());
    assert_eq!(changed["spec"]["ephemeralContainers"][0]["name"], "debug");
    assert_eq!(changed["spec"]["containers"][0]["image"], "i:1");
    assert_eq!(changed["metadata"]["generation"], 2);
    let main =
        server.patch("strategic-merge-patch", &format!("{PODS}/p"), json!({"spec": {"hostNetwork": true}})).await;
    assert_eq!(main.code, StatusCode::UNPROCESSABLE_ENTITY);
}

fn sized(name: &str, resources: Value) -> Value {
    let mut sent = pod(name, "n1");
    sent["spec"]["containers"][0]["resources"] = resources;
    sent
}

#[tokio::test]
async fn sizes_are_changed_through_their_own_path_and_nothing_else_is() {
    let server = Server::start().await;
    server.post(PODS, sized("p", json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}))).await;
    let more = json!({"spec": {"containers": [{"name": "c", "image": "sneaky", "resources": {
        "requests": {"cpu": "0.15", "memory": "32Mi"}, "limits": {"cpu": "300m"}}}]}});
    let main = server.patch("strategic-merge-patch", &format!("{PODS}/p"), more.clone()).await;
    assert_eq!(main.code, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(main.body["message"].as_str().unwrap().contains("pod updates may not change fields other than"));
    let path = format!("{PODS}/p/resize");
    let resized = server.patch("strategic-merge-patch", &path, more).await.body;
    let container = &resized["spec"]["containers"][0];
    assert_eq!(
        container["resources"],
        json!({"requests": {"cpu": "150m", "memory": "32Mi"}, "limits": {"cpu": "300m"}})
    );
    assert_eq!((&container["image"], &resized["metadata"]["generation"]), (&json!("i:1"), &json!(2)));
    assert_eq!(resized["status"]["qosClass"], "Burstable");
    assert_eq!(server.get(&path).await.body, resized);
    // The same again is no change.
    let again = server.put(&path, resized.clone()).await.body;
    assert_eq!(again, resized);
}

#[tokio::test]
async fn a_resize_is_refused_with_the_stock_words() {
    let server = Server::start().await;
    let both = json!({"cpu": "1", "memory": "1Gi"});
    server.post(PODS, sized("g", json!({"requests": both, "limits": both}))).await;
    let mut burstable = sized("b", json!({"requests": {"cpu": "100m", "memory": "1Mi"}, "limits": {"memory": "2Mi"}}));
    burstable["spec"]["initContainers"] = json!([{"name": "i", "image": "i:1",
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]);
    server.post(PODS, burstable).await;
    server.post(PODS, pod("e", "n1")).await;
    let mut whole = pod("w", "n1");
    whole["spec"]["resources"] = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    server.post(PODS, whole).await;
    let one = |resources: Value| json!({"containers": [{"name": "c", "resources": resources}]});
    for (name, spec, want) in [
        (
            "g",
            one(json!({"requests": {"cpu": "500m"}})),
            "spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing",
        ),
        ("e", one(json!({"requests": {"cpu": "1"}})), "Pod QOS Class may not change as a result of resizing"),
        (
            "b",
            one(json!({"limits": {"memory": null}})),
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
        ),
        (
            "b",
            one(json!({"requests": {"cpu": null}})),
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ),
        (
            "b",
            one(json!({"limits": {"ephemeral-storage": "1Gi"}})),
            "spec: Forbidden: only cpu and memory resources are mutable",
        ),
        ("b", one(json!({"requests": {"memory": "3Mi"}})), "must be less than or equal to memory limit of 2Mi"),
        (
            "b",
            json!({"containers": [{"name": "c", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]}]}),
            "spec: Forbidden: only cpu and memory resources are mutable",
        ),
        (
            "b",
            json!({"containers": [{"name": "new", "image": "i:1"}]}),
            "spec.containers: Forbidden: containers may not be added or removed on resize",
        ),
        (
            "b",
            json!({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}]}),
            "non-sidecar init containers with a resize policy of RestartContainer cannot be resized",
        ),
        (
            "w",
            json!({"resources": {"limits": {"memory": null}}}),
            "spec.resources.limits: Forbidden: pod-level resource limits cannot be removed",
        ),
        ("w", json!({"resources": null}), "spec.resources: Forbidden: pod-level resources cannot be removed"),
    ] {
        let answer =
            server.patch("strategic-merge-patch", &format!("{PODS}/{name}/resize"), json!({"spec": spec})).await;
        assert_eq!(answer.code, StatusCode::UNPROCESSABLE_ENTITY, "{name} {spec}: {}", answer.body);
        let message = answer.body["message"].as_str().unwrap();
        assert!(message.contains(want), "{name} {spec}\n got {message}\nwant {want}");
    }
    let larger = json!({"spec": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}});
    let resized = server.patch("strategic-merge-patch", &format!("{PODS}/w/resize"), larger).await.body;
    assert_eq!(resized["spec"]["resources"]["limits"], json!({"cpu": "2", "memory": "1Gi"}));
}

#[tokio::test]
async fn mirrors_and_pods_on_nodes_that_show_no_sizes_are_not_resized() {
    let server = Server::start().await;
    let size = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}});
    server.post(PODS, sized("old", json!({"requests": {"cpu": "1"}}))).await;
    let status = json!({"status": {"phase": "Running", "containerStatuses": [{"name": "c", "image": "i", "imageID": "i",
        "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}});
    server.patch("strategic-merge-patch", &format!("{PODS}/old/status"), status).await;
    let answer = server.patch("strategic-merge-patch", &format!("{PODS}/old/resize"), size.clone()).await;
    assert!(answer.body["message"].as_str().unwrap().contains("Pod running on node without support for resize"));
    let mut mirror = sized("static-n1", json!({"requests": {"cpu": "1"}}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    let made = server.post(PODS, mirror).await;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.body);
    let answer = server.patch("strategic-merge-patch", &format!("{PODS}/static-n1/resize"), size).await;
    assert!(answer.body["message"].as_str().unwrap().contains("static pods cannot be resized"), "{}", answer.body);
}

#[tokio::test]
async fn eviction_deletes_and_connections_are_passed_on() {
    let server = Server::start().await;
    server.post(PODS, pod("p", "n1")).await;
    let log = server.get(&format!("{PODS}/p/log")).await;
    assert_eq!(log.body, json!("p/log"));
    assert_eq!(server.get(&format!("{PODS}/none/log")).await.code, StatusCode::NOT_FOUND);
    // A WebSocket begins with a GET: to read is not enough for it.
    for (subresource, upgrade, code) in [
        ("exec", "websocket", StatusCode::FORBIDDEN),
        ("attach", "WebSocket", StatusCode::FORBIDDEN),
        ("portforward", "websocket", StatusCode::FORBIDDEN),
        ("exec", "SPDY/3.1", StatusCode::OK),
        ("log", "websocket", StatusCode::OK),
    ] {
        let headers = [("user", "reader"), ("connection", "upgrade"), ("upgrade", upgrade)];
        let answer = server.send(Method::GET, &format!("{PODS}/p/{subresource}"), &headers, "").await;
        assert_eq!(answer.code, code, "{subresource} {upgrade}: {}", answer.body);
    }
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    assert_eq!(server.post(&format!("{PODS}/p/eviction"), eviction).await.code, StatusCode::CREATED);
    assert!(server.get(&format!("{PODS}/p")).await.body["metadata"].get("deletionTimestamp").is_some());
}
