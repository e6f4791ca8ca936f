//! The files of one log: the one that is written, and those that were rotated away, `0.log.20260101-120000` or the same with
//! `.gz` behind it. Blocking.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

const GZIP: &str = ".gz";
const TEMPORARY: &str = ".tmp";
/// What is unpacked of one part; rotation keeps them far smaller.
const UNPACKED: u64 = 1 << 30;

/// A file that was rotated away.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    /// Time of the rotation as it stands in the name: sorts by age.
    stamp: String,
    path: PathBuf,
}

impl Part {
    fn is_packed(&self) -> bool {
        self.path.to_string_lossy().ends_with(GZIP)
    }

    /// Opens it; a packed one is unpacked into a file without a name.
    pub(super) fn open(&self) -> io::Result<File> {
        let file = File::open(&self.path)?;
        if !self.is_packed() {
            return Ok(file);
        }
        let folder = self.path.parent().unwrap_or_else(|| Path::new("/"));
        let flags = nix::libc::O_TMPFILE;
        let mut plain = fs::OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(folder)?;
        io::copy(&mut GzDecoder::new(file).take(UNPACKED), &mut plain)?;
        plain.seek(SeekFrom::Start(0))?;
        Ok(plain)
    }

    /// Whether it is that very file.
    pub(super) fn is(&self, file: &fs::Metadata) -> bool {
        fs::metadata(&self.path).is_ok_and(|own| (own.dev(), own.ino()) == (file.dev(), file.ino()))
    }

    /// When it was last written.
    pub(super) fn modified(&self) -> Option<std::time::SystemTime> {
        fs::metadata(&self.path).ok()?.modified().ok()
    }
}

/// The parts of the log at `path`, oldest first; a packed one hides its twin.
pub(super) fn list(path: &Path) -> io::Result<Vec<Part>> {
    let mut found: Vec<Part> = names(path)?
        .into_iter()
        .filter(|(suffix, _)| !suffix.ends_with(TEMPORARY))
        .map(|(suffix, path)| Part { stamp: suffix.trim_end_matches(GZIP).to_owned(), path })
        .filter(|part| is_stamp(&part.stamp))
        .collect();
    // The longer path of two with one stamp is the packed one.
    found.sort();
    found.reverse();
    found.dedup_by(|a, b| a.stamp == b.stamp);
    found.reverse();
    Ok(found)
}

/// Files beside the log whose names begin with its name and a dot; with what comes behind.
fn names(path: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    let prefix = format!("{}.", path.file_name().unwrap_or_default().to_string_lossy());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if let Some(suffix) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) {
            found.push((suffix.to_owned(), entry.path()));
        }
    }
    Ok(found)
}

/// `20260101-120000`.
fn is_stamp(text: &str) -> bool {
    text.len() == 15
        && text.bytes().enumerate().all(|(at, byte)| if at == 8 { byte == b'-' } else { byte.is_ascii_digit() })
}

/// Makes room for one more part: half-made files and twins go, then the oldest beyond `keep`, the rest is packed.
pub(super) fn make_room(path: &Path, keep: usize) -> io::Result<()> {
    let all = names(path)?;
    for (suffix, file) in &all {
        let twin = all.iter().any(|(other, _)| other.strip_suffix(GZIP) == Some(suffix.as_str()));
        if is_stamp(suffix.trim_end_matches(TEMPORARY)) && (suffix.ends_with(TEMPORARY) || twin) {
            fs::remove_file(file)?;
        }
    }
    let parts = list(path)?;
    let surplus = parts.len().saturating_sub(keep);
    for part in &parts[..surplus] {
        fs::remove_file(&part.path)?;
    }
    for part in parts[surplus..].iter().filter(|part| !part.is_packed()) {
        pack(&part.path)?;
    }
    Ok(())
}

fn pack(path: &Path) -> io::Result<()> {
    let with = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let temporary = with(TEMPORARY);
    let made = (|| {
        let mut source = File::open(path)?;
        let target = File::create(&temporary)?;
        target.set_permissions(source.metadata()?.permissions())?;
        let mut packer = GzEncoder::new(target, flate2::Compression::default());
        io::copy(&mut source, &mut packer)?;
        packer.finish()?.flush()?;
        fs::rename(&temporary, with(GZIP))
    })();
    if let Err(error) = made {
        drop(fs::remove_file(&temporary));
        return Err(error);
    }
    fs::remove_file(path)
}

