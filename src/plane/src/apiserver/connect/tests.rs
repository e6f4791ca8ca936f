//! The way to a node, with a node that tells what it was asked.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::routing::any;
use jiff::Timestamp;
use longshore_transport::pki::{Authority, LeafRequest, kubeadm, self_signed_server};
use longshore_transport::serve::{PeerIdentity, ServeOptions, bind, serve};
use longshore_transport::tls::{ClientCa, ReloadableCertificate, ServerTls, server_config};
use serde_json::Value;
use tower::ServiceExt as _;

use super::*;

#[derive(Debug)]
struct OneNode(Value);

impl ReadObjects for OneNode {
    fn pod(&self, _: &str, _: &str) -> Option<Value> {
        None
    }
    fn pods(&self, _: &str) -> Vec<(u64, crate::store::Text)> {
        Vec::new()
    }
    fn service_account(&self, _: &str, _: &str) -> Option<Value> {
        None
    }
    fn secret(&self, _: &str, _: &str) -> Option<Value> {
        None
    }
    fn node(&self, name: &str) -> Option<Value> {
        (name == "n1").then(|| self.0.clone())
    }
}

struct World {
    authority: Authority,
    connector: NodeConnector,
    tasks: Tasks,
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

fn node(address: SocketAddr) -> Value {
    json!({"metadata": {"name": "n1"}, "status": {
        "addresses": [{"type": "Hostname", "address": "nowhere.invalid"},
            {"type": "InternalIP", "address": address.ip().to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}}}})
}

/// A node that answers with who asked and for what; `/containerLogs/a/p/waiting` is refused.
fn told(authority: &str, peer: &PeerIdentity, request: &axum::extract::Request) -> Response<Body> {
    let ca = ClientCa::from_pem(authority).unwrap();
    let user = ca.verify(&peer.certificates, Timestamp::now()).map(|subject| subject.common_name).unwrap_or_default();
    let path = request.uri().path_and_query().unwrap().to_string();
    let text = format!("{} {path} by {user}", request.method());
    let mut response = Response::new(Body::from(text));
    if path.contains("waiting") {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        *response.body_mut() =
            Body::from("container \"waiting\" in pod \"p\" is waiting to start: ContainerCreating\n");
    }
    if wanted_upgrade(request.headers()).is_some() {
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        let protocols = request.headers().get("sec-websocket-protocol").cloned();
        response.headers_mut().insert("x-protocols", protocols.unwrap_or(HeaderValue::from_static("none")));
    }
    response
}

async fn world(issued: bool, checked: bool) -> World {
    let now = Timestamp::now();
    let authority = Authority::generate("kubernetes", Duration::from_secs(3600), now).unwrap();
    let request = LeafRequest::server("system:node:n1", vec!["127.0.0.1".into()]);
    let keyed = if issued { authority.issue(&request, now) } else { self_signed_server(&request, now) }.unwrap();
    let ca = authority.keyed().certificate_pem.clone();
    let app = Router::new().fallback(any(
        move |Extension(peer): Extension<PeerIdentity>, request: axum::extract::Request| {
            let ca = ca.clone();
            async move { told(&ca, &peer, &request) }
        },
    ));
    let tasks = Tasks::new();
    let listener = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = server_config(ReloadableCertificate::from_pem(&keyed).unwrap(), &ServerTls::default()).unwrap();
    let service = tower::service_fn(move |request| app.clone().oneshot(request));
    serve("node", listener, Some(tls), service, ServeOptions::default(), &tasks);
    let identity = authority.issue(&kubeadm::apiserver_kubelet_client(), now).unwrap();
    let trusted = checked.then(|| authority.keyed().certificate_pem.as_str());
    let connector = NodeConnector::new(Arc::new(OneNode(node(address))), &identity, trusted, tasks.clone()).unwrap();
    World { authority, connector, tasks }
}

fn pod(node: &str, containers: &[&str]) -> Value {
    let containers: Vec<Value> = containers.iter().map(|name| json!({"name": name})).collect();
    json!({"metadata": {"namespace": "a", "name": "p"}, "spec": {"nodeName": node, "containers": containers}})
}

async fn ask(world: &World, subresource: &str, query: &str, object: Value) -> Result<(StatusCode, String), ApiError> {
    let upgrade = subresource != "log" && subresource != "proxy";
    let mut request = Request::builder().method(if upgrade { "POST" } else { "GET" }).uri(format!("/x?{query}"));
    if upgrade {
        request = request.header("Connection", "Upgrade").header("Upgrade", "SPDY/3.1");
    }
    let namespace = if subresource == "proxy" { "" } else { "a" };
    let connection = Connection {
        namespace: namespace.to_owned(),
        name: meta(&object, "name").to_owned(),
        subresource: subresource.to_owned(),
        rest: "stats/summary x".to_owned(),
        object,
    };
    let request = request.body(Body::empty()).unwrap();
    let answer = world.connector.connect(&UserInfo::default(), connection, request).await?;
    let status = answer.status();
    let body = longshore_transport::body::read(answer.into_body(), 10_000).await.unwrap();
    Ok((status, String::from_utf8(body.to_vec()).unwrap()))
}

#[tokio::test]
async fn queries_are_turned_into_the_node_s() {
    let world = world(true, true).await;
    let one = || pod("n1", &["c"]);
    let by = "by kube-apiserver-kubelet-client";
    for (subresource, query, object, want) in [
        (
            "log",
            "follow=true&tailLines=5&insecureSkipTLSVerifyBackend=true",
            one(),
            "GET /containerLogs/a/p/c?follow=true&tailLines=5",
        ),
        (
            "log",
            "container=d&sinceTime=2026-01-01T00%3A00%3A00Z",
            pod("n1", &["c", "d"]),
            "GET /containerLogs/a/p/d?sinceTime=2026-01-01T00%3A00%3A00Z",
        ),
        (
            "exec",
            "command=sh&command=-c&command=echo%20%26%3D%C3%A4+x&stdin=true&stdout=true&stderr=false&tty=true",
            one(),
            "POST /exec/a/p/c?input=1&output=1&tty=1&command=sh&command=-c&command=echo%20%26%3D%C3%A4%20x",
        ),
        ("attach", "stdout=1&stderr=1&command=x", one(), "POST /attach/a/p/c?output=1&error=1"),
        ("portforward", "ports=80,81&ports=82", one(), "POST /portForward/a/p?port=80&port=81&port=82"),
        ("portforward", "", one(), "POST /portForward/a/p"),
        ("proxy", "only_cpu=true", json!({"metadata": {"name": "n1"}}), "GET /stats/summary%20x?only_cpu=true"),
    ] {
        let (_, answer) = ask(&world, subresource, query, object).await.unwrap();
        assert_eq!(answer, format!("{want} {by}"));
    }
}

#[tokio::test]
async fn the_container_that_is_meant_is_found_or_asked_for() {
    let world = world(true, true).await;
    let message = |result: Result<_, ApiError>| {
        let error = result.unwrap_err();
        assert_eq!(error.code, StatusCode::BAD_REQUEST);
        error.message
    };
    let mut two = pod("n1", &["c", "d"]);
    two["spec"]["initContainers"] = json!([{"name": "i"}]);
    assert_eq!(
        message(ask(&world, "exec", "command=x&stdout=1", two.clone()).await),
        "a container name must be specified for pod p, choose one of: [c d] or one of the init containers: [i]"
    );
    assert_eq!(message(ask(&world, "log", "container=e", two.clone()).await), "container e is not valid for pod p");
    let (_, answer) = ask(&world, "log", "container=i", two.clone()).await.unwrap();
    assert!(answer.contains("/containerLogs/a/p/i "), "{answer}");
    two["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/default-container": "d"});
    let (_, answer) = ask(&world, "log", "", two).await.unwrap();
    assert!(answer.contains("/containerLogs/a/p/d "), "{answer}");
}

