//! What this machine is: read from /proc, /sys and /etc below a root that tests choose. Missing files give `None` or a
//! documented fallback; nothing here writes.

mod net;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use net::{default_interface, interface_addresses};

/// The machine as a node describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// The firmware's id, or the machine id where there is none.
    pub system_uuid: String,
    /// Changes with each boot.
    pub boot_id: String,
    /// `uname -r`.
    pub kernel: String,
    /// `PRETTY_NAME` of os-release.
    pub os_image: String,
    /// Logical CPUs that are online.
    pub cpus: u32,
    /// `MemTotal` in bytes.
    pub memory: u64,
    /// `SwapTotal` in bytes.
    pub swap: u64,
    /// Huge pages set aside: page size and count, ascending by size.
    pub hugepages: Vec<HugePages>,
}

/// Huge pages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages {
    /// Bytes per page.
    pub page: u64,
    /// Pages set aside.
    pub count: u64,
}

impl HugePages {
    /// Bytes in all.
    pub const fn bytes(self) -> u64 {
        self.page.saturating_mul(self.count)
    }
}

impl MachineFacts {
    /// Reads all of it below `root` (`/` on a real machine).
    pub fn read(root: &Path) -> Self {
        let machine_id = machine_id(root).unwrap_or_default();
        let memory = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
        Self {
            system_uuid: system_uuid(root).unwrap_or_else(|| machine_id.clone()),
            machine_id,
            boot_id: word(root, "proc/sys/kernel/random/boot_id").unwrap_or_default(),
            kernel: word(root, "proc/sys/kernel/osrelease").unwrap_or_default(),
            os_image: os_image(root).unwrap_or_else(|| "Unknown".to_owned()),
            cpus: cpus(root),
            memory: meminfo(&memory, "MemTotal:").unwrap_or(0),
            swap: meminfo(&memory, "SwapTotal:").unwrap_or(0),
            hugepages: hugepages(root),
        }
    }
}

/// The machine's id, from systemd's file or D-Bus's.
pub fn machine_id(root: &Path) -> Option<String> {
    word(root, "etc/machine-id").or_else(|| word(root, "var/lib/dbus/machine-id"))
}

fn system_uuid(root: &Path) -> Option<String> {
    ["sys/class/dmi/id/product_uuid", "proc/device-tree/system-id", "proc/device-tree/vm,uuid", "etc/machine-id"]
        .iter()
        .find_map(|path| word(root, path))
}

/// Host name as the kernel has it.
pub fn hostname(root: &Path) -> Option<String> {
    word(root, "proc/sys/kernel/hostname")
}

/// Swap areas in use, as paths.
pub fn swaps(root: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
    text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(PathBuf::from).collect()
}

/// Size of the filesystem that `path` is on, in bytes.
pub fn filesystem_size(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
}

fn os_image(root: &Path) -> Option<String> {
    let text =
        ["etc/os-release", "usr/lib/os-release"].iter().find_map(|path| fs::read_to_string(root.join(path)).ok())?;
    let value = text.lines().find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?;
    let value = value.trim().trim_matches(['"', '\'']);
    (!value.is_empty()).then(|| value.to_owned())
}

fn cpus(root: &Path) -> u32 {
    if let Some(count) = word(root, "sys/devices/system/cpu/online").and_then(|list| count_ranges(&list)) {
        return count;
    }
    let text = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

/// Counts what a list like `0-3,7` names.
fn count_ranges(list: &str) -> Option<u32> {
    let mut total = 0u32;
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        total = total.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    (total > 0).then_some(total)
}

fn meminfo(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn hugepages(root: &Path) -> Vec<HugePages> {
    let Ok(entries) = fs::read_dir(root.join("sys/kernel/mm/hugepages")) else { return Vec::new() };
    let mut pages: Vec<HugePages> = entries.flatten().filter_map(|entry| one_hugepage_size(&entry.path())).collect();
    pages.sort_by_key(|pages| pages.page);
    pages
}

fn one_hugepage_size(dir: &Path) -> Option<HugePages> {
    let name = dir.file_name()?.to_str()?;
    let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    let count = fs::read_to_string(dir.join("nr_hugepages")).ok()?.trim().parse().ok()?;
    Some(HugePages { page: kib.checked_mul(1024)?, count })
}

/// The first word of a small file; `None` when absent or empty. Firmware files may end with a zero byte.
fn word(root: &Path, path: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(path)).ok()?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}
