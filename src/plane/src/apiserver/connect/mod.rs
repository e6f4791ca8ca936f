//! Logs, exec, attach, port-forward of pods and the proxy of nodes: passed on to the node's own port as the apiserver's
//! client. Bytes of an upgraded connection are copied, never understood.
//!
//! What the nodes speak after an upgrade is SPDY/3.1 and WebSocket up to v4.channel.k8s.io; a client that offers only
//! newer protocols is refused, on which kubectl goes back to SPDY by itself.

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use axum::body::Body;
use http::{HeaderValue, Request, Response, StatusCode, header};
use longshore_transport::pki::KeyedCertificate;
use longshore_transport::tls::{ServerTrust, TlsConfigError, client_config};
use longshore_transport::upgrade::{ForwardLimits, Target, forward, wanted_upgrade};
use longshore_util::Tasks;
use serde_json::json;

pub(crate) use protocol::is_websocket;

use super::auth::ReadObjects;
use super::error::ApiError;
use super::hooks::{Connect, Connection};
use super::identity::UserInfo;
use super::object::{meta, text};
use super::request::Query;
use super::resources::NODES;

mod container;
mod logs;
mod node;
mod path;
mod protocol;

#[cfg(test)]
mod tests;

/// Connections to nodes.
#[derive(Debug)]
pub struct NodeConnector {
    objects: Arc<dyn ReadObjects>,
    trust: ServerTrust,
    tls: ArcSwap<rustls::ClientConfig>,
    tasks: Tasks,
}

impl NodeConnector {
    /// Returns a connector that logs in at nodes with `identity`. With `node_authority` (PEM) a node's certificate must
    /// be signed by it; without, as upstream without `--kubelet-certificate-authority`, any is taken.
    pub fn new(
        objects: Arc<dyn ReadObjects>,
        identity: &KeyedCertificate,
        node_authority: Option<&str>,
        tasks: Tasks,
    ) -> Result<Self, TlsConfigError> {
        let trust = match node_authority {
            Some(pem) => ServerTrust::Authorities(pem.to_owned()),
            None => ServerTrust::Any,
        };
        let tls = ArcSwap::new(client_config(&trust, Some(identity))?);
        Ok(Self { objects, trust, tls, tasks })
    }

    /// Logs in with another certificate from now on.
    pub fn renew(&self, identity: &KeyedCertificate) -> Result<(), TlsConfigError> {
        self.tls.store(client_config(&self.trust, Some(identity))?);
        Ok(())
    }

    async fn pass_on(
        &self,
        node: &str,
        path: &str,
        request: Request<Body>,
        limits: &ForwardLimits,
    ) -> Result<Response<Body>, ApiError> {
        let found = self.objects.node(node).ok_or_else(|| ApiError::not_found(&NODES, node))?;
        let authority = node::authority(&found)?;
        self.pass_on_to(&authority, path, request, limits).await
    }

    async fn pass_on_to(
        &self,
        authority: &str,
        path: &str,
        request: Request<Body>,
        limits: &ForwardLimits,
    ) -> Result<Response<Body>, ApiError> {
        let uri = format!("https://{authority}{path}").parse().map_err(ApiError::internal)?;
        let target = Target::new(uri, Some(self.tls.load_full()));
        Box::pin(forward(request, &target, limits, &self.tasks)).await.map_err(|error| {
            tracing::debug!(%authority, %error, "connection to node failed");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", format!("error dialing backend: {error}"))
        })
    }

    async fn stream(
        &self,
        connection: &Connection,
        path: impl FnOnce(&str) -> String,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, ApiError> {
        let node = text(&connection.object, "/spec/nodeName");
        if node.is_empty() {
            return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", connection.name)));
        }
        if wanted_upgrade(request.headers()).is_none() {
            return Err(ApiError::bad_request("Upgrade request required"));
        }
        protocol::keep_what_nodes_speak(request.headers_mut())?;
        self.pass_on(node, &path(node), request, &ForwardLimits::default()).await
    }
}

#[async_trait]
impl Connect for NodeConnector {
    async fn connect(
        &self,
        _user: &UserInfo,
        connection: Connection,
        request: Request<Body>,
    ) -> Result<Response<Body>, ApiError> {
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let pod = &connection.object;
        let place = format!("{}/{}", connection.namespace, connection.name);
        match connection.subresource.as_str() {
            "log" => self.logs(&connection, &query, request).await,
            "exec" | "attach" => {
                let container = container::choose(pod, query.get("container"))?;
                let query = path::stream_query(&query, connection.subresource == "exec");
                let path = |_: &str| format!("/{}/{place}/{container}{query}", connection.subresource);
                self.stream(&connection, path, request).await
            }
            "portforward" => {
                let query = path::port_query(&query);
                self.stream(&connection, |_: &str| format!("/portForward/{place}{query}"), request).await
            }
            "proxy" if connection.namespace.is_empty() && !meta(pod, "name").is_empty() => {
                let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
                let path = format!("/{}{query}", path::escape_path(&connection.rest));
                let limits = ForwardLimits { response: None, ..ForwardLimits::default() };
                self.pass_on(&connection.name, &path, request, &limits).await
            }
            _ => Err(ApiError::no_such_path()),
        }
    }
}

/// Makes a plain answer out of a text; used where a node has nothing to say.
fn empty_text() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// The error that stands for a node's refusal: its status, its text.
fn refused_by_node(status: StatusCode, name: &str, body: &str) -> ApiError {
    let body = body.trim_end();
    match status {
        StatusCode::BAD_REQUEST => ApiError::bad_request(body),
        StatusCode::INTERNAL_SERVER_ERROR => ApiError::internal(body),
        StatusCode::NOT_FOUND => {
            ApiError::new(status, "NotFound", body).with(json!({"name": name, "kind": "pods/log"}))
        }
        StatusCode::UNAUTHORIZED => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", {
            format!("the node does not accept the apiserver's client certificate: {body}")
        }),
        StatusCode::FORBIDDEN => ApiError::new(status, "Forbidden", body),
        StatusCode::UNPROCESSABLE_ENTITY => ApiError::new(status, "Invalid", body),
        status => ApiError::new(status, "", body),
    }
}
