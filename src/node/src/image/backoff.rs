//! Back-off of failed pulls, by pod and image.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

const FIRST: Duration = Duration::from_secs(10);
const CAP: Duration = Duration::from_secs(300);
const FORGET: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
struct Entry {
    delay: Duration,
    failed_at: Timestamp,
    error: String,
}

/// The state of all failing pulls; entries go when they are old, so its size is bounded by what fails now.
#[derive(Debug, Default)]
pub(super) struct Backoffs(Mutex<HashMap<String, Entry>>);

impl Backoffs {
    /// The last error and how long to wait yet, while a pull must wait.
    pub(super) fn waiting(&self, key: &str, now: Timestamp) -> Option<(String, Duration)> {
        let state = self.0.lock();
        let entry = state.get(key)?;
        let until = add(entry.failed_at, entry.delay);
        let left = Duration::try_from(until.duration_since(now)).ok().filter(|left| !left.is_zero())?;
        // A clock that stepped back must not hold a pull for ever.
        Some((entry.error.clone(), left.min(entry.delay)))
    }

    /// Notes a failure.
    pub(super) fn failed(&self, key: &str, error: &str, now: Timestamp) {
        let mut state = self.0.lock();
        state.retain(|_, entry| now <= add(entry.failed_at, FORGET));
        let delay = state.get(key).map_or(FIRST, |entry| entry.delay.saturating_mul(2).min(CAP));
        state.insert(key.to_owned(), Entry { delay, failed_at: now, error: error.to_owned() });
    }

    /// Forgets all keys that begin so.
    pub(super) fn forget(&self, prefix: &str) {
        self.0.lock().retain(|key, _| !key.starts_with(prefix));
    }

    /// Forgets a key.
    pub(super) fn succeeded(&self, key: &str) {
        self.0.lock().remove(key);
    }
}

/// `time` plus `by`, at most the last representable moment.
pub(super) fn add(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}
