//! Wall-clock time behind a trait, so that decisions can be tested at any moment. Waiting uses `tokio::time`.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

/// Reads wall-clock time.
pub trait Clock: Send + Sync + std::fmt::Debug + 'static {
    /// Returns the present moment.
    fn now(&self) -> Timestamp;
}

/// A clock shared by many owners.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    /// Returns a clock that shows `now`.
    pub fn new(now: Timestamp) -> Self {
        Self(Mutex::new(now))
    }

    /// Moves the clock forward; saturates at the largest representable time.
    pub fn advance(&self, by: std::time::Duration) {
        let mut now = self.0.lock();
        let step = jiff::SignedDuration::try_from(by).unwrap_or(jiff::SignedDuration::MAX);
        *now = now.checked_add(step).unwrap_or(Timestamp::MAX);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}
