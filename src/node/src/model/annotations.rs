//! Annotations by which the node marks pods.

/// Holds a static pod's uid.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Makes a pod a mirror; its value is the hash of what it mirrors.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// Names a pod's source.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Holds when a pod was seen first.
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
