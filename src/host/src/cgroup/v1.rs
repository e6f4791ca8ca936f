//! Version 1: one tree per controller.

use std::path::Path;

use super::{CgroupError, Hierarchy, Limits, join, make_folders, write};

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

/// Writes bounds into the trees that have them.
pub(super) fn limit(hierarchies: &[Hierarchy], group: &str, limits: &Limits) -> Result<(), CgroupError> {
    let folder = |controller: &str| {
        let hierarchy = hierarchies.iter().find(|h| h.controllers.iter().any(|c| c == controller))?;
        Some(join(&hierarchy.mount, group))
    };
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
