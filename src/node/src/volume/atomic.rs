//! Writes a set of files so that readers see all of the old or all of the new ones.
//!
//! ```text
//! volume/..2026_11_29_16_00_00.1234567890/a   the files
//! volume/..data -> ..2026_11_29_16_00_00.1234567890
//! volume/a -> ..data/a                        what pods read
//! ```
//! Only the link `..data` is switched, by a rename. Blocking.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;

const DATA: &str = "..data";
const DATA_NEW: &str = "..data_tmp";
const PATH_MAX: usize = 4096;
const NAME_MAX: usize = 255;

/// Whether a volume was written, and is as it was then.
pub(super) fn stands(volume: &Path) -> bool {
    volume.join(DATA).exists()
}

/// One file of a volume. `Debug` does not show its content.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FileEntry {
    pub(super) data: Vec<u8>,
    pub(super) mode: u32,
    /// Who owns it, when not root.
    pub(super) owner: Option<u32>,
}

impl std::fmt::Debug for FileEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileEntry({} bytes, {:o})", self.data.len(), self.mode)
    }
}

/// The files of a volume by path inside it.
pub(super) type Payload = BTreeMap<PathBuf, FileEntry>;

/// A set of files that could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// A path climbs, is absolute or too long. Not retryable as it stands.
    #[error("invalid path {}: {why}", path.display())]
    Path { path: PathBuf, why: &'static str },
    /// The disk or the kernel refused.
    #[error("{doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// Ownership could not be given.
    #[error(transparent)]
    Owner(#[from] longshore_host::path::PathError),
}

fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    let path = path.to_owned();
    move |source| WriteError::Io { doing, path, source }
}

/// Writes the files into `volume`; `own` runs before the switch and gives everything its group. Returns whether anything
/// changed.
pub(super) fn write(
    volume: &Path,
    payload: &Payload,
    now: Timestamp,
    own: impl Fn() -> Result<(), longshore_host::path::PathError>,
) -> Result<bool, WriteError> {
    payload.keys().try_for_each(|path| check(path))?;
    let data = volume.join(DATA);
    let current = std::fs::read_link(&data).ok();
    if let Some(current) = &current
        && is_same(&volume.join(current), payload)
    {
        link_names(volume, payload)?;
        return Ok(false);
    }
    let folder = make_folder(volume, now)?;
    let made = fill(volume, &folder, payload, &own);
    if let Err(error) = made {
        // The half-written folder was never seen by anybody.
        drop(std::fs::remove_dir_all(&folder));
        return Err(error);
    }
    tidy(volume, &folder, payload)?;
    Ok(true)
}

fn fill(
    volume: &Path,
    folder: &Path,
    payload: &Payload,
    own: &impl Fn() -> Result<(), longshore_host::path::PathError>,
) -> Result<(), WriteError> {
    for (path, entry) in payload {
        let full = folder.join(path);
        // Faults name the file as pods know it: the folder has another name at each try, and events would not add up.
        let shown = volume.join(path);
        if let Some(parent) = full.parent() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)
                .map_err(io("make the folder of", &shown))?;
        }
        std::fs::write(&full, &entry.data).map_err(io("write", &shown))?;
        let mode = std::fs::Permissions::from_mode(entry.mode);
        std::fs::set_permissions(&full, mode).map_err(io("set the mode of", &shown))?;
        if let Some(owner) = entry.owner {
            std::os::unix::fs::chown(&full, Some(owner), None).map_err(io("change the owner of", &shown))?;
        }
    }
    link_names(volume, payload)?;
    own()?;
    let (data, new) = (volume.join(DATA), volume.join(DATA_NEW));
    let name = folder.file_name().unwrap_or_default();
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io("remove", &new)(error)),
        _ => {}
    }
    std::os::unix::fs::symlink(name, &new).map_err(io("link", &new))?;
    std::fs::rename(&new, &data).map_err(io("switch", &data))
}

