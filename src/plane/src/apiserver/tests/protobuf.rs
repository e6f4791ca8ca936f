//! Bodies in protobuf, as typed clients send them. They come from `kubectl` (see the samples of the schema's tests).

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::Server;

/// Sends one of the samples; its line is found by a part of its JSON.
async fn send(server: &Server, method: Method, path: &str, sample: &str) -> (StatusCode, Value) {
    let samples = include_str!("../../../../api/tests/data/protobuf.txt");
    let line = samples.lines().find(|line| line.contains(sample)).unwrap();
    send_bytes(server, method, path, STANDARD.decode(line.split(' ').next().unwrap()).unwrap()).await
}

async fn send_bytes(server: &Server, method: Method, path: &str, body: Vec<u8>) -> (StatusCode, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/vnd.kubernetes.protobuf")
        .header("accept", "application/vnd.kubernetes.protobuf,application/json")
        .body(Body::from(body))
        .unwrap();
    let response = server.raw(request).await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    let code = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn objects_are_created_and_answered_in_json() {
    let server = Server::start().await;
    let (code, made) = send(&server, Method::POST, "/api/v1/namespaces/a/configmaps", r#""kind":"ConfigMap""#).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    assert_eq!((&made["metadata"]["name"], &made["data"]), (&json!("c"), &json!({"a": "1"})));
    let (code, made) = send(&server, Method::POST, "/api/v1/namespaces", r#""kind":"Namespace""#).await;
    assert_eq!((code, &made["status"]["phase"]), (StatusCode::CREATED, &json!("Active")));
    let (code, made) = send(&server, Method::POST, "/api/v1/namespaces/a/secrets", r#""kind":"Secret""#).await;
    assert_eq!((code, &made["type"], &made["data"]["a"]), (StatusCode::CREATED, &json!("Opaque"), &json!("MQ==")));
    let (code, made) = send(&server, Method::POST, "/api/v1/namespaces/a/services", r#""kind":"Service""#).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    assert_eq!(made["spec"]["ports"][0]["targetPort"], 8080);
}

#[tokio::test]
async fn reviews_and_tokens_are_read() {
    let server = Server::start().await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, _) = send(&server, Method::POST, path, "SelfSubjectReview").await;
    assert_eq!(code, StatusCode::CREATED);
    let path = "/api/v1/namespaces/a/serviceaccounts/default/token";
    let (code, made) = send(&server, Method::POST, path, r#""expirationSeconds":600"#).await;
    assert_eq!((code, &made["spec"]["expirationSeconds"]), (StatusCode::CREATED, &json!(600)));
}

#[tokio::test]
async fn options_of_a_deletion_are_read() {
    let server = Server::start().await;
    server.post("/api/v1/namespaces/a/pods", super::pod("p", "n1")).await;
    // DeleteOptions of v1: gracePeriodSeconds 0.
    let body = b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\x12\x02\x08\x00".to_vec();
    let (code, _) = send_bytes(&server, Method::DELETE, "/api/v1/namespaces/a/pods/p", body).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(server.get("/api/v1/namespaces/a/pods/p").await.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_in_words() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/a/configmaps";
    let message = |answer: (StatusCode, Value)| {
        assert_eq!(answer.0, StatusCode::BAD_REQUEST);
        answer.1["message"].as_str().unwrap().to_owned()
    };
    let garbage = message(send_bytes(&server, Method::POST, path, b"{}".to_vec()).await);
    assert!(garbage.starts_with("the object provided is unrecognized (must be of type ConfigMap): "), "{garbage}");
    let unknown = message(send_bytes(&server, Method::POST, path, b"k8s\0\x0a\x07\x0a\x02v1\x12\x01X".to_vec()).await);
    assert_eq!(unknown, r#"no kind "X" is registered for version "v1""#);
    let other = message(send(&server, Method::POST, path, r#""kind":"Namespace""#).await);
    assert!(other.starts_with(r#"Namespace in version "v1" cannot be handled as a ConfigMap"#), "{other}");
    let cut = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x02\x0a\x09".to_vec();
    let short = message(send_bytes(&server, Method::POST, path, cut).await);
    assert_eq!(short, r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: unexpected EOF"#);
}
