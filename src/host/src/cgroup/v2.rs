//! Version 2: one tree, controllers handed down level by level.

use std::path::{Path, PathBuf};

use super::{Bounds, CgroupError, Limits, join, make_folders, read_number, write};

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

/// Reads the bounds of cpu and memory.
pub(super) fn bounds(mount: &Path, group: &str) -> Result<Bounds, CgroupError> {
    let folder = join(mount, group);
    let path = folder.join("cpu.max");
    let cpu = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(CgroupError::new(&path, "read", error)),
    };
    let mut words = cpu.split_whitespace().map(|word| word.parse().ok());
    Ok(Bounds {
        cpu_quota: words.next().flatten(),
        cpu_period: words.next().flatten(),
        cpu_shares: read_number(&folder.join("cpu.weight"))?.map(shares),
        memory: read_number(&folder.join("memory.max"))?,
    })
}

fn bound(value: i64) -> String {
    if value < 0 { "max".to_owned() } else { value.to_string() }
}

/// Shares of version 1 as a weight of version 2.
fn weight(shares: i64) -> i64 {
    let shares = shares.clamp(2, 262_144);
    1 + ((shares - 2) * 9_999) / 262_142
}

/// A weight of version 2 as shares of version 1; what is lost on the way there does not come back.
fn shares(weight: i64) -> i64 {
    let weight = weight.clamp(1, 10_000);
    ((weight - 1) * 262_142) / 9_999 + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        create(folder.path(), "/g").unwrap();
        assert_eq!(bounds(folder.path(), "/g").unwrap(), Bounds::default());
        for file in ["cpu.max", "cpu.weight", "memory.max"] {
            std::fs::write(folder.path().join("g").join(file), "").unwrap();
        }
        let limits = Limits {
            cpu_shares: Some(102),
            cpu_quota: Some(20_000),
            cpu_period: Some(100_000),
            memory: Some(4096),
            pids: None,
        };
        limit(folder.path(), "/g", &limits).unwrap();
        // As recorded of the stock agent: 102 shares come back as 80.
        let want =
            Bounds { cpu_shares: Some(80), cpu_quota: Some(20_000), cpu_period: Some(100_000), memory: Some(4096) };
        assert_eq!(bounds(folder.path(), "/g").unwrap(), want);
        std::fs::write(folder.path().join("g/cpu.max"), "max 100000\n").unwrap();
        std::fs::write(folder.path().join("g/memory.max"), "max\n").unwrap();
        let open = bounds(folder.path(), "/g").unwrap();
        assert_eq!((open.cpu_quota, open.cpu_period, open.memory), (None, Some(100_000), None));
    }

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
