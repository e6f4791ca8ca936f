//! Whether the node stands alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says whether the node stands alone: the apiserver has not been reached since this agent began, and pods run as they
/// were last known. Cheap to clone; all clones say the same.
#[derive(Debug, Clone, Default)]
pub struct Alone(Arc<AtomicBool>);

impl Alone {
    /// Whether it does, now.
    pub fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes that it does, or does no longer.
    pub fn set(&self, alone: bool) {
        self.0.store(alone, Ordering::Relaxed);
    }
}
