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

    /// Forgets a key.
    pub(super) fn succeeded(&self, key: &str) {
        self.0.lock().remove(key);
    }
}

fn add(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
//! How long a pod waits before it tries an image again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
/// A failure this long ago counts no more.
const FORGET: Duration = Duration::from_secs(600);

#[derive(Debug)]
struct Entry {
    delay: Duration,
    failed: Timestamp,
    cause: String,
}

/// Back-offs by pod and image.
#[derive(Debug, Default)]
pub(super) struct Backoffs(Mutex<HashMap<(Arc<str>, String), Entry>>);

impl Backoffs {
    /// What is left to wait and why the last try failed; `None` when a try may be made.
    pub(super) fn holds(&self, pod: &Arc<str>, image: &str, now: Timestamp) -> Option<(Duration, String)> {
        let entries = self.0.lock();
        let entry = entries.get(&(Arc::clone(pod), image.to_owned()))?;
        let passed = now.duration_since(entry.failed);
        // A clock that stepped back must not make anybody wait longer.
        let passed = if passed.is_negative() { Duration::ZERO } else { passed.unsigned_abs() };
        let left = entry.delay.checked_sub(passed).filter(|left| !left.is_zero())?;
        Some((left, entry.cause.clone()))
    }

    pub(super) fn failed(&self, pod: &Arc<str>, image: &str, cause: String, now: Timestamp) {
        let mut entries = self.0.lock();
        entries.retain(|_, entry| now.duration_since(entry.failed).unsigned_abs() < FORGET);
        let entry = entries.entry((Arc::clone(pod), image.to_owned()));
        entry
            .and_modify(|entry| {
                entry.delay = entry.delay.saturating_mul(2).min(LONGEST);
                entry.failed = now;
                entry.cause.clone_from(&cause);
            })
            .or_insert_with(|| Entry { delay: FIRST, failed: now, cause });
    }

    pub(super) fn forget(&self, pod: &Arc<str>, image: &str) {
        self.0.lock().remove(&(Arc::clone(pod), image.to_owned()));
    }

    pub(super) fn forget_pod(&self, pod: &str) {
        self.0.lock().retain(|(uid, _), _| &**uid != pod);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_minutes_and_are_per_pod() {
        let backoffs = Backoffs::default();
        let (pod, other): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut now = Timestamp::UNIX_EPOCH;
        for want in [10, 20, 40, 80, 160, 300, 300] {
            backoffs.failed(&pod, "i", "why".to_owned(), now);
            assert_eq!(backoffs.holds(&pod, "i", now).unwrap(), (Duration::from_secs(want), "why".to_owned()));
            assert!(backoffs.holds(&other, "i", now).is_none());
            now += Duration::from_secs(want);
            assert!(backoffs.holds(&pod, "i", now).is_none());
        }
        backoffs.forget_pod("a");
        backoffs.failed(&pod, "i", String::new(), now);
        assert_eq!(backoffs.holds(&pod, "i", now).unwrap().0, FIRST);
    }

    #[test]
    fn a_clock_that_stepped_back_waits_no_longer() {
        let backoffs = Backoffs::default();
        let pod: Arc<str> = "a".into();
        backoffs.failed(&pod, "i", String::new(), Timestamp::from_second(1000).unwrap());
        assert_eq!(backoffs.holds(&pod, "i", Timestamp::UNIX_EPOCH).unwrap().0, FIRST);
    }
}
