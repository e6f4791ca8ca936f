mod login;
mod targets;

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;

use axum::Router;
use axum::extract::Request;
use http::{Response, StatusCode, header};
use http_body_util::BodyExt as _;
use longshore_cri::fake::{FakeOptions, FakeRuntime};
use longshore_cri::{RuntimeService as _, v1};
use longshore_transport::pki::{Authority, LeafRequest, certificates_from_pem};
use longshore_transport::serve::{self, PeerIdentity, ServeOptions};
use longshore_util::Tasks;
use longshore_util::clock::SystemClock;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tower::ServiceExt as _;

use super::authn::Login;
use super::authz::Rights;
use super::router::{Shared, build};
use super::*;
use crate::model::{DesiredPod, MirrorUid, PodKey, PodUid, PodView, SourceKind};
use crate::telemetry::Telemetry;
use crate::test_api::TestApi;

#[derive(Debug, Default)]
struct Pods(Vec<PodView>);

impl ReadPods for Pods {
    fn pods(&self) -> Vec<PodView> {
        self.0.clone()
    }

    fn by_key(&self, key: &PodKey) -> Option<PodView> {
        self.0.iter().find(|view| view.desired.key == *key).cloned()
    }

    fn by_uid(&self, uid: &str) -> Option<PodView> {
        self.0.iter().find(|view| view.desired.uid.as_str() == uid).cloned()
    }
}

fn view(source: SourceKind, status: &Value) -> PodView {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1"},
        "spec": {"containers": [{"name": "c"}, {"name": "term", "tty": true}], "initContainers": [{"name": "i"}]},
        "status": {"phase": "Pending"},
    });
    PodView {
        desired: DesiredPod {
            uid: PodUid::from("u1"),
            key: PodKey::new("ns", "p"),
            pod: Arc::new(serde_json::from_value(pod).unwrap()),
            source,
            seen: jiff::Timestamp::UNIX_EPOCH,
        },
        status: Some(Arc::new(serde_json::from_value(status.clone()).unwrap())),
        mirror: source.is_static().then(|| MirrorUid::from("mirror")),
    }
}

struct World {
    api: TestApi,
    runtime: FakeRuntime,
    options: ServerOptions,
    pods: Pods,
    tasks: Tasks,
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = ServerOptions::new("node-1", "127.0.0.1:0".parse().unwrap(), dir.path().join("pki"));
        options.config = Arc::new(json!({"kind": "KubeletConfiguration"}));
        Self {
            api: TestApi::default(),
            runtime: FakeRuntime::new(FakeOptions::default()),
            options,
            pods: Pods(vec![view(SourceKind::Api, &json!({"phase": "Running"}))]),
            tasks: Tasks::new(),
            dir,
        }
    }

    /// Everybody may do everything.
    fn open() -> Self {
        let mut world = Self::new();
        world.options.anonymous = true;
        world.options.authorization = AuthorizationMode::AlwaysAllow;
        world
    }

    fn deps(&self) -> ServerDeps {
        ServerDeps {
            client: Some(self.api.client()),
            runtime: Arc::new(self.runtime.clone()),
            pods: Arc::new(Pods(self.pods.0.clone())),
            clock: Arc::new(SystemClock),
            telemetry: Arc::new(Telemetry::new()),
            health: HealthChecks::new([HealthCheck::new("syncloop", || Ok(()))]),
        }
    }

    fn router(&self) -> Router {
        let deps = self.deps();
        let login = Login::new(&self.options, deps.client.clone(), deps.clock.clone()).unwrap();
        let rights = Rights::new(&self.options, deps.client.clone()).unwrap();
        build(Arc::new(Shared { options: self.options.clone(), deps, login, rights, tasks: self.tasks.clone() }))
    }

    /// Answers tokens and rights: token `good` is user `joe`, and `allowed` subresources may be read by all.
    fn answer(&self, allowed: &'static [&'static str]) {
        self.api.answer(move |asked| {
            let spec = &asked.body["spec"];
            let status = if asked.path.ends_with("/tokenreviews") {
                match spec["token"].as_str() {
                    Some("good") => json!({"authenticated": true, "user": {"username": "joe", "groups": ["g"]}}),
                    _ => json!({"authenticated": false}),
                }
            } else {
                let subresource = spec["resourceAttributes"]["subresource"].as_str().unwrap_or_default();
                json!({"allowed": allowed.contains(&subresource)})
            };
            let mut body = asked.body.clone();
            body["status"] = status;
            Some((StatusCode::CREATED, body))
        });
    }

    fn asked(&self, kind: &str) -> Vec<Value> {
        let asked = self.api.asked();
        asked.into_iter().filter(|asked| asked.path.ends_with(kind)).map(|asked| asked.body["spec"].clone()).collect()
    }

    /// Starts one container in the fake and returns its id.
    async fn container(&self, name: &str) -> String {
        let sandbox_config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "p".into(),
                namespace: "ns".into(),
                uid: "u1".into(),
                attempt: 0,
            }),
            labels: HashMap::from([("io.kubernetes.pod.uid".to_owned(), "u1".to_owned())]).into_iter().collect(),
            log_directory: self.dir.path().display().to_string(),
            ..v1::PodSandboxConfig::default()
        };
        let request = v1::RunPodSandboxRequest { config: Some(sandbox_config.clone()), ..Default::default() };
        let sandbox = self.runtime.run_pod_sandbox(request).await.unwrap().pod_sandbox_id;
        let labels = [
            ("io.kubernetes.pod.uid", "u1"),
            ("io.kubernetes.pod.name", "p"),
            ("io.kubernetes.pod.namespace", "ns"),
            ("io.kubernetes.container.name", name),
        ];
        self.runtime.add_image("localhost/a:1");
        let image = v1::ImageSpec { image: "localhost/a:1".into(), ..Default::default() };
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
            image: Some(image),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect(),
            log_path: format!("{name}.log"),
            ..v1::ContainerConfig::default()
        };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox,
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let id = self.runtime.create_container(request).await.unwrap().container_id;
        self.runtime.start_container(v1::StartContainerRequest { container_id: id.clone() }).await.unwrap();
        id
    }
}

