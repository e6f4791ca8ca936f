//! Logs: a plain stream of text, and a node's refusals as `Status`.

use axum::body::Body;
use http::{HeaderValue, Request, Response, header};
use longshore_transport::upgrade::ForwardLimits;

use super::{NodeConnector, container, empty_text, path, refused_by_node};
use crate::apiserver::error::ApiError;
use crate::apiserver::hooks::Connection;
use crate::apiserver::object::text;
use crate::apiserver::request::Query;

/// Most that is read of a node's refusal.
const MAX_REFUSAL: usize = 16 * 1024;

impl NodeConnector {
    pub(super) async fn logs(
        &self,
        connection: &Connection,
        query: &Query,
        request: Request<Body>,
    ) -> Result<Response<Body>, ApiError> {
        let container = container::choose(&connection.object, query.get("container"))?;
        let node = text(&connection.object, "/spec/nodeName");
        if node.is_empty() {
            // Nothing has run yet, so nothing was said.
            return Ok(empty_text());
        }
        let Connection { namespace, name, .. } = connection;
        let path = format!("/containerLogs/{namespace}/{name}/{container}{}", path::log_query(query));
        // A node answers a followed log when there is the first line.
        let response = if query.flag("follow") { None } else { ForwardLimits::default().response };
        let limits = ForwardLimits { response, ..ForwardLimits::default() };
        let answer = self.pass_on(node, &path, request, &limits).await?;
        let (head, body) = answer.into_parts();
        if !head.status.is_success() {
            let text = longshore_transport::body::read(body, MAX_REFUSAL).await.unwrap_or_default();
            return Err(refused_by_node(head.status, name, &String::from_utf8_lossy(&text)));
        }
        let mut response = Response::new(body);
        let kind = head.headers.get(header::CONTENT_TYPE).cloned();
        let kind = kind.unwrap_or_else(|| HeaderValue::from_static("text/plain"));
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        Ok(response)
    }
}
