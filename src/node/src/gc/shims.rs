//! Shims that containerd forgot. A start that is cut off while the shim makes the task is finished by the shim all the
//! same, and nobody tells it to let go of that task: when the pod is removed the shim stays, with nothing below it and
//! perhaps with a root file system mounted, for good. Found by what its command line says, and ended only when it was so
//! for a whole while.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_cri::{CriError, SharedRuntime};
use longshore_host::mount;
use longshore_host::process::{self, Process};
use tokio::time::Instant;

use super::runtime::listed;

/// A sandbox has a shim a moment before its first process and before the runtime shows it, but not for as long as this.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where containerd keeps what its CRI side makes.
const NAMESPACE: &str = "k8s.io";
/// Only of this one it is known that a process is below it as soon as it serves a sandbox.
const PROGRAM: &str = "containerd-shim-runc-";
/// Looks that come with the collections after a start, because it is the end of an agent that cuts starts off...
const FIRST: u32 = 5;
/// ...and of the later ones each so many-th: a look reads what runs on the whole machine.
const LATER: u32 = 10;

/// Looks for shims of one runtime.
#[derive(Debug)]
pub(super) struct Shims {
    runtime: SharedRuntime,
    socket: PathBuf,
    looks: u32,
    /// Since when each was seen to serve nothing.
    idle: BTreeMap<Shim, Instant>,
}

/// A shim's process, and the sandbox it was made for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shim {
    process: Process,
    sandbox: String,
}

impl Shims {
    /// Looks for shims of the runtime on that endpoint.
    pub(super) fn new(runtime: SharedRuntime, endpoint: &str) -> Self {
        let socket = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        Self { runtime, socket: real(Path::new(socket)), looks: 0, idle: BTreeMap::new() }
    }

    /// Looks when it is time to, and ends those that have served nothing for long enough. Returns in what time the next
    /// look is due.
    pub(super) async fn end_forgotten(&mut self) -> Result<Option<Duration>, CriError> {
        if self.socket.as_os_str().is_empty() {
            // A runtime in the process has none.
            return Ok(None);
        }
        let look = self.looks < FIRST || self.looks.is_multiple_of(LATER) || !self.idle.is_empty();
        self.looks = self.looks.saturating_add(1);
        if !look {
            return Ok(None);
        }
        // Processes first: a sandbox that was made since is among those that are shown then.
        let idle = self.shims().await.1;
        if idle.is_empty() {
            self.idle.clear();
            return Ok(None);
        }
        let shown = self.shown().await?;
        for shim in self.due(idle, &shown, Instant::now()) {
            self.end(&shim).await?;
            self.idle.remove(&shim);
        }
        Ok((!self.idle.is_empty()).then_some(PATIENCE))
    }

    /// Of shims that serve nothing those that did so for long enough, and for a sandbox that is not shown.
    fn due(&mut self, idle: Vec<Shim>, shown: &BTreeSet<String>, now: Instant) -> Vec<Shim> {
        let idle: BTreeSet<Shim> = idle.into_iter().filter(|shim| !shown.contains(&shim.sandbox)).collect();
        self.idle.retain(|shim, _| idle.contains(shim));
        for shim in idle {
            self.idle.entry(shim).or_insert(now);
        }
        let due = self.idle.iter().filter(|(_, since)| now.duration_since(**since) >= PATIENCE);
        due.map(|(shim, _)| shim.clone()).collect()
    }

    /// All shims of the runtime, and those without a process below.
    async fn shims(&self) -> (Vec<Shim>, Vec<Shim>) {
        let socket = self.socket.clone();
        let look = move || {
            let all = process::all();
            let words = all.iter().map(|process| (*process, process.command()));
            let shims: Vec<Shim> = words.filter_map(|(process, words)| shim(process, &words, &socket)).collect();
            let idle = |shim: &&Shim| all.iter().all(|process| process.parent != shim.process.pid);
            (shims.clone(), shims.iter().filter(idle).cloned().collect())
        };
        tokio::task::spawn_blocking(look).await.unwrap_or_default()
    }

    /// The ids of everything that the runtime shows.
    async fn shown(&self) -> Result<BTreeSet<String>, CriError> {
        let (sandboxes, containers) = listed(&self.runtime).await?;
        let containers = containers.into_iter().map(|container| container.id);
        Ok(sandboxes.into_iter().map(|sandbox| sandbox.id).chain(containers).collect())
    }

