//! How many connections the open files of this process allow.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{ServeOptions, StrangerLimits};

/// More than this is not asked for: the kernel's own bound for one process.
const MOST_FILES: u64 = 1 << 20;

/// What to expect where the limit cannot be read: the kernel's default.
const DEFAULT_FILES: u64 = 1024;

/// Each connection costs some ten kilobytes; this is twice as many as there may be watches.
const MOST_CONNECTIONS: usize = 16_384;

/// Raises the number of files this process may open as far as it may do so itself; returns the number.
fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return DEFAULT_FILES };
    let wanted = hard.min(MOST_FILES);
    if soft >= wanted {
        return soft;
    }
    match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(error) => {
            tracing::warn!(%error, have = soft, want = wanted, "open files not raised");
            soft
        }
    }
}

impl ServeOptions {
    /// Limits for a server that many are connected to and anybody may call: as many connections as the open files of this
    /// process allow, which are raised for it; a quarter of the files stays free for everything else.
    pub fn for_many() -> Self {
        Self::with_files(raise_open_files())
    }

    fn with_files(files: u64) -> Self {
        let files = usize::try_from(files).unwrap_or(usize::MAX);
        let max_connections = (files - files / 4).clamp(16, MOST_CONNECTIONS);
        let strangers =
            StrangerLimits { most: (max_connections / 8).clamp(4, 1024), first_request: Duration::from_secs(10) };
        Self { max_connections, strangers: Some(strangers), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_a_part_of_the_files_free() {
        for (files, connections, strangers) in [(0, 16, 4), (1024, 768, 96), (u64::MAX, MOST_CONNECTIONS, 1024)] {
            let options = ServeOptions::with_files(files);
            assert_eq!(options.max_connections, connections);
            assert_eq!(options.strangers.unwrap().most, strangers);
        }
    }

    #[test]
    fn open_files_are_raised_to_the_hard_limit_and_never_lowered() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let have = raise_open_files();
        assert!(have >= soft && have >= hard.min(MOST_FILES));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (have, hard));
    }
}
