//! Enters what the runtime does and what it is asked for into the book.

use std::collections::BTreeSet;

use longshore_cri::fake::Call;
use longshore_cri::{labels, v1};
use longshore_integration::fuzz::{Book, Size};

fn number(text: i64) -> u64 {
    u64::try_from(text).unwrap_or(0)
}

fn size(linux: &v1::LinuxContainerResources) -> Option<Size> {
    Size::told(linux.cpu_quota, linux.memory_limit_in_bytes)
}

/// Enters a change of the runtime into the book.
pub(super) fn changed(book: &mut Book, event: &v1::ContainerEventResponse, at: u64) {
    let id = &event.container_id;
    let sandbox = event.pod_sandbox_status.as_ref();
    let uid = sandbox.and_then(|sandbox| sandbox.labels.get(labels::POD_UID)).cloned().unwrap_or_default();
    let is_home = sandbox.map_or_else(|| book.owner(id).is_some(), |sandbox| sandbox.id == *id);
    let kind = event.container_event_type();
    let short = id.trim_start_matches('0');
    if is_home && sandbox.is_some_and(|sandbox| sandbox.id == *id) || sandbox.is_none() {
        match kind {
            v1::ContainerEventType::ContainerStartedEvent => {
                book.note(at, &format!("runtime: sandbox {short} of {uid} is ready"));
                book.home_made(&uid, id);
            }
            v1::ContainerEventType::ContainerStoppedEvent | v1::ContainerEventType::ContainerDeletedEvent => {
                book.note(at, &format!("runtime: sandbox {short} {kind:?}"));
                book.home_down(id);
            }
            v1::ContainerEventType::ContainerCreatedEvent => {}
        }
        return;
    }
    let status = event.containers_statuses.iter().find(|status| status.id == *id);
    let name = status.and_then(|status| status.metadata.as_ref()).map(|meta| meta.name.clone()).unwrap_or_default();
    match (kind, status) {
        (v1::ContainerEventType::ContainerCreatedEvent, Some(status)) => {
            let attempt = status.metadata.as_ref().map_or(0, |meta| meta.attempt);
            let image = status.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
            book.note(at, &format!("runtime: {name} {short} made, attempt {attempt}, {image}"));
            let home = sandbox.map(|sandbox| sandbox.id.clone()).unwrap_or_default();
            book.container_made(&uid, &home, id, &name, attempt, &image);
            book.sized(id, status.resources.as_ref().and_then(|own| size(own.linux.as_ref()?)));
        }
        (v1::ContainerEventType::ContainerStartedEvent, _) => {
            book.note(at, &format!("runtime: {name} {short} runs"));
            book.container_runs(id);
        }
        (v1::ContainerEventType::ContainerStoppedEvent, Some(status)) => {
            book.note(at, &format!("runtime: {name} {short} ended, {} {}", status.exit_code, status.reason));
            book.container_ended(id, status.exit_code, &status.reason, at);
        }
        (v1::ContainerEventType::ContainerDeletedEvent, _) => {
            book.note(at, &format!("runtime: container {short} removed"));
            book.container_gone(id);
        }
        (_, None) => {}
    }
}

/// Enters a call into the book.
pub(super) fn asked(book: &mut Book, call: &Call, at: u64, starting: &mut BTreeSet<String>) {
    let uid = call.pod.clone().unwrap_or_default();
    let note = |book: &mut Book, id: &str| {
        book.note(at, &format!("call: {} {} {uid}", call.rpc, id.trim_start_matches('0')));
    };
    if let Some(request) = call.request::<v1::StopContainerRequest>() {
        note(book, &format!("{} within {} s", request.container_id, request.timeout));
        book.asked_to_stop(&request.container_id, number(request.timeout), at);
    } else if let Some(request) = call.request::<v1::UpdateContainerResourcesRequest>() {
        let size = request.linux.as_ref().and_then(size);
        note(book, &format!("{} {size:?}", request.container_id));
        book.sized(&request.container_id, size);
    } else if let Some(request) = call.request::<v1::RemoveContainerRequest>() {
        note(book, &request.container_id);
        book.asked_to_remove(&request.container_id);
    } else if let Some(request) = call.request::<v1::StopPodSandboxRequest>() {
        note(book, &request.pod_sandbox_id);
        book.asked_to_stop_home(&request.pod_sandbox_id);
    } else if let Some(request) = call.request::<v1::RemovePodSandboxRequest>() {
        note(book, &request.pod_sandbox_id);
        book.asked_to_stop_home(&request.pod_sandbox_id);
    } else if let Some(request) = call.request::<v1::StartContainerRequest>() {
        note(book, &request.container_id);
        starting.insert(request.container_id.clone());
        book.asked_to_start(&uid, call.rpc, at);
    } else if matches!(call.rpc, "RunPodSandbox" | "CreateContainer") {
        note(book, "");
        book.asked_to_start(&uid, call.rpc, at);
    }
}
