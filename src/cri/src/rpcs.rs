//! The calls of both services as data: method, messages, name on the wire, upstream's name of the operation in
//! metrics, and the rule for its deadline. Client, server and failpoint gate are stamped out from here: none lacks a call.
//! `GetContainerEvents` stands apart everywhere, as its request is empty and its answer never ends.

macro_rules! runtime_rpcs {
    ($then:ident) => {
        $then! {
            unary {
                version(VersionRequest) -> VersionResponse, "Version", "version", usual;
                run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse, "RunPodSandbox", "run_podsandbox", run_pod_sandbox;
                stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse, "StopPodSandbox", "stop_podsandbox", usual;
                remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse, "RemovePodSandbox", "remove_podsandbox", usual;
                pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse, "PodSandboxStatus", "podsandbox_status", usual;
                list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse, "ListPodSandbox", "list_podsandbox", usual;
                create_container(CreateContainerRequest) -> CreateContainerResponse, "CreateContainer", "create_container", usual;
                start_container(StartContainerRequest) -> StartContainerResponse, "StartContainer", "start_container", usual;
                stop_container(StopContainerRequest) -> StopContainerResponse, "StopContainer", "stop_container", stop_container;
                remove_container(RemoveContainerRequest) -> RemoveContainerResponse, "RemoveContainer", "remove_container", usual;
                list_containers(ListContainersRequest) -> ListContainersResponse, "ListContainers", "list_containers", usual;
                container_status(ContainerStatusRequest) -> ContainerStatusResponse, "ContainerStatus", "container_status", usual;
                update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse, "UpdateContainerResources", "update_container", usual;
                reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse, "ReopenContainerLog", "reopen_container_log", usual;
                exec_sync(ExecSyncRequest) -> ExecSyncResponse, "ExecSync", "exec_sync", exec_sync;
                exec(ExecRequest) -> ExecResponse, "Exec", "exec", usual;
                attach(AttachRequest) -> AttachResponse, "Attach", "attach", usual;
                port_forward(PortForwardRequest) -> PortForwardResponse, "PortForward", "port_forward", usual;
                container_stats(ContainerStatsRequest) -> ContainerStatsResponse, "ContainerStats", "container_stats", usual;
                list_container_stats(ListContainerStatsRequest) -> ListContainerStatsResponse, "ListContainerStats", "list_container_stats", usual;
                pod_sandbox_stats(PodSandboxStatsRequest) -> PodSandboxStatsResponse, "PodSandboxStats", "podsandbox_stats", usual;
                list_pod_sandbox_stats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse, "ListPodSandboxStats", "list_podsandbox_stats", usual;
                update_runtime_config(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse, "UpdateRuntimeConfig", "update_runtime_config", usual;
                status(StatusRequest) -> StatusResponse, "Status", "status", usual;
                checkpoint_container(CheckpointContainerRequest) -> CheckpointContainerResponse, "CheckpointContainer", "checkpoint_container", checkpoint_container;
                list_metric_descriptors(ListMetricDescriptorsRequest) -> ListMetricDescriptorsResponse, "ListMetricDescriptors", "list_metric_descriptors", usual;
                list_pod_sandbox_metrics(ListPodSandboxMetricsRequest) -> ListPodSandboxMetricsResponse, "ListPodSandboxMetrics", "list_podsandbox_metrics", usual;
                runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse, "RuntimeConfig", "runtime_config", usual;
                update_pod_sandbox_resources(UpdatePodSandboxResourcesRequest) -> UpdatePodSandboxResourcesResponse, "UpdatePodSandboxResources", "update_podsandbox_resources", usual;
            }
            streams {
                stream_pod_sandboxes(StreamPodSandboxesRequest) -> StreamPodSandboxesResponse, "StreamPodSandboxes", "stream_podsandboxes", usual;
                stream_containers(StreamContainersRequest) -> StreamContainersResponse, "StreamContainers", "stream_containers", usual;
                stream_container_stats(StreamContainerStatsRequest) -> StreamContainerStatsResponse, "StreamContainerStats", "stream_container_stats", usual;
                stream_pod_sandbox_stats(StreamPodSandboxStatsRequest) -> StreamPodSandboxStatsResponse, "StreamPodSandboxStats", "stream_podsandbox_stats", usual;
                stream_pod_sandbox_metrics(StreamPodSandboxMetricsRequest) -> StreamPodSandboxMetricsResponse, "StreamPodSandboxMetrics", "stream_podsandbox_metrics", usual;
            }
        }
    };
}

macro_rules! image_rpcs {
    ($then:ident) => {
        $then! {
            unary {
                list_images(ListImagesRequest) -> ListImagesResponse, "ListImages", "list_images", usual;
                image_status(ImageStatusRequest) -> ImageStatusResponse, "ImageStatus", "image_status", usual;
                pull_image(PullImageRequest) -> PullImageResponse, "PullImage", "pull_image", none;
                remove_image(RemoveImageRequest) -> RemoveImageResponse, "RemoveImage", "remove_image", usual;
                image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse, "ImageFsInfo", "image_fs_info", usual;
            }
            streams {
                stream_images(StreamImagesRequest) -> StreamImagesResponse, "StreamImages", "stream_images", usual;
            }
        }
    };
}

pub(crate) use {image_rpcs, runtime_rpcs};
