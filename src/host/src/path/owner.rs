//! Ownership of whole trees, as `fsGroup` wants it. Links are owned themselves and never followed: a pod may be writing
//! into the tree.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, chownat, fstat, openat};

use super::PathError;

/// Which rights the group gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupMask {
    /// Reading and writing.
    ReadWrite,
    /// Reading only: the agent alone writes there.
    ReadOnly,
}

impl GroupMask {
    const fn file(self) -> u32 {
        match self {
            Self::ReadWrite => 0o660,
            Self::ReadOnly => 0o440,
        }
    }

    const fn folder(self) -> u32 {
        self.file() | 0o110 | 0o2000
    }
}

/// Gives a tree to a group, deepest first; folders hand the group on to what is made in them later.
pub fn own_tree(root: &Path, group: u32, mask: GroupMask) -> Result<(), PathError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(root, flags, Mode::empty()).map_err(|errno| PathError::io("open", root, errno))?;
    own_folder(&dir, root, Gid::from_raw(group), mask, 0)
}

/// Deeper trees than any path can name do not come from honest use.
const DEPTH: u32 = 2048;

fn own_folder(dir: &OwnedFd, path: &Path, group: Gid, mask: GroupMask, depth: u32) -> Result<(), PathError> {
    if depth > DEPTH {
        return Err(PathError::io("walk", path, std::io::Error::other("too deep")));
    }
    let entries = Dir::read_from(dir).map_err(|errno| PathError::io("list", path, errno))?;
    for entry in entries {
        let entry = entry.map_err(|errno| PathError::io("list", path, errno))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let full = path.join(std::ffi::OsStr::new(name.to_string_lossy().as_ref()));
        let handle = match openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(handle) => handle,
            // Gone in the meantime.
            Err(rustix::io::Errno::NOENT) => continue,
            Err(errno) => return Err(PathError::io("open", &full, errno)),
        };
        let facts = fstat(&handle).map_err(|errno| PathError::io("look at", &full, errno))?;
        match FileType::from_raw_mode(facts.st_mode) {
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let inner =
                    openat(&handle, c".", flags, Mode::empty()).map_err(|errno| PathError::io("open", &full, errno))?;
                own_folder(&inner, &full, group, mask, depth + 1)?;
            }
            FileType::Symlink => give(&handle, &full, group)?,
            FileType::RegularFile
            | FileType::Fifo
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Socket
            | FileType::Unknown => {
                give(&handle, &full, group)?;
                add_mode(&handle, &full, facts.st_mode, mask.file())?;
            }
        }
    }
    give(dir, path, group)?;
    let facts = fstat(dir).map_err(|errno| PathError::io("look at", path, errno))?;
    add_mode(dir, path, facts.st_mode, mask.folder())
}

fn give(handle: &OwnedFd, path: &Path, group: Gid) -> Result<(), PathError> {
    chownat(handle.as_fd(), c"", None, Some(group), AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| PathError::io("change the group of", path, errno))
}

fn add_mode(handle: &OwnedFd, path: &Path, present: u32, bits: u32) -> Result<(), PathError> {
    let present = present & 0o7777;
    if present & bits == bits {
        return Ok(());
    }
    let place = format!("/proc/self/fd/{}", handle.as_raw_fd());
    std::fs::set_permissions(place, std::fs::Permissions::from_mode(present | bits))
        .map_err(|source| PathError::io("set the mode of", path, source))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn root_the_tree_gets_group_and_rights_and_links_are_not_followed() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root gives files to any group");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
        std::fs::create_dir_all(tree.join("d")).unwrap();
        for (path, mode) in [(tree.join("d/f"), 0o600), (outside.clone(), 0o600)] {
            std::fs::write(&path, "x").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink(&outside, tree.join("link")).unwrap();
        own_tree(&tree, 2000, GroupMask::ReadWrite).unwrap();
        let look = |path: &Path| {
            let facts = std::fs::symlink_metadata(path).unwrap();
            (facts.gid(), facts.mode() & 0o7777)
        };
        assert_eq!(look(&tree.join("d/f")), (2000, 0o660));
        assert_eq!(look(&tree.join("d")), (2000, 0o2775));
        assert_eq!(look(&tree.join("link")).0, 2000);
        assert_ne!(look(&outside).0, 2000);
        std::fs::set_permissions(tree.join("d/f"), std::fs::Permissions::from_mode(0o400)).unwrap();
        own_tree(&tree, 2000, GroupMask::ReadOnly).unwrap();
        assert_eq!(look(&tree.join("d/f")), (2000, 0o440));
    }
}
