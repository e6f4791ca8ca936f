//! The journal: facts about pods that must outlive the agent (exit codes, start times, restart counts, readiness,
//! admission), one record per change in an append-only log under `<root>/longshore/`.
//!
//! A record holds all facts of one pod, so the newest record of a uid wins and a lost tail costs only the last moments;
//! what is lost is found again in the runtime by name and attempt. Intents are written before a create, facts after it.
//! Never in here: data of Secrets.

mod crc;
mod facts;
#[cfg(any(test, feature = "fakes"))]
mod inline;
mod log;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use facts::{
    ContainerFacts, EndFacts, ExitFacts, FirstFailure, InstanceFacts, PendingFacts, PodFacts, ResizeFacts, Verdict,
};

use crate::model::PodUid;

/// What can go wrong with the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file or the folder could not be opened, read or written.
    #[error("journal {path}: {action}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file was written by a newer agent.
    #[error(
        "journal {path} holds records of version {found}, this agent reads up to {known}; start the newer agent, or move the file away to begin anew"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: String,
        /// The newest version known.
        known: u32,
    },
}

/// The facts found at start.
pub type Facts = BTreeMap<PodUid, PodFacts>;

/// A handle on the journal; clones share it.
#[derive(Debug, Clone)]
pub struct Journal {
    writer: Arc<writer::Writer>,
}

/// Proof that a record was handed over; wait on it before an action that relies on the record.
#[derive(Debug)]
#[must_use]
pub struct Ticket(u64);

impl Journal {
    /// Opens (or makes) the journal in `folder` and returns what it holds.
    pub fn open(folder: &Path) -> Result<(Self, Facts), JournalError> {
        let (log, facts) = log::Log::open(folder)?;
        let writer = writer::Writer::start(log);
        Ok((Self { writer: Arc::new(writer) }, facts))
    }

    /// The same, on the caller's thread, but what was put is in the file only a moment later or when somebody waits for
    /// it, as with the thread: [`Journal::die`] loses the rest.
    #[cfg(any(test, feature = "fakes"))]
    pub fn open_delayed(folder: &Path) -> Result<(Self, Facts), JournalError> {
        let (log, facts) = log::Log::open(folder)?;
        Ok((Self { writer: Arc::new(writer::Writer::delayed(log)) }, facts))
    }

    /// Ends as a killed agent's journal does: nothing more gets into the file; with `lose`, neither does what was put a
    /// moment ago.
    #[cfg(any(test, feature = "fakes"))]
    pub fn die(&self, lose: bool) {
        self.writer.die(lose);
    }

    /// Takes the newest facts of a pod; never blocks. A newer put replaces one that was not written yet.
    pub fn put(&self, uid: &PodUid, facts: PodFacts) -> Ticket {
        Ticket(self.writer.put(uid.clone(), Some(facts)))
    }

    /// Forgets a pod.
    pub fn forget(&self, uid: &PodUid) -> Ticket {
        Ticket(self.writer.put(uid.clone(), None))
    }

    /// Waits until the record is in the file (a killed agent finds it; a power cut may still take it).
    pub async fn written(&self, ticket: Ticket) {
        self.writer.written(ticket.0).await;
    }

    /// Writes and syncs everything that was put so far.
    pub async fn flush(&self) {
        self.writer.flush().await;
    }
}