/// Paths come from manifests and keys from objects: neither may leave the volume or hide as one of our own names.
fn check(path: &Path) -> Result<(), WriteError> {
    let refuse = |why| Err(WriteError::Path { path: path.to_owned(), why });
    let length = path.as_os_str().len();
    if length == 0 {
        return refuse("must not be empty");
    }
    if path.is_absolute() {
        return refuse("must be relative path");
    }
    if length > PATH_MAX {
        return refuse("must be less than or equal to 4096 characters");
    }
    for component in path.components() {
        match component {
            Component::Normal(name) if name.len() > NAME_MAX => return refuse("file name is too long"),
            Component::Normal(_) | Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return refuse("must not contain '..'"),
        }
    }
    if path.as_os_str().as_encoded_bytes().starts_with(b"..") {
        return refuse("must not start with '..'");
    }
    Ok(())
}

fn make_folder(volume: &Path, now: Timestamp) -> Result<PathBuf, WriteError> {
    let time = now.strftime("..%Y_%m_%d_%H_%M_%S").to_string();
    loop {
        let number = uuid::Uuid::new_v4().as_fields().0;
        let folder = volume.join(format!("{time}.{number}"));
        match std::fs::DirBuilder::new().mode(0o755).create(&folder) {
            Ok(()) => {
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(&folder, mode).map_err(io("set the mode of a folder in", volume))?;
                return Ok(folder);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io("make a folder in", volume)(error)),
        }
    }
}

fn is_same(folder: &Path, payload: &Payload) -> bool {
    let mut present = BTreeSet::new();
    if collect(folder, Path::new(""), &mut present).is_err() {
        return false;
    }
    present.iter().eq(payload.keys())
        && payload.iter().all(|(path, entry)| {
            let full = folder.join(path);
            let same_facts = std::fs::symlink_metadata(&full).is_ok_and(|facts| {
                usize::try_from(facts.len()).is_ok_and(|length| length == entry.data.len())
                    && entry.owner.is_none_or(|owner| owner == facts.uid())
            });
            same_facts && std::fs::read(&full).is_ok_and(|data| data == entry.data)
        })
}

fn collect(folder: &Path, below: &Path, out: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &path, out)?;
        } else {
            out.insert(path);
        }
    }
    Ok(())
}

/// Names that pods see: the first part of each path.
fn names(payload: &Payload) -> BTreeSet<&OsStr> {
    payload
        .keys()
        .filter_map(|path| {
            path.components().find_map(|part| match part {
                Component::Normal(name) => Some(name),
                Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => None,
            })
        })
        .collect()
}

fn link_names(volume: &Path, payload: &Payload) -> Result<(), WriteError> {
    for name in names(payload) {
        let link = volume.join(name);
        if std::fs::read_link(&link).is_ok() {
            continue;
        }
        let target = Path::new(DATA).join(name);
        match std::os::unix::fs::symlink(target, &link) {
            Ok(()) => {}
            // A mount point inside the volume was made there before; what is mounted hides the file anyway.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io("link", &link)(error)),
        }
    }
    Ok(())
}

