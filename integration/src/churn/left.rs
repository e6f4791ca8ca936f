//! What a node must not keep when its last pod is gone.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use longshore_cri::{CriClient, RuntimeService as _, v1};
use longshore_host::process;

use super::{Place, pods};

/// Until everything must be gone; a loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(180);

/// Deletes all pods and checks that API, runtime, pod directories, mounts, cgroups, network and processes are empty.
pub async fn leave_nothing(place: &Place) -> Result<()> {
    leave(place, true).await
}

/// The same, but for shims that the runtime forgot: the agent gives those half a minute and more.
pub async fn leave_no_pods(place: &Place) -> Result<()> {
    leave(place, false).await
}

async fn leave(place: &Place, wholly: bool) -> Result<()> {
    let api = pods(place).await?;
    for pod in api.list(&ListParams::default()).await? {
        drop(api.delete(&pod.metadata.name.unwrap_or_default(), &DeleteParams::default()).await);
    }
    let runtime = CriClient::connect(&place.endpoint, longshore_cri::ClientOptions::default())?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = leftovers(&api, &runtime, place, wholly).await?;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("left over {} s after the last delete:\n{}", PATIENCE.as_secs(), left.join("\n"));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

async fn leftovers(api: &Api<Pod>, runtime: &CriClient, place: &Place, wholly: bool) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for pod in api.list(&ListParams::default()).await? {
        left.push(format!("pod {}", pod.metadata.name.unwrap_or_default()));
    }
    for container in runtime.list_containers(v1::ListContainersRequest::default()).await?.containers {
        let name = container.labels.get("io.kubernetes.pod.name").cloned().unwrap_or_default();
        left.push(format!("container {} of {name}, state {}", container.id, container.state));
    }
    let sandboxes = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.items;
    for sandbox in sandboxes {
        left.push(format!(
            "sandbox {} of {}",
            sandbox.id,
            sandbox.metadata.map(|metadata| metadata.name).unwrap_or_default()
        ));
    }
    for entry in std::fs::read_dir(place.root.join("pods")).into_iter().flatten().flatten() {
        left.push(format!("directory {}", entry.path().display()));
    }
    let pods = format!("{}/pods/", place.root.display());
    // This thread's: only it stands in the environment.
    for line in std::fs::read_to_string("/proc/thread-self/mountinfo")?.lines() {
        let point = line.split(' ').nth(4).unwrap_or_default();
        // Root file systems, /dev/shm of sandboxes and network namespaces are the runtime's.
        let roots = wholly && point.contains("/io.containerd.");
        if point.starts_with(&pods) || roots || point.contains("/netns/") {
            left.push(format!("mount {line}"));
        }
    }
    network(&mut left)?;
    // Shims that the runtime forgot, too: the agent ends those (node/src/gc/shims.rs).
    let shims = if wholly { shims() } else { Vec::new() };
    left.extend(shims.into_iter().map(|(pid, line)| format!("process {pid}: {line}")));
    for top in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
        pod_cgroups(&Path::new(top).join(place.cgroup_root.trim_start_matches('/')), &mut left);
    }
    Ok(left)
}

fn pod_cgroups(directory: &Path, left: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if entry.file_name().to_string_lossy().starts_with("pod") {
                left.push(format!("cgroup {}", path.display()));
            } else {
                pod_cgroups(&path, left);
            }
        }
    }
}

/// Addresses that CNI holds as given away, network namespaces and devices of pods.
fn network(left: &mut Vec<String>) -> Result<()> {
    for network in std::fs::read_dir("/var/lib/cni/networks").into_iter().flatten().flatten() {
        for entry in std::fs::read_dir(network.path()).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.parse::<std::net::IpAddr>().is_ok()) {
                left.push(format!("address {}", entry.path().display()));
            }
        }
    }
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        left.push(format!("network namespace {}", entry.path().display()));
    }
    let devices = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let devices = devices.lines().filter_map(|line| line.trim_start().split_once(':'));
    left.extend(devices.filter(|(name, _)| name.starts_with("veth")).map(|(name, _)| format!("device {name}")));
    Ok(())
}

/// Processes that the runtime keeps for sandboxes, as far as they stand where this thread does.
fn shims() -> Vec<(i32, String)> {
    let here = std::fs::read_link("/proc/thread-self/ns/mnt").ok();
    let stands_here = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok() == here;
    let lines = process::all().into_iter().map(|process| (process.pid, process.command().join(" ")));
    lines.filter(|(pid, line)| line.contains("containerd-shim") && stands_here(*pid)).collect()
}
