//! Reads one pod from the runtime. Two lists, then a status only for what is new or changed since the last look, so that
//! a wake-up of a steady pod costs two cheap calls.

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use longshore_api::resources::{Actual, LinuxResources};
use longshore_cri::{CriError, RuntimeService, labels, v1};
use longshore_host::file::{Links, open_regular};

use super::observed::{Instance, InstanceState, LinuxUser, Observed, Sandbox};
use super::wanted;
use crate::model::{ContainerId, PodUid};

/// Longest termination message of one container.
const MESSAGE_BYTES: u64 = 4096;
/// Longest tail of the log that stands in for a message.
const LOG_TAIL_BYTES: u64 = 2048;

/// Looks at the pod in the runtime.
pub(super) async fn pod(runtime: &dyn RuntimeService, uid: &PodUid, old: &Observed) -> Result<Observed, CriError> {
    let selector: BTreeMap<String, String> = [(labels::POD_UID.to_owned(), uid.to_string())].into();
    let sandboxes = runtime.list_pod_sandbox(v1::ListPodSandboxRequest {
        filter: Some(v1::PodSandboxFilter { label_selector: selector.clone(), ..Default::default() }),
    });
    let containers = runtime.list_containers(v1::ListContainersRequest {
        filter: Some(v1::ContainerFilter { label_selector: selector, ..Default::default() }),
    });
    let (sandboxes, containers) = tokio::try_join!(sandboxes, containers)?;
    from_lists(runtime, &sandboxes.items, &containers.containers, old).await
}

