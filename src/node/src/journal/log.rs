//! The file: `u32 length, u32 crc, payload` per record, little endian, payload JSON. A torn tail is cut off; a damaged
//! record in the middle ends the reading there, because nothing behind it can be trusted to be in order.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::crc::crc32;
use super::facts::{Record, RecordVersion, VERSION};
use super::{Facts, JournalError, PodFacts};
use crate::model::PodUid;

const FILE: &str = "journal";
const TEMPORARY: &str = "journal.new";
/// A record larger than this is damage, not data: a pod's facts are a few KiB.
const LARGEST_RECORD: u32 = 4 << 20;
/// The file is rewritten once it is this large and mostly history.
const COMPACT_FROM: u64 = 1 << 20;

/// The open log.
#[derive(Debug)]
pub(super) struct Log {
    folder: PathBuf,
    path: PathBuf,
    file: File,
    size: u64,
    /// Size right after the last rewrite.
    live: u64,
}

impl Log {
    /// Opens or makes the log and reads it.
    pub(super) fn open(folder: &Path) -> Result<(Self, Facts), JournalError> {
        let path = folder.join(FILE);
        let io = |action| {
            let path = path.clone();
            move |source| JournalError::Io { path, action, source }
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io("make the folder"))?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io("open"))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io("read"))?;
        let (facts, good) = read(&bytes, &path)?;
        if good < bytes.len() {
            tracing::warn!(path = %path.display(), lost = bytes.len() - good, "journal has a torn tail, cutting it off");
            file.set_len(good as u64).map_err(io("cut the tail"))?;
        }
        file.seek(SeekFrom::Start(good as u64)).map_err(io("seek"))?;
        let log = Self { folder: folder.to_owned(), path, file, size: good as u64, live: 0 };
        Ok((log, facts))
    }

    /// Appends records in one write.
    pub(super) fn append(&mut self, batch: &[(PodUid, Option<PodFacts>)]) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        for (uid, facts) in batch {
            frame(&mut bytes, uid, facts.as_ref())?;
        }
        if let Err(error) = self.file.write_all(&bytes) {
            // A half-written batch must not stand before the next record.
            self.file.set_len(self.size)?;
            self.file.seek(SeekFrom::Start(self.size))?;
            return Err(error);
        }
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// Makes what was appended survive a power cut.
    pub(super) fn sync(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }

    /// Says whether a rewrite is worth its price.
    pub(super) fn is_bloated(&self) -> bool {
        self.size >= COMPACT_FROM && self.size >= self.live.saturating_mul(4)
    }

    /// Rewrites the log with the newest facts only. They are read from the file: memory need not hold them for this.
    pub(super) fn compact(&mut self) -> std::io::Result<()> {
        let bytes = std::fs::read(&self.path)?;
        let (facts, _) = read(&bytes, &self.path).map_err(std::io::Error::other)?;
        drop(bytes);
        let temporary = self.folder.join(TEMPORARY);
        let mut bytes = Vec::new();
        for (uid, facts) in &facts {
            frame(&mut bytes, uid, Some(facts))?;
        }
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, &self.path)?;
        File::open(&self.folder)?.sync_all()?;
        self.file = file;
        self.size = bytes.len() as u64;
        self.live = self.size;
        Ok(())
    }

    /// The file's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn frame(out: &mut Vec<u8>, uid: &PodUid, facts: Option<&PodFacts>) -> std::io::Result<()> {
    let record = Record { version: RecordVersion::V1, uid: uid.clone(), facts: facts.cloned().map(Box::new) };
    let payload = serde_json::to_vec(&record)?;
    let length = u32::try_from(payload.len()).map_err(std::io::Error::other)?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&crc32(&payload).to_le_bytes());
    out.extend_from_slice(&payload);
    Ok(())
}

/// The newest facts in a log and where its whole records end.
fn read(bytes: &[u8], path: &Path) -> Result<(Facts, usize), JournalError> {
    let mut facts = Facts::new();
    let mut good = 0usize;
    while let Some((payload, next)) = record(bytes, good) {
        apply(&mut facts, payload, path)?;
        good = next;
    }
    Ok((facts, good))
}

/// The whole record at `offset` and where the next one begins; `None` at the end or at damage.
fn record(bytes: &[u8], offset: usize) -> Option<(&[u8], usize)> {
    let header = bytes.get(offset..offset.checked_add(8)?)?;
    let length = u32::from_le_bytes(header.get(..4)?.try_into().ok()?);
    let crc = u32::from_le_bytes(header.get(4..)?.try_into().ok()?);
    if length > LARGEST_RECORD {
        return None;
    }
    let start = offset + 8;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    let payload = bytes.get(start..end)?;
    (crc32(payload) == crc).then_some((payload, end))
}

fn apply(facts: &mut Facts, payload: &[u8], path: &Path) -> Result<(), JournalError> {
    match serde_json::from_slice::<Record>(payload) {
        Ok(Record { version: RecordVersion::V1, uid, facts: Some(found) }) => {
            facts.insert(uid, *found);
        }
        Ok(Record { version: RecordVersion::V1, uid, facts: None }) => {
            facts.remove(&uid);
        }
        Err(error) => {
            let version = serde_json::from_slice::<serde_json::Value>(payload)
                .ok()
                .and_then(|v| v.get("version").and_then(|v| v.as_str().map(str::to_owned)))
                .unwrap_or_default();
            if version.parse::<u32>().is_ok_and(|found| found > VERSION) {
                return Err(JournalError::Newer { path: path.to_owned(), found: version, known: VERSION });
            }
            tracing::warn!(path = %path.display(), %error, "journal record cannot be read, skipping it");
        }
    }
    Ok(())
}
