//! One trait per CRI service, object-safe, so that the real client, a fake and a proxy are interchangeable. Dropping a
//! call's future cancels the call.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use crate::{CriError, v1};

/// A runtime shared by many callers.
pub type SharedRuntime = Arc<dyn RuntimeService>;
/// An image service shared by many callers.
pub type SharedImages = Arc<dyn ImageService>;
/// Messages of one streaming call.
pub type Streaming<T> = BoxStream<'static, Result<T, CriError>>;
/// Changes of containers and sandboxes.
pub type EventStream = Streaming<v1::ContainerEventResponse>;

/// Sandboxes and containers. The deadline of each kind of call is applied inside.
#[async_trait]
pub trait RuntimeService: Send + Sync + Debug + 'static {
    /// Names the runtime and the API version that it serves.
    async fn version(&self, request: v1::VersionRequest) -> Result<v1::VersionResponse, CriError>;

    /// Makes and starts a sandbox with its network. Deadline: twice the usual.
    async fn run_pod_sandbox(&self, request: v1::RunPodSandboxRequest) -> Result<v1::RunPodSandboxResponse, CriError>;

    /// Stops all containers of a sandbox, then its network. Idempotent, but `NotFound` from containerd 1.6 when it is gone.
    async fn stop_pod_sandbox(
        &self,
        request: v1::StopPodSandboxRequest,
    ) -> Result<v1::StopPodSandboxResponse, CriError>;

    /// Removes a sandbox with its containers. Idempotent.
    async fn remove_pod_sandbox(
        &self,
        request: v1::RemovePodSandboxRequest,
    ) -> Result<v1::RemovePodSandboxResponse, CriError>;

    /// Shows one sandbox; `NotFound` when it is gone.
    async fn pod_sandbox_status(
        &self,
        request: v1::PodSandboxStatusRequest,
    ) -> Result<v1::PodSandboxStatusResponse, CriError>;

    /// Lists sandboxes that match a filter.
    async fn list_pod_sandbox(
        &self,
        request: v1::ListPodSandboxRequest,
    ) -> Result<v1::ListPodSandboxResponse, CriError>;

    /// Lists sandboxes in pieces; few runtimes have it.
    async fn stream_pod_sandboxes(
        &self,
        request: v1::StreamPodSandboxesRequest,
    ) -> Result<Streaming<v1::StreamPodSandboxesResponse>, CriError>;

    /// Makes a container in a sandbox without starting it.
    async fn create_container(
        &self,
        request: v1::CreateContainerRequest,
    ) -> Result<v1::CreateContainerResponse, CriError>;

    /// Starts a created container.
    async fn start_container(&self, request: v1::StartContainerRequest)
    -> Result<v1::StartContainerResponse, CriError>;

    /// Stops a container: signal, then SIGKILL after the timeout. Deadline: that timeout plus the usual.
    /// Idempotent, but may be `NotFound` when it is gone.
    async fn stop_container(&self, request: v1::StopContainerRequest) -> Result<v1::StopContainerResponse, CriError>;

    /// Removes a container, killing it first. Idempotent.
    async fn remove_container(
        &self,
        request: v1::RemoveContainerRequest,
    ) -> Result<v1::RemoveContainerResponse, CriError>;

    /// Lists containers that match a filter.
    async fn list_containers(&self, request: v1::ListContainersRequest)
    -> Result<v1::ListContainersResponse, CriError>;

    /// Lists containers in pieces; few runtimes have it.
    async fn stream_containers(
        &self,
        request: v1::StreamContainersRequest,
    ) -> Result<Streaming<v1::StreamContainersResponse>, CriError>;

    /// Shows one container; `NotFound` when it is gone.
    async fn container_status(
        &self,
        request: v1::ContainerStatusRequest,
    ) -> Result<v1::ContainerStatusResponse, CriError>;

    /// Changes the limits of a container.
    async fn update_container_resources(
        &self,
        request: v1::UpdateContainerResourcesRequest,
    ) -> Result<v1::UpdateContainerResourcesResponse, CriError>;

    /// Makes the runtime open the log file anew after a rotation.
    async fn reopen_container_log(
        &self,
        request: v1::ReopenContainerLogRequest,
    ) -> Result<v1::ReopenContainerLogResponse, CriError>;

    /// Runs a command and waits for its end. Deadline: its timeout plus the usual, none when that is zero.
    async fn exec_sync(&self, request: v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse, CriError>;

    /// Prepares a stream to a new process; the answer is a URL.
    async fn exec(&self, request: v1::ExecRequest) -> Result<v1::ExecResponse, CriError>;

    /// Prepares a stream to the main process; the answer is a URL.
    async fn attach(&self, request: v1::AttachRequest) -> Result<v1::AttachResponse, CriError>;

    /// Prepares a stream to a port of the pod; the answer is a URL.
    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<v1::PortForwardResponse, CriError>;

    /// Figures of one container.
    async fn container_stats(&self, request: v1::ContainerStatsRequest)
    -> Result<v1::ContainerStatsResponse, CriError>;

    /// Figures of the containers that match a filter.
    async fn list_container_stats(
        &self,
        request: v1::ListContainerStatsRequest,
    ) -> Result<v1::ListContainerStatsResponse, CriError>;

    /// Figures of containers in pieces; few runtimes have it.
    async fn stream_container_stats(
        &self,
        request: v1::StreamContainerStatsRequest,
    ) -> Result<Streaming<v1::StreamContainerStatsResponse>, CriError>;

    /// Figures of one pod.
    async fn pod_sandbox_stats(
        &self,
        request: v1::PodSandboxStatsRequest,
    ) -> Result<v1::PodSandboxStatsResponse, CriError>;

    /// Figures of the pods that match a filter.
    async fn list_pod_sandbox_stats(
        &self,
        request: v1::ListPodSandboxStatsRequest,
    ) -> Result<v1::ListPodSandboxStatsResponse, CriError>;

    /// Figures of pods in pieces; few runtimes have it.
    async fn stream_pod_sandbox_stats(
        &self,
        request: v1::StreamPodSandboxStatsRequest,
    ) -> Result<Streaming<v1::StreamPodSandboxStatsResponse>, CriError>;

    /// Tells the runtime the node's pod CIDR.
    async fn update_runtime_config(
        &self,
        request: v1::UpdateRuntimeConfigRequest,
    ) -> Result<v1::UpdateRuntimeConfigResponse, CriError>;

    /// Conditions of the runtime and its network.
    async fn status(&self, request: v1::StatusRequest) -> Result<v1::StatusResponse, CriError>;

    /// Writes a checkpoint of a container. Deadline: its timeout, at least the usual.
    async fn checkpoint_container(
        &self,
        request: v1::CheckpointContainerRequest,
    ) -> Result<v1::CheckpointContainerResponse, CriError>;

    /// Subscribes to changes of containers and sandboxes. No deadline; `Unimplemented` from older runtimes. What is not
    /// read waits in the connection, so a subscriber must keep reading.
    async fn container_events(&self) -> Result<EventStream, CriError>;

    /// Describes the metrics that [`RuntimeService::list_pod_sandbox_metrics`] gives.
    async fn list_metric_descriptors(
        &self,
        request: v1::ListMetricDescriptorsRequest,
    ) -> Result<v1::ListMetricDescriptorsResponse, CriError>;

    /// Metrics of all pods as the runtime gathers them.
    async fn list_pod_sandbox_metrics(
        &self,
        request: v1::ListPodSandboxMetricsRequest,
    ) -> Result<v1::ListPodSandboxMetricsResponse, CriError>;

    /// Metrics of pods in pieces; few runtimes have it.
    async fn stream_pod_sandbox_metrics(
        &self,
        request: v1::StreamPodSandboxMetricsRequest,
    ) -> Result<Streaming<v1::StreamPodSandboxMetricsResponse>, CriError>;

    /// Configuration that both sides must share, e.g. the cgroup driver.
    async fn runtime_config(&self, request: v1::RuntimeConfigRequest) -> Result<v1::RuntimeConfigResponse, CriError>;

    /// Tells the runtime the resources of the pod as a whole.
    async fn update_pod_sandbox_resources(
        &self,
        request: v1::UpdatePodSandboxResourcesRequest,
    ) -> Result<v1::UpdatePodSandboxResourcesResponse, CriError>;
}

/// Images.
#[async_trait]
pub trait ImageService: Send + Sync + Debug + 'static {
    /// Lists images that match a filter.
    async fn list_images(&self, request: v1::ListImagesRequest) -> Result<v1::ListImagesResponse, CriError>;

    /// Lists images in pieces; few runtimes have it.
    async fn stream_images(
        &self,
        request: v1::StreamImagesRequest,
    ) -> Result<Streaming<v1::StreamImagesResponse>, CriError>;

    /// Shows one image; the answer holds none when it is not there.
    async fn image_status(&self, request: v1::ImageStatusRequest) -> Result<v1::ImageStatusResponse, CriError>;

    /// Pulls an image. No deadline: it ends when dropped.
    async fn pull_image(&self, request: v1::PullImageRequest) -> Result<v1::PullImageResponse, CriError>;

    /// Removes an image. Idempotent.
    async fn remove_image(&self, request: v1::RemoveImageRequest) -> Result<v1::RemoveImageResponse, CriError>;

    /// Usage of the filesystems of images and containers.
    async fn image_fs_info(&self, request: v1::ImageFsInfoRequest) -> Result<v1::ImageFsInfoResponse, CriError>;
}
