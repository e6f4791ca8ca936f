//! Takes away what `up` made: from what is on the machine alone, so that it works after any crash. Every step is done
//! whatever became of the one before; what failed is told together.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use futures_util::StreamExt as _;
use longshore_cri::{ClientOptions, CriClient, RuntimeService as _, labels, v1};
use nix::mount::MntFlags;

use super::cni;
use super::containerd;
use super::paths::Paths;
use super::process::{Known, find_program, run};
use super::progress::Progress;
use super::up::Lock;

/// The longest a container is given to end by itself.
const GRACE: i64 = 10;
/// Pods stopped at the same time.
const PARALLEL: usize = 8;
/// Until an `up` that is told to end has ended.
const UP_END: Duration = Duration::from_secs(15);

/// A pod that was in the runtime.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RemovedPod {
    uid: String,
    namespace: String,
    name: String,
}

/// Stops and removes everything; with `purge` the data too.
pub(crate) async fn down(paths: &Paths, purge: bool, progress: &Progress) -> Result<()> {
    let mut failures: Vec<String> = Vec::new();
    let mut note = |what: &str, result: Result<()>| {
        if let Err(error) = result {
            failures.push(format!("{what}: {}", super::fail::chain(&error)));
        }
    };
    if let Some(up) = Lock::holder(paths) {
        progress.say(&format!("  stopping longshore up (process {up})"));
        note("stop longshore up", stop_up(paths, up).await);
    }
    let pods = match remove_pods(paths, progress).await {
        Ok(pods) => pods,
        Err(error) => {
            note("remove pods", Err(error));
            BTreeSet::new()
        }
    };
    stop_runtime(paths, progress).await;
    for pod in &pods {
        note(&format!("remove files of pod {}/{}", pod.namespace, pod.name), remove_pod_files(paths, pod));
    }
    remove_pod_cgroups(&pods);
    note("remove the pod network", remove_network().await);
    note("unmount", unmount_below(&paths.run));
    note("unmount", unmount_below(&paths.containerd_root()));
    note("remove", remove_tree(&paths.run));
    // Shims keep these wherever their containerd has its state; shared with a system's containerd, so only when empty.
    for empty in ["s", "fifo", "runc/k8s.io", "runc", "io.containerd.runtime.v2.task", ""] {
        drop(std::fs::remove_dir(Path::new("/run/containerd").join(empty)));
    }
    if purge {
        note("remove", remove_tree(&paths.data));
    }
    if failures.is_empty() {
        progress.say(&format!("  removed {} pods, the runtime and {}", pods.len(), paths.run.display()));
        if purge {
            progress.say(&format!("  removed {}", paths.data.display()));
        } else if paths.data.exists() {
            progress.say(&format!("  kept {} (longshore down --purge removes it)", paths.data.display()));
        }
        Ok(())
    } else {
        Err(anyhow!(failures.join("; ")))
    }
}

async fn stop_up(paths: &Paths, pid: i32) -> Result<()> {
    use nix::sys::signal::{Signal, kill};
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        // The lock proves that the pid is the running up's; one that was killed keeps it until it is taken apart.
        let _ = kill(nix::unistd::Pid::from_raw(pid), signal);
        let free = async {
            while Lock::holder(paths) == Some(pid) {
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        };
        if tokio::time::timeout(UP_END, free).await.is_ok() {
            return Ok(());
        }
    }
    anyhow::bail!("process {pid} does not end")
}

/// Stops and removes all pods in our runtime, which is started for that when it does not run, and ours in one of others.
async fn remove_pods(paths: &Paths, progress: &Progress) -> Result<BTreeSet<RemovedPod>> {
    let mut pods = BTreeSet::new();
    if containerd::process(paths).is_some() || paths.containerd_config().exists() {
        if let Some(installed) = containerd::installed().await {
            let config = cni::system_config().map_or_else(|| paths.cni(), |_| PathBuf::from(cni::SYSTEM_CONFIG));
            containerd::ensure(paths, &installed, &config).await?;
        }
        pods.extend(remove_pods_of(&containerd::endpoint(paths), |_| true, progress).await?.0);
    }
    if let Ok(endpoint) = std::fs::read_to_string(paths.adopted()) {
        // In a runtime of others only what our agent's root knows is ours to remove.
        let ours = |uid: &str| is_plain(uid) && paths.kubelet.join("pods").join(uid).exists();
        let (removed, all) = remove_pods_of(endpoint.trim(), ours, progress).await?;
        pods.extend(removed);
        if all {
            // Nothing of ours is in it any more: the next `up` looks at it anew.
            drop(std::fs::remove_file(paths.adopted()));
        }
    }
    Ok(pods)
}

