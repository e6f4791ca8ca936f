//! Files that somebody else may have put there: opened without waiting for anybody, read within a bound.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::libc;

/// Whether a symbolic link in a file's place is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// It is.
    Follow,
    /// It is an error.
    Refuse,
}

/// Opens a regular file for reading; `None` for a pipe, a device or a folder in its place, which nobody waits for.
pub fn open_regular(path: &Path, links: Links) -> io::Result<Option<File>> {
    let follow = if links == Links::Refuse { libc::O_NOFOLLOW } else { 0 };
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | follow).open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Reads a file to its end; one of more than `limit` bytes is an error that says so.
pub fn read_within(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than the limit of {limit} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_no_more_than_the_limit_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "12345").unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        for name in [at("pipe"), dir.path().to_owned(), "/dev/null".into()] {
            assert!(open_regular(&name, Links::Refuse).unwrap().is_none(), "{}", name.display());
        }
        assert_eq!(open_regular(&at("none"), Links::Follow).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(open_regular(&at("link"), Links::Refuse).is_err());
        let open = || open_regular(&at("link"), Links::Follow).unwrap().unwrap();
        assert_eq!(read_within(&open(), 5).unwrap(), b"12345");
        let error = read_within(&open(), 4).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::FileTooLarge, "larger than the limit of 4 bytes")
        );
    }
}
