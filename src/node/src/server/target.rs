//! Finds what a path names: the pod in the table, the container or sandbox in the runtime.

use std::collections::HashMap;

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use k8s_openapi::api::core::v1::PodSpec;
use longshore_cri::{Code, CriError, ErrorKind, SharedRuntime, v1};

use crate::model::{PodKey, PodView, ReadPods};

const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// An answer in plain text with a newline, as Go's error writer makes it.
pub(super) fn text(status: StatusCode, message: impl Into<String>) -> Response<Body> {
    let mut message = message.into();
    if !message.ends_with('\n') {
        message.push('\n');
    }
    let mut response = Response::new(Body::from(message));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The answer to a failed call of the runtime.
pub(super) fn runtime_error(error: &CriError) -> Response<Body> {
    let status = match error.kind {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        kind if kind.code() == Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = text(status, error.to_string());
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// The pod of that name; with a uid, only if it is that one (its own or its mirror's).
pub(super) fn pod(pods: &dyn ReadPods, namespace: &str, name: &str, uid: Option<&str>) -> Option<PodView> {
    let view = pods.by_key(&PodKey::new(namespace, name))?;
    let Some(uid) = uid else { return Some(view) };
    let is_mirror = view.mirror.as_ref().is_some_and(|mirror| mirror.as_str() == uid);
    (view.desired.uid.as_str() == uid || is_mirror).then_some(view)
}

/// Whether the pod's spec has a container of that name in any of its lists, and whether that one has a terminal.
pub(super) fn container_tty(spec: Option<&PodSpec>, name: &str) -> Option<bool> {
    let spec = spec?;
    let plain = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    plain
        .filter(|container| container.name == name)
        .map(|container| container.tty)
        .chain(
            spec.ephemeral_containers
                .iter()
                .flatten()
                .filter(|container| container.name == name)
                .map(|container| container.tty),
        )
        .next()
        .map(|tty| tty.unwrap_or(false))
}

/// The id of the newest running container of that name.
pub(super) async fn running_container(
    runtime: &SharedRuntime,
    uid: &str,
    name: &str,
) -> Result<Option<String>, CriError> {
    let labels = HashMap::from([(POD_UID.to_owned(), uid.to_owned()), (CONTAINER_NAME.to_owned(), name.to_owned())]);
    let filter = v1::ContainerFilter {
        state: Some(v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() }),
        label_selector: labels.into_iter().collect(),
        ..v1::ContainerFilter::default()
    };
    let answer = runtime.list_containers(v1::ListContainersRequest { filter: Some(filter) }).await?;
    Ok(answer.containers.into_iter().max_by_key(|container| container.created_at).map(|container| container.id))
}

/// The id of the newest ready sandbox of the pod.
pub(super) async fn ready_sandbox(runtime: &SharedRuntime, uid: &str) -> Result<Option<String>, CriError> {
    let filter = v1::PodSandboxFilter {
        state: Some(v1::PodSandboxStateValue { state: v1::PodSandboxState::SandboxReady.into() }),
        label_selector: [(POD_UID.to_owned(), uid.to_owned())].into_iter().collect(),
        ..v1::PodSandboxFilter::default()
    };
    let answer = runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter: Some(filter) }).await?;
    Ok(answer.items.into_iter().max_by_key(|sandbox| sandbox.created_at).map(|sandbox| sandbox.id))
}
