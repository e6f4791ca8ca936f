//! The plane's store: objects by key, one revision counter, watches that resume from a revision.
//! Values are JSON bytes kept exactly as given; the only thing the store writes into them is the revision.
//!
//! All objects and the recent history live in memory, so reads never wait for the disk and go on when it is full;
//! the durable engine answers a write only after its batch has been synced, the one on etcd when etcd has.

mod durable;
mod etcd;
mod memory;
mod plan;
mod state;
mod text;
mod types;
mod watch;
mod watchers;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

pub use durable::{DurableOptions, DurableStore};
pub use etcd::{EtcdOptions, EtcdStore};
pub use memory::MemoryStore;
pub use state::Limits;
pub use text::Text;
pub use types::{Draft, Entry, Event, EventKind, ListRequest, Listing, Revision, Views};
pub use watch::{Batch, Watch};

use plan::Operation;
use state::Shared;

/// Objects by key under one revision counter.
///
/// A write is answered only when it is as durable as the engine can make it, and its event is visible to watches no
/// later than its answer.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug + 'static {
    /// Returns the entry under `key`.
    fn get(&self, key: &str) -> Option<Entry>;

    /// Returns the entries under a prefix in key order, now or as they were at an earlier revision.
    fn list(&self, request: &ListRequest<'_>) -> Result<Listing, StoreError>;

    /// Returns the revision of the last write.
    fn revision(&self) -> Revision;

    /// Returns the number of entries under a prefix.
    fn count(&self, prefix: &str) -> usize;

    /// Adds an entry; the key must be free.
    async fn create(&self, key: &str, draft: Draft) -> Result<Entry, StoreError>;

    /// Replaces the entry under `key`, which must still be at `expected`.
    async fn update(&self, key: &str, expected: Revision, draft: Draft) -> Result<Entry, StoreError>;

    /// Removes the entry under `key`, which must still be at `expected`. `last` is what watchers get to see.
    async fn delete(&self, key: &str, expected: Revision, last: Draft) -> Result<Entry, StoreError>;

    /// Watches everything under `prefix` that happens after `from`.
    fn watch(&self, prefix: &str, from: Revision) -> Result<Watch, StoreError>;

    /// Watches the pods under `prefix` that are or were on a node.
    fn watch_node(&self, prefix: &str, node: &str, from: Revision) -> Result<Watch, StoreError>;

    /// Waits until reads show all writes that were answered before, by whomever. Where nobody else can write, at once.
    async fn settle(&self) -> Result<(), StoreError>;

    /// Returns where objects are kept, in a word.
    fn engine(&self) -> &'static str;

    /// Tells whether reads show what is there and writes have somewhere to go; a full disk is no reason to say no.
    async fn check(&self) -> Result<(), StoreError>;

    /// Returns why there is something under a key that cannot be read, if so. It is in no list, and its key is taken.
    fn unreadable(&self, key: &str) -> Option<Arc<str>>;
}

/// What an engine adds to the state in memory, from which all reads are answered.
#[async_trait]
trait Keeper: Send + Sync + std::fmt::Debug + 'static {
    /// The state.
    fn shared(&self) -> &Shared;

    /// Keeps a write, then answers.
    async fn write(&self, operation: Operation) -> Result<Entry, StoreError>;

    /// Waits until the state has all writes that were answered before.
    async fn settle(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns where objects are kept, in a word.
    fn engine(&self) -> &'static str {
        "store"
    }

    /// Tells whether the engine works.
    async fn check(&self) -> Result<(), StoreError> {
        self.settle().await
    }
}

#[async_trait]
impl<K: Keeper> Store for K {
    fn get(&self, key: &str) -> Option<Entry> {
        self.shared().read().get(key).cloned()
    }

    fn list(&self, request: &ListRequest<'_>) -> Result<Listing, StoreError> {
        self.shared().read().list(request)
    }

    fn revision(&self) -> Revision {
        self.shared().read().revision()
    }

    fn count(&self, prefix: &str) -> usize {
        self.shared().read().count(prefix)
    }

