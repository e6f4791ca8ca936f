//! Probes and metrics of the apiserver itself.

use http::StatusCode;
use serde_json::json;

use super::Server;

#[tokio::test]
async fn probes_name_their_checks() {
    let server = Server::start().await;
    for probe in ["livez", "readyz", "healthz"] {
        assert_eq!(server.get(&format!("/{probe}")).await.body, json!("ok"));
    }
    let told = server.get("/readyz?verbose").await;
    assert_eq!(told.body, json!("[+]ping ok\n[+]store ok\n[+]shutdown ok\nreadyz check passed\n"));
    assert_eq!(server.get("/livez?verbose").await.body, json!("[+]ping ok\nlivez check passed\n"));
    let told = server.get("/readyz?verbose=1&exclude=store&exclude=nobody").await.body;
    let want = "[+]ping ok\n[+]store excluded: ok\n[+]shutdown ok\nwarn: some health checks cannot be excluded: no \
                matches for \"nobody\"\nreadyz check passed\n";
    assert_eq!(told, json!(want));
    assert_eq!(server.get("/readyz/store").await.body, json!("ok"));
    assert_eq!(server.get("/readyz/nobody").await.code, StatusCode::NOT_FOUND);
    assert_eq!(server.post("/readyz", json!({})).await.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn one_that_goes_down_is_not_ready_but_lives() {
    let server = Server::start().await;
    server.api.stop().cancel();
    let told = server.get("/readyz").await;
    assert_eq!(told.code, StatusCode::INTERNAL_SERVER_ERROR);
    let want = "[+]ping ok\n[+]store ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n";
    assert_eq!(told.body, json!(want));
    let told = server.get("/readyz/shutdown").await;
    assert_eq!(told.body, json!("internal server error: process is shutting down\n"));
    assert_eq!(server.get("/livez").await.code, StatusCode::OK);
}

#[tokio::test]
async fn who_signs_tokens_is_told_as_openid_connect_has_it() {
    let server = Server::start().await;
    let told = server.get("/.well-known/openid-configuration").await.body;
    assert_eq!(
        (&told["issuer"], &told["id_token_signing_alg_values_supported"]),
        (&json!("https://issuer"), &json!(["ES256"]))
    );
    let keys = told["jwks_uri"].as_str().unwrap();
    let path = &keys[keys.find("/openid").unwrap()..];
    assert_eq!(server.get(path).await.body, json!({"keys": [{"kid": "k"}]}));
}

#[tokio::test]
async fn metrics_count_requests_by_kind_and_never_by_what_a_client_wrote() {
    let server = Server::start().await;
    server.post("/api/v1/namespaces/a/pods", super::pod("p", "n1")).await;
    server.get("/api/v1/namespaces/a/pods/p").await;
    server.get("/api/v1/namespaces/a/pods/none").await;
    server.get("/apis/of.somebody/v1/namespaces/a/whatever/p").await;
    let text = server.get("/metrics").await.body;
    let text = text.as_str().unwrap();
    for line in [
        r#"apiserver_request_total{verb="POST",group="",version="v1",resource="pods",subresource="",scope="resource",component="apiserver",code="201"} 1"#,
        r#"apiserver_request_total{verb="GET",group="",version="v1",resource="pods",subresource="",scope="resource",component="apiserver",code="404"} 1"#,
        r#"apiserver_request_total{verb="GET",group="",version="",resource="",subresource="",scope="resource",component="apiserver",code="404"} 1"#,
        r#"apiserver_request_duration_seconds_count{verb="GET",group="",version="v1",resource="pods",subresource="",scope="resource",component="apiserver"} 2"#,
        r#"apiserver_current_inflight_requests{request_kind="mutating"} 0"#,
        r#"apiserver_storage_objects{resource="pods"} 1"#,
        r#"apiserver_longrunning_requests{verb="WATCH"} 0"#,
    ] {
        assert!(text.lines().any(|other| other == line), "no {line} in\n{text}");
    }
    assert!(!text.contains("somebody") && !text.contains("whatever"), "{text}");
}
