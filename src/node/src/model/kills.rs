//! Containers in which the kernel killed a process for memory, as far as it was seen lately.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::ContainerId;

/// So many are remembered: they are asked for within seconds.
const KEPT: usize = 64;

/// A process that was killed for memory in a container. Clones share the board.
#[derive(Debug, Clone, Default)]
pub struct MemoryKills(Arc<Mutex<VecDeque<(ContainerId, Timestamp)>>>);

impl MemoryKills {
    /// Notes one.
    pub fn add(&self, container: ContainerId, at: Timestamp) {
        let mut all = self.0.lock();
        if all.len() >= KEPT {
            all.pop_front();
        }
        all.push_back((container, at));
    }

    /// When the last one was in this container.
    pub fn last(&self, container: &ContainerId) -> Option<Timestamp> {
        self.0.lock().iter().rev().find(|(id, _)| id == container).map(|(_, at)| *at)
    }
}
