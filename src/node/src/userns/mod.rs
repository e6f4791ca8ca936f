//! User ids of pods that have users of their own (`hostUsers: false`): each gets a range of the host's ids that no other
//! pod has. A range is kept in the pod's folder, so it outlives the agent, and is free again when that folder goes.

mod span;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_util::atomic::{self, AtomicWriteError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use span::{Span, SpanError};

use crate::model::PodUid;

/// The file in a pod's folder.
const FILE: &str = "userns";
/// No file of ours is longer.
const LONGEST: u64 = 64 * 1024;

/// Ids of the host that one pod has as its own, from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserRange {
    /// The host's id of the pod's root.
    pub first: u32,
    /// How many.
    pub length: u32,
}

/// Why a pod gets no range.
#[derive(Debug, thiserror::Error)]
pub enum RangeError {
    /// All are taken; one may come free.
    #[error("could not find an empty slot to allocate a user namespace")]
    Full,
    /// The range cannot be noted on disk, and unnoted it could be given away twice. Retryable.
    #[error("note the pod's user ids: {0}")]
    Note(#[from] AtomicWriteError),
    /// What the pod's folder holds is not understood; it may be the ids of files that exist.
    #[error("the pod's user ids in {} are not readable: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Slot numbers of pods.
    pods: BTreeMap<PodUid, Held>,
}

#[derive(Debug, Clone)]
enum Held {
    Range(UserRange),
    /// The file is there and is not understood.
    Unreadable(String),
}

/// All ranges; clones share them.
#[derive(Debug, Clone)]
pub struct UserRanges {
    pods: PathBuf,
    span: Span,
    taken: Arc<Mutex<Taken>>,
}

impl UserRanges {
    /// Reads what pods hold; `pods` is the folder of their folders.
    pub fn open(pods: PathBuf, span: Span) -> Self {
        let mut taken = Taken::default();
        for entry in std::fs::read_dir(&pods).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            match read(&entry.path().join(FILE)) {
                Ok(Some(range)) => drop(taken.pods.insert(name.as_str().into(), Held::Range(range))),
                Ok(None) => {}
                Err(why) => {
                    tracing::warn!(uid = name, error = why, "user ids of a pod are not readable");
                    taken.pods.insert(name.as_str().into(), Held::Unreadable(why));
                }
            }
        }
        Self { pods, span, taken: Arc::new(Mutex::new(taken)) }
    }

    /// The range of a pod; the first call gives it one. Blocking for the length of one small file's sync.
    pub fn of(&self, uid: &PodUid) -> Result<UserRange, RangeError> {
        // Held over the write: a range counts as given only once it is on disk.
        let mut taken = self.taken.lock();
        let path = self.pods.join(uid.as_str()).join(FILE);
        if let Some(Held::Range(range)) = taken.pods.get(uid) {
            return Ok(*range);
        }
        // What is not understood may be any range: until its pod has gone, nobody new gets one.
        for (holder, held) in &taken.pods {
            if let Held::Unreadable(why) = held {
                let path = self.pods.join(holder.as_str()).join(FILE);
                return Err(RangeError::Unreadable { path, why: why.clone() });
            }
        }
        let range = self.span.free(taken.pods.values().filter_map(Held::range)).ok_or(RangeError::Full)?;
        write(&path, range)?;
        taken.pods.insert(uid.clone(), Held::Range(range));
        Ok(range)
    }

    /// The pod's folder is gone and its ids with it.
    pub fn release(&self, uid: &PodUid) {
        self.taken.lock().pods.remove(uid);
    }
}

impl Held {
    fn range(&self) -> Option<UserRange> {
        match self {
            Self::Range(range) => Some(*range),
            Self::Unreadable(_) => None,
        }
    }
}

fn write(path: &Path, range: UserRange) -> Result<(), AtomicWriteError> {
    let mapping = || vec![Mapping { host_id: range.first, container_id: 0, length: range.length }];
    let record = Record { uid_mappings: mapping(), gid_mappings: mapping() };
    // Plain numbers always serialize.
    atomic::write(path, &serde_json::to_vec(&record).unwrap_or_default(), 0o644)
}

fn read(path: &Path) -> Result<Option<UserRange>, String> {
    let text = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
        Ok(meta) if !meta.is_file() || meta.len() > LONGEST => return Err("not one of ours".to_owned()),
        Ok(_) => std::fs::read_to_string(path).map_err(|error| error.to_string())?,
    };
    let record: Record = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let ([users], [groups]) = (record.uid_mappings.as_slice(), record.gid_mappings.as_slice()) else {
        return Err("not exactly one range".to_owned());
    };
    let same = users.host_id == groups.host_id && users.length == groups.length;
    if !same || users.container_id != 0 || groups.container_id != 0 || users.length == 0 {
        return Err("users and groups do not have the same range from 0 on".to_owned());
    }
    Ok(Some(UserRange { first: users.host_id, length: users.length }))
}
