//! The node's HTTP faces: 10250 with TLS, login and rights for everything; 10248 in the clear on loopback, on a thread of
//! its own so that it answers when all else is stuck. Reads pods through [`crate::model::ReadPods`], never changes one.

mod authn;
mod authz;
mod cache;
mod certificate;
mod config;
mod container_logs;
mod health;
mod listen;
mod pod_gauges;
mod pods;
mod query;
mod resource_metrics;
mod router;
mod rules;
mod run;
mod streams;
mod target;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_cri::SharedRuntime;
use longshore_transport::serve::BindError;
use longshore_transport::tls::{MinVersion, TlsConfigError};
use longshore_util::clock::SharedClock;

pub use config::{configured_checks, health_address, start_configured};
pub use health::{HealthCheck, HealthChecks};
pub use listen::{ServerHandle, start, start_health};

use crate::model::ReadPods;
use crate::telemetry::SharedTelemetry;

/// `authorization.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Whoever has logged in may do everything.
    AlwaysAllow,
    /// The API is asked.
    Webhook,
}

/// Settings of the servers, already validated.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The node's name.
    pub node: String,
    /// `address` and `port`.
    pub bind: SocketAddr,
    /// `tlsCertFile` and `tlsPrivateKeyFile`.
    pub certificate_files: Option<(PathBuf, PathBuf)>,
    /// `--cert-dir`: where a self-signed certificate is kept when no file is given.
    pub cert_dir: PathBuf,
    /// Addresses that a self-signed certificate names besides the node's name.
    pub addresses: Vec<IpAddr>,
    /// `tlsMinVersion`.
    pub min_version: MinVersion,
    /// `tlsCipherSuites`.
    pub cipher_suites: Vec<String>,
    /// `authentication.x509.clientCAFile`.
    pub client_ca_file: Option<PathBuf>,
    /// `authentication.webhook.enabled`.
    pub token_webhook: bool,
    /// `authentication.webhook.cacheTTL`.
    pub token_ttl: Duration,
    /// `authentication.anonymous.enabled`.
    pub anonymous: bool,
    /// `authorization.mode`.
    pub authorization: AuthorizationMode,
    /// `authorization.webhook.cacheAuthorizedTTL`.
    pub allow_ttl: Duration,
    /// `authorization.webhook.cacheUnauthorizedTTL`.
    pub deny_ttl: Duration,
    /// `enableDebuggingHandlers`.
    pub debugging_handlers: bool,
    /// `streamingConnectionIdleTimeout`.
    pub stream_idle: Duration,
    /// The effective configuration, as `/configz` shows it.
    pub config: Arc<serde_json::Value>,
}

impl ServerOptions {
    /// Upstream's defaults with a configuration file: closed.
    pub fn new(node: impl Into<String>, bind: SocketAddr, cert_dir: impl Into<PathBuf>) -> Self {
        Self {
            node: node.into(),
            bind,
            certificate_files: None,
            cert_dir: cert_dir.into(),
            addresses: Vec::new(),
            min_version: MinVersion::default(),
            cipher_suites: Vec::new(),
            client_ca_file: None,
            token_webhook: true,
            token_ttl: Duration::from_secs(120),
            anonymous: false,
            authorization: AuthorizationMode::Webhook,
            allow_ttl: Duration::from_secs(300),
            deny_ttl: Duration::from_secs(30),
            debugging_handlers: true,
            stream_idle: Duration::from_secs(4 * 3600),
            config: Arc::new(serde_json::Value::Null),
        }
    }
}

/// What the server works with.
#[derive(Clone)]
pub struct ServerDeps {
    /// The API, for tokens and rights.
    pub client: Option<kube::Client>,
    /// The container runtime.
    pub runtime: SharedRuntime,
    /// The pods.
    pub pods: Arc<dyn ReadPods>,
    /// Wall clock.
    pub clock: SharedClock,
    /// Metrics.
    pub telemetry: SharedTelemetry,
    /// What `/healthz` asks.
    pub health: HealthChecks,
}

impl std::fmt::Debug for ServerDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerDeps").field("api", &self.client.is_some()).finish_non_exhaustive()
    }
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port is not to be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Certificate, key or client authority cannot be used.
    #[error("TLS of the node's server: {0}")]
    Tls(#[from] TlsConfigError),
    /// The configuration lets nobody in.
    #[error("no way to log in is configured: set authentication.x509.clientCAFile, webhook or anonymous")]
    NoLogin,
    /// Tokens are to be checked by an API that is not there.
    #[error("authentication.webhook is enabled but there is no API client; hint: give --kubeconfig, or disable it")]
    TokenWithoutApi,
    /// Rights are to be checked by an API that is not there.
    #[error("authorization.mode is Webhook but there is no API client; hint: give --kubeconfig, or set AlwaysAllow")]
    RightsWithoutApi,
    /// The thread of the health server cannot be made.
    #[error("thread of the health server: {0}")]
    Thread(std::io::Error),
}
