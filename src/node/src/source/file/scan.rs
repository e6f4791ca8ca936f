//! One look at the manifest directory. Remembers each file by its stamp, so that an unchanged directory costs one `stat`
//! per file, keeps the last good pod of a file that is broken or half-written, and forgives short absences, as editors
//! and renames make them. Synchronous.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use longshore_host::file::{Links, open_regular, read_within};
use longshore_util::yaml;
use tokio::time::Instant;

use crate::source::manifest;

/// How long a file that had a pod may be away before the pod goes: longer than any rename dance.
const ABSENCE: Duration = Duration::from_millis(300);
/// How long a changed file that nobody was heard closing must stay the same before it is read.
const SETTLE: Duration = Duration::from_secs(1);
/// More files than this are not looked at: a manifest directory is not a data store.
const MAX_FILES: usize = 2000;

/// Tells one content of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// What is known of a file.
#[derive(Debug, Default)]
struct Known {
    /// The content that was read last.
    read: Option<Stamp>,
    /// A newer content that was not read yet, and since when it stands.
    unread: Option<(Stamp, Instant)>,
    /// The last good pod.
    pod: Option<Pod>,
    /// Since when the file is away.
    missing: Option<Instant>,
}

/// What one look found.
#[derive(Debug)]
pub(super) struct Scan {
    /// The pods, in the order of their files.
    pub(super) pods: Vec<Pod>,
    /// When to look again although nothing may happen.
    pub(super) again: Option<Duration>,
}

/// Looks at a manifest directory or file.
#[derive(Debug)]
pub(super) struct Scanner {
    path: PathBuf,
    node: String,
    known: BTreeMap<OsString, Known>,
    is_first: bool,
    /// Names that were passed over, told once.
    passed_over: BTreeSet<OsString>,
}

impl Scanner {
    pub(super) fn new(path: PathBuf, node: String) -> Self {
        Self { path, node, known: BTreeMap::new(), is_first: true, passed_over: BTreeSet::new() }
    }

    /// Looks. `closed` are the names of files that were heard being closed or moved in since the last look.
    pub(super) fn scan(&mut self, closed: &BTreeSet<OsString>, now: Instant) -> io::Result<Scan> {
        let present = self.list()?;
        let mut again: Option<Duration> = None;
        let mut sooner = |delay: Duration| again = Some(again.map_or(delay, |known| known.min(delay)));
        for (name, (path, metadata)) in &present {
            let known = self.known.entry(name.clone()).or_default();
            known.missing = None;
            let stamp = Stamp::of(metadata);
            if known.read == Some(stamp) {
                known.unread = None;
                continue;
            }
            let settled =
                matches!(known.unread, Some((seen, since)) if seen == stamp && now.duration_since(since) >= SETTLE);
            if !(self.is_first || closed.contains(name) || settled) {
                if known.unread.is_none_or(|(seen, _)| seen != stamp) {
                    known.unread = Some((stamp, now));
                }
                sooner(SETTLE);
                continue;
            }
            if !read(path, stamp, &self.node, known) {
                // Written to while it was read.
                sooner(SETTLE);
            }
        }
        self.known.retain(|name, known| {
            if present.contains_key(name) {
                return true;
            }
            let since = *known.missing.get_or_insert(now);
            let away = now.duration_since(since);
            let keep = known.pod.is_some() && away < ABSENCE;
            if keep {
                sooner(ABSENCE.saturating_sub(away));
            }
            keep
        });
        // A name that is now a good file is told again should it go bad.
        self.passed_over.retain(|name| !present.contains_key(name) && self.path.join(name).symlink_metadata().is_ok());
        self.is_first = false;
        let pods = self.known.values().filter_map(|known| known.pod.clone()).collect();
        Ok(Scan { pods, again })
    }

    /// The usable files by name; a path that is not there has none.
    fn list(&mut self) -> io::Result<BTreeMap<OsString, (PathBuf, Metadata)>> {
        let mut files = BTreeMap::new();
        let metadata = match fs::metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
            Err(error) => return Err(error),
        };
        if !metadata.is_dir() {
            if metadata.is_file() {
                files.insert(self.path.clone().into_os_string(), (self.path.clone(), metadata));
            }
            return Ok(files);
        }
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            if !is_manifest(&name) {
                if !is_scratch(&name) {
                    self.pass_over(name, &entry.path(), "only .yaml, .yml and .json are read");
                }
                continue;
            }
            if files.len() >= MAX_FILES {
                tracing::warn!(path = %self.path.display(), "more than {MAX_FILES} manifests, the rest is not read");
                break;
            }
            // Links are followed; a broken one, or a file that went away just now, is not there.
            match fs::metadata(entry.path()) {
                Ok(metadata) if metadata.is_file() => drop(files.insert(name, (entry.path(), metadata))),
                Ok(_) => self.pass_over(name, &entry.path(), "not a file"),
                Err(error) if error.kind() == io::ErrorKind::NotFound && !is_link(&entry) => {}
                Err(error) => self.pass_over(name, &entry.path(), &error.to_string()),
            }
        }
        Ok(files)
    }

    /// Tells once why a name is not read.
    fn pass_over(&mut self, name: OsString, path: &Path, why: &str) {
        if self.passed_over.len() < MAX_FILES && self.passed_over.insert(name) {
            tracing::warn!(file = %path.display(), "not a manifest: {why}");
        }
    }
}

/// Says whether an entry of a folder is a symbolic link.
fn is_link(entry: &fs::DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_symlink())
}

/// Reads a file and keeps what it says; what is wrong is told once per content. `false`: it changed meanwhile.
fn read(path: &Path, stamp: Stamp, node: &str, known: &mut Known) -> bool {
    let result = match content(path, stamp) {
        Ok(Some(text)) => manifest::read(&text, node, &format!("file:{}", path.display())),
        Ok(None) => return false,
        Err(error) => Err(error.to_string()),
    };
    known.read = Some(stamp);
    known.unread = None;
    match result {
        Ok(pod) => known.pod = Some(pod),
        Err(error) if known.pod.is_some() => {
            tracing::warn!(file = %path.display(), %error, "manifest not usable, its last good pod stays");
        }
        Err(error) => tracing::warn!(file = %path.display(), %error, "manifest not usable"),
    }
    true
}

/// The text of a file, if it is still the one with that stamp afterwards.
fn content(path: &Path, stamp: Stamp) -> io::Result<Option<String>> {
    let Some(file) = open_regular(path, Links::Follow)? else { return Ok(None) };
    let bytes = read_within(&file, yaml::MAX_BYTES as u64)?;
    if stamp_of(&file)? != stamp {
        return Ok(None);
    }
    String::from_utf8(bytes).map(Some).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8 text"))
}

fn stamp_of(file: &File) -> io::Result<Stamp> {
    file.metadata().map(|metadata| Stamp::of(&metadata))
}

/// Says whether a file of that name is read.
fn is_manifest(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    !name.starts_with(['.', '#'])
        && [".yaml", ".yml", ".json"].iter().any(|end| name.len() > end.len() && name.ends_with(end))
}

/// Says whether a name looks like what editors and copy programs leave for a moment.
fn is_scratch(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with(['.', '#'])
        || ["~", ".swp", ".swx", ".tmp", ".part", ".bak", ".orig", ".dpkg-new", ".dpkg-tmp"]
            .iter()
            .any(|end| name.ends_with(end))
        || name.bytes().all(|byte| byte.is_ascii_digit())
}