/// The name that the log gets when it is rotated away at `time`.
pub(super) fn rotated(path: &Path, time: jiff::Timestamp) -> PathBuf {
    let text: String = time.to_string().chars().take(19).collect();
    let stamp: String = text.replace(['-', ':'], "").replace('T', "-");
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{stamp}"));
    name.into()
}

/// Removes the log of a container that is gone, with its parts. Of the first one of its name the log itself stays until the
/// pod goes: why a container crashed first is what people look for last.
pub fn forget(path: &Path) -> io::Result<()> {
    for part in list(path)? {
        remove(&part.path)?;
    }
    if is_first(path) { Ok(()) } else { remove(path) }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Whether no log with a smaller number stands beside it.
fn is_first(path: &Path) -> bool {
    let number = |path: &Path| -> Option<u32> { path.file_name()?.to_str()?.strip_suffix(".log")?.parse().ok() };
    let (Some(own), Some(folder)) = (number(path), path.parent()) else { return false };
    let Ok(entries) = fs::read_dir(folder) else { return false };
    !entries.flatten().any(|entry| number(&entry.path()).is_some_and(|other| other < own))
}

/// Writes a packed file, for tests.
#[cfg(test)]
pub(super) fn write_packed(path: &Path, content: &[u8]) {
    let mut packer = GzEncoder::new(File::create(path).unwrap(), flate2::Compression::default());
    packer.write_all(content).unwrap();
    packer.finish().unwrap();
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn left(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn room_is_made_as_upstream_does() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in [
            "0.log",
            "0.log.20260101-000001",
            "0.log.20260101-000003",
            "0.log.20260101-000003.tmp",
            "0.log.other",
            "10.log.20260101-000001",
            "1.log",
        ] {
            fs::write(at(name), name).unwrap();
        }
        write_packed(&at("0.log.20260101-000001.gz"), b"one");
        write_packed(&at("0.log.20260101-000002.gz"), b"two");
        fs::set_permissions(at("0.log.20260101-000003"), fs::Permissions::from_mode(0o640)).unwrap();
        make_room(&at("0.log"), 2).unwrap();
        let packed = "0.log.20260101-000003.gz";
        assert_eq!(
            left(folder.path()),
            ["0.log", "0.log.20260101-000002.gz", packed, "0.log.other", "1.log", "10.log.20260101-000001"]
        );
        assert_eq!(fs::metadata(at(packed)).unwrap().permissions().mode() & 0o777, 0o640);
        let mut text = String::new();
        list(&at("0.log")).unwrap()[1].open().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "0.log.20260101-000003");
    }

    #[test]
    fn a_packed_part_hides_its_twin_and_parts_come_by_age() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["0.log.20260101-000002", "0.log.20260101-000001", "0.log.20260101-000003.tmp"] {
            fs::write(at(name), "x").unwrap();
        }
        write_packed(&at("0.log.20260101-000001.gz"), b"x");
        let names: Vec<PathBuf> = list(&at("0.log")).unwrap().into_iter().map(|part| part.path).collect();
        assert_eq!(names, [at("0.log.20260101-000001.gz"), at("0.log.20260101-000002")]);
    }

    #[test]
    fn the_log_of_a_container_that_is_gone_goes_with_its_parts_and_the_first_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["0.log", "0.log.20260101-000001", "1.log", "1.log.20260101-000001", "2.log", "10.log"] {
            fs::write(at(name), "x").unwrap();
        }
        for name in ["0.log", "1.log", "10.log", "11.log"] {
            forget(&at(name)).unwrap();
        }
        assert_eq!(left(folder.path()), ["0.log", "2.log"]);
    }

    #[test]
    fn a_rotated_log_carries_its_time() {
        let time = "2026-01-02T03:04:05.678Z".parse().unwrap();
        assert_eq!(rotated(Path::new("/l/0.log"), time), Path::new("/l/0.log.20260102-030405"));
    }
}
