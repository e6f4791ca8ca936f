//! Tells what a request is about.

use std::any::Any;

use crate::v1;

/// The thing that a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// A pod, by uid.
    Pod(String),
    /// A sandbox or container, by id.
    Id(String),
    /// The runtime as a whole, an image, or a list.
    None,
}

macro_rules! by_id {
    ($request:ident: $($message:ident . $field:ident),* $(,)?) => {
        $(if let Some(request) = $request.downcast_ref::<v1::$message>() {
            return Subject::Id(request.$field.clone());
        })*
    };
}

fn sandbox_config(config: Option<&v1::PodSandboxConfig>) -> Subject {
    config
        .and_then(|config| config.metadata.as_ref())
        .map_or(Subject::None, |metadata| Subject::Pod(metadata.uid.clone()))
}

impl Subject {
    /// Reads it from a request.
    pub(super) fn of(request: &dyn Any) -> Self {
        by_id!(request:
            StopPodSandboxRequest.pod_sandbox_id,
            RemovePodSandboxRequest.pod_sandbox_id,
            PodSandboxStatusRequest.pod_sandbox_id,
            PodSandboxStatsRequest.pod_sandbox_id,
            UpdatePodSandboxResourcesRequest.pod_sandbox_id,
            PortForwardRequest.pod_sandbox_id,
            CreateContainerRequest.pod_sandbox_id,
            StartContainerRequest.container_id,
            StopContainerRequest.container_id,
            RemoveContainerRequest.container_id,
            ContainerStatusRequest.container_id,
            ContainerStatsRequest.container_id,
            UpdateContainerResourcesRequest.container_id,
            ReopenContainerLogRequest.container_id,
            ExecSyncRequest.container_id,
            ExecRequest.container_id,
            AttachRequest.container_id,
            CheckpointContainerRequest.container_id,
        );
        if let Some(request) = request.downcast_ref::<v1::RunPodSandboxRequest>() {
            return sandbox_config(request.config.as_ref());
        }
        if let Some(request) = request.downcast_ref::<v1::PullImageRequest>() {
            return sandbox_config(request.sandbox_config.as_ref());
        }
        let labels = if let Some(request) = request.downcast_ref::<v1::ListPodSandboxRequest>() {
            request.filter.as_ref().map(|filter| &filter.label_selector)
        } else if let Some(request) = request.downcast_ref::<v1::ListContainersRequest>() {
            request.filter.as_ref().map(|filter| &filter.label_selector)
        } else {
            None
        };
        match labels.and_then(|labels| labels.get(crate::labels::POD_UID)) {
            Some(uid) => Self::Pod(uid.clone()),
            None => Self::None,
        }
    }
}
