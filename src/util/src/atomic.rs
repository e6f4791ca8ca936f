//! Files that are either the old or the new content, also after a power cut. Synchronous: call it from a blocking
//! thread when on the runtime.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// An atomic write that failed; the old content, if any, still stands.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {path}: {source}")]
pub struct AtomicWriteError {
    /// What was being done: `create`, `write`, `set the mode of`, `sync`, `rename` or `sync the directory of`.
    pub step: &'static str,
    /// The file in question.
    pub path: PathBuf,
    /// The system's answer.
    pub source: io::Error,
}

/// Distinguishes temporary files of threads that write the same path at once.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Replaces the file at `path` by `content` with exactly the permission bits `mode`.
///
/// The content goes to a temporary file in the same directory (a dotfile), which is synced and renamed; then the
/// directory is synced. The parent must exist. A symbolic link at `path` is replaced, not followed.
pub fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), AtomicWriteError> {
    let fail = |step, path: &Path| {
        let path = path.to_owned();
        move |source| AtomicWriteError { step, path, source }
    };
    let temporary = temporary_name(path);
    let written = (|| {
        let mut file = create(&temporary).map_err(fail("create", &temporary))?;
        file.write_all(content).map_err(fail("write", &temporary))?;
        // The umask may have taken bits away at creation.
        file.set_permissions(fs::Permissions::from_mode(mode)).map_err(fail("set the mode of", &temporary))?;
        file.sync_all().map_err(fail("sync", &temporary))?;
        drop(file);
        fs::rename(&temporary, path).map_err(fail("rename", path))
    })();
    if let Err(error) = written {
        // Best effort: the first error is the one that matters.
        drop(fs::remove_file(&temporary));
        return Err(error);
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent).and_then(|directory| directory.sync_all()).map_err(fail("sync the directory of", path))
}

fn create(temporary: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Never readable by others while it is incomplete; the wanted mode is set before the rename.
    options.write(true).create_new(true).mode(0o600);
    match options.open(temporary) {
        // Left behind by a process of the same id that was killed.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(temporary)?;
            options.open(temporary)
        }
        other => other,
    }
}

fn temporary_name(path: &Path) -> PathBuf {
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{serial}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_content_and_mode_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        write(&path, b"one", 0o644).unwrap();
        write(&path, b"two", 0o640).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_keeps_the_old_and_names_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::create_dir(&path).unwrap();
        let error = write(&path, b"x", 0o600).unwrap_err();
        assert_eq!(error.step, "rename");
        assert!(error.to_string().contains("taken"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let absent = write(&dir.path().join("no/such"), b"x", 0o600).unwrap_err();
        assert_eq!((absent.step, absent.source.kind()), ("create", io::ErrorKind::NotFound));
    }
}
