//! Version 2: one tree, controllers handed down level by level.

use std::path::{Path, PathBuf};

use super::{CgroupError, Limits, join, make_folders, write};

/// Controllers that pods need.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "memory", "hugetlb", "pids"];

/// Makes the group and hands the controllers down to it.
pub(super) fn create(mount: &Path, group: &str) -> Result<(), CgroupError> {
    let mut path = mount.to_owned();
    for part in group.split('/').filter(|part| !part.is_empty()) {
        hand_down(&path)?;
        path.push(part);
    }
    make_folders(mount, group).map(drop)?;
    // The pod's group has no process of its own: its children are the containers' groups.
    hand_down(&path)
}

/// Enables what the level above offers and what is not handed down yet.
fn hand_down(folder: &Path) -> Result<(), CgroupError> {
    if !folder.exists() {
        std::fs::create_dir(folder).map_err(|e| CgroupError::new(folder, "make", e))?;
    }
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    let offered = read("cgroup.controllers");
    let enabled = read("cgroup.subtree_control");
    let has = |list: &str, name: &str| list.split_whitespace().any(|word| word == name);
    let missing: Vec<String> = CONTROLLERS
        .iter()
        .filter(|name| has(&offered, name) && !has(&enabled, name))
        .map(|name| format!("+{name}"))
        .collect();
    if missing.is_empty() { Ok(()) } else { write(&folder.join("cgroup.subtree_control"), &missing.join(" ")) }
}

/// Writes bounds.
pub(super) fn limit(mount: &Path, group: &str, limits: &Limits) -> Result<(), CgroupError> {
    let folder = join(mount, group);
    let put = |file: &str, value: String| {
        let path: PathBuf = folder.join(file);
        // A controller that is not handed down has no files; its bound cannot be set and is not missed.
        if path.exists() { write(&path, &value) } else { Ok(()) }
    };
    if let Some(shares) = limits.cpu_shares {
        put("cpu.weight", weight(shares).to_string())?;
    }
    if limits.cpu_quota.is_some() || limits.cpu_period.is_some() {
        let quota = limits.cpu_quota.unwrap_or(-1);
        put("cpu.max", format!("{} {}", bound(quota), limits.cpu_period.unwrap_or(100_000)))?;
    }
    if let Some(memory) = limits.memory {
        put("memory.max", bound(memory))?;
    }
    if let Some(pids) = limits.pids {
        put("pids.max", bound(pids))?;
    }
    Ok(())
}

fn bound(value: i64) -> String {
    if value < 0 { "max".to_owned() } else { value.to_string() }
}

/// Shares of version 1 as a weight of version 2.
fn weight(shares: i64) -> i64 {
    let shares = shares.clamp(2, 262_144);
    1 + ((shares - 2) * 9_999) / 262_142
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_span_the_whole_range() {
        assert_eq!((weight(2), weight(1024), weight(262_144), weight(0)), (1, 39, 10_000, 1));
    }

    #[test]
    fn bounds_go_to_the_files_that_exist() {
        let folder = tempfile::tempdir().unwrap();
        create(folder.path(), "/a").unwrap();
        std::fs::write(folder.path().join("a/cpu.max"), "").unwrap();
        let limits = Limits { cpu_quota: Some(50_000), memory: Some(-1), ..Limits::default() };
        limit(folder.path(), "/a", &limits).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("a/cpu.max")).unwrap(), "50000 100000");
    }
}
