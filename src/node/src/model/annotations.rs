//! Annotations by which the node marks pods.

use k8s_openapi::api::core::v1::Pod;

/// Holds a static pod's uid.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Makes a pod a mirror; its value is the hash of what it mirrors.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// Names a pod's source.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Holds when a pod was seen first.
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
/// Tells one manifest from the next where both give the pod the same uid; ours alone, and on no other pods.
pub const CONFIG_REVISION: &str = "longshore/config.revision";

/// Which manifest a static pod with a given uid was made of.
pub fn revision(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(CONFIG_REVISION).map(String::as_str)
}
