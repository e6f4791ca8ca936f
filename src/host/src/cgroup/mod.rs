//! Control groups of pods: make, limit, empty and remove them, on version 1 (also hybrid) and version 2.
//! Works only below paths that the caller names; it never touches a group it was not told to.

mod v1;
mod v2;

use std::io;
use std::path::{Path, PathBuf};

/// Which hierarchy the machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    /// One tree per controller: mount points with their controllers.
    V1(Vec<Hierarchy>),
    /// One tree.
    V2(PathBuf),
}

/// A mounted tree of version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Its controllers, e.g. `cpu`, `cpuacct`; `name=systemd` for named trees.
    pub controllers: Vec<String>,
}

/// Bounds of a group; `None` leaves a bound as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Weight in shares (2 to 262144).
    pub cpu_shares: Option<i64>,
    /// Microseconds of CPU per period; -1 = no bound.
    pub cpu_quota: Option<i64>,
    /// Period in microseconds.
    pub cpu_period: Option<i64>,
    /// Bytes; -1 = no bound.
    pub memory: Option<i64>,
    /// Number of processes; -1 = no bound.
    pub pids: Option<i64>,
}

/// Bounds that a group has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Weight in shares.
    pub cpu_shares: Option<i64>,
    /// Microseconds of CPU per period.
    pub cpu_quota: Option<i64>,
    /// Period in microseconds.
    pub cpu_period: Option<i64>,
    /// Bytes.
    pub memory: Option<i64>,
}

/// A group that could not be made, limited or removed.
#[derive(Debug, thiserror::Error)]
#[error("cgroup {path}: {action}: {source}{}", inside(.processes))]
pub struct CgroupError {
    /// The folder or file.
    pub path: PathBuf,
    /// What was being done.
    pub action: &'static str,
    /// The system's answer.
    pub source: io::Error,
    /// Numbers of the processes that are still inside, where that is why.
    pub processes: Vec<i32>,
}

/// The processes inside for people.
fn inside(processes: &[i32]) -> String {
    if processes.is_empty() {
        return String::new();
    }
    let numbers: Vec<String> = processes.iter().map(i32::to_string).collect();
    format!("; processes inside that do not end: {}", numbers.join(", "))
}

impl CgroupError {
    fn new(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self { path: path.to_owned(), action, source, processes: Vec::new() }
    }

    /// Says whether the process lacks the right, which no retry mends.
    pub fn is_denied(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    }
}

/// The machine's control groups.
#[derive(Debug, Clone)]
pub struct Cgroups {
    version: Version,
}

impl Cgroups {
    /// Finds out what is mounted.
    pub fn detect() -> Result<Self, CgroupError> {
        let path = Path::new("/proc/self/mountinfo");
        let text = std::fs::read_to_string(path).map_err(|source| CgroupError::new(path, "read", source))?;
        let version = parse_mounts(&text).ok_or_else(|| {
            let source = io::Error::new(io::ErrorKind::NotFound, "no cgroup filesystem is mounted");
            CgroupError::new(Path::new("/sys/fs/cgroup"), "look", source)
        })?;
        Ok(Self { version })
    }

    /// Takes a version as given, e.g. a folder in a test.
    pub fn with_version(version: Version) -> Self {
        Self { version }
    }

    /// The version.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Says whether this is version 2.
    pub fn is_v2(&self) -> bool {
        matches!(self.version, Version::V2(_))
    }

    /// Makes the group with all its parents. Safe to call again.
    pub fn create(&self, group: &str) -> Result<(), CgroupError> {
        match &self.version {
            Version::V1(hierarchies) => v1::create(hierarchies, group),
            Version::V2(mount) => v2::create(mount, group),
        }
    }

    /// Writes bounds.
    pub fn limit(&self, group: &str, limits: &Limits) -> Result<(), CgroupError> {
        match &self.version {
            Version::V1(hierarchies) => v1::limit(hierarchies, group, limits),
            Version::V2(mount) => v2::limit(mount, group, limits),
        }
    }

    /// Reads the bounds of cpu and memory; `None` in a field = no bound, or a controller that is not there.
    pub fn bounds(&self, group: &str) -> Result<Bounds, CgroupError> {
        match &self.version {
            Version::V1(hierarchies) => v1::bounds(hierarchies, group),
            Version::V2(mount) => v2::bounds(mount, group),
        }
    }