/// Says whether a uid can be the name of a folder.
fn is_plain(uid: &str) -> bool {
    !uid.is_empty() && !uid.contains(['/', '.'])
}

/// Removes the pods of one runtime that are ours; tells which went and whether all did.
async fn remove_pods_of(
    endpoint: &str,
    ours: impl Fn(&str) -> bool,
    progress: &Progress,
) -> Result<(BTreeSet<RemovedPod>, bool)> {
    let options = ClientOptions { request_timeout: Duration::from_secs(30), ..ClientOptions::default() };
    let client = CriClient::connect(endpoint, options)?;
    let sandboxes = client.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.items;
    let sandboxes: Vec<v1::PodSandbox> =
        sandboxes.into_iter().filter(|one| one.labels.get(labels::POD_UID).is_some_and(|uid| ours(uid))).collect();
    if sandboxes.is_empty() {
        return Ok((BTreeSet::new(), true));
    }
    progress.say(&format!("  stopping {} pods", sandboxes.len()));
    let containers = client.list_containers(v1::ListContainersRequest::default()).await?.containers;
    let results: Vec<Result<RemovedPod>> = futures_util::stream::iter(sandboxes)
        .map(|sandbox| {
            let mine: Vec<String> = containers
                .iter()
                .filter(|container| container.pod_sandbox_id == sandbox.id)
                .map(|container| container.id.clone())
                .collect();
            remove_pod(client.clone(), sandbox, mine)
        })
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    let mut pods = BTreeSet::new();
    let mut failures = Vec::new();
    for result in results {
        match result {
            Ok(pod) => drop(pods.insert(pod)),
            Err(error) => failures.push(super::fail::chain(&error)),
        }
    }
    for failure in &failures {
        progress.say(&format!("  warning: {failure}"));
    }
    Ok((pods, failures.is_empty()))
}

async fn remove_pod(client: CriClient, sandbox: v1::PodSandbox, containers: Vec<String>) -> Result<RemovedPod> {
    let label = |name: &str| sandbox.labels.get(name).cloned().unwrap_or_default();
    let pod = RemovedPod {
        uid: label(labels::POD_UID),
        namespace: label(labels::POD_NAMESPACE),
        name: label(labels::POD_NAME),
    };
    let about = || format!("pod {}/{}", pod.namespace, pod.name);
    for container_id in containers {
        let request = v1::StopContainerRequest { container_id, timeout: GRACE };
        // What cannot be stopped kindly goes with the sandbox.
        drop(client.stop_container(request).await);
    }
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: sandbox.id.clone() };
    client.stop_pod_sandbox(stop).await.with_context(about)?;
    let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox.id.clone() };
    client.remove_pod_sandbox(remove).await.with_context(about)?;
    Ok(pod)
}

/// Ends our containerd, and shims it left with what runs below them (none when the pods could be removed).
async fn stop_runtime(paths: &Paths, progress: &Progress) {
    if let Some(process) = containerd::process(paths) {
        progress.say(&format!("  stopping containerd (process {})", process.pid()));
        process.stop(Duration::from_secs(5)).await;
    }
    let socket = paths.containerd_socket().display().to_string();
    for shim in Known::all(&format!("-address {socket}")) {
        for pid in below(shim.pid()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
        shim.stop(Duration::from_secs(1)).await;
    }
}

/// All processes below one, nearest first.
fn below(root: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let parents: Vec<(i32, i32)> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

fn remove_pod_files(paths: &Paths, pod: &RemovedPod) -> Result<()> {
    if !is_plain(&pod.uid) {
        return Ok(());
    }
    let directory = paths.kubelet.join("pods").join(&pod.uid);
    unmount_below(&directory)?;
    remove_tree(&directory)?;
    let logs = Path::new("/var/log/pods").join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid));
    remove_tree(&logs)?;
    // Links of containers whose log is gone.
    for entry in std::fs::read_dir("/var/log/containers").into_iter().flatten().flatten() {
        let path = entry.path();
        if std::fs::read_link(&path).is_ok_and(|target| target.starts_with(&logs)) {
            drop(std::fs::remove_file(path));
        }
    }
    Ok(())
}

/// How deep below a hierarchy's root pods are looked for: a root of its own, `kubepods`, a class, the pod.
const CGROUP_DEPTH: usize = 5;
/// The levels that the agent makes above pods.
const CGROUP_LEVELS: [&str; 3] = ["besteffort", "burstable", "kubepods"];

