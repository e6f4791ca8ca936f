//! Settings of the kernel and of this process that a node agent makes at its start.

use std::fs;
use std::io;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The kernel values that a node needs.
pub const KERNEL_TUNABLES: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// One kernel value that is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum TunableError {
    /// It could not be read or written, e.g. in a container.
    #[error("kernel setting {name}: wanted {want}, cannot be set")]
    Io {
        /// Path below /proc/sys.
        name: &'static str,
        /// The value wanted.
        want: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// It differs, and the configuration says to leave it (`protectKernelDefaults`).
    #[error("kernel setting {name}: wanted {want}, is {have} and must not be changed")]
    Protected {
        /// Path below /proc/sys.
        name: &'static str,
        /// The value wanted.
        want: &'static str,
        /// The value found.
        have: String,
    },
}

/// Sets the kernel values, or only compares when `protect`; returns what is not as it should be.
pub fn kernel(root: &Path, protect: bool) -> Vec<TunableError> {
    KERNEL_TUNABLES.iter().filter_map(|(name, want)| one(root, name, want, protect).err()).collect()
}

fn one(root: &Path, name: &'static str, want: &'static str, protect: bool) -> Result<(), TunableError> {
    let path = root.join("proc/sys").join(name);
    let io = |source| TunableError::Io { name, want, source };
    let have = fs::read_to_string(&path).map_err(io)?.trim().to_owned();
    if have == want {
        return Ok(());
    }
    if protect {
        return Err(TunableError::Protected { name, want, have });
    }
    fs::write(&path, want).map_err(io)
}

/// Sets how eagerly the kernel kills this process when memory is short.
pub fn set_own_oom_score(root: &Path, score: i32) -> io::Result<()> {
    let path = root.join("proc/self/oom_score_adj");
    if fs::read_to_string(&path)?.trim() == score.to_string() {
        return Ok(());
    }
    fs::write(path, score.to_string())
}

/// Raises the number of files that this process may open; never lowers the hard limit it has. Where that one may not be
/// raised, the process gets all that it allows; returns what it has now.
pub fn set_open_files(limit: u64) -> io::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if setrlimit(Resource::RLIMIT_NOFILE, limit, hard.max(limit)).is_ok() {
        return Ok(limit);
    }
    let most = limit.min(hard);
    setrlimit(Resource::RLIMIT_NOFILE, most, hard)?;
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(value: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, _) in KERNEL_TUNABLES {
            let path = dir.path().join("proc/sys").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        dir
    }

    #[test]
    fn values_are_written_once() {
        let dir = tree("7\n");
        assert!(kernel(dir.path(), false).is_empty());
        for (name, want) in KERNEL_TUNABLES {
            assert_eq!(fs::read_to_string(dir.path().join("proc/sys").join(name)).unwrap(), want);
        }
        assert!(kernel(dir.path(), true).is_empty(), "now they are right");
    }

    #[test]
    fn protected_values_are_reported_and_left() {
        let dir = tree("7\n");
        let found = kernel(dir.path(), true);
        assert_eq!(found.len(), KERNEL_TUNABLES.len());
        assert_eq!(found[0].to_string(), "kernel setting vm/overcommit_memory: wanted 1, is 7 and must not be changed");
        assert_eq!(fs::read_to_string(dir.path().join("proc/sys/vm/overcommit_memory")).unwrap(), "7\n");
    }

    #[test]
    fn open_files_are_raised_as_far_as_allowed() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let have = set_open_files(hard).unwrap();
        assert_eq!(have, hard);
    }

    #[test]
    fn missing_settings_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(kernel(dir.path(), false).len(), KERNEL_TUNABLES.len());
    }
}