/// Removes links of files that are gone and all folders but the current one, also those a crash left.
fn tidy(volume: &Path, current: &Path, payload: &Payload) -> Result<(), WriteError> {
    let keep: BTreeSet<OsString> = names(payload).into_iter().map(OsStr::to_owned).collect();
    for entry in std::fs::read_dir(volume).map_err(io("list", volume))? {
        let entry = entry.map_err(io("list", volume))?;
        let (name, path) = (entry.file_name(), entry.path());
        let kind = entry.file_type().map_err(io("look at", &path))?;
        let own = name.as_encoded_bytes().starts_with(b"..");
        if own && kind.is_dir() && path != current {
            std::fs::remove_dir_all(&path).map_err(io("remove", &path))?;
        } else if !own && kind.is_symlink() && !keep.contains(&name) {
            std::fs::remove_file(&path).map_err(io("remove", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        files
            .iter()
            .map(|(path, data)| {
                (PathBuf::from(path), FileEntry { data: data.as_bytes().to_vec(), mode: 0o644, owner: None })
            })
            .collect()
    }

    fn put(volume: &Path, files: &[(&str, &str)]) -> Result<bool, WriteError> {
        write(volume, &payload(files), Timestamp::UNIX_EPOCH, || Ok(()))
    }

    fn listing(volume: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(volume)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                let name = if name.starts_with("..1970") { "..TIME".to_owned() } else { name };
                match std::fs::read_link(entry.path()) {
                    Ok(target) if name != DATA => format!("{name} -> {}", target.display()),
                    _ => name,
                }
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_appear_behind_links_and_the_same_content_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(put(dir.path(), &[("a", "1"), ("deep/x", "2"), ("deep/y", "3")]).unwrap());
        assert_eq!(listing(dir.path()), ["..TIME", "..data", "a -> ..data/a", "deep -> ..data/deep"]);
        assert_eq!(std::fs::read_to_string(dir.path().join("deep/y")).unwrap(), "3");
        let before = std::fs::read_link(dir.path().join(DATA)).unwrap();
        assert!(!put(dir.path(), &[("a", "1"), ("deep/x", "2"), ("deep/y", "3")]).unwrap());
        assert_eq!(std::fs::read_link(dir.path().join(DATA)).unwrap(), before);
    }

    #[test]
    fn a_change_switches_removes_and_adds() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), &[("a", "1"), ("b", "2")]).unwrap();
        assert!(put(dir.path(), &[("a", "9"), ("c", "3")]).unwrap());
        assert_eq!(listing(dir.path()), ["..TIME", "..data", "a -> ..data/a", "c -> ..data/c"]);
        assert_eq!(std::fs::read_to_string(dir.path().join("a")).unwrap(), "9");
        assert!(put(dir.path(), &[]).unwrap());
        assert_eq!(listing(dir.path()), ["..TIME", "..data"]);
    }

    #[test]
    fn what_a_crash_left_is_mended() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), &[("a", "1")]).unwrap();
        std::fs::create_dir(dir.path().join("..1970_old.1")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join(DATA_NEW)).unwrap();
        std::fs::remove_file(dir.path().join("a")).unwrap();
        assert!(!put(dir.path(), &[("a", "1")]).unwrap());
        assert!(dir.path().join("a").exists());
        put(dir.path(), &[("a", "2")]).unwrap();
        assert_eq!(listing(dir.path()), ["..TIME", "..data", "a -> ..data/a"]);
    }

    #[test]
    fn paths_that_leave_the_volume_are_refused_and_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let long = "x".repeat(300);
        for bad in ["/etc/x", "../x", "a/../../x", "..data", "..hidden", &long] {
            assert!(matches!(put(dir.path(), &[(bad, "1")]), Err(WriteError::Path { .. })), "{bad}");
        }
        assert!(listing(dir.path()).is_empty());
    }

    #[test]
    fn a_failed_write_leaves_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), &[("a", "1")]).unwrap();
        // A file cannot be a folder of another.
        assert!(put(dir.path(), &[("b", "1"), ("b/c", "2")]).is_err());
        assert_eq!(std::fs::read_to_string(dir.path().join("a")).unwrap(), "1");
    }

    #[test]
    fn modes_are_set_whatever_the_umask() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = payload(&[("t", "x")]);
        files.values_mut().for_each(|entry| entry.mode = 0o666);
        write(dir.path(), &files, Timestamp::UNIX_EPOCH, || Ok(())).unwrap();
        assert_eq!(std::fs::metadata(dir.path().join("t")).unwrap().permissions().mode() & 0o7777, 0o666);
    }

    #[test]
    fn content_never_shows() {
        assert!(!format!("{:?}", payload(&[("a", "hunter2")])).contains("hunter2"));
    }
}
