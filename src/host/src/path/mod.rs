//! Paths that come from manifests or lie in folders that pods can write: resolved beneath a root, never followed out of
//! it, owned and moded without following links. Blocking: call from a blocking thread.

mod owner;

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, mkdirat, openat2};

pub use owner::{GroupMask, own_tree};

/// A path that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// It is absolute, climbs, or a link leads out of its root. Not retryable as it stands.
    #[error("{} leads out of {}", path.display(), root.display())]
    Escapes {
        /// Where it has to stay.
        root: PathBuf,
        /// What was asked for.
        path: PathBuf,
    },
    /// Another failure on the way.
    #[error("{doing} {}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl PathError {
    fn io(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { doing, path: path.to_owned(), source: source.into() }
    }
}

/// Opens `path` below `root` as a handle; links are followed only as long as they stay below.
pub fn open_beneath(root: &Path, path: &Path) -> Result<OwnedFd, PathError> {
    let dir = open_root(root)?;
    open_in(&dir, root, path)
}

/// Reads the regular file `path` below `root` as [`open_beneath`] finds it; `None` when it is not there. Fails on anything
/// but a regular file and on one of more than `most` bytes.
pub fn read_beneath(root: &Path, path: &Path, most: usize) -> Result<Option<Vec<u8>>, PathError> {
    let whole = root.join(path);
    let fail = |doing, kind: io::ErrorKind, text: String| PathError::io(doing, &whole, io::Error::new(kind, text));
    let handle = match open_beneath(root, path) {
        Err(PathError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let facts = rustix::fs::fstat(&handle).map_err(|errno| PathError::io("look at", &whole, errno))?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
        return Err(fail("read", io::ErrorKind::InvalidInput, "not a regular file".to_owned()));
    }
    // Opened anew through its handle: it is that very file, whatever has been put in its place.
    let again = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let file = std::fs::File::open(again).map_err(|error| PathError::io("open", &whole, error))?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(|error| PathError::io("read", &whole, error))?;
    if bytes.len() > most {
        return Err(fail("read", io::ErrorKind::FileTooLarge, format!("more than {most} bytes")));
    }
    Ok(Some(bytes))
}

fn open_root(root: &Path) -> Result<OwnedFd, PathError> {
    rustix::fs::open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| PathError::io("open", root, errno))
}

fn open_in(dir: &OwnedFd, root: &Path, path: &Path) -> Result<OwnedFd, PathError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    // The kernel answers "again" when something was renamed while it walked.
    for _ in 0..32 {
        match openat2(dir, path, flags, Mode::empty(), resolve) {
            Ok(fd) => return Ok(fd),
            Err(rustix::io::Errno::AGAIN) => {}
            Err(rustix::io::Errno::XDEV | rustix::io::Errno::LOOP) => {
                return Err(PathError::Escapes { root: root.to_owned(), path: path.to_owned() });
            }
            Err(errno) => return Err(PathError::io("open", &root.join(path), errno)),
        }
    }
    Err(PathError::io("open", &root.join(path), rustix::io::Errno::AGAIN))
}

/// Opens `path` below `root`, making missing folders with `mode` (the umask does not count).
pub fn open_or_make_beneath(root: &Path, path: &Path, mode: u32) -> Result<OwnedFd, PathError> {
    let dir = open_root(root)?;
    match open_in(&dir, root, path) {
        Err(PathError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        answer => return answer,
    }
    let mut at = PathBuf::new();
    let mut parent = open_in(&dir, root, Path::new("."))?;
    for component in path.components() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => continue,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(PathError::Escapes { root: root.to_owned(), path: path.to_owned() });
            }
        };
        at.push(name);
        match open_in(&dir, root, &at) {
            Ok(next) => {
                parent = next;
                continue;
            }
            Err(PathError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let full = root.join(&at);
        match mkdirat(parent.as_fd(), name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(PathError::io("make", &full, errno)),
        }
        parent = open_in(&dir, root, &at)?;
        chmod_handle(&parent, mode).map_err(|source| PathError::io("set the mode of", &full, source))?;
    }
    Ok(parent)
}

/// Sets the mode of what a handle points at.
fn chmod_handle(fd: &OwnedFd, mode: u32) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Makes a folder and those above it; the last one gets exactly `mode`, those above 0750.
pub fn make_dir(path: &Path, mode: u32) -> Result<(), PathError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(path)
        .map_err(|source| PathError::io("make", path, source))?;
    let wanted = std::fs::Permissions::from_mode(mode);
    let present = std::fs::symlink_metadata(path).map_err(|source| PathError::io("look at", path, source))?;
    if present.permissions().mode() & 0o7777 != mode {
        std::fs::set_permissions(path, wanted).map_err(|source| PathError::io("set the mode of", path, source))?;
    }
    Ok(())
}

/// Removes a tree; one that is not there is fine. The caller has made sure that nothing is mounted below.
pub fn remove_tree(path: &Path) -> Result<(), PathError> {
    match std::fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(PathError::io("remove", path, source)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    fn scene() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("..data-1")).unwrap();
        std::fs::write(root.join("..data-1/a"), "x").unwrap();
        symlink("..data-1", root.join("..data")).unwrap();
        symlink("..data/a", root.join("a")).unwrap();
        symlink("/etc", root.join("abs")).unwrap();
        symlink("../..", root.join("up")).unwrap();
        dir
    }

    #[test]
    fn links_are_followed_inside_and_refused_outside() {
        let dir = scene();
        let root = dir.path().join("root");
        for inside in ["a", "..data/a", "", "./a"] {
            open_beneath(&root, Path::new(inside)).unwrap_or_else(|error| panic!("{inside}: {error}"));
        }
        for outside in ["abs", "abs/passwd", "up", "..", "../root/a", "/etc/passwd"] {
            assert!(matches!(open_beneath(&root, Path::new(outside)), Err(PathError::Escapes { .. })), "{outside}");
        }
        assert!(matches!(open_beneath(&root, Path::new("none")), Err(PathError::Io { .. })));
    }

    #[test]
    fn missing_folders_are_made_with_the_mode_and_never_through_a_link_out() {
        let dir = scene();
        let root = dir.path().join("root");
        open_or_make_beneath(&root, Path::new("x/y"), 0o777).unwrap();
        assert_eq!(std::fs::metadata(root.join("x/y")).unwrap().mode() & 0o7777, 0o777);
        open_or_make_beneath(&root, Path::new("a"), 0o777).unwrap();
        for outside in ["up/x", "abs/x", "../x", "x/../../z"] {
            assert!(open_or_make_beneath(&root, Path::new(outside), 0o755).is_err(), "{outside}");
        }
        assert!(!dir.path().join("x").exists() && !dir.path().join("z").exists());
    }

    #[test]
    fn make_dir_sets_the_mode_of_an_old_folder_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        make_dir(&path, 0o700).unwrap();
        make_dir(&path, 0o777).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
        remove_tree(&path).unwrap();
        remove_tree(&path).unwrap();
    }
}
