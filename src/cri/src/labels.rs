//! Labels by which pods and containers are found again in the runtime.

/// Name of the pod.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Namespace of the pod.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Uid under which the node runs the pod. What lacks it is not ours and is never touched.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Name of the container within its pod.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