    /// Reads how much memory a group has in use, page cache included; `None` where memory is not accounted for.
    pub fn memory_usage(&self, group: &str) -> Option<i64> {
        let file = match &self.version {
            Version::V1(hierarchies) => v1::folder(hierarchies, group, "memory")?.join("memory.usage_in_bytes"),
            Version::V2(mount) => join(mount, group).join("memory.current"),
        };
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// Says whether the group is there.
    pub fn exists(&self, group: &str) -> bool {
        self.folders(group).iter().any(|folder| folder.is_dir())
    }

    /// Names of the groups right below.
    pub fn children(&self, group: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for folder in self.folders(group) {
            let Ok(entries) = std::fs::read_dir(folder) else { continue };
            for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
                let name = entry.file_name().to_string_lossy().into_owned();
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }

    /// Kills what still runs inside and removes the group with all groups below it, in every tree. Safe to call again.
    pub fn remove(&self, group: &str) -> Result<(), CgroupError> {
        let mut last = Ok(());
        for _ in 0..REMOVE_TRIES {
            last = Ok(());
            for folder in self.folders(group) {
                if let Err(error) = remove_tree(&folder) {
                    last = Err(error);
                }
            }
            if last.is_ok() {
                return last;
            }
            for folder in self.folders(group) {
                kill_tree(&folder);
            }
        }
        last.map_err(|mut error| {
            error.processes = self.folders(group).iter().flat_map(|folder| processes(folder)).collect();
            error.processes.sort_unstable();
            error.processes.dedup();
            error
        })
    }

    /// Removes the groups right below in which nothing runs; returns how many. The kernel keeps those with processes.
    pub fn remove_empty_below(&self, group: &str) -> usize {
        let below = |folder: &PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().collect::<Vec<_>>();
        let groups = self.folders(group).iter().flat_map(below).collect::<Vec<_>>();
        groups.into_iter().filter(|group| std::fs::remove_dir(group.path()).is_ok()).count()
    }

    /// The group's folder in every tree.
    fn folders(&self, group: &str) -> Vec<PathBuf> {
        match &self.version {
            Version::V1(hierarchies) => hierarchies.iter().map(|h| join(&h.mount, group)).collect(),
            Version::V2(mount) => vec![join(mount, group)],
        }
    }
}

/// Processes are killed and the removal tried again this often.
const REMOVE_TRIES: usize = 5;

fn join(mount: &Path, group: &str) -> PathBuf {
    mount.join(group.trim_start_matches('/'))
}

/// Makes folders from the top down; returns those that are new.
fn make_folders(mount: &Path, group: &str) -> Result<Vec<PathBuf>, CgroupError> {
    let mut path = mount.to_owned();
    let mut new = Vec::new();
    for part in group.split('/').filter(|part| !part.is_empty()) {
        path.push(part);
        match std::fs::create_dir(&path) {
            Ok(()) => new.push(path.clone()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(CgroupError::new(&path, "make", error)),
        }
    }
    Ok(new)
}

fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    // Control files must be opened as they are: no creation, no truncation.
    let mut file = std::fs::OpenOptions::new().write(true).open(path).map_err(|e| CgroupError::new(path, "open", e))?;
    io::Write::write_all(&mut file, value.as_bytes()).map_err(|e| CgroupError::new(path, "write", e))
}

/// Reads a file that holds one number; an absent file and `max` give none.
fn read_number(path: &Path) -> Result<Option<i64>, CgroupError> {
    match std::fs::read_to_string(path) {
        // What is larger than any number we know is no bound.
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CgroupError::new(path, "read", error)),
    }
}

/// Removes a group and what is below; a missing one is fine.
fn remove_tree(folder: &Path) -> Result<(), CgroupError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(CgroupError::new(folder, "list", error)),
    };
    for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        remove_tree(&entry.path())?;
    }
    match std::fs::remove_dir(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(CgroupError::new(folder, "remove", error)),
    }
}

