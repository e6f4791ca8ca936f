//! Where login, rights, reviews and connections to nodes plug into the request path. The server owns the order of
//! things, the implementors (`auth`, `connect`) own the decisions.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Body;
use http::request::Parts;
use http::{Request, Response};
use serde_json::Value;

use super::error::ApiError;
use super::identity::{Attributes, Decision, UserInfo};
use super::resources::Review;

/// Tells who asks. No credentials make [`super::identity::USER_ANONYMOUS`]; wrong ones are an error (401).
pub trait Authenticate: Send + Sync + fmt::Debug + 'static {
    /// Returns the user behind a request.
    fn authenticate(&self, parts: &Parts) -> Result<UserInfo, ApiError>;
}

/// Tells whether a user may do something.
pub trait Authorize: Send + Sync + fmt::Debug + 'static {
    /// Decides.
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision;
}

/// Who signs tokens, for those who check them without asking the apiserver.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// The name that stands in tokens.
    pub name: String,
    /// By which algorithm it signs, as RFC 7518 names it.
    pub algorithm: &'static str,
    /// The public key as a JSON Web Key.
    pub key: Value,
}

/// Answers objects that are asked and not stored.
#[async_trait]
pub trait Reviewer: Send + Sync + fmt::Debug + 'static {
    /// Answers a token or access review: takes the object as sent, returns it with its status.
    async fn review(
        &self,
        user: &UserInfo,
        review: &'static Review,
        namespace: &str,
        object: Value,
    ) -> Result<Value, ApiError>;

    /// Answers `serviceaccounts/NAME/token`: takes a `TokenRequest`, returns it with its status. The account exists.
    async fn token(&self, user: &UserInfo, namespace: &str, account: &Value, request: Value)
    -> Result<Value, ApiError>;

    /// Returns who signs the tokens.
    fn issuer(&self) -> Issuer;
}

/// What is to be reached on a node.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Namespace of the pod; empty for a node.
    pub namespace: String,
    /// Name of the pod or node.
    pub name: String,
    /// `log`, `exec`, `attach`, `portforward` of a pod, `proxy` of a node.
    pub subresource: String,
    /// The rest of the path behind `proxy`.
    pub rest: String,
    /// The pod or node as stored.
    pub object: Value,
}

/// Passes connections on to nodes.
#[async_trait]
pub trait Connect: Send + Sync + fmt::Debug + 'static {
    /// Answers the request; for upgrades it takes the upgrade out of the request's extensions.
    async fn connect(
        &self,
        user: &UserInfo,
        connection: Connection,
        request: Request<Body>,
    ) -> Result<Response<Body>, ApiError>;
}

/// All of them.
#[derive(Debug, Clone)]
pub struct Hooks {
    /// Login.
    pub authenticate: Arc<dyn Authenticate>,
    /// Rights.
    pub authorize: Arc<dyn Authorize>,
    /// Reviews and tokens.
    pub review: Arc<dyn Reviewer>,
    /// Connections to nodes.
    pub connect: Arc<dyn Connect>,
}
