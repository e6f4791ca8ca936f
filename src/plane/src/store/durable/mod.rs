//! The durable engine: one writer thread owns the database file and commits a batch of writes per sync, then publishes
//! their events in revision order and answers. Reads come from memory.
//!
//! A write is answered as done only after its batch was synced. If the disk refuses a batch, all its writes are answered
//! with the reason, and the file is opened again before the next batch: what the disk kept after all is published then.

mod codec;
mod engine;
mod writer;

#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use longshore_util::clock::SharedClock;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, oneshot};

use super::plan::Operation;
use super::state::{Limits, Shared, State};
use super::types::Entry;
use super::{Keeper, OpenError, StoreError};
use engine::Engine;
use writer::{Message, Request};

/// Writes waiting for the writer thread. More than a batch, so that the next one fills while one syncs; a full queue
/// makes callers wait, which is the back-pressure wanted.
const QUEUE: usize = 512;

/// How a durable store is opened.
#[derive(Debug, Clone)]
pub struct DurableOptions {
    /// The database file; made if missing, its folder must exist.
    pub path: PathBuf,
    /// Bytes of page cache. Reads come from memory, so little is needed.
    pub cache: usize,
    /// How much history is kept.
    pub limits: Limits,
    /// Stamps the history, for compaction by age.
    pub clock: SharedClock,
}

impl DurableOptions {
    /// Returns the defaults for a file.
    pub fn new(path: impl Into<PathBuf>, clock: SharedClock) -> Self {
        Self { path: path.into(), cache: 4 << 20, limits: Limits::default(), clock }
    }
}

/// A store whose answered writes survive kill -9 and power loss.
#[derive(Debug)]
pub struct DurableStore {
    shared: Shared,
    requests: mpsc::Sender<Message>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl DurableStore {
    /// Opens or makes the store. Blocks for as long as reading the file takes.
    pub fn open(options: &DurableOptions) -> Result<Self, OpenError> {
        engine::prepare_file(&options.path)?;
        let (path, cache) = (options.path.clone(), options.cache);
        let opener = move |check| engine::open_file(&path, cache, check);
        Self::start(Box::new(opener), &options.path, options.limits, &options.clock)
    }

    pub(super) fn start(
        opener: engine::Opener,
        path: &Path,
        limits: Limits,
        clock: &SharedClock,
    ) -> Result<Self, OpenError> {
        let mut engine = Engine::new(opener, path);
        let mut state = State::new(limits);
        engine.load(&mut state)?;
        let shared: Shared = Arc::new(RwLock::new(state));
        let (requests, queue) = mpsc::channel(QUEUE);
        let writer = writer::Writer::new(engine, Arc::clone(&shared), Arc::clone(clock));
        let thread = std::thread::Builder::new()
            .name("plane-store".to_owned())
            .spawn(move || writer.run(queue))
            .map_err(|error| OpenError::Io { path: path.to_owned(), detail: error.to_string() })?;
        Ok(Self { shared, requests, thread: Mutex::new(Some(thread)) })
    }

    /// Waits until all accepted writes are done and the file is closed. Reads go on, later writes answer "closed".
    pub async fn close(&self) {
        // A failed send means that the thread has ended already.
        drop(self.requests.send(Message::Close).await);
        let Some(thread) = self.thread.lock().take() else { return };
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            tracing::error!("the store's writer thread panicked");
        }
    }
}

#[async_trait]
impl Keeper for DurableStore {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    async fn write(&self, operation: Operation) -> Result<Entry, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Message::Write(Request { operation, reply })).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}