    async fn create(&self, key: &str, draft: Draft) -> Result<Entry, StoreError> {
        self.write(Operation::Create { key: key.into(), draft }).await
    }

    async fn update(&self, key: &str, expected: Revision, draft: Draft) -> Result<Entry, StoreError> {
        self.write(Operation::Update { key: key.into(), expected, draft }).await
    }

    async fn delete(&self, key: &str, expected: Revision, last: Draft) -> Result<Entry, StoreError> {
        self.write(Operation::Delete { key: key.into(), expected, last }).await
    }

    fn watch(&self, prefix: &str, from: Revision) -> Result<Watch, StoreError> {
        Watch::start(self.shared(), prefix, None, from)
    }

    fn watch_node(&self, prefix: &str, node: &str, from: Revision) -> Result<Watch, StoreError> {
        Watch::start(self.shared(), prefix, Some(node), from)
    }

    async fn settle(&self) -> Result<(), StoreError> {
        Keeper::settle(self).await
    }

    fn engine(&self) -> &'static str {
        Keeper::engine(self)
    }

    async fn check(&self) -> Result<(), StoreError> {
        Keeper::check(self).await
    }

    fn unreadable(&self, key: &str) -> Option<Arc<str>> {
        self.shared().read().unreadable(key)
    }
}

/// A store shared by many owners.
pub type SharedStore = Arc<dyn Store>;

/// Why the store said no.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// A create found the key taken. Final.
    #[error("key {key} exists already")]
    Exists {
        /// The key.
        key: Arc<str>,
    },
    /// An update or delete found nothing. Final.
    #[error("key {key} not found")]
    NotFound {
        /// The key.
        key: Arc<str>,
    },
    /// An update or delete expected another revision. Retry after reading again.
    #[error("key {key} is at revision {found}, not {expected}")]
    Conflict {
        /// The key.
        key: Arc<str>,
        /// What the caller had read.
        expected: Revision,
        /// What is there.
        found: Revision,
    },
    /// The history before `oldest` has been dropped. List again.
    #[error("revision {requested} is older than the history, which starts at {oldest}")]
    Compacted {
        /// The revision asked for.
        requested: Revision,
        /// The oldest revision that can still be asked for.
        oldest: Revision,
    },
    /// The revision asked for does not exist yet. Retry later.
    #[error("revision {requested} is in the future, the store is at {current}")]
    Future {
        /// The revision asked for.
        requested: Revision,
        /// The last revision.
        current: Revision,
    },
    /// No space is left for the write; nothing was changed. Retry when space has been made.
    #[error("no space left for the store at {}: {detail}", path.display())]
    Full {
        /// The store's file.
        path: PathBuf,
        /// What the system said.
        detail: Arc<str>,
    },
    /// The disk refused the write; it may or may not have been kept. Reads go on.
    #[error("writing the store at {}: {detail}", path.display())]
    Io {
        /// The store's file.
        path: PathBuf,
        /// What the system said.
        detail: Arc<str>,
    },
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Whether reading again and retrying can help.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Whether nothing is there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

/// Why a durable store could not be opened. None of these is retryable without a hand.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds it.
    #[error("the store {} is in use by another process; hint: stop the other control plane or choose another data dir", path.display())]
    Locked {
        /// The store's file.
        path: PathBuf,
    },
    /// It is damaged or not a store.
    #[error("the store {} is damaged or not a store: {detail}; hint: move the file away to start empty, or restore a copy", path.display())]
    Corrupt {
        /// The store's file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// It was written by a newer release.
    #[error("the store {} has format {found}, this program knows up to {supported}; hint: use the newer program", path.display())]
    TooNew {
        /// The store's file.
        path: PathBuf,
        /// Format found.
        found: u64,
        /// Newest format known.
        supported: u64,
    },
    /// etcd cannot be used.
    #[error("etcd at {servers}: {detail}")]
    Etcd {
        /// Its members' URLs.
        servers: Arc<str>,
        /// What is the matter.
        detail: String,
    },
    /// The system refused.
    #[error("opening the store {}: {detail}", path.display())]
    Io {
        /// The store's file.
        path: PathBuf,
        /// What the system said.
        detail: String,
    },
}
