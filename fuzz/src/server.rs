//! The apiserver in process, on the memory store, with everybody let in; and what holds for each of its answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body as _;
use longshore_api::custom::accept;
use longshore_plane::apiserver::hooks::{Authenticate, Authorize, Connect, Connection, Hooks, Issuer, Reviewer};
use longshore_plane::apiserver::identity::{Attributes, Decision, UserInfo};
use longshore_plane::apiserver::registry::{ClusterFacts, Part, WriteOptions};
use longshore_plane::apiserver::resources::{CUSTOMRESOURCEDEFINITIONS, Review, find};
use longshore_plane::apiserver::server::{Api, ApiLimits};
use longshore_plane::apiserver::{ApiError, Registry};
use longshore_plane::store::{Limits, MemoryStore};
use longshore_util::clock::{ManualClock, SharedClock};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

/// Texts with which a stock apiserver answers 500, and ours as well.
const STOCK_500: [&str; 8] = [
    "resourceVersion should not be set on objects to be created",
    "failed to create typed patch object",
    "unknown patch type:",
    "does not contain declared merge key:",
    "merging lists cannot yet be specified in the patch",
    "list element types are not identical",
    "resourceVersion: Invalid value:",
    "This pod has more than one PodDisruptionBudget",
];

/// Most frames that are read of an answer.
const MOST_FRAMES: usize = 64;

#[derive(Debug)]
struct Open;

impl Authenticate for Open {
    fn authenticate(&self, _parts: &Parts) -> Result<UserInfo, ApiError> {
        Ok(UserInfo::new("admin", &["system:masters"]))
    }
}

impl Authorize for Open {
    fn authorize(&self, _user: &UserInfo, _attributes: &Attributes) -> Decision {
        Decision::Allow
    }
}

#[async_trait]
impl Reviewer for Open {
    async fn review(&self, _: &UserInfo, _: &'static Review, _: &str, object: Value) -> Result<Value, ApiError> {
        Ok(object)
    }

    async fn token(&self, _: &UserInfo, _: &str, _: &Value, request: Value) -> Result<Value, ApiError> {
        Ok(request)
    }

    fn issuer(&self) -> Issuer {
        Issuer { name: "https://issuer".to_owned(), algorithm: "ES256", key: json!({}) }
    }
}

#[async_trait]
impl Connect for Open {
    async fn connect(&self, _: &UserInfo, _: Connection, _: Request<Body>) -> Result<Response<Body>, ApiError> {
        Ok(Response::new(Body::from("connected")))
    }
}

/// An answer, as far as it came at once.
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The JSON, if it is one document; null otherwise.
    pub(crate) body: Value,
}

/// The server with some objects. Nothing that is asked of it may change them.
pub(crate) struct Server {
    api: Arc<Api>,
    runtime: Runtime,
}

thread_local! {
    static SERVER: Server = Server::start();
}

/// Asks the server of this thread.
pub(crate) fn ask(request: Request<Body>) -> Answer {
    SERVER.with(|server| server.ask(request))
}

impl Server {
    fn start() -> Self {
        let runtime = match Builder::new_current_thread().enable_time().start_paused(true).build() {
            Ok(runtime) => runtime,
            Err(error) => panic!("no runtime: {error}"),
        };
        let api = runtime.block_on(filled());
        Self { api, runtime }
    }

    fn ask(&self, request: Request<Body>) -> Answer {
        let asked = format!("{} {}", request.method(), request.uri());
        let before = self.api.registry().revision();
        let response = self.runtime.block_on(self.api.handle(request));
        let (parts, body) = response.into_parts();
        let (bytes, whole) = self.runtime.block_on(async { read(body) });
        assert_eq!(self.api.registry().revision(), before, "{asked} changed what is stored");
        let is_json =
            parts.headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
        let is_plain = !parts.headers.contains_key("content-encoding");
        let mut documents = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
        let body = match documents.next() {
            Some(Ok(body)) if is_json => body,
            Some(Err(error)) if is_json && whole && is_plain => {
                panic!("{asked}: {error} in {:?}", String::from_utf8_lossy(&bytes))
            }
            _ => Value::Null,
        };
        let answer = Answer { code: parts.status, headers: parts.headers, body };
        answer.check(&asked);
        answer
    }
}

impl Answer {
    /// What holds for all answers.
    fn check(&self, asked: &str) {
        let Self { code, body, .. } = self;
        let text = body["message"].as_str().unwrap_or_default();
        if code.is_server_error() {
            let is_stock =
                STOCK_500.iter().any(|known| text.contains(known)) && *code == StatusCode::INTERNAL_SERVER_ERROR;
            let is_future = *code == StatusCode::GATEWAY_TIMEOUT && text.contains("Too large resource version");
            // Asked of the checks of its health, it may say that it does not know one.
            assert!(is_stock || is_future, "{asked}: {code} {body}");
        }
        if body["kind"] == "Status" && body["status"] == "Failure" {
            assert_eq!(body["code"], code.as_u16(), "{asked}: {code} {body}");
            assert!(!text.is_empty(), "{asked}: a failure without a word");
        }
        if code.is_success() && body.is_object() && body["kind"] == "Status" {
            assert_eq!(body["status"], "Success", "{asked}: {code} {body}");
        }
        for warning in self.headers.get_all("warning") {
            assert!(warning.as_bytes().starts_with(b"299 - \""), "{asked}: {warning:?}");
        }
    }
}

