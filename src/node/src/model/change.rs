//! What sources say about pods.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::{PodKey, PodUid};

/// Where a pod was seen; written to the annotation `kubernetes.io/config.source`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// The apiserver.
    Api,
    /// The manifest directory.
    File,
    /// A manifest URL.
    Http,
}

impl SourceKind {
    /// The value of `kubernetes.io/config.source`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::File => "file",
            Self::Http => "http",
        }
    }

    /// Says whether pods of this source are static pods.
    pub const fn is_static(self) -> bool {
        !matches!(self, Self::Api)
    }
}

/// A pod as a source wants it: defaulted, validated and stamped with the config annotations.
#[derive(Debug, Clone)]
pub struct DesiredPod {
    /// The id under which the node runs it.
    pub uid: PodUid,
    /// Its name.
    pub key: PodKey,
    /// The object, with its status as last received (API pods only).
    pub pod: Arc<Pod>,
    /// Where it came from.
    pub source: SourceKind,
    /// When this process saw it first (`kubernetes.io/config.seen`).
    pub seen: Timestamp,
}

impl DesiredPod {
    /// The runtime class that it names.
    pub fn runtime_class(&self) -> Option<&str> {
        let class = self.pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref());
        class.filter(|class| !class.is_empty())
    }
}

/// One change of the desired set, already deduplicated by the mux.
#[derive(Debug, Clone)]
pub enum PodChange {
    /// New or changed spec, labels, annotations or `deletionTimestamp`.
    Set(DesiredPod),
    /// Only the status changed in the API (somebody else wrote, or our own write came back).
    Status(DesiredPod),
    /// The source no longer has this pod.
    Remove(PodUid),
    /// Every configured source has delivered its first full set: from now on strangers may be cleaned.
    AllSourcesReady,
}

/// Takes changes; implemented by the pod table.
pub trait PodSink: Send + Sync + std::fmt::Debug {
    /// Applies one change. Never blocks: the table keeps the newest spec per pod.
    fn apply(&self, change: PodChange);
}
