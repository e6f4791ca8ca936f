//! One watcher's view: it reads the shared history at its own pace and owns no queue, so a slow one costs nothing and
//! learns that it is too late when the history has moved on.

use std::sync::Arc;

use super::StoreError;
use super::state::Shared;
use super::types::{Event, Revision};
use super::watchers::Cursor;

/// Most events handed out at once; bounds what a single wake-up holds on to.
const BATCH: usize = 64;

/// Events in revision order.
pub type Batch = Vec<Arc<Event>>;

/// A running watch; ends when dropped.
#[derive(Debug)]
pub struct Watch {
    shared: Shared,
    cursor: Arc<Cursor>,
}

impl Watch {
    pub(super) fn start(shared: &Shared, prefix: &str, node: Option<&str>, from: Revision) -> Result<Self, StoreError> {
        let cursor = shared.write().watch(prefix, node, from)?;
        Ok(Self { shared: Arc::clone(shared), cursor })
    }

    /// Waits for the next events. Cancel-safe. Fails with [`StoreError::Compacted`] when the watcher was too slow.
    pub async fn next(&mut self) -> Result<Batch, StoreError> {
        loop {
            if let Some(events) = self.shared.read().take(&self.cursor, BATCH)? {
                return Ok(events);
            }
            self.cursor.wake.notified().await;
        }
    }

    /// Returns what is there without waiting.
    pub fn try_next(&mut self) -> Result<Option<Batch>, StoreError> {
        self.shared.read().take(&self.cursor, BATCH)
    }

    /// Returns all that is there without waiting.
    pub fn drain(&mut self) -> Result<Batch, StoreError> {
        let mut all = Batch::new();
        while let Some(batch) = self.try_next()? {
            all.extend(batch);
        }
        Ok(all)
    }

    /// Returns the revision up to which this watch has delivered everything.
    pub fn progress(&self) -> Revision {
        self.shared.read().progress(&self.cursor)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.write().unwatch(&self.cursor);
    }
}
