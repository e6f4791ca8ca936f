//! What stock kubelets do to the machine and to themselves before anything else. All but the directories is best effort.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use longshore_host::{facts, tune};

/// What of the configuration matters at the start.
#[derive(Debug, Clone)]
pub struct StartupOptions {
    /// `--root-dir`.
    pub root_dir: PathBuf,
    /// `podLogsDir`.
    pub pod_logs_dir: PathBuf,
    /// `protectKernelDefaults`.
    pub protect_kernel_defaults: bool,
    /// `oomScoreAdj`.
    pub oom_score_adj: i32,
    /// `maxOpenFiles`.
    pub max_open_files: u64,
    /// `failSwapOn`.
    pub fail_swap_on: bool,
    /// `failCgroupV1`.
    pub fail_cgroup_v1: bool,
    /// Whether the machine runs cgroup v1.
    pub cgroup_v1: bool,
    /// Where /proc and /sys are found; `/` but in tests.
    pub machine_root: PathBuf,
    /// Where links to container logs stand; `/var/log/containers` but in tests.
    pub container_links_dir: PathBuf,
}

/// Why the agent must not start.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// A directory could not be made.
    #[error("cannot make the directory {path}; hint: run as root, or choose another --root-dir")]
    Directory {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `failSwapOn` and swap is on.
    #[error("running with swap on is not supported, swap is used on {0}; hint: swapoff -a, or set failSwapOn to false")]
    Swap(String),
    /// `failCgroupV1` and the machine has v1.
    #[error(
        "this machine runs cgroup v1, which is refused by default; hint: boot with cgroup v2, or set failCgroupV1 to false"
    )]
    CgroupV1,
    /// `protectKernelDefaults` and the kernel differs.
    #[error("kernel settings differ and protectKernelDefaults forbids to change them: {0}")]
    Kernel(String),
}

/// As many open files serve some thousand pods.
const ENOUGH_FILES: u64 = 8192;

/// Does it all. Blocking; call it before the runtime is busy.
pub fn prepare(options: &StartupOptions) -> Result<(), StartupError> {
    if options.cgroup_v1 && options.fail_cgroup_v1 {
        return Err(StartupError::CgroupV1);
    }
    let swaps = facts::swaps(&options.machine_root);
    if options.fail_swap_on && !swaps.is_empty() {
        let names: Vec<String> = swaps.iter().map(|path| path.display().to_string()).collect();
        return Err(StartupError::Swap(names.join(", ")));
    }
    directories(options)?;
    kernel(options)?;
    if let Err(error) = tune::set_own_oom_score(&options.machine_root, options.oom_score_adj) {
        tracing::warn!(
            %error, score = options.oom_score_adj,
            "the kernel may end the agent when memory runs out: it does not let the agent set its own oom_score_adj"
        );
    }
    match tune::set_open_files(options.max_open_files) {
        Ok(have) if have < options.max_open_files => {
            let wanted = options.max_open_files;
            let text = "fewer open files than configured: the machine's hard limit allows no more";
            // Upstream's default is far beyond what an agent opens.
            if have < ENOUGH_FILES {
                tracing::warn!(have, wanted, "{text}");
            } else {
                tracing::info!(have, wanted, "{text}");
            }
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, limit = options.max_open_files, "limit of open files not raised"),
    }
    Ok(())
}

fn directories(options: &StartupOptions) -> Result<(), StartupError> {
    let root = &options.root_dir;
    let list = [
        (root.clone(), 0o750),
        (options.pod_logs_dir.clone(), 0o750),
        (options.container_links_dir.clone(), 0o755),
        (root.join("pods"), 0o750),
        (root.join("plugins"), 0o750),
        (root.join("plugins_registry"), 0o750),
        (root.join("pod-resources"), 0o750),
        (root.join("checkpoints"), 0o700),
        (root.join("image_manager/pulling"), 0o700),
        (root.join("image_manager/pulled"), 0o700),
    ];
    for (path, mode) in list {
        directory(&path, mode).map_err(|source| StartupError::Directory { path, source })?;
    }
    Ok(())
}

/// Makes a directory with exactly this mode; one that stands already keeps its own.
fn directory(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    // The umask may have taken bits off.
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn kernel(options: &StartupOptions) -> Result<(), StartupError> {
    let found = tune::kernel(&options.machine_root, options.protect_kernel_defaults);
    if options.protect_kernel_defaults && !found.is_empty() {
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        return Err(StartupError::Kernel(texts.join("; ")));
    }
    for error in &found {
        tracing::warn!(%error, "kernel setting left as it is");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &Path) -> StartupOptions {
        StartupOptions {
            root_dir: dir.join("kubelet"),
            pod_logs_dir: dir.join("log/pods"),
            protect_kernel_defaults: false,
            oom_score_adj: -999,
            max_open_files: 1024,
            fail_swap_on: true,
            fail_cgroup_v1: true,
            cgroup_v1: false,
            machine_root: dir.join("machine"),
            container_links_dir: dir.join("log/containers"),
        }
    }

    #[test]
    fn directories_get_their_modes_whatever_the_rest_says() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path());
        for _ in 0..2 {
            prepare(&options).unwrap();
        }
        let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("kubelet"), mode("log/pods"), mode("log/containers")), (0o750, 0o750, 0o755));
        assert_eq!((mode("kubelet/checkpoints"), mode("kubelet/image_manager/pulled")), (0o700, 0o700));
    }

    #[test]
    fn swap_and_cgroup_v1_stop_the_start_with_a_hint() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path());
        fs::create_dir_all(dir.path().join("machine/proc")).unwrap();
        fs::write(dir.path().join("machine/proc/swaps"), "Filename\n/dev/sda2 partition 1 0 -2\n").unwrap();
        let error = prepare(&options).unwrap_err().to_string();
        assert!(error.contains("/dev/sda2") && error.contains("hint"), "{error}");
        options.fail_swap_on = false;
        prepare(&options).unwrap();
        options.cgroup_v1 = true;
        assert!(matches!(prepare(&options), Err(StartupError::CgroupV1)));
        options.fail_cgroup_v1 = false;
        options.protect_kernel_defaults = true;
        assert!(matches!(prepare(&options), Err(StartupError::Kernel(_))));
    }
}