    /// Ends a shim and undoes the mounts of what it held.
    async fn end(&self, shim: &Shim) -> Result<(), CriError> {
        // It stands in the folder of its sandbox; beside that are the folders of all that the runtime runs.
        let tasks = std::fs::read_link(format!("/proc/{}/cwd", shim.process.pid)).ok();
        let tasks = tasks.and_then(|folder| folder.parent().map(Path::to_owned));
        shim.process.kill();
        tracing::info!(pid = shim.process.pid, sandbox = %shim.sandbox, "ended a shim that the runtime had forgotten");
        let Some(tasks) = tasks else { return Ok(()) };
        let below = tokio::task::spawn_blocking(move || roots(&tasks)).await.unwrap_or_default();
        // In this order: what is being made has a shim, and what has been made since is shown.
        let alive: BTreeSet<String> = self.shims().await.0.into_iter().map(|shim| shim.sandbox).collect();
        let shown = self.shown().await?;
        for (id, root) in below {
            if !alive.contains(&id) && !shown.contains(&id) {
                let undone = tokio::task::spawn_blocking(move || mount::detach(&root)).await;
                if let Ok(Err(error)) = undone {
                    tracing::warn!(%error, "root file system of a container that is gone cannot be unmounted");
                }
            }
        }
        Ok(())
    }
}

/// The shim that a process is, when it serves our runtime.
fn shim(process: Process, words: &[String], socket: &Path) -> Option<Shim> {
    let (program, flags) = words.split_first()?;
    let value = |flag: &str| {
        let place = flags.iter().position(|word| word == flag)?;
        flags.get(place + 1).map(String::as_str)
    };
    let is_shim = program.rsplit('/').next()?.starts_with(PROGRAM);
    let ours = is_shim && value("-namespace")? == NAMESPACE && real(Path::new(value("-address")?)) == socket;
    let sandbox = value("-id").filter(|id| !id.is_empty())?.to_owned();
    ours.then_some(Shim { process, sandbox })
}

/// Mounted root file systems of what the runtime runs, with the ids.
fn roots(tasks: &Path) -> Vec<(String, PathBuf)> {
    let points = mount::under(tasks).unwrap_or_default().into_iter();
    points.filter_map(|point| Some((root_of(&point, tasks)?, point))).collect()
}

fn root_of(point: &Path, tasks: &Path) -> Option<String> {
    let id = point.strip_prefix(tasks).ok()?.to_str()?.strip_suffix("/rootfs")?;
    (!id.contains('/')).then(|| id.to_owned())
}

/// The path without links, where it exists.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_cri::fake::{FakeOptions, FakeRuntime};

    use super::*;

    const SOCKET: &str = "/nowhere/c.sock";

    fn process(pid: i32) -> Process {
        Process { pid, parent: 1, session: pid, started: 77 }
    }

    fn read(line: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        shim(process(10), &words, Path::new(SOCKET)).map(|shim| shim.sandbox)
    }

    #[test]
    fn only_shims_of_our_runtime_are_meant() {
        let line = "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id s1 -address /nowhere/c.sock";
        assert_eq!(read(line).as_deref(), Some("s1"));
        assert_eq!(read(&line.replace("c.sock", "docker.sock")), None);
        assert_eq!(read(&line.replace("k8s.io", "moby")), None);
        assert_eq!(read(&line.replace("/usr/bin/containerd-shim-runc-v2", "vi")), None);
        assert_eq!(read(&line.replace("runc", "kata")), None, "one that makes its sandbox before any process");
        assert_eq!(read("containerd-shim-runc-v2 -address /nowhere/c.sock -namespace k8s.io -id"), None);
        assert_eq!(read(""), None);
    }

    #[tokio::test]
    async fn a_shim_is_due_when_it_served_nothing_for_long_and_its_sandbox_is_not_shown() {
        let mut shims = Shims::new(Arc::new(FakeRuntime::new(FakeOptions::default())), SOCKET);
        let of = |pid: i32, sandbox: &str| Shim { process: process(pid), sandbox: sandbox.to_owned() };
        let shown = BTreeSet::from(["shown".to_owned()]);
        let now = Instant::now();
        let both = || vec![of(10, "gone"), of(11, "shown")];
        assert_eq!(shims.due(both(), &shown, now), []);
        assert_eq!(shims.due(both(), &shown, now + PATIENCE / 2), []);
        assert_eq!(shims.due(both(), &shown, now + PATIENCE), [of(10, "gone")]);
        assert_eq!(shims.due(Vec::new(), &shown, now + PATIENCE), [], "it serves something again");
        assert_eq!(shims.due(both(), &shown, now + PATIENCE), [], "and is watched anew");
        assert_eq!(shims.due(both(), &shown, now + PATIENCE * 2), [of(10, "gone")]);
    }

    #[test]
    fn only_root_file_systems_right_below_are_meant() {
        let tasks = Path::new("/run/c/tasks");
        assert_eq!(root_of(Path::new("/run/c/tasks/abc/rootfs"), tasks).as_deref(), Some("abc"));
        assert_eq!(root_of(Path::new("/run/c/tasks/abc/rootfs/proc"), tasks), None);
        assert_eq!(root_of(Path::new("/run/c/tasks/a/b/rootfs"), tasks), None);
        assert_eq!(root_of(Path::new("/run/c/other/abc/rootfs"), tasks), None);
    }
}
