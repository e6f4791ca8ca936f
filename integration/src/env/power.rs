//! A power cut: what a machine that lost its power has left when it comes up again.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Env, clean};

impl Env {
    /// Takes the power away: all processes of the run are killed with nobody to see it, what lives in memory is gone
    /// (`/run`, volumes in memory, network devices, cgroups), what is on disk stays. Parts are started again by their own
    /// methods.
    ///
    /// The kernel goes on: files that were written and not synced are still there, and the boot id is the same.
    pub fn power_cut(&self) -> Result<()> {
        drop(self.slot().take());
        clean::kill_all(self.directory(), self.id());
        self.within(|| {
            unmount_below(&["/run/", "/var/lib/kubelet/", "/var/lib/containerd/"])?;
            for entry in std::fs::read_dir("/run").context("read /run")?.flatten() {
                let path = entry.path();
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let removed = if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
                removed.with_context(|| format!("remove {}", path.display()))?;
            }
            std::fs::create_dir_all("/run/lock")?;
            remove_devices()
        })?
    }
}

/// Unmounts everything below the folders, what was mounted last first.
fn unmount_below(folders: &[&str]) -> Result<()> {
    let table = std::fs::read_to_string("/proc/thread-self/mountinfo")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let points: Vec<&str> = points.filter(|point| folders.iter().any(|folder| point.starts_with(folder))).collect();
    for point in points.into_iter().rev() {
        match nix::mount::umount2(Path::new(point), nix::mount::MntFlags::MNT_DETACH) {
            // It went with what it was mounted on.
            Ok(()) | Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => {}
            Err(error) => return Err(error).with_context(|| format!("unmount {point}")),
        }
    }
    Ok(())
}

/// Removes the bridge and the devices of pods, and the rules that forward their ports.
fn remove_devices() -> Result<()> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let names = table.lines().filter_map(|line| line.trim_start().split_once(':')).map(|(name, _)| name);
    for name in names.filter(|name| name.starts_with("veth") || *name == "cni0") {
        // The other end of a pair, or one whose namespace is just being taken down, is gone by itself.
        drop(Command::new("ip").args(["link", "delete", name]).output());
    }
    for what in ["-F", "-X"] {
        Command::new("iptables").args(["-t", "nat", what]).output().context("run iptables")?;
    }
    Ok(())
}
