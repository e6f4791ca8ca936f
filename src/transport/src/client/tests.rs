use std::path::PathBuf;
use std::time::Duration;

use axum::{Json, Router, routing::get};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::limit::Bucket;
use super::*;
use crate::fixture::World;
use crate::kubeconfig::NewKubeconfig;
use crate::pki::{Authority, KeyedCertificate, LeafRequest};
use crate::serve::ServeOptions;

struct Case {
    world: World,
    folder: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        Self { world: World::new(), folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("kubelet.conf")
    }

    fn write(&self, server: &str, authority_pem: &str, identity: &KeyedCertificate) {
        NewKubeconfig { server, authority_pem, user: "system:node:n1", identity }.write(&self.path()).unwrap();
    }

    async fn load(&self) -> Result<Kubeconfig, KubeconfigError> {
        Kubeconfig::load(&self.path(), self.world.now).await
    }

    async fn error_of(&self, text: &str) -> String {
        std::fs::write(self.path(), text).unwrap();
        self.load().await.unwrap_err().to_string()
    }
}

async fn serve(world: &World) -> String {
    let app = Router::new()
        .route("/api/v1/namespaces/a/configmaps", get(|| async {
            Json(json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": []}))
        }))
        .route("/api/v1/namespaces/denied/configmaps", get(|| async {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "Unauthorized",
                "reason": "Unauthorized", "code": 401});
            (http::StatusCode::UNAUTHORIZED, Json(status))
        }))
        .route("/api/v1/namespaces/slow/configmaps", get(|| async { std::future::pending::<()>().await }));
    format!("https://{}", world.serve(app, ServeOptions::default()).await)
}

async fn list(client: kube::Client, namespace: &str) -> Result<usize, kube::Error> {
    Ok(Api::<ConfigMap>::namespaced(client, namespace).list(&ListParams::default()).await?.items.len())
}

#[tokio::test]
async fn a_written_kubeconfig_logs_in() {
    let case = Case::new();
    let server = serve(&case.world).await;
    case.write(&server, case.world.ca(), &case.world.client_pair("jane"));
    let config = case.load().await.unwrap();
    assert!(config.problems().is_empty());
    assert_eq!(config.identity().unwrap().common_name, "jane");
    let clients = config.clients(&ClientsOptions::default()).unwrap();
    assert_eq!(list(clients.main, "a").await.unwrap(), 0);
    assert_eq!(list(clients.events, "a").await.unwrap(), 0);
    assert_eq!(list(clients.heartbeat, "a").await.unwrap(), 0);
}

#[tokio::test]
async fn files_beside_the_kubeconfig_are_found_wherever_the_process_runs() {
    let case = Case::new();
    let pair = case.world.client_pair("jane");
    for (name, text) in [("ca.crt", case.world.ca()), ("c.crt", &pair.certificate_pem), ("c.key", &pair.key_pem)] {
        std::fs::write(case.folder.path().join(name), text).unwrap();
    }
    let text = "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n\
        clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', certificate-authority: ca.crt}}]\n\
        users: [{name: u, user: {client-certificate: c.crt, client-key: c.key}}]\n";
    std::fs::write(case.path(), text).unwrap();
    assert_eq!(case.load().await.unwrap().identity().unwrap().common_name, "jane");
    std::fs::remove_file(case.folder.path().join("c.key")).unwrap();
    let error = case.load().await.unwrap_err().to_string();
    assert!(error.contains("users[u].user.client-key") && error.contains("c.key: No such file"), "{error}");
}

#[tokio::test]
async fn errors_name_the_file_the_field_and_what_is_wrong() {
    let case = Case::new();
    let missing = Kubeconfig::load(&case.path(), case.world.now).await.unwrap_err().to_string();
    assert!(missing.contains("kubelet.conf") && missing.contains("No such file"), "{missing}");
    let base =
        |rest: &str| format!("current-context: x\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n{rest}");
    let cluster = |fields: &str| {
        base(&format!("clusters: [{{name: c, cluster: {{{fields}}}}}]\nusers: [{{name: u, user: {{}}}}]"))
    };
    for (text, wants) in [
        ("a: [".to_owned(), vec!["line 1"]),
        ("- a".to_owned(), vec!["not a kubeconfig"]),
        ("{}".to_owned(), vec!["current-context", "is not set"]),
        (base("clusters: []"), vec!["contexts[x].context.cluster", "clusters has no \"c\""]),
        (cluster(""), vec!["clusters[c].cluster.server", "is not set"]),
        (cluster("server: 'master:6443'"), vec!["clusters[c].cluster.server", "want https://HOST:PORT"]),
        (
            cluster("server: 'https://h:1', certificate-authority-data: '%%'"),
            vec!["certificate-authority-data", "not base64"],
        ),
        (
            cluster("server: 'https://h:1', certificate-authority-data: aGk="),
            vec!["certificate-authority-data", "no certificate in it"],
        ),
        (
            cluster("server: 'https://h:1', certificate-authority: nope.crt"),
            vec!["cluster.certificate-authority:", "nope.crt: No such file"],
        ),
        (
            base("clusters: [{name: c, cluster: {server: 'https://h:1'}}]"),
            vec!["contexts[x].context.user", "users has no \"u\""],
        ),
    ] {
        let error = case.error_of(&text).await;
        assert!(error.contains("kubelet.conf"), "{error}");
        for want in wants {
            assert!(error.contains(want), "want {want:?} in {error:?}");
        }
    }
}

