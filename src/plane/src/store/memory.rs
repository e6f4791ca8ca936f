//! The store without a disk: for tests and throw-away control planes. Same answers as the durable one.

use std::sync::Arc;

use async_trait::async_trait;
use longshore_util::clock::SharedClock;
use parking_lot::RwLock;

use super::plan::{Operation, answer, plan};
use super::state::{Limits, Shared, State};
use super::types::Entry;
use super::{Keeper, StoreError};

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
}

#[async_trait]
impl Keeper for MemoryStore {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    async fn write(&self, operation: Operation) -> Result<Entry, StoreError> {
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
