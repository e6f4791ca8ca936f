//! The mounts that volumes need, as a small port, so that tests need no rights.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::path::Path;

use longshore_host::mount::{self, MountError};

/// Makes and undoes mounts. Blocking.
pub trait Mounter: Debug + Send + Sync + 'static {
    /// Says whether something is mounted at a path.
    fn is_mount_point(&self, path: &Path) -> Result<bool, MountError>;
    /// Mounts memory of at most `size` bytes.
    fn tmpfs(&self, target: &Path, size: Option<u64>) -> Result<(), MountError>;
    /// Mounts huge pages of `page_size` bytes.
    fn huge_pages(&self, target: &Path, page_size: u64) -> Result<(), MountError>;
    /// How many bytes the file system at a path holds; `None` where it cannot be asked.
    fn held(&self, path: &Path) -> Option<u64>;
    /// Binds what a descriptor points at.
    fn bind_fd(&self, source: BorrowedFd<'_>, target: &Path) -> Result<(), MountError>;
    /// Unmounts one place.
    fn unmount(&self, target: &Path) -> Result<(), MountError>;
    /// Unmounts everything at and below a path; afterwards nothing may be mounted there.
    fn unmount_under(&self, root: &Path) -> Result<(), MountError>;
}

/// The machine's own mounts.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostMounter;

impl Mounter for HostMounter {
    fn is_mount_point(&self, path: &Path) -> Result<bool, MountError> {
        mount::is_mount_point(path)
    }

    fn tmpfs(&self, target: &Path, size: Option<u64>) -> Result<(), MountError> {
        mount::tmpfs(target, size)
    }

    fn huge_pages(&self, target: &Path, page_size: u64) -> Result<(), MountError> {
        mount::huge_pages(target, page_size)
    }

    fn held(&self, path: &Path) -> Option<u64> {
        mount::held(path).ok()
    }

    fn bind_fd(&self, source: BorrowedFd<'_>, target: &Path) -> Result<(), MountError> {
        mount::bind_fd(source, target)
    }

    fn unmount(&self, target: &Path) -> Result<(), MountError> {
        mount::unmount(target)
    }

    fn unmount_under(&self, root: &Path) -> Result<(), MountError> {
        mount::unmount_under(root)?;
        match mount::under(root)?.into_iter().next() {
            None => Ok(()),
            Some(target) => Err(MountError::Unmount { target, source: std::io::Error::other("still mounted") }),
        }
    }
}
