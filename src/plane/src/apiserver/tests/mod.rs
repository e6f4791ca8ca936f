//! The apiserver answered in process: the whole request path on the memory store, with everybody let in.

mod addresses;
mod apply;
mod custom;
mod golden;
mod health;
mod kinds;
mod kubectl;
mod pods;
mod protobuf;
mod races;
mod recorded;
mod verbs;
mod watches;

use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Body;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use longshore_util::clock::{ManualClock, SharedClock};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::error::ApiError;
use super::hooks::{Authenticate, Authorize, Connect, Connection, Hooks, Issuer, Reviewer};
use super::identity::{Attributes, Decision, GROUP_NODES, UserInfo};
use super::registry::{ClusterFacts, Registry, WriteOptions};
use super::resources::{NAMESPACES, Review, SERVICEACCOUNTS};
use super::server::{Api, ApiLimits};
use crate::store::{Limits, MemoryStore};

/// Lets everybody in under the name in the `user` header; `nobody` may do nothing, `reader` not create.
#[derive(Debug)]
struct Open;

impl Authenticate for Open {
    fn authenticate(&self, parts: &Parts) -> Result<UserInfo, ApiError> {
        let name = parts.headers.get("user").and_then(|name| name.to_str().ok()).unwrap_or("admin");
        let groups: &[&str] = if name.starts_with("system:node:") { &[GROUP_NODES] } else { &["system:masters"] };
        Ok(UserInfo::new(name, groups))
    }
}

impl Authorize for Open {
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        if user.name == "nobody" || (user.name == "reader" && attributes.verb == "create") {
            Decision::Deny { reason: String::new() }
        } else {
            Decision::Allow
        }
    }
}

#[async_trait]
impl Reviewer for Open {
    async fn review(
        &self,
        _user: &UserInfo,
        _review: &'static Review,
        _namespace: &str,
        object: Value,
    ) -> Result<Value, ApiError> {
        Ok(object)
    }

    async fn token(&self, _user: &UserInfo, _ns: &str, _account: &Value, request: Value) -> Result<Value, ApiError> {
        Ok(request)
    }

    fn issuer(&self) -> Issuer {
        Issuer { name: "https://issuer".to_owned(), algorithm: "ES256", key: json!({"kid": "k"}) }
    }
}

#[async_trait]
impl Connect for Open {
    async fn connect(
        &self,
        _user: &UserInfo,
        connection: Connection,
        _request: Request<Body>,
    ) -> Result<Response<Body>, ApiError> {
        Ok(Response::new(Body::from(format!("{}/{}", connection.name, connection.subresource))))
    }
}

pub(super) fn open_hooks() -> Hooks {
    let open = Arc::new(Open);
    Hooks { authenticate: open.clone(), authorize: open.clone(), review: open.clone(), connect: open }
}

pub(super) struct Server {
    pub(super) api: Arc<Api>,
    pub(super) clock: Arc<ManualClock>,
}

/// A parsed answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: StatusCode,
    pub(super) body: Value,
}

impl Server {
    /// A server with the namespace `a` and its default account.
    pub(super) async fn start() -> Self {
        Self::with(Limits::default()).await
    }

    pub(super) async fn with(limits: Limits) -> Self {
        let clock = Arc::new(ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        let shared: SharedClock = clock.clone();
        let store = Arc::new(MemoryStore::new(limits, Arc::clone(&shared)));
        let registry = Registry::new(store, shared, ClusterFacts::default());
        let own = WriteOptions::default();
        for name in ["a", "default", "kube-system", "kube-node-lease"] {
            registry.create(&NAMESPACES, "", json!({"metadata": {"name": name}}), &own).await.unwrap();
            registry.create(&SERVICEACCOUNTS, name, json!({"metadata": {"name": "default"}}), &own).await.unwrap();
        }
        let stop = CancellationToken::new();
        let api = Api::new(registry, open_hooks(), "127.0.0.1:6443".to_owned(), ApiLimits::default(), None, stop);
        Self { api, clock }
    }

    pub(super) async fn raw(&self, request: Request<Body>) -> Response<Body> {
        self.api.handle(request).await
    }

    pub(super) async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.raw(request.body(Body::from(body.to_owned())).unwrap()).await;
        let code = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answer { code, body }
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, &[("content-type", "application/json")], &body.to_string()).await
    }

    pub(super) async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, &[("content-type", "application/json")], &body.to_string()).await
    }

    pub(super) async fn patch(&self, kind: &str, path: &str, body: Value) -> Answer {
        let media = format!("application/{kind}+json");
        self.send(Method::PATCH, path, &[("content-type", &media)], &body.to_string()).await
    }

    pub(super) async fn delete(&self, path: &str, body: Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(Method::DELETE, path, &[("content-type", "application/json")], &body).await
    }
}

pub(super) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

pub(super) fn pod(name: &str, node: &str) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}
