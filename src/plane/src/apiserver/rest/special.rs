//! Binding, eviction, tokens, reviews, connections to nodes.

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

use super::write::success;
use super::{Call, may_create, wanted};
use crate::apiserver::connect::is_websocket;
use crate::apiserver::error::ApiError;
use crate::apiserver::hooks::Connection;
use crate::apiserver::negotiate::{answer, check_kind, decode, read_body};
use crate::apiserver::object::{child, meta, metadata, text, time};
use crate::apiserver::registry::{Part, WriteOptions, of_review};
use crate::apiserver::resources::{PODS, Resource, Review, SERVICEACCOUNTS};
use crate::apiserver::server::Api;

pub(super) async fn bind(api: &Api, call: &Call, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let wanted = wanted(request.headers())?;
    let options = call.write_options()?;
    let (parts, body) = request.into_parts();
    let binding = decode(&parts.headers, "Binding", &read_body(body).await?)?;
    check_kind(&binding, "v1", "Binding")?;
    let node = text(&binding, "/target/name");
    if node.is_empty() || !matches!(text(&binding, "/target/kind"), "" | "Node") {
        return Err(ApiError::bad_request("binding: target must be a Node with a name"));
    }
    let namespace = &call.info.attributes.namespace;
    api.registry().bind(namespace, call.name(), node, text(&binding, "/metadata/uid"), &options).await?;
    success(StatusCode::CREATED, wanted, None)
}

impl crate::apiserver::Registry {
    /// Gives a pod to a node. `uid` may be empty.
    pub async fn bind(
        &self,
        namespace: &str,
        name: &str,
        node: &str,
        uid: &str,
        options: &WriteOptions,
    ) -> Result<(), ApiError> {
        let now = time(self.clock().now());
        // The check of who may bind is authorization's; the pod is changed by the server itself.
        let own = WriteOptions { dry_run: options.dry_run, ..WriteOptions::default() };
        let change = |mut pod: Value| {
            let conflict = |text: String| Err(ApiError::conflict(&PODS, name, "pods/binding", &text));
            if !uid.is_empty() && meta(&pod, "uid") != uid {
                return conflict(format!("pod {name} has another uid than the binding"));
            }
            if pod.pointer("/metadata/deletionTimestamp").is_some() {
                return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
            }
            let present = text(&pod, "/spec/nodeName");
            if !present.is_empty() {
                return conflict(format!("pod {name} is already assigned to node {present:?}"));
            }
            child(&mut pod, "spec").insert("nodeName".to_owned(), json!(node));
            let conditions = child(&mut pod, "status").entry("conditions").or_insert_with(|| json!([]));
            if let Some(conditions) = conditions.as_array_mut() {
                conditions.retain(|condition| text(condition, "/type") != "PodScheduled");
                conditions.push(json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
                    "lastTransitionTime": now}));
            }
            Ok(Some(pod))
        };
        self.modify(&PODS, namespace, name, Part::Whole, &own, change).await.map(drop)
    }
}

pub(super) async fn token(api: &Api, call: &Call, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let wanted = wanted(request.headers())?;
    let options = call.write_options()?;
    let (parts, body) = request.into_parts();
    let mut sent = decode(&parts.headers, "TokenRequest", &read_body(body).await?)?;
    check_kind(&sent, "authentication.k8s.io/v1", "TokenRequest")?;
    let namespace = &call.info.attributes.namespace;
    let account = api.registry().get(&SERVICEACCOUNTS, namespace, call.name())?.value()?;
    let meta_fields = metadata(&mut sent);
    meta_fields.insert("name".to_owned(), json!(call.name()));
    meta_fields.insert("namespace".to_owned(), json!(namespace));
    let mut made = api.hooks().review.token(&call.user, namespace, &account, sent.clone()).await?;
    made["kind"] = json!("TokenRequest");
    made["apiVersion"] = json!("authentication.k8s.io/v1");
    of_review(&mut made, &sent, "token", &options, &api.registry().now());
    answer(StatusCode::CREATED, wanted, Bytes::from(made.to_string()))
}

pub(super) async fn review(
    api: &Api,
    call: &Call,
    review: &'static Review,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let attributes = &call.info.attributes;
    if attributes.verb != "create" || review.namespaced == attributes.namespace.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    let wanted = wanted(request.headers())?;
    let options = call.write_options()?;
    let (parts, body) = request.into_parts();
    let sent = decode(&parts.headers, review.kind, &read_body(body).await?)?;
    let api_version = format!("{}/v1", review.group);
    check_kind(&sent, &api_version, review.kind)?;
    let mut made = api.hooks().review.review(&call.user, review, &attributes.namespace, sent.clone()).await?;
    made["kind"] = json!(review.kind);
    made["apiVersion"] = json!(api_version);
    metadata(&mut made);
    of_review(&mut made, &sent, "", &options, &api.registry().now());
    answer(StatusCode::CREATED, wanted, Bytes::from(made.to_string()))
}

pub(super) async fn connect(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let attributes = &call.info.attributes;
    // A WebSocket begins with a GET, which those may do who only read.
    let enters = matches!(&*attributes.subresource, "exec" | "attach" | "portforward");
    if enters && attributes.verb == "get" && is_websocket(request.headers()) {
        may_create(api, call)?;
    }
    let namespace = call.namespace(resource);
    let object = api.registry().get(resource, namespace, call.name())?.value()?;
    let connection = Connection {
        namespace: namespace.to_owned(),
        name: call.name().to_owned(),
        subresource: attributes.subresource.clone(),
        rest: call.info.rest.clone(),
        object,
    };
    api.hooks().connect.connect(&call.user, connection, request).await
}