fn get(path: &str) -> Request {
    Request::get(path).body(Body::empty()).unwrap()
}

fn with_token(path: &str, token: &str) -> Request {
    Request::get(path).header(header::AUTHORIZATION, format!("Bearer {token}")).body(Body::empty()).unwrap()
}

use axum::body::Body;

async fn text(response: Response<Body>) -> (StatusCode, String) {
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

async fn ask(router: &Router, request: Request) -> (StatusCode, String) {
    text(router.clone().oneshot(request).await.unwrap()).await
}

#[tokio::test]
async fn health_is_told_in_the_usual_words() {
    let mut world = World::open();
    let router = world.router();
    assert_eq!(ask(&router, get("/healthz")).await, (StatusCode::OK, "ok".to_owned()));
    let (_, body) = ask(&router, get("/healthz?verbose&exclude=log&exclude=x")).await;
    assert_eq!(
        body,
        "[+]ping ok\n[+]log excluded: ok\n[+]syncloop ok\n\
         warn: some health checks cannot be excluded: no matches for \"x\"\nhealthz check passed\n"
    );
    assert_eq!(ask(&router, get("/healthz/ping")).await, (StatusCode::OK, "ok".to_owned()));
    assert_eq!(ask(&router, get("/healthz/other")).await.0, StatusCode::NOT_FOUND);
    world.options.debugging_handlers = false;
    let sick = HealthChecks::new([HealthCheck::new("syncloop", || Err("stuck".into()))]);
    let health = super::router::health(sick);
    let (status, body) = ask(&health, get("/healthz")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(body, "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n");
    let (_, body) = ask(&health, get("/healthz/syncloop")).await;
    assert_eq!(body, "internal server error: stuck\n");
}

#[tokio::test]
async fn pods_are_shown_as_their_source_has_them() {
    let mut world = World::open();
    world.pods.0.push(view(SourceKind::File, &json!({"phase": "Running"})));
    let (status, body) = ask(&world.router(), get("/pods")).await;
    assert_eq!(status, StatusCode::OK);
    let list: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")));
    assert_eq!(list["items"][0]["status"]["phase"], "Pending", "as last received");
    assert_eq!(list["items"][1]["status"]["phase"], "Running", "as made here");
    assert!(list["items"][0].get("kind").is_none());
    world.container("c").await;
    let (_, body) = ask(&world.router(), get("/runningpods/")).await;
    let list: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(list["items"][0]["metadata"]["uid"], "u1");
    assert_eq!(list["items"][0]["spec"]["containers"][0]["name"], "c");
}

#[tokio::test]
async fn the_effective_configuration_and_metrics_are_shown() {
    let world = World::open();
    let router = world.router();
    let (_, body) = ask(&router, get("/configz")).await;
    assert_eq!(body, r#"{"kubeletconfig":{"kind":"KubeletConfiguration"}}"#);
    let (_, body) = ask(&router, get("/metrics")).await;
    let line =
        r#"kubelet_http_requests_total{method="GET",path="configz",server_type="readwrite",long_running="false"} 1"#;
    let mut lines = vec![line];
    lines.push("kubelet_running_pods 0");
    lines.push("kubelet_desired_pods{static=\"false\"} 1");
    lines.push("kubelet_running_containers{container_state=\"running\"} 0");
    for line in lines {
        assert!(body.lines().any(|have| have == line), "{line} not in\n{body}");
    }
}

#[tokio::test]
async fn what_containers_use_is_told() {
    let world = World::open();
    world.container("c").await;
    let router = world.router();
    let (status, body) = ask(&router, get("/metrics/resource")).await;
    assert_eq!(status, StatusCode::OK);
    assert!(body.contains("container_cpu_usage_seconds_total{container=\"c\",namespace=\"ns\",pod=\"p\"}"), "{body}");
    assert!(body.ends_with("resource_scrape_error 0\n"));
    let (status, body) = ask(&router, get("/metrics/probes")).await;
    assert!(status == StatusCode::OK && body.contains("process_start_time_seconds"), "{status} {body}");
    assert_eq!(ask(&router, get("/metrics/cadvisor")).await.0, StatusCode::NOT_IMPLEMENTED);
    assert_eq!(ask(&router, get("/metrics/other")).await.0, StatusCode::NOT_FOUND);
    assert_eq!(ask(&router, get("/stats/summary")).await.0, StatusCode::NOT_IMPLEMENTED);
}

#[tokio::test]
async fn debugging_handlers_can_be_off() {
    let mut world = World::open();
    world.options.debugging_handlers = false;
    let router = world.router();
    for path in ["/exec/ns/p/c", "/containerLogs/ns/p/c", "/runningpods/", "/run/ns/p/c", "/logs/", "/portForward/ns/p"]
    {
        let (status, body) = ask(&router, get(path)).await;
        assert_eq!(
            (status, body.as_str()),
            (StatusCode::METHOD_NOT_ALLOWED, "Debug endpoints are disabled.\n"),
            "{path}"
        );
    }
    assert_eq!(ask(&router, get("/pods")).await.0, StatusCode::OK);
    assert_eq!(ask(&router, get("/nothing")).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_certificate_is_made_and_kept_and_a_taken_port_is_named() {
    let world = World::open();
    let handle = start(world.options.clone(), world.deps(), &world.tasks).await.unwrap();
    let (certificate, key) = (world.dir.path().join("pki/kubelet.crt"), world.dir.path().join("pki/kubelet.key"));
    let pem = std::fs::read_to_string(&certificate).unwrap();
    assert_eq!(certificates_from_pem(pem.as_bytes(), "x").unwrap().len(), 2, "leaf and authority");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&certificate), mode(&key)), (0o644, 0o600));
    let mut again = world.options.clone();
    again.bind = handle.address();
    let error = start(again, world.deps(), &world.tasks).await.unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    assert_eq!(std::fs::read_to_string(&certificate).unwrap(), pem, "kept");
}

#[tokio::test]
async fn impossible_settings_stop_the_start() {
    let world = World::new();
    let start = |change: fn(&mut ServerOptions)| {
        let mut options = world.options.clone();
        change(&mut options);
        let deps = ServerDeps { client: None, ..world.deps() };
        async move { super::start(options, deps, &Tasks::new()).await.unwrap_err() }
    };
    assert!(matches!(start(|_| {}).await, StartError::TokenWithoutApi));
    assert!(matches!(start(|options| options.token_webhook = false).await, StartError::NoLogin));
    let open = |options: &mut ServerOptions| (options.token_webhook, options.anonymous) = (false, true);
    assert!(matches!(start(open).await, StartError::RightsWithoutApi));
}

#[tokio::test]
async fn health_answers_on_its_own_thread() {
    let tasks = Tasks::new();
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = probe.local_addr().unwrap();
    drop(probe);
    start_health(address, HealthChecks::new([HealthCheck::beat(&tasks, Duration::from_secs(300))]), &tasks).unwrap();
    let ask = async |path: &str| {
        let mut stream = loop {
            match tokio::net::TcpStream::connect(address).await {
                Ok(stream) => break stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = ask("/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    // The door is open to all: nothing else is behind it.
    for path in ["/debug/pprof/", "/debug/pprof/heap", "/metrics", "/configz", "/pods", "/logs/", "/checkpoint/n/p/c"] {
        let answer = ask(path).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
    }
    tasks.cancel();
}
