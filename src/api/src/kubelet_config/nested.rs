//! The parts of the configuration that are objects themselves.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;
use crate::quantity::Quantity;

/// Who callers of 10250 are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Authentication {
    /// Client certificates.
    #[serde(default)]
    pub x509: X509Authentication,
    /// Bearer tokens.
    #[serde(default)]
    pub webhook: WebhookAuthentication,
    /// Callers without credentials.
    #[serde(default)]
    pub anonymous: AnonymousAuthentication,
}

/// Client certificates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct X509Authentication {
    /// CA bundle for client certificate auth (CN user, O groups).
    #[serde(default, rename = "clientCAFile")]
    pub client_ca_file: String,
}

/// Bearer tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookAuthentication {
    /// Bearer tokens checked with TokenReview.
    #[serde(default)]
    pub enabled: bool,
    /// TokenReview result cache time.
    #[serde(default, rename = "cacheTTL")]
    pub cache_ttl: GoDuration,
}

/// Callers without credentials.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnonymousAuthentication {
    /// Unauthenticated becomes system:anonymous / system:unauthenticated.
    #[serde(default)]
    pub enabled: bool,
}

/// What callers of 10250 may do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Authorization {
    /// Authorization mode of 10250.
    #[serde(default)]
    pub mode: String,
    /// Decisions asked from the apiserver.
    #[serde(default)]
    pub webhook: WebhookAuthorization,
}

/// Decisions asked from the apiserver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookAuthorization {
    /// Allow decision cache time.
    #[serde(default, rename = "cacheAuthorizedTTL")]
    pub cache_authorized_ttl: GoDuration,
    /// Deny decision cache time.
    #[serde(default, rename = "cacheUnauthorizedTTL")]
    pub cache_unauthorized_ttl: GoDuration,
}

/// Swap of containers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemorySwap {
    /// Swap use by containers.
    #[serde(default)]
    pub swap_behavior: String,
}

/// How the agent logs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Logging {
    /// Log format.
    #[serde(default)]
    pub format: String,
    /// Log flush period.
    #[serde(default)]
    pub flush_frequency: GoDuration,
    /// Log level.
    #[serde(default)]
    pub verbosity: u32,
    /// Per-file log level.
    #[serde(default)]
    pub vmodule: Vec<VModule>,
    /// Options of the log formats.
    #[serde(default)]
    pub options: LoggingOptions,
}

/// Options of the log formats.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoggingOptions {
    /// Options of a log format.
    #[serde(default)]
    pub text: LoggingStream,
    /// Options of a log format.
    #[serde(default)]
    pub json: LoggingStream,
}

/// Options of a log format.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoggingStream {
    /// Info to stdout, errors to stderr.
    #[serde(default)]
    pub split_stream: bool,
    /// Buffer of info stream when split.
    #[serde(default)]
    pub info_buffer_size: Quantity,
}

/// Restart back-off of containers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CrashLoopBackOff {
    /// Cap of container restart backoff.
    #[serde(default)]
    pub max_container_restart_period: GoDuration,
}

/// Spans sent to a collector.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tracing {
    /// OTLP gRPC collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Root span sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling_rate_per_million: Option<i32>,
}

/// Ids of user namespaces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserNamespaces {
    /// Ids mapped per pod.
    #[serde(default)]
    pub ids_per_pod: i64,
}

/// The log level of files that match a pattern.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VModule {
    /// Pattern of file names.
    pub file_pattern: String,
    /// Log level.
    pub verbosity: i32,
}

/// Grace at node shutdown for pods from a priority on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShutdownTier {
    /// The lowest priority of the tier.
    pub priority: i32,
    /// Its grace.
    pub shutdown_grace_period_seconds: i64,
}

/// Memory of a NUMA node kept from pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryReservation {
    /// The NUMA node.
    pub numa_node: i32,
    /// Amounts of `memory` and `hugepages-<size>`.
    pub limits: BTreeMap<String, Quantity>,
}

/// A taint that the Node object gets when it is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// Must not be set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// HTTP headers that may hold credentials: never shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretHeaders(pub BTreeMap<String, Vec<String>>);

impl fmt::Debug for SecretHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|name| (name, "<redacted>"))).finish()
    }
}
