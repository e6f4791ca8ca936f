//! Server-side apply and the owners of fields over the whole request path.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Answer, Server};

const APPLY: (&str, &str) = ("content-type", "application/apply-patch+yaml");

async fn apply(server: &Server, path: &str, body: &str) -> Answer {
    server.send(Method::PATCH, path, &[APPLY], body).await
}

fn owners(object: &Value) -> Vec<(String, String, String)> {
    let all = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    all.iter().map(|e| (text(e, "manager"), text(e, "operation"), text(e, "subresource"))).collect()
}

const POD: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {nodeName: n1, containers: [{name: c, image: i}]}";

#[tokio::test]
async fn yaml_is_applied_over_nothing_and_again_without_a_change() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/a/pods/p?fieldManager=me";
    let made = apply(&server, path, POD).await;
    assert_eq!(made.code, StatusCode::CREATED, "{:?}", made.body);
    assert_eq!(owners(&made.body), [("me".to_owned(), "Apply".to_owned(), String::new())]);
    let want = json!({"f:spec": {"f:nodeName": {}, "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}}}}});
    assert_eq!(made.body["metadata"]["managedFields"][0]["fieldsV1"], want);
    server.clock.advance(std::time::Duration::from_secs(60));
    let again = apply(&server, path, POD).await;
    assert_eq!(again.code, StatusCode::OK);
    assert_eq!(again.body, made.body, "not even the version changes");
    let changed = apply(&server, path, &POD.replace("image: i", "image: j")).await;
    assert_eq!(changed.body["spec"]["containers"][0]["image"], "j");
    assert_eq!(changed.body["metadata"]["managedFields"][0]["time"], "2026-01-01T00:01:00Z");
}

#[tokio::test]
async fn others_are_asked_before_their_fields_change() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/a/pods/p";
    apply(&server, &format!("{path}?fieldManager=me"), POD).await;
    let patch = json!({"spec": {"containers": [{"name": "c", "image": "hotfix"}]}});
    let headers = [("content-type", "application/strategic-merge-patch+json"), ("user-agent", "editor/v1 (x)")];
    let edited = server.send(Method::PATCH, path, &headers, &patch.to_string()).await;
    assert_eq!(owners(&edited.body)[1].0, "editor");
    let refused = apply(&server, &format!("{path}?fieldManager=me"), POD).await;
    assert_eq!(refused.code, StatusCode::CONFLICT);
    assert_eq!(
        refused.body["message"],
        r#"Apply failed with 1 conflict: conflict with "editor" using v1: .spec.containers[name="c"].image"#
    );
    let forced = apply(&server, &format!("{path}?fieldManager=me&force=true"), POD).await;
    assert_eq!((forced.code, &forced.body["spec"]["containers"][0]["image"]), (StatusCode::OK, &json!("i")));
    assert_eq!(owners(&forced.body).len(), 1, "the editor owns nothing more");
}

#[tokio::test]
async fn a_status_has_owners_of_its_own_and_a_patch_of_the_spec_keeps_them() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/a/pods/p";
    apply(&server, &format!("{path}?fieldManager=me"), POD).await;
    let headers = [("content-type", "application/merge-patch+json"), ("user-agent", "longshore/1")];
    let status = json!({"status": {"phase": "Running"}}).to_string();
    let written = server.send(Method::PATCH, &format!("{path}/status"), &headers, &status).await;
    assert_eq!(owners(&written.body)[1], ("longshore".to_owned(), "Update".to_owned(), "status".to_owned()));
    let label = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let labelled = server.send(Method::PATCH, path, &headers, &label).await;
    assert_eq!(owners(&labelled.body).len(), 3);
    let reset = json!({"metadata": {"managedFields": [{}]}}).to_string();
    let reset = server.send(Method::PATCH, path, &headers, &reset).await;
    assert!(owners(&reset.body).is_empty());
}

#[tokio::test]
async fn what_is_wrong_with_an_apply_is_said() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/a/configmaps/c";
    let unnamed = apply(&server, path, r#"{"apiVersion":"v1","kind":"ConfigMap"}"#).await;
    assert_eq!(unnamed.code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        unnamed.body["message"],
        r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#
    );
    let path = format!("{path}?fieldManager=me");
    let misfit = apply(&server, &path, r#"{"apiVersion":"v1","kind":"ConfigMap","spec":{}}"#).await;
    assert_eq!(
        misfit.body["message"],
        "failed to create typed patch object (a/c; /v1, Kind=ConfigMap): .spec: field not declared in schema"
    );
    let owned =
        apply(&server, &path, r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"managedFields":[{}]}}"#).await;
    assert_eq!(
        (owned.code, &owned.body["message"]),
        (StatusCode::BAD_REQUEST, &json!("metadata.managedFields must be nil"))
    );
    let other = apply(&server, &path, r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"}}"#).await;
    assert_eq!(other.code, StatusCode::BAD_REQUEST);
    let broken = apply(&server, &path, "a: [").await;
    assert!(broken.body["message"].as_str().unwrap().starts_with("error decoding YAML: "));
    let forced = server.patch("merge-patch", &format!("{path}&force=true"), json!({})).await;
    assert!(
        forced.body["message"]
            .as_str()
            .unwrap()
            .ends_with("force: Forbidden: may not be specified for non-apply patch")
    );
    let absent = apply(&server, "/api/v1/namespaces/a/pods/p/status?fieldManager=me", POD).await;
    assert_eq!(absent.code, StatusCode::NOT_FOUND, "a status alone is no object");
}

#[tokio::test]
async fn a_dry_run_shows_what_would_be_and_stores_nothing() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/a/pods/p";
    let shown = apply(&server, &format!("{path}?fieldManager=me&dryRun=All"), POD).await;
    assert_eq!(shown.code, StatusCode::CREATED);
    assert_eq!(server.get(path).await.code, StatusCode::NOT_FOUND);
}
