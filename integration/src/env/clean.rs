//! Removal of a run: the processes that stand in its namespaces or hang below them, its cgroups, its directory.
//! Works from what is on the machine alone, so that a run killed in the middle can be removed by the next one: a namespace
//! of the run is known by its mount table, which names the run's directory as nobody else's does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::process::pause;

/// Removes the directories and processes of runs whose lock is free.
pub(super) fn remove_dead_runs(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let directory = entry.path();
        let Some(id) = directory.file_name().and_then(|name| name.to_str()).map(str::to_owned) else { continue };
        let Ok(lock) = File::open(directory.join("lock")) else { continue };
        // A run that was just made has its lock taken within moments; a lock younger than that is left alone.
        let young = lock.metadata().and_then(|data| data.modified()).ok().and_then(|time| time.elapsed().ok());
        if young.is_none_or(|age| age < Duration::from_secs(10)) {
            continue;
        }
        if let Ok(lock) = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusiveNonblock) {
            remove_run(&directory, &id, false);
            drop(lock);
        }
    }
}

/// Kills the run's processes, removes its cgroups, then its directory unless `keep`.
pub(super) fn remove_run(directory: &Path, id: &str, keep: bool) {
    kill_all(directory, id);
    if !keep {
        drop(std::fs::remove_dir_all(directory));
    }
}

/// Kills the run's processes and removes its cgroups.
pub(super) fn kill_all(directory: &Path, id: &str) {
    let mut cgroups = BTreeSet::new();
    for _ in 0..10 {
        let pids = processes(directory, id);
        if pids.is_empty() {
            break;
        }
        for pid in pids {
            cgroups.extend(container_cgroups(pid));
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        pause(Duration::from_millis(50));
    }
    remove_cgroups(id, &cgroups);
}

/// A process as far as it matters here.
struct Seen {
    parent: i32,
    mount: Option<PathBuf>,
    net: Option<PathBuf>,
    /// Its cgroup is below the run's, or its command line names the run's sockets.
    marked: bool,
}

/// All processes of the run: in its namespaces, in its cgroups, with its sockets in the command line, and all below.
fn processes(directory: &Path, id: &str) -> BTreeSet<i32> {
    let mine = i32::try_from(std::process::id()).unwrap_or(0);
    let seen = look(id);
    let outside = Seen { parent: 0, mount: namespace("self", "mnt"), net: namespace("self", "net"), marked: false };
    // One table per namespace is enough: they are long, and processes many.
    let mut tables: BTreeMap<PathBuf, bool> = BTreeMap::new();
    let mut nets = BTreeSet::new();
    let mut found = BTreeSet::new();
    for (pid, process) in &seen {
        let Some(mount) = process.mount.clone().filter(|mount| Some(mount) != outside.mount.as_ref()) else { continue };
        if *tables.entry(mount).or_insert_with(|| names_directory(*pid, directory)) {
            found.insert(*pid);
            nets.extend(process.net.clone());
        }
    }
    if let Some(net) = &outside.net {
        nets.remove(net);
    }
    // A container has a mount namespace of its own; with the host's network it still stands in the run's.
    found.extend(
        seen.iter()
            .filter(|(_, process)| process.marked || process.net.as_ref().is_some_and(|net| nets.contains(net)))
            .map(|(pid, _)| *pid),
    );
    found.remove(&mine);
    loop {
        let more: Vec<i32> = seen
            .iter()
            .filter(|(pid, process)| found.contains(&process.parent) && !found.contains(pid) && **pid != mine)
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

fn look(id: &str) -> BTreeMap<i32, Seen> {
    let mark = format!("longshore-{id}");
    let socket = format!("/run/{id}/");
    let mut seen = BTreeMap::new();
    for process in longshore_host::process::all() {
        let (pid, parent) = (process.pid, process.parent);
        let line = process.command().join(" ");
        let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let marked = line.contains(&socket) || cgroup.contains(&mark);
        let name = pid.to_string();
        seen.insert(pid, Seen { parent, mount: namespace(&name, "mnt"), net: namespace(&name, "net"), marked });
    }
    seen
}

fn namespace(pid: &str, kind: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()
}

/// Says whether the run's directory is mounted in the mount namespace of a process.
fn names_directory(pid: i32, directory: &Path) -> bool {
    let table = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|place| Path::new(place) == directory))
}

/// Cgroups that a container of the run was given outside of the run's root (a sandbox made without a parent).
fn container_cgroups(pid: i32) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .filter(|path| {
            let name = path.rsplit('/').next().unwrap_or_default();
            name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
        .map(PathBuf::from)
        .collect()
}

fn remove_cgroups(id: &str, containers: &BTreeSet<PathBuf>) {
    let Ok(hierarchies) = std::fs::read_dir("/sys/fs/cgroup") else { return };
    let mut roots: Vec<PathBuf> = vec![PathBuf::from("/sys/fs/cgroup")];
    roots.extend(hierarchies.flatten().map(|entry| entry.path()).filter(|path| path.join("cgroup.procs").exists()));
    for root in roots {
        for container in containers {
            remove_tree(&root.join(container.strip_prefix("/").unwrap_or(container)));
        }
        remove_tree(&root.join(format!("longshore-{id}")));
    }
}

/// A cgroup is removed by `rmdir`, children first; processes that are still leaving make it busy for a moment.
fn remove_tree(path: &Path) {
    let Ok(entries) = std::fs::read_dir(path) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_tree(&entry.path());
    }
    for _ in 0..20 {
        match std::fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EBUSY as i32) => {
                pause(Duration::from_millis(25));
            }
            Ok(()) | Err(_) => return,
        }
    }
}