/// Processes in a group and below.
fn processes(folder: &Path) -> Vec<i32> {
    let mut found = Vec::new();
    if let Ok(entries) = std::fs::read_dir(folder) {
        for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
            found.extend(processes(&entry.path()));
        }
    }
    let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    found
}

/// Kills every process in a group and below.
fn kill_tree(folder: &Path) {
    for pid in processes(folder).into_iter().filter(|pid| *pid > 1) {
        // One that is gone already is what was wanted.
        let _gone = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Reads the mount table: version 2 where its tree is the only one, else version 1.
fn parse_mounts(text: &str) -> Option<Version> {
    let mut hierarchies: Vec<Hierarchy> = Vec::new();
    let mut unified = None;
    for line in text.lines() {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1));
        let mount = PathBuf::from(left.split(' ').nth(4)?);
        match kind {
            "cgroup2" => unified = unified.or(Some(mount)),
            "cgroup" => {
                let words = options.unwrap_or_default().split(',');
                let controllers: Vec<String> = words
                    .filter(|w| !matches!(*w, "rw" | "ro" | "xattr" | "clone_children"))
                    .map(str::to_owned)
                    .collect();
                if !hierarchies.iter().any(|h| h.controllers == controllers) {
                    hierarchies.push(Hierarchy { mount, controllers });
                }
            }
            _ => {}
        }
    }
    match (hierarchies.is_empty(), unified) {
        (true, Some(mount)) => Some(Version::V2(mount)),
        (true, None) => None,
        (false, _) => Some(Version::V1(hierarchies)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_tells_the_version() {
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(parse_mounts(v2), Some(Version::V2("/sys/fs/cgroup".into())));
        let hybrid = "25 24 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            26 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            27 25 0:24 / /sys/fs/cgroup/systemd rw shared:1 - cgroup cgroup rw,xattr,name=systemd\n\
            28 25 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        let Some(Version::V1(found)) = parse_mounts(hybrid) else { panic!("not v1") };
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].controllers, ["cpu", "cpuacct"]);
        assert_eq!(parse_mounts("25 24 0:22 / / rw - ext4 /dev/vda rw"), None);
    }

    #[test]
    fn who_sits_in_a_group_that_goes_is_killed_and_named_while_it_stays() {
        let folder = tempfile::tempdir().unwrap();
        let groups = Cgroups::with_version(Version::V2(folder.path().to_owned()));
        let mut guest = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        // A file that only the test can take away stands for a process that the kernel does not let go of.
        let list = folder.path().join("a/b/cgroup.procs");
        std::fs::write(&list, format!("{}\n", guest.id())).unwrap();
        let text = groups.remove("/a").unwrap_err().to_string();
        assert!(text.ends_with(&format!("; processes inside that do not end: {}", guest.id())), "{text}");
        assert!(!guest.wait().unwrap().success());
        std::fs::remove_file(list).unwrap();
        groups.remove("/a").unwrap();
        assert!(!groups.exists("/a"));
    }

    #[test]
    fn empty_groups_go_and_the_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let groups = Cgroups::with_version(Version::V2(folder.path().to_owned()));
        std::fs::create_dir_all(folder.path().join("a/left")).unwrap();
        std::fs::create_dir_all(folder.path().join("a/lives/inner")).unwrap();
        std::fs::write(folder.path().join("a/cpu.max"), "").unwrap();
        assert_eq!((groups.remove_empty_below("/a"), groups.children("/a")), (1, vec!["lives".to_owned()]));
        assert_eq!(groups.remove_empty_below("/none"), 0);
    }

    #[test]
    fn removal_takes_the_groups_below_and_does_not_mind_their_absence() {
        let folder = tempfile::tempdir().unwrap();
        let groups = Cgroups::with_version(Version::V1(vec![Hierarchy {
            mount: folder.path().to_owned(),
            controllers: vec!["devices".into()],
        }]));
        groups.create("/a/b").unwrap();
        std::fs::create_dir(folder.path().join("a/b/c")).unwrap();
        assert!(groups.exists("/a/b"));
        assert_eq!(groups.children("/a"), ["b"]);
        groups.remove("/a/b").unwrap();
        groups.remove("/a/b").unwrap();
        assert!(!groups.exists("/a/b") && groups.exists("/a"));
    }
}