/// Completes what two lists said about one pod.
pub(super) async fn from_lists(
    runtime: &dyn RuntimeService,
    sandboxes: &[v1::PodSandbox],
    containers: &[v1::Container],
    old: &Observed,
) -> Result<Observed, CriError> {
    let mut observed = Observed::default();
    for item in sandboxes {
        let ready = item.state() == v1::PodSandboxState::SandboxReady;
        let known = old.sandboxes.iter().find(|s| s.id.as_str() == item.id);
        if let Some(known) = known
            && (known.ready == ready || !ready)
        {
            observed.sandboxes.push(Sandbox { ready, ..known.clone() });
            continue;
        }
        match runtime
            .pod_sandbox_status(v1::PodSandboxStatusRequest { pod_sandbox_id: item.id.clone(), verbose: false })
            .await
        {
            Ok(answer) => observed.sandboxes.extend(answer.status.as_ref().map(sandbox)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    for item in containers {
        let state = state(item.state());
        let known = old.containers.iter().find(|c| c.id.as_str() == item.id);
        if let Some(known) = known
            && known.state == state
            && state != InstanceState::Unknown
            && !known.is_recalled()
        {
            observed.containers.push(known.clone());
            continue;
        }
        match container(runtime, &item.id.as_str().into(), &item.pod_sandbox_id).await {
            Ok(found) => observed.containers.extend(found),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    observed.sort();
    Ok(observed)
}

/// Looks at one container.
pub(super) async fn container(
    runtime: &dyn RuntimeService,
    id: &ContainerId,
    sandbox: &str,
) -> Result<Option<Instance>, CriError> {
    let request = v1::ContainerStatusRequest { container_id: id.to_string(), verbose: false };
    let answer = runtime.container_status(request).await?;
    Ok(answer.status.as_ref().map(|status| instance(status, sandbox)))
}

/// Translates a sandbox.
pub(super) fn sandbox(status: &v1::PodSandboxStatus) -> Sandbox {
    let mut ips = Vec::new();
    if let Some(network) = &status.network {
        if !network.ip.is_empty() {
            ips.push(network.ip.clone());
        }
        ips.extend(network.additional_ips.iter().map(|ip| ip.ip.clone()).filter(|ip| !ip.is_empty()));
    }
    Sandbox {
        id: status.id.as_str().into(),
        attempt: status.metadata.as_ref().map_or(0, |m| m.attempt),
        ready: status.state() == v1::PodSandboxState::SandboxReady,
        created_at: status.created_at,
        ips,
    }
}

fn state(state: v1::ContainerState) -> InstanceState {
    match state {
        v1::ContainerState::ContainerCreated => InstanceState::Created,
        v1::ContainerState::ContainerRunning => InstanceState::Running,
        v1::ContainerState::ContainerExited => InstanceState::Exited,
        v1::ContainerState::ContainerUnknown => InstanceState::Unknown,
    }
}

fn instance(status: &v1::ContainerStatus, sandbox: &str) -> Instance {
    let metadata = status.metadata.clone().unwrap_or_default();
    let annotation = |key: &str| status.annotations.get(key).map(String::as_str);
    let message_path = annotation("io.kubernetes.container.terminationMessagePath").unwrap_or("/dev/termination-log");
    let termination_file =
        status.mounts.iter().find(|m| m.container_path == message_path).map(|m| PathBuf::from(&m.host_path));
    let user = status.user.as_ref().and_then(|u| u.linux.as_ref()).map(|u| LinuxUser {
        uid: u.uid,
        gid: u.gid,
        groups: u.supplemental_groups.clone(),
    });
    Instance {
        id: status.id.as_str().into(),
        name: metadata.name,
        attempt: annotation("io.kubernetes.container.restartCount")
            .and_then(|n| n.parse().ok())
            .unwrap_or(metadata.attempt),
        sandbox: sandbox.into(),
        state: state(status.state()),
        created_at: status.created_at,
        started_at: status.started_at,
        finished_at: status.finished_at,
        exit_code: status.exit_code,
        reason: status.reason.clone(),
        message: status.message.clone(),
        image: status.image.as_ref().map(|i| i.image.clone()).unwrap_or_default(),
        image_ref: status.image_ref.clone(),
        hash: annotation("io.kubernetes.container.hash").unwrap_or_default().to_owned(),
        termination_file,
        log_path: status.log_path.clone(),
        user,
        stop_signal: Some(status.stop_signal()).filter(|signal| *signal != v1::Signal::RuntimeDefault),
        actual: status.resources.as_ref().and_then(|own| own.linux.as_ref()).map(actual),
    }
}

fn actual(linux: &v1::LinuxContainerResources) -> Actual {
    Actual::of(&LinuxResources {
        cpu_shares: linux.cpu_shares,
        cpu_quota: linux.cpu_quota,
        cpu_period: linux.cpu_period,
        memory_limit: linux.memory_limit_in_bytes,
    })
}

/// Reads the termination message of a container that has exited; the runtime's own message stays when there is none.
pub(super) fn termination_message(pod: &Pod, instance: &Instance) -> Option<String> {
    let fallback = wanted::falls_back_to_log(pod, &instance.name)?;
    let file = instance.termination_file.as_deref().and_then(|path| tail(path, MESSAGE_BYTES).ok()).unwrap_or_default();
    if !file.is_empty() {
        return Some(file);
    }
    if fallback && instance.exit_code != 0 && !instance.log_path.is_empty() {
        let log = tail(Path::new(&instance.log_path), 4 * LOG_TAIL_BYTES).unwrap_or_default();
        return Some(log_text(&log)).filter(|text| !text.is_empty());
    }
    None
}

/// The last bytes of a regular file. The container owns the file, so a link or a device in its place is not followed.
fn tail(path: &Path, bytes: u64) -> std::io::Result<String> {
    let Some(mut file) = open_regular(path, Links::Refuse)? else { return Ok(String::new()) };
    file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(bytes)))?;
    let mut content = Vec::new();
    file.take(bytes).read_to_end(&mut content)?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

/// Strips time, stream and tag from the last 80 lines of a log in the CRI format.
fn log_text(log: &str) -> String {
    let mut lines: Vec<&str> = log.lines().rev().take(80).collect();
    lines.reverse();
    let mut text = String::new();
    for line in lines {
        let mut parts = line.splitn(4, ' ');
        if let (Some(_), Some("stdout" | "stderr"), Some(tag), Some(content)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        {
            text.push_str(content);
            if tag.starts_with('F') {
                text.push('\n');
            }
        }
    }
    let limit = usize::try_from(LOG_TAIL_BYTES).unwrap_or(usize::MAX);
    let mut start = text.len().saturating_sub(limit);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.split_off(start)
}
