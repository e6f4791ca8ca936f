//! Version 1: one tree per controller.

use std::path::{Path, PathBuf};

use super::{Bounds, CgroupError, Hierarchy, Limits, join, make_folders, read_number, write};

/// From here on a limit of memory is the kernel's way to say that there is none.
const NO_LIMIT: i64 = 1 << 62;

/// Makes the group in every tree. A tree that refuses is skipped when another one took it: containers can still run.
pub(super) fn create(hierarchies: &[Hierarchy], group: &str) -> Result<(), CgroupError> {
    let mut made = false;
    let mut refused = None;
    for hierarchy in hierarchies {
        match make_folders(&hierarchy.mount, group) {
            Ok(new) => {
                made = true;
                if hierarchy.controllers.iter().any(|c| c == "cpuset") {
                    for folder in new {
                        inherit_cpuset(&folder)?;
                    }
                }
            }
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if !made => Err(error),
        Some(error) => {
            tracing::debug!(%error, "a cgroup tree refused a group");
            Ok(())
        }
        None => Ok(()),
    }
}

/// A new cpuset is empty, and a process can only enter one that has CPUs and memory nodes.
fn inherit_cpuset(folder: &Path) -> Result<(), CgroupError> {
    let Some(parent) = folder.parent() else { return Ok(()) };
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let from = parent.join(file);
        let value = std::fs::read_to_string(&from).map_err(|e| CgroupError::new(&from, "read", e))?;
        if !value.trim().is_empty() {
            write(&folder.join(file), value.trim())?;
        }
    }
    Ok(())
}

/// The group's folder in the tree of a controller.
pub(super) fn folder(hierarchies: &[Hierarchy], group: &str, controller: &str) -> Option<PathBuf> {
    let hierarchy = hierarchies.iter().find(|h| h.controllers.iter().any(|c| c == controller))?;
    Some(join(&hierarchy.mount, group))
}

/// Reads the bounds of cpu and memory.
pub(super) fn bounds(hierarchies: &[Hierarchy], group: &str) -> Result<Bounds, CgroupError> {
    let mut bounds = Bounds::default();
    if let Some(cpu) = folder(hierarchies, group, "cpu") {
        bounds.cpu_shares = read_number(&cpu.join("cpu.shares"))?;
        bounds.cpu_period = read_number(&cpu.join("cpu.cfs_period_us"))?;
        bounds.cpu_quota = read_number(&cpu.join("cpu.cfs_quota_us"))?.filter(|quota| *quota > 0);
    }
    if let Some(memory) = folder(hierarchies, group, "memory") {
        bounds.memory =
            read_number(&memory.join("memory.limit_in_bytes"))?.filter(|bytes| (0..NO_LIMIT).contains(bytes));
    }
    Ok(bounds)
}

/// Writes bounds into the trees that have them.
pub(super) fn limit(hierarchies: &[Hierarchy], group: &str, limits: &Limits) -> Result<(), CgroupError> {
    let folder = |controller: &str| folder(hierarchies, group, controller);
    if let Some(cpu) = folder("cpu") {
        if let Some(shares) = limits.cpu_shares {
            write(&cpu.join("cpu.shares"), &shares.to_string())?;
        }
        if let Some(period) = limits.cpu_period {
            // Kernels without bandwidth control lack the files; then there is nothing to bound with.
            if cpu.join("cpu.cfs_period_us").exists() {
                write(&cpu.join("cpu.cfs_period_us"), &period.to_string())?;
            }
        }
        if let Some(quota) = limits.cpu_quota
            && cpu.join("cpu.cfs_quota_us").exists()
        {
            write(&cpu.join("cpu.cfs_quota_us"), &quota.to_string())?;
        }
    }
    if let (Some(memory), Some(folder)) = (limits.memory, folder("memory")) {
        write(&folder.join("memory.limit_in_bytes"), &memory.to_string())?;
    }
    if let (Some(pids), Some(folder)) = (limits.pids, folder("pids")) {
        write(&folder.join("pids.max"), &bound(pids))?;
    }
    Ok(())
}

fn bound(value: i64) -> String {
    if value < 0 { "max".to_owned() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_back_and_the_kernels_no_limit_is_none() {
        let root = tempfile::tempdir().unwrap();
        let hierarchies = ["cpu", "memory"]
            .map(|name| Hierarchy { mount: root.path().join(name), controllers: vec![name.to_owned()] });
        let put = |file: &str, text: &str| {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("cpu/g/cpu.shares", "102\n");
        put("cpu/g/cpu.cfs_period_us", "100000\n");
        put("cpu/g/cpu.cfs_quota_us", "-1\n");
        put("memory/g/memory.limit_in_bytes", "9223372036854771712\n");
        let open = Bounds { cpu_shares: Some(102), cpu_period: Some(100_000), ..Bounds::default() };
        assert_eq!(bounds(&hierarchies, "/g").unwrap(), open);
        let limits = Limits { cpu_quota: Some(20_000), memory: Some(4096), ..Limits::default() };
        limit(&hierarchies, "/g", &limits).unwrap();
        put("memory/g/memory.limit_in_bytes", "4096\n");
        let got = bounds(&hierarchies, "/g").unwrap();
        assert_eq!((got.cpu_quota, got.memory), (Some(20_000), Some(4096)));
        assert_eq!(bounds(&hierarchies, "/none").unwrap(), Bounds::default());
        put("memory/g/memory.usage_in_bytes", "77\n");
        let groups = crate::cgroup::Cgroups::with_version(crate::cgroup::Version::V1(hierarchies.to_vec()));
        assert_eq!((groups.memory_usage("/g"), groups.memory_usage("/none")), (Some(77), None));
    }
}