#[tokio::test]
async fn a_pod_without_a_node_has_no_logs_and_nothing_to_run_in() {
    let world = world(true, true).await;
    assert_eq!(ask(&world, "log", "", pod("", &["c"])).await.unwrap(), (StatusCode::OK, String::new()));
    let error = ask(&world, "exec", "command=x", pod("", &["c"])).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (StatusCode::BAD_REQUEST, "pod p does not have a host assigned"));
    let error = ask(&world, "log", "", pod("n2", &["c"])).await.unwrap_err();
    assert_eq!(error.message, "nodes \"n2\" not found");
}

#[tokio::test]
async fn a_node_s_refusal_becomes_a_status() {
    let world = world(true, true).await;
    let error = ask(&world, "log", "", pod("n1", &["waiting"])).await.unwrap_err();
    assert_eq!((error.code, error.reason), (StatusCode::BAD_REQUEST, "BadRequest"));
    assert_eq!(error.message, "container \"waiting\" in pod \"p\" is waiting to start: ContainerCreating");
    // A refused upgrade is the node's to explain.
    let (status, _) = ask(&world, "exec", "command=x", pod("n1", &["c"])).await.unwrap();
    assert_eq!(status, StatusCode::IM_A_TEAPOT);
}

#[tokio::test]
async fn a_node_s_certificate_is_checked_when_an_authority_is_given_for_it() {
    let strict = world(false, true).await;
    let error = ask(&strict, "log", "", pod("n1", &["c"])).await.unwrap_err();
    assert_eq!(error.code, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(error.message.starts_with("error dialing backend: dial tcp 127.0.0.1:"), "{error}");
    let stock = world(false, false).await;
    assert_eq!(ask(&stock, "log", "", pod("n1", &["c"])).await.unwrap().0, StatusCode::OK);
    assert!(!strict.authority.keyed().certificate_pem.is_empty());
}

#[tokio::test]
async fn newer_websocket_protocols_are_refused_and_older_ones_offered() {
    let world = world(true, true).await;
    let offer = |subresource: &'static str, protocols: &'static str| {
        let request = Request::builder()
            .uri("/x?command=x&stdout=true")
            .header("Connection", "keep-alive, Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Protocol", protocols)
            .body(Body::empty())
            .unwrap();
        let connection = Connection {
            namespace: "a".to_owned(),
            name: "p".to_owned(),
            subresource: subresource.to_owned(),
            rest: String::new(),
            object: pod("n1", &["c"]),
        };
        let world = &world;
        async move { world.connector.connect(&UserInfo::default(), connection, request).await }
    };
    for (subresource, protocols) in [("exec", "v5.channel.k8s.io"), ("portforward", "SPDY/3.1+portforward.k8s.io")] {
        let error = offer(subresource, protocols).await.unwrap_err();
        assert_eq!(error.code, StatusCode::BAD_REQUEST);
        assert!(error.message.contains(protocols), "{error}");
    }
    let answer = offer("exec", "v5.channel.k8s.io, v4.channel.k8s.io").await.unwrap();
    assert_eq!(answer.headers()["x-protocols"], "v4.channel.k8s.io");
}

#[test]
fn a_node_cannot_send_the_apiserver_elsewhere() {
    let mut made = node(([192, 0, 2, 1], 1).into());
    assert_eq!(node::authority(&made).unwrap(), "192.0.2.1:1");
    made["status"]["addresses"] = json!([{"type": "InternalIP", "address": "fd00::1"}]);
    made["status"]["daemonEndpoints"] = json!({});
    assert_eq!(node::authority(&made).unwrap(), "[fd00::1]:10250");
    made["status"]["addresses"] = json!([{"type": "Hostname", "address": "evil/x?"}]);
    assert!(node::authority(&made).unwrap_err().message.contains("neither an IP address nor a host name"));
    made["status"]["addresses"] = json!([{"type": "Other", "address": "h"}]);
    assert!(node::authority(&made).unwrap_err().message.contains("no preferred addresses found"));
}
