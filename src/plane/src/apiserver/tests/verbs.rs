//! Each verb's rules on simple kinds.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Server, config_map};
use crate::apiserver::resources::ALL;
use crate::apiserver::server::{Api, ApiLimits};

const MAPS: &str = "/api/v1/namespaces/a/configmaps";

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn unknown_fields_and_nulls_go() {
    let server = Server::start().await;
    let mut object = config_map("m");
    object["fromTheFuture"] = json!({"deep": [1, {"x": true}]});
    object["metadata"]["annotations"] = json!({"k": "v"});
    object["metadata"]["creationTimestamp"] = Value::Null;
    let made = server.post(MAPS, object).await;
    assert_eq!(made.code, StatusCode::CREATED);
    assert!(made.body.get("fromTheFuture").is_none());
    assert_eq!(made.body["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    let patched = server.patch("merge-patch", &format!("{MAPS}/m"), json!({"data": {"b": "2"}, "later": 1})).await;
    assert!(patched.body.get("later").is_none());
    assert!(patched.body["metadata"].get("generation").is_none());
}

#[tokio::test]
async fn an_update_that_changes_nothing_writes_nothing() {
    let server = Server::start().await;
    let made = server.post(MAPS, config_map("m")).await.body;
    let again = server.put(&format!("{MAPS}/m"), made.clone()).await;
    assert_eq!(again.body["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    let patched = server.patch("merge-patch", &format!("{MAPS}/m"), json!({"data": {"a": "1"}})).await;
    assert_eq!(patched.body["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn a_patch_with_a_stale_version_is_refused_and_one_without_never_is() {
    let server = Server::start().await;
    let made = server.post(MAPS, config_map("m")).await.body;
    let stale = json!({"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "2"}});
    assert_eq!(server.patch("merge-patch", &format!("{MAPS}/m"), stale.clone()).await.code, StatusCode::OK);
    let late = server.patch("merge-patch", &format!("{MAPS}/m"), stale).await;
    assert_eq!((late.code, late.body["reason"].as_str()), (StatusCode::CONFLICT, Some("Conflict")));
}

#[tokio::test]
async fn lists_select_by_labels_and_fields_and_page() {
    let server = Server::start().await;
    for (name, tier) in [("one", "x"), ("two", "y"), ("three", "x"), ("four", "z")] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"tier": tier});
        server.post(MAPS, object).await;
    }
    let list = server.get(&format!("{MAPS}?labelSelector=tier%20in%20(x,z)")).await.body;
    assert_eq!(names(&list), ["four", "one", "three"]);
    let list = server.get(&format!("{MAPS}?labelSelector=tier!%3Dx&fieldSelector=metadata.name%3Dtwo")).await.body;
    assert_eq!(names(&list), ["two"]);
    let list = server.get("/api/v1/configmaps?fieldSelector=metadata.namespace%3Da,metadata.name!%3Done").await.body;
    assert_eq!(names(&list), ["four", "three", "two"]);
    // Pages with a filter: no count of what remains, but all of it in the end.
    let mut page = String::new();
    let mut found = Vec::new();
    loop {
        let list = server.get(&format!("{MAPS}?limit=1&labelSelector=tier%3Dx&continue={page}")).await.body;
        found.extend(names(&list).into_iter().map(str::to_owned));
        assert!(list["metadata"].get("remainingItemCount").is_none());
        match list["metadata"]["continue"].as_str() {
            Some(next) => next.clone_into(&mut page),
            None => break,
        }
    }
    assert_eq!(found, ["one", "three"]);
    // A page shows the moment of the first one.
    let first = server.get(&format!("{MAPS}?limit=2")).await.body;
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    server.post(MAPS, config_map("oz")).await;
    let next = first["metadata"]["continue"].as_str().unwrap();
    let second = server.get(&format!("{MAPS}?limit=9&continue={next}")).await.body;
    assert_eq!(names(&second), ["three", "two"]);
    let bad = server.get(&format!("{MAPS}?continue=nonsense")).await;
    assert_eq!(bad.code, StatusCode::BAD_REQUEST);
    let elsewhere = server.get(&format!("/api/v1/namespaces/a/secrets?continue={next}")).await;
    assert_eq!(elsewhere.code, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn deletion_heeds_preconditions_and_finalizers() {
    let server = Server::start().await;
    let mut object = config_map("m");
    object["metadata"]["finalizers"] = json!(["x.io/hold"]);
    let made = server.post(MAPS, object).await.body;
    let path = format!("{MAPS}/m");
    let wrong = server.delete(&path, json!({"preconditions": {"resourceVersion": "1"}})).await;
    assert_eq!(wrong.code, StatusCode::CONFLICT);
    let uid = &made["metadata"]["uid"];
    let waits = server.delete(&path, json!({"preconditions": {"uid": uid}})).await;
    assert_eq!((waits.code, waits.body["kind"].as_str()), (StatusCode::OK, Some("ConfigMap")));
    assert_eq!(waits.body["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    // More finalizers may not come, and the mark cannot be taken off.
    let more =
        server.patch("merge-patch", &path, json!({"metadata": {"finalizers": ["x.io/hold", "y.io/hold"]}})).await;
    assert_eq!(more.code, StatusCode::UNPROCESSABLE_ENTITY);
    let unmarked = server.patch("merge-patch", &path, json!({"metadata": {"deletionTimestamp": null}})).await;
    assert_eq!(unmarked.body["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    let freed = server.patch("merge-patch", &path, json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(freed.code, StatusCode::OK);
    assert_eq!(server.get(&path).await.code, StatusCode::NOT_FOUND);
    server.post(MAPS, config_map("m")).await;
    let gone = server.delete(&path, Value::Null).await;
    assert_eq!((gone.body["kind"].as_str(), gone.body["status"].as_str()), (Some("Status"), Some("Success")));
    assert_eq!(gone.body["details"]["kind"], "configmaps");
}

#[tokio::test]
async fn a_collection_is_deleted_by_selection() {
    let server = Server::start().await;
    for (name, tier) in [("one", "x"), ("two", "y"), ("three", "x")] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"tier": tier});
        server.post(MAPS, object).await;
    }
    let deleted = server.delete(&format!("{MAPS}?labelSelector=tier%3Dx"), Value::Null).await;
    assert_eq!(names(&deleted.body), ["one", "three"]);
    assert_eq!(names(&server.get(MAPS).await.body), ["two"]);
    assert_eq!(server.delete("/api/v1/namespaces", Value::Null).await.code, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn a_namespace_goes_when_it_has_been_emptied() {
    let server = Server::start().await;
    let going = server.delete("/api/v1/namespaces/a", Value::Null).await;
    assert_eq!(going.body["status"]["phase"], "Terminating");
    let refused = server.post(MAPS, config_map("m")).await;
    assert_eq!(refused.code, StatusCode::FORBIDDEN);
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(server.delete("/api/v1/namespaces/a", Value::Null).await.code, StatusCode::CONFLICT);
    let mut object = server.get("/api/v1/namespaces/a").await.body;
    // An ordinary update cannot take the finalizer off.
    object["spec"] = json!({"finalizers": []});
    let kept = server.put("/api/v1/namespaces/a", object.clone()).await;
    assert_eq!(kept.body["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(server.put("/api/v1/namespaces/a/finalize", object).await.code, StatusCode::OK);
    assert_eq!(server.get("/api/v1/namespaces/a").await.code, StatusCode::NOT_FOUND);
    assert_eq!(server.delete("/api/v1/namespaces/default", Value::Null).await.code, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn yaml_goes_in_and_out() {
    let server = Server::start().await;
    let yaml = "kind: ConfigMap\nmetadata: {name: yam}\ndata:\n  mode: '0644'\n";
    let made = server.send(Method::POST, MAPS, &[("content-type", "application/yaml")], yaml).await;
    assert_eq!(made.code, StatusCode::CREATED, "{:?}", made.body);
    let path = format!("{MAPS}/yam");
    let text = server.send(Method::GET, &path, &[("accept", "application/yaml")], "").await.body;
    assert!(text.as_str().unwrap().contains("mode: \"0644\""), "{text}");
    let bomb = format!("a: &a [{}]\nkind: *a", "x,".repeat(10));
    let refused = server.send(Method::POST, MAPS, &[("content-type", "application/yaml")], &bomb).await;
    assert_eq!(refused.code, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn the_form_that_a_client_likes_best_is_served() {
    let server = Server::start().await;
    server.post(MAPS, config_map("m")).await;
    for (accept, yaml) in [
        ("application/json;q=0.1, application/yaml", true),
        ("application/yaml;q=0.1,application/json;q=0.9", false),
        ("*/*, application/yaml", true),
        ("application/yaml;q=0, */*;q=0.1", false),
        ("application/xml, application/json;q=0.5", false),
    ] {
        let answer = server.send(Method::GET, &format!("{MAPS}/m"), &[("accept", accept)], "").await;
        assert_eq!((answer.code, answer.body.is_string()), (StatusCode::OK, yaml), "{accept}");
    }
    let none = server.send(Method::GET, &format!("{MAPS}/m"), &[("accept", "application/json;q=0")], "").await;
    assert_eq!(none.code, StatusCode::NOT_ACCEPTABLE);
}

#[tokio::test]
async fn hostile_bodies_are_refused_in_words() {
    let server = Server::start().await;
    let json = [("content-type", "application/json")];
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    for body in [deep.as_str(), "", "null", "[]", "{\"metadata\": 3}", "{\"metadata\": {\"labels\": [1]}}", "\u{0}"] {
        let answer = server.send(Method::POST, MAPS, &json, body).await;
        assert!(answer.code.is_client_error(), "{body:.40}: {answer:?}");
        assert_eq!(answer.body["kind"], "Status");
    }
    let big = format!("{{\"data\": {{\"a\": \"{}\"}}}}", "x".repeat(4 << 20));
    assert_eq!(server.send(Method::POST, MAPS, &json, &big).await.code, StatusCode::PAYLOAD_TOO_LARGE);
    let protobuf = [("content-type", "application/vnd.kubernetes.protobuf")];
    assert_eq!(server.send(Method::POST, MAPS, &protobuf, "k8s").await.code, StatusCode::BAD_REQUEST);
    let cbor = [("content-type", "application/cbor")];
    assert_eq!(server.send(Method::POST, MAPS, &cbor, "k8s").await.code, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let mut object = config_map("../../etc/passwd");
    assert_eq!(server.post(MAPS, object.clone()).await.code, StatusCode::UNPROCESSABLE_ENTITY);
    object["metadata"]["name"] = json!("m");
    object["metadata"]["labels"] = json!({"a b": "c"});
    assert_eq!(server.post(MAPS, object).await.code, StatusCode::UNPROCESSABLE_ENTITY);
    for patch in [json!([{"op": "add", "path": "/metadata/name/x", "value": 1}]), json!([{"op": "nope"}]), json!(7)] {
        server.post(MAPS, config_map("p")).await;
        let answer = server.patch("json-patch", &format!("{MAPS}/p"), patch).await;
        assert!(answer.code.is_client_error(), "{answer:?}");
    }
    let replaced = json!([{"op": "replace", "path": "", "value": 5}]);
    assert_eq!(server.patch("json-patch", &format!("{MAPS}/p"), replaced).await.code, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn leases_and_events_are_made_by_updates_and_others_are_not() {
    let server = Server::start().await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"holderIdentity": "me"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/a/leases/l";
    assert_eq!(server.put(path, lease.clone()).await.code, StatusCode::CREATED);
    // Two holders must not write over each other unseen.
    assert_eq!(server.put(path, lease).await.code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(server.put(&format!("{MAPS}/m"), config_map("m")).await.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn services_get_addresses_of_their_own() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/a/services";
    let service = |name: &str, ip: Option<&str>| {
        let mut service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        if let Some(ip) = ip {
            service["spec"]["clusterIP"] = json!(ip);
        }
        service
    };
    let made = server.post(path, service("one", None)).await.body;
    let address: std::net::Ipv4Addr = made["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
    assert_eq!(address.octets()[0], 10);
    assert_eq!(made["spec"]["clusterIPs"], json!([address.to_string()]));
    assert_eq!(made["spec"]["ports"][0]["targetPort"], 80);
    let taken = server.post(path, service("two", Some(&address.to_string()))).await;
    assert_eq!(taken.code, StatusCode::UNPROCESSABLE_ENTITY);
    let outside = server.post(path, service("two", Some("192.168.0.1"))).await;
    assert!(outside.body["message"].as_str().unwrap().contains("10.96.0.0/12"), "{outside:?}");
    assert_eq!(server.post(path, service("api", Some("10.96.0.1"))).await.code, StatusCode::CREATED);
    assert_eq!(server.post(path, service("none", Some("None"))).await.body["spec"]["clusterIPs"], json!(["None"]));
    // An update that leaves the address out keeps it; one that changes it is refused.
    let kept = server.put(&format!("{path}/one"), service("one", None)).await.body;
    assert_eq!(kept["spec"]["clusterIP"], address.to_string());
    let moved = server.put(&format!("{path}/one"), service("one", Some("10.96.0.9"))).await;
    assert_eq!(moved.code, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn secrets_encode_plain_values_and_immutable_ones_stay() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/a/secrets";
    let made = server.post(path, json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}, "immutable": true})).await;
    assert_eq!((&made.body["data"]["k"], &made.body["type"]), (&json!("dg=="), &json!("Opaque")));
    assert!(made.body.get("stringData").is_none());
    let changed = server.patch("merge-patch", &format!("{path}/s"), json!({"stringData": {"k": "w"}})).await;
    assert_eq!(changed.code, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let server = Server::start().await;
    assert_eq!(server.post(&format!("{MAPS}?dryRun=All"), config_map("m")).await.code, StatusCode::CREATED);
    assert_eq!(server.get(&format!("{MAPS}/m")).await.code, StatusCode::NOT_FOUND);
    server.post(MAPS, config_map("m")).await;
    let dry = server.patch("merge-patch", &format!("{MAPS}/m?dryRun=All"), json!({"data": {"a": "9"}})).await;
    assert_eq!(dry.body["data"]["a"], "9");
    server.delete(&format!("{MAPS}/m"), json!({"dryRun": ["All"]})).await;
    assert_eq!(server.get(&format!("{MAPS}/m")).await.body["data"]["a"], "1");
    assert_eq!(server.post(&format!("{MAPS}?dryRun=Some"), config_map("n")).await.code.as_u16(), 422);
}

#[tokio::test]
async fn paths_and_rights_are_checked_before_anything_else() {
    let server = Server::start().await;
    for (path, code) in [
        ("/api/v1/namespaces/a/widgets", 404),
        ("/api/v1/namespaces/a/nodes?watch=1&timeoutSeconds=1", 404),
        ("/api/v1/namespaces/a/namespaces/a", 404),
        ("/apis/apps/v1/machines", 404),
        ("/api/v2/pods", 404),
        ("/nope", 404),
        ("/api/v1/namespaces/a/pods/p/nope", 404),
        ("/healthz", 200),
        ("/readyz?verbose", 200),
        ("/apis", 200),
        ("/apis/storage.k8s.io", 200),
        ("/apis/node.k8s.io/v1", 200),
        ("/openapi/v2", 200),
    ] {
        assert_eq!(server.get(path).await.code.as_u16(), code, "{path}");
    }
    let denied = server.send(Method::GET, MAPS, &[("user", "nobody")], "").await;
    assert_eq!(
        denied.body["message"],
        r#"configmaps is forbidden: User "nobody" cannot list resource "configmaps" in API group "" in the namespace "a""#
    );
}

/// A right in a namespace is none to what lies in no namespace: there is no way there through one.
#[tokio::test]
async fn every_kind_is_only_where_its_scope_has_it() {
    let server = Server::start().await;
    for kind in ALL {
        let root = format!("/{}/{}", if kind.group.is_empty() { "api" } else { "apis" }, kind.api_version());
        let plural = kind.plural;
        let inside = format!("{root}/namespaces/a/{plural}");
        let list = if kind.namespaced { 200 } else { 404 };
        assert_eq!(server.get(&inside).await.code.as_u16(), list, "{inside}");
        let made = server.post(&inside, json!({"metadata": {"name": "x"}})).await.code.as_u16();
        assert_eq!(made == 404, !kind.namespaced, "POST {inside}: {made}");
        let swept = server.delete(&inside, Value::Null).await.code.as_u16();
        assert_eq!(swept == 404, !kind.namespaced, "DELETE {inside}: {swept}");
        let everywhere = format!("{root}/{plural}");
        assert_eq!(server.get(&everywhere).await.code.as_u16(), 200, "{everywhere}");
        if kind.namespaced {
            let made = server.post(&everywhere, json!({"metadata": {"name": "x"}})).await.code.as_u16();
            assert_eq!(made, 405, "POST {everywhere}");
        }
    }
}

#[tokio::test]
async fn a_namespaces_metadata_label_cannot_be_lost() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/a";
    let patch = json!({"metadata": {"labels": {"kubernetes.io/metadata.name": null, "x": "y"}}});
    let patched = server.patch("merge-patch", path, patch).await.body;
    assert_eq!(patched["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "a", "x": "y"}));
}

#[tokio::test]
async fn too_many_requests_at_once_are_told_to_come_again() {
    let server = Server::start().await;
    let limits = ApiLimits { reads: 0, writes: 0, watches: 0, ..ApiLimits::default() };
    let stop = tokio_util::sync::CancellationToken::new();
    let api = Api::new(server.api.registry().clone(), super::open_hooks(), String::new(), limits, None, stop);
    let narrow = Server { api, clock: server.clock };
    assert_eq!(narrow.get("/healthz").await.code, StatusCode::OK, "nobody waits to see whether it is well");
    assert_eq!(narrow.get(MAPS).await.code, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(narrow.post(MAPS, config_map("m")).await.code, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(narrow.get(&format!("{MAPS}?watch=1")).await.code, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_given_up() {
    let server = Server::start().await;
    let body = axum::body::Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    let request = http::Request::builder().method(Method::POST).uri(MAPS).body(body).unwrap();
    assert_eq!(server.raw(request).await.status(), StatusCode::GATEWAY_TIMEOUT);
}
