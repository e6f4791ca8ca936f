//! Binds a place inside a volume for one container, so that nothing can be swapped under the runtime. Blocking.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use longshore_host::path;
use rustix::fs::{FileType, fstat};

use super::Mounter;
use super::empty_dir::chain;

const FOLDER_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;

/// Binds `inside` of the volume at `target`; a bind that shows the same place already is kept.
pub(super) fn bind(mounter: &dyn Mounter, volume: &Path, inside: &Path, target: &Path) -> Result<(), String> {
    let mode = std::fs::metadata(volume)
        .map_err(|error| format!("look at {}: {error}", volume.display()))?
        .permissions()
        .mode()
        & 0o777;
    // Opened step by step below the volume: a link that leads out is refused, and what was opened stays what it is.
    let place = path::open_or_make_beneath(volume, inside, mode).map_err(|error| chain(&error))?;
    if mounter.is_mount_point(target).map_err(|error| chain(&error))? {
        if is_same(&place, target) {
            return Ok(());
        }
        mounter.unmount(target).map_err(|error| chain(&error))?;
    }
    make_target(&place, target)?;
    mounter.bind_fd(place.as_fd(), target).map_err(|error| chain(&error))
}

fn is_same(place: &OwnedFd, target: &Path) -> bool {
    match (fstat(place), std::fs::metadata(target)) {
        (Ok(place), Ok(target)) => place.st_dev == target.dev() && place.st_ino == target.ino(),
        _ => false,
    }
}

fn make_target(place: &OwnedFd, target: &Path) -> Result<(), String> {
    let facts = fstat(place).map_err(|error| format!("look at the sub-path: {error}"))?;
    let parent = target.parent().unwrap_or(target);
    path::make_dir(parent, FOLDER_MODE).map_err(|error| chain(&error))?;
    let is_folder = FileType::from_raw_mode(facts.st_mode) == FileType::Directory;
    // What an earlier volume left there may be of the other kind.
    if target.symlink_metadata().is_ok_and(|left| left.is_dir() != is_folder) {
        let removed = if is_folder { std::fs::remove_file(target) } else { std::fs::remove_dir(target) };
        removed.map_err(|error| format!("remove {}: {error}", target.display()))?;
    }
    if is_folder {
        return path::make_dir(target, FOLDER_MODE).map_err(|error| chain(&error));
    }
    let made = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(target);
    made.and_then(|_| std::fs::set_permissions(target, std::fs::Permissions::from_mode(FILE_MODE)))
        .map_err(|error| format!("make {}: {error}", target.display()))
}
