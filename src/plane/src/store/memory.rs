//! The store without a disk: for tests and throw-away control planes. Same answers as the durable one.

use std::sync::Arc;

use async_trait::async_trait;
use longshore_util::clock::SharedClock;
use parking_lot::RwLock;

use super::plan::{Operation, answer, plan};
use super::state::{Limits, Shared, State};
use super::types::{Draft, Entry, ListRequest, Listing, Revision};
use super::watch::Watch;
use super::{Store, StoreError};

/// A store that lives in memory only.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shared: Shared,
    clock: SharedClock,
}

impl MemoryStore {
    /// Returns an empty store.
    pub fn new(limits: Limits, clock: SharedClock) -> Self {
        Self { shared: Arc::new(RwLock::new(State::new(limits))), clock }
    }

    fn write(&self, operation: Operation) -> Result<Entry, StoreError> {
        let now = self.clock.now();
        let mut state = self.shared.write();
        let revision = state.revision().next();
        let current = state.get(operation.key()).cloned();
        let event = plan(operation, current.as_ref(), revision)?;
        let entry = answer(&event);
        state.publish(event, now);
        if let Some(upto) = state.compaction(now) {
            state.compact(upto);
        }
        Ok(entry)
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn get(&self, key: &str) -> Option<Entry> {
        self.shared.read().get(key).cloned()
    }

    fn list(&self, request: &ListRequest<'_>) -> Result<Listing, StoreError> {
        self.shared.read().list(request)
    }

    fn revision(&self) -> Revision {
        self.shared.read().revision()
    }

    fn count(&self, prefix: &str) -> usize {
        self.shared.read().count(prefix)
    }

    async fn create(&self, key: &str, draft: Draft) -> Result<Entry, StoreError> {
        self.write(Operation::Create { key: key.into(), draft })
    }

    async fn update(&self, key: &str, expected: Revision, draft: Draft) -> Result<Entry, StoreError> {
        self.write(Operation::Update { key: key.into(), expected, draft })
    }

    async fn delete(&self, key: &str, expected: Revision, last: Draft) -> Result<Entry, StoreError> {
        self.write(Operation::Delete { key: key.into(), expected, last })
    }

    fn watch(&self, prefix: &str, from: Revision) -> Result<Watch, StoreError> {
        Watch::start(&self.shared, prefix, from)
    }
}