/// Takes what of a body is there without waiting; whether that was all.
fn read(mut body: Body) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..MOST_FRAMES {
        match Pin::new(&mut body).poll_frame(&mut context) {
            Poll::Ready(Some(Ok(frame))) => bytes.extend(frame.into_data().unwrap_or_default()),
            Poll::Ready(Some(Err(error))) => panic!("a body broke: {error}"),
            Poll::Ready(None) => return (bytes, true),
            Poll::Pending => return (bytes, false),
        }
    }
    (bytes, false)
}

async fn filled() -> Arc<Api> {
    let now = jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(490_000);
    let clock: SharedClock = Arc::new(ManualClock::new(now));
    let store = Arc::new(MemoryStore::new(Limits::default(), Arc::clone(&clock)));
    let registry = Registry::new(store, clock, ClusterFacts::default());
    for (group, plural, namespace, object) in objects() {
        let Some(resource) = find(group, "v1", plural) else { panic!("no {plural}") };
        if let Err(error) = registry.create(resource, namespace, object.clone(), &WriteOptions::default()).await {
            panic!("{object}: {error}");
        }
    }
    // What the loop for definitions does.
    let change = |mut object: Value| {
        let status = accept::status(&object, &[], "2026-01-01T00:00:00Z");
        Ok(status.map(|status| {
            object["status"] = status;
            object
        }))
    };
    let own = WriteOptions::default();
    let made = registry.modify(&CUSTOMRESOURCEDEFINITIONS, "", "things.example.com", Part::Whole, &own, change).await;
    let Some(things) = made.ok().and_then(|_| registry.resource("example.com", "v1", "things")) else {
        panic!("things are not served")
    };
    let thing = json!({"metadata": {"name": "x"}, "spec": {"color": "red"}});
    if let Err(error) = registry.create(things, "a", thing, &own).await {
        panic!("{error}");
    }
    let open = Arc::new(Open);
    let hooks = Hooks { authenticate: open.clone(), authorize: open.clone(), review: open.clone(), connect: open };
    Api::new(registry, hooks, "127.0.0.1:6443".to_owned(), ApiLimits::default(), None, CancellationToken::new())
}

/// Group, name in paths, namespace and content of what is there.
fn objects() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let named = |name: &str| json!({"metadata": {"name": name, "labels": {"app": name, "n": "5"}}});
    let containers = json!([{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}]}]);
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}});
    let with = |name: &str, field: &str, value: Value| {
        let mut object = named(name);
        object[field] = value;
        object
    };
    let mut all = Vec::new();
    for namespace in ["a", "b"] {
        all.push(("", "namespaces", "", named(namespace)));
        all.push(("", "serviceaccounts", namespace, named("default")));
        all.push(("", "pods", namespace, with("x", "spec", json!({"containers": containers, "nodeName": "n1"}))));
        all.push(("", "configmaps", namespace, with("x", "data", json!({"a": "1"}))));
    }
    all.push(("", "pods", "a", with("y", "spec", json!({"containers": containers}))));
    all.push(("", "nodes", "", named("n1")));
    all.push(("", "secrets", "a", with("x", "data", json!({"k": "djE="}))));
    all.push(("", "services", "a", with("x", "spec", json!({"selector": {"app": "x"}, "ports": [{"port": 80}]}))));
    let spec = json!({"selector": {"matchLabels": {"app": "x"}}, "template": template});
    all.push(("apps", "deployments", "a", with("x", "spec", spec)));
    all.push((
        "batch",
        "jobs",
        "a",
        with("x", "spec", json!({"template": {"spec": {"containers": containers, "restartPolicy": "Never"}}})),
    ));
    all.push(("coordination.k8s.io", "leases", "a", named("x")));
    all.push((
        "policy",
        "poddisruptionbudgets",
        "a",
        with("x", "spec", json!({"selector": {"matchLabels": {"app": "x"}}, "minAvailable": 1})),
    ));
    all.push(("apiextensions.k8s.io", "customresourcedefinitions", "", definition()));
    all
}

fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "color": {"type": "string", "enum": ["red", "green", "blue"]},
            "replicas": {"type": "integer", "default": 1, "minimum": 0},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}}});
    json!({"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "selectableFields": [{"jsonPath": ".spec.color"}],
            "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}}}]}})
}