/// The pods' own cgroups, and the agent's levels above them once no pod is left; a cgroup that still has processes stays
/// (rmdir refuses).
fn remove_pod_cgroups(pods: &BTreeSet<RemovedPod>) {
    let names: BTreeSet<String> = pods.iter().map(|pod| format!("pod{}", pod.uid)).collect();
    for root in cgroup_roots() {
        let mut found = Vec::new();
        find_cgroups(&root, &names, CGROUP_DEPTH, &mut found);
        for path in found {
            remove_cgroup(&path);
            let levels = path.ancestors().skip(1).take_while(|level| {
                level.file_name().and_then(|name| name.to_str()).is_some_and(|name| CGROUP_LEVELS.contains(&name))
            });
            for level in levels {
                drop(std::fs::remove_dir(level));
            }
        }
        // Only after pods of ours: an empty level may be somebody else's.
        let levels: &[&str] =
            if pods.is_empty() { &[] } else { &["kubepods/besteffort", "kubepods/burstable", "kubepods"] };
        for level in levels {
            drop(std::fs::remove_dir(root.join(level)));
        }
    }
}

fn find_cgroups(path: &Path, names: &BTreeSet<String>, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(path) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        if entry.file_name().to_str().is_some_and(|name| names.contains(name)) {
            found.push(entry.path());
        } else if depth > 1 {
            find_cgroups(&entry.path(), names, depth - 1, found);
        }
    }
}

fn cgroup_roots() -> Vec<PathBuf> {
    let base = PathBuf::from("/sys/fs/cgroup");
    let mut roots: Vec<PathBuf> = std::fs::read_dir(&base)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("cgroup.procs").exists())
        .collect();
    roots.push(base);
    roots
}

fn remove_cgroup(path: &Path) {
    let Ok(entries) = std::fs::read_dir(path) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_cgroup(&entry.path());
    }
    drop(std::fs::remove_dir(path));
}

async fn remove_network() -> Result<()> {
    // Not /sys/class/net: that shows the devices of whoever mounted it.
    let devices = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    if devices.lines().any(|line| line.trim_start().starts_with(&format!("{}:", cni::BRIDGE)))
        && let Some(ip) = find_program("ip")
    {
        run(&ip, &["link", "delete", cni::BRIDGE], Duration::from_secs(10)).await?;
    }
    remove_tree(&Path::new("/var/lib/cni/networks").join(cni::NETWORK))
}

/// Unmounts everything below a folder, deepest first. The folder itself may be a disk of its own: that one stays.
pub(crate) fn unmount_below(folder: &Path) -> Result<()> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").context("read the mount table")?;
    for path in mounts_below(&text, folder) {
        if nix::mount::umount(&path).is_err() {
            // Busy: taken out of sight now, ended by the kernel with its last user; nothing below is touched by that.
            nix::mount::umount2(&path, MntFlags::MNT_DETACH).with_context(|| format!("unmount {}", path.display()))?;
        }
    }
    Ok(())
}

fn mounts_below(mountinfo: &str, folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape)
        .filter(|path| path.starts_with(folder) && path != folder)
        .collect();
    found.sort();
    found.reverse();
    found
}

/// The mount table writes blanks and backslashes as octal.
fn unescape(text: &str) -> PathBuf {
    PathBuf::from(text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\"))
}

/// Removes a folder and all in it, unless something is still mounted there.
fn remove_tree(folder: &Path) -> Result<()> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").context("read the mount table")?;
    if let Some(mount) = mounts_below(&text, folder).first() {
        anyhow::bail!("{} is still mounted: data below it is left alone", mount.display());
    }
    let about = || format!("remove {}", folder.display());
    if text.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape).any(|path| path == folder) {
        // A disk of its own: what is on it goes, the folder it is mounted on stays.
        for entry in std::fs::read_dir(folder).with_context(about)? {
            let path = entry.with_context(about)?.path();
            let is_folder = path.symlink_metadata().is_ok_and(|data| data.is_dir());
            let removed = if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.with_context(|| format!("remove {}", path.display()))?;
        }
        return Ok(());
    }
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).with_context(about),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_deepest_first_and_only_below() {
        let table = "1 0 8:1 / / rw - ext4 /dev/vda rw\n\
                     2 1 0:5 / /run/longshore/a rw - tmpfs t rw\n\
                     3 2 0:6 / /run/longshore/a/b\\040c rw - tmpfs t rw\n\
                     4 1 0:7 / /run/longshore2 rw - tmpfs t rw\n";
        let found = mounts_below(table, Path::new("/run/longshore"));
        assert_eq!(found, [PathBuf::from("/run/longshore/a/b c"), PathBuf::from("/run/longshore/a")]);
    }
}
