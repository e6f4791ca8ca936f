//! Mounts of this process' mount namespace: making, finding and undoing them. Blocking: call from a blocking thread.
//! Never follows a symlink at the place that is unmounted.

mod table;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::mount::{MountFlags, UnmountFlags};

pub use table::{parse, under};

/// A mount that could not be made, found or undone.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel refused to mount. Retryable: what is in the way may go.
    #[error("mount {kind} at {}", target.display())]
    Mount {
        /// File system type, or `bind`.
        kind: &'static str,
        /// Where.
        target: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refused to unmount. Retryable: a process may still be in there.
    #[error("unmount {}", target.display())]
    Unmount {
        /// Where.
        target: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The mount table could not be read, or a place not looked at.
    #[error("look at mounts of {}", path.display())]
    Look {
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// How many bytes the file system at `path` holds.
pub fn held(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize))
}

/// Says whether something is mounted at `path`; a path that is not there is no mount point.
pub fn is_mount_point(path: &Path) -> Result<bool, MountError> {
    match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, StatxFlags::empty()) {
        Ok(facts) if facts.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => {
            Ok(facts.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
        }
        // Kernels before 5.8 do not say: ask the table.
        Ok(_) => Ok(under(path)?.contains(&table::real(path))),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(false),
        Err(error) => Err(MountError::Look { path: path.to_owned(), source: error.into() }),
    }
}

/// Kernels before 6.4 do not know the option; asked once.
static NO_SWAP_UNKNOWN: AtomicBool = AtomicBool::new(false);

/// Mounts a tmpfs of at most `size` bytes, kept out of swap where the kernel can.
pub fn tmpfs(target: &Path, size: Option<u64>) -> Result<(), MountError> {
    let size = size.map(|bytes| format!("size={bytes}")).unwrap_or_default();
    if !NO_SWAP_UNKNOWN.load(Ordering::Relaxed) {
        let options = if size.is_empty() { "noswap".to_owned() } else { format!("{size},noswap") };
        match mount_fs("tmpfs", target, &options) {
            Err(MountError::Mount { source, .. }) if source.raw_os_error() == Some(libc_einval()) => {
                NO_SWAP_UNKNOWN.store(true, Ordering::Relaxed);
            }
            answer => return answer,
        }
    }
    mount_fs("tmpfs", target, &size)
}

fn libc_einval() -> i32 {
    rustix::io::Errno::INVAL.raw_os_error()
}

/// Mounts a hugetlbfs with pages of `page_size` bytes.
pub fn huge_pages(target: &Path, page_size: u64) -> Result<(), MountError> {
    mount_fs("hugetlbfs", target, &format!("pagesize={page_size}"))
}

fn mount_fs(kind: &'static str, target: &Path, options: &str) -> Result<(), MountError> {
    let error = |source: io::Error| MountError::Mount { kind, target: target.to_owned(), source };
    let options = CString::new(options).map_err(|_| error(io::ErrorKind::InvalidInput.into()))?;
    let data = if options.is_empty() { None } else { Some(options.as_c_str()) };
    rustix::mount::mount(kind, target, kind, MountFlags::empty(), data).map_err(|errno| error(errno.into()))
}

/// Binds what an open descriptor points at, so that no path can be swapped in between.
pub fn bind_fd(source: BorrowedFd<'_>, target: &Path) -> Result<(), MountError> {
    let path = format!("/proc/self/fd/{}", source.as_raw_fd());
    rustix::mount::mount_bind(path.as_str(), target).map_err(|errno| MountError::Mount {
        kind: "bind",
        target: target.to_owned(),
        source: errno.into(),
    })
}

/// Unmounts; a place where nothing is mounted is fine.
pub fn unmount(target: &Path) -> Result<(), MountError> {
    unmount_with(target, UnmountFlags::NOFOLLOW)
}

/// Takes a mount out of sight at once; it ends when the last process has let go of it.
pub fn detach(target: &Path) -> Result<(), MountError> {
    unmount_with(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
}

fn unmount_with(target: &Path, flags: UnmountFlags) -> Result<(), MountError> {
    match rustix::mount::unmount(target, flags) {
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(()),
        Err(errno) => Err(MountError::Unmount { target: target.to_owned(), source: errno.into() }),
    }
}

/// Unmounts everything at and below `root`, deepest first; the first refusal is returned after all were tried.
pub fn unmount_under(root: &Path) -> Result<(), MountError> {
    let mut first = None;
    for target in under(root)? {
        if let Err(error) = unmount(&target) {
            first.get_or_insert(error);
        }
    }
    match first {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn plain_folders_and_absent_paths_are_no_mount_points() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_mount_point(dir.path()).unwrap());
        assert!(!is_mount_point(&dir.path().join("none")).unwrap());
        assert!(is_mount_point(Path::new("/proc")).unwrap());
        unmount(&dir.path().join("none")).unwrap();
    }

    /// Needs the right to mount; works in a namespace of its own thread, which ends with the test.
    fn alone(work: impl FnOnce() + Send + 'static) {
        let thread = std::thread::spawn(|| {
            let flags = nix::sched::CloneFlags::CLONE_NEWNS;
            if let Err(error) = nix::sched::unshare(flags) {
                eprintln!("skipped: no right to unshare mounts: {error}");
                return;
            }
            rustix::mount::mount_change(
                "/",
                rustix::mount::MountPropagationFlags::REC | rustix::mount::MountPropagationFlags::PRIVATE,
            )
            .unwrap();
            work();
        });
        thread.join().unwrap();
    }

    #[test]
    fn root_what_is_mounted_behind_a_link_is_found_and_undone() {
        alone(|| {
            let dir = tempfile::tempdir().unwrap();
            let (real, link) = (dir.path().join("real"), dir.path().join("link"));
            std::fs::create_dir_all(real.join("pod/volume")).unwrap();
            std::os::unix::fs::symlink(&real, &link).unwrap();
            tmpfs(&link.join("pod/volume"), Some(1 << 20)).unwrap();
            assert_eq!(under(&link.join("pod")).unwrap(), [real.join("pod/volume")]);
            unmount_under(&link.join("pod")).unwrap();
            assert!(!is_mount_point(&real.join("pod/volume")).unwrap());
        });
    }

    #[test]
    fn root_a_folder_in_memory_has_the_size_that_was_asked_for() {
        alone(|| {
            let dir = tempfile::tempdir().unwrap();
            tmpfs(dir.path(), Some(64 << 20)).unwrap();
            let facts = rustix::fs::statvfs(dir.path()).unwrap();
            assert_eq!(facts.f_blocks * facts.f_frsize, 64 << 20);
            let full = std::fs::write(dir.path().join("f"), vec![1; 65 << 20]).unwrap_err();
            assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
            unmount(dir.path()).unwrap();
        });
    }

    #[test]
    fn root_mounts_come_and_go() {
        alone(|| {
            let dir = tempfile::tempdir().unwrap();
            let (a, b) = (dir.path().join("a"), dir.path().join("b c"));
            std::fs::create_dir(&a).unwrap();
            std::fs::create_dir(&b).unwrap();
            tmpfs(&a, Some(1 << 20)).unwrap();
            assert!(is_mount_point(&a).unwrap());
            std::fs::create_dir(a.join("deep")).unwrap();
            tmpfs(&a.join("deep"), None).unwrap();
            let source = std::fs::File::open(&a).unwrap();
            bind_fd(source.as_fd(), &b).unwrap();
            assert!(b.join("deep").exists());
            assert_eq!(under(dir.path()).unwrap(), [b.clone(), a.join("deep"), a.clone()]);
            drop(source);
            unmount_under(dir.path()).unwrap();
            assert!(under(dir.path()).unwrap().is_empty());
        });
    }
}