#[tokio::test]
async fn a_key_of_another_certificate_is_refused_at_once() {
    let case = Case::new();
    let mut pair = case.world.client_pair("jane");
    pair.key_pem = case.world.client_pair("jane").key_pem;
    case.write("https://127.0.0.1:1", case.world.ca(), &pair);
    let error = case.load().await.unwrap_err().to_string();
    assert!(error.contains("client-key-data") && error.contains("is not the key of"), "{error}");
}

#[tokio::test]
async fn an_expired_certificate_is_told_with_its_date_but_still_tried() {
    let case = Case::new();
    let mut request = LeafRequest::client("system:node:n1", Some("system:nodes"));
    request.validity = Duration::from_secs(0);
    let expired = case.world.authority.issue(&request, case.world.now).unwrap();
    case.write("https://127.0.0.1:1", case.world.ca(), &expired);
    let later = case.world.now.checked_add(Duration::from_secs(60)).unwrap();
    let config = Kubeconfig::load(&case.path(), later).await.unwrap();
    let [problem] = config.problems() else { panic!("{:?}", config.problems()) };
    assert!(matches!(problem, KubeconfigProblem::Expired { .. }));
    let text = problem.to_string();
    assert!(text.contains("client-certificate-data") && text.contains("CN=system:node:n1 expired at 20"), "{text}");
    config.client(&ClientOptions::default()).unwrap();
}

#[tokio::test]
async fn what_the_other_side_thinks_is_explained() {
    let case = Case::new();
    let server = serve(&case.world).await;
    let pair = case.world.client_pair("jane");

    case.write(&server, case.world.ca(), &pair);
    let config = case.load().await.unwrap();
    let error = list(config.client(&ClientOptions::default()).unwrap(), "denied").await.unwrap_err();
    let text = explain(&error, &config);
    assert!(text.contains("does not accept client certificate O=testers, CN=jane (signed by CN=kubernetes"), "{text}");
    assert!(!is_unreachable(&error));

    let other = Authority::generate("other", Duration::from_secs(3600), case.world.now).unwrap();
    case.write(&server, &other.keyed().certificate_pem, &pair);
    let config = case.load().await.unwrap();
    let error = list(config.client(&ClientOptions::default()).unwrap(), "a").await.unwrap_err();
    let text = explain(&error, &config);
    assert!(text.contains("not signed by clusters[kubernetes].cluster.certificate-authority-data of "), "{text}");
    assert!(is_unreachable(&error));

    case.write(&server.replace("127.0.0.1", "127.0.0.2"), case.world.ca(), &pair);
    let config = case.load().await.unwrap();
    let error = list(config.client(&ClientOptions::default()).unwrap(), "a").await.unwrap_err();
    assert!(explain(&error, &config).contains("onnection refused"), "{}", explain(&error, &config));
}

#[tokio::test]
async fn a_silent_apiserver_costs_no_more_than_the_deadline() {
    let case = Case::new();
    let server = serve(&case.world).await;
    case.write(&server, case.world.ca(), &case.world.client_pair("jane"));
    let config = case.load().await.unwrap();
    let options = ClientOptions { request_timeout: Duration::from_millis(100), ..ClientOptions::default() };
    let error = list(config.client(&options).unwrap(), "slow").await.unwrap_err();
    assert!(explain(&error, &config).contains("no answer from the apiserver within 100ms"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn the_rate_lets_a_burst_through_and_then_spreads() {
    let bucket = Bucket::new(Rate { per_second: 10, burst: 5 });
    let start = tokio::time::Instant::now();
    for _ in 0..5 {
        bucket.take().await;
    }
    assert_eq!(start.elapsed().as_millis(), 0);
    for _ in 0..10 {
        bucket.take().await;
    }
    assert_eq!(start.elapsed().as_millis(), 1000);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let start = tokio::time::Instant::now();
    for _ in 0..6 {
        bucket.take().await;
    }
    assert_eq!(start.elapsed().as_millis(), 100);
}
