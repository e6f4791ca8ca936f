//! Refuses connections to nodes.

use async_trait::async_trait;
use axum::body::Body;
use http::{Request, Response};

use crate::apiserver::error::ApiError;
use crate::apiserver::hooks::{Connect, Connection};
use crate::apiserver::identity::UserInfo;

#[derive(Debug)]
pub(crate) struct Unconnected;

#[async_trait]
impl Connect for Unconnected {
    async fn connect(
        &self,
        _user: &UserInfo,
        connection: Connection,
        _request: Request<Body>,
    ) -> Result<Response<Body>, ApiError> {
        let name = connection.name;
        Err(ApiError::unavailable(format!("this control plane passes no connections on to nodes ({name})")))
    }
}
