//! Restart delays of containers that end again and again.

use std::time::Duration;

use jiff::Timestamp;

use super::{later, signed};

/// How long a container's next restart is held back.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct BackoffEntry {
    /// The present delay in milliseconds.
    pub(crate) delay_ms: u64,
    /// When it last grew.
    pub(crate) updated: Timestamp,
    /// The definition it belongs to: another one starts from nothing.
    pub(crate) hash: String,
}

/// First delay, cap and forgetting of crash loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffRule {
    /// First delay.
    pub(crate) base: Duration,
    /// Cap.
    pub(crate) cap: Duration,
}

impl Default for BackoffRule {
    fn default() -> Self {
        Self { base: Duration::from_secs(10), cap: USUAL_CAP }
    }
}

/// The cap that upstream's configuration has when it says nothing.
const USUAL_CAP: Duration = Duration::from_secs(300);

/// An entry is forgotten when the container ran this long since its last restart.
const FORGET_AFTER: Duration = Duration::from_secs(600);

impl BackoffRule {
    /// The rule with a cap of its own (`crashLoopBackOff.maxContainerRestartPeriod`); one below the first delay lowers that
    /// too. With `reduced` (upstream's gate `ReduceDefaultCrashLoopBackOffDecay`) it begins with a second, and the cap is a
    /// minute unless it was set to something else than usual.
    pub fn new(cap: Duration, reduced: bool) -> Self {
        let (base, cap) = match (reduced, cap) {
            (true, USUAL_CAP) => (Duration::from_secs(1), Duration::from_secs(60)),
            (true, cap) => (Duration::from_secs(1), cap),
            (false, cap) => (Self::default().base, cap),
        };
        Self { base: base.min(cap), cap }
    }

    /// The entry after one more restart at `now`.
    pub(crate) fn next(
        &self,
        entry: Option<&BackoffEntry>,
        hash: &str,
        finished: Timestamp,
        now: Timestamp,
    ) -> BackoffEntry {
        let delay = match entry {
            Some(entry) if entry.applies(hash, finished) => {
                Duration::from_millis(entry.delay_ms).saturating_mul(2).min(self.cap)
            }
            _ => self.base.min(self.cap),
        };
        BackoffEntry {
            delay_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
            updated: now,
            hash: hash.to_owned(),
        }
    }
}

impl BackoffEntry {
    fn applies(&self, hash: &str, finished: Timestamp) -> bool {
        self.hash == hash && finished.duration_since(self.updated) <= signed(FORGET_AFTER)
    }

    /// Until when a container that ended at `finished` is held back; `None` = not at all. An end that lies ahead of `now` was
    /// told by a clock that has been set back since: waiting for it could take days.
    pub(crate) fn until(&self, hash: &str, finished: Timestamp, now: Timestamp) -> Option<Timestamp> {
        (finished <= now && self.applies(hash, finished)).then(|| later(finished, Duration::from_millis(self.delay_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_bounds_the_first_delay_and_the_gate_shortens_both() {
        let of = |cap: u64, reduced: bool| {
            let rule = BackoffRule::new(Duration::from_secs(cap), reduced);
            (rule.base.as_secs(), rule.cap.as_secs())
        };
        assert_eq!((of(300, false), of(300, true)), ((10, 300), (1, 60)));
        assert_eq!((of(5, false), of(120, true)), ((5, 5), (1, 120)));
        assert_eq!(BackoffRule::new(USUAL_CAP, false), BackoffRule::default());
    }

    #[test]
    fn a_run_longer_than_ten_minutes_starts_the_count_anew_and_so_does_another_definition() {
        let rule = BackoffRule::default();
        let now = Timestamp::UNIX_EPOCH;
        let second = rule.next(Some(&rule.next(None, "h", now, now)), "h", now, now);
        assert_eq!(second.delay_ms, 20_000);
        let long = later(now, Duration::from_secs(601));
        assert_eq!(rule.next(Some(&second), "h", long, long).delay_ms, 10_000);
        assert_eq!(rule.next(Some(&second), "other", now, now).delay_ms, 10_000);
    }

    #[test]
    fn an_end_told_by_a_clock_that_was_set_back_since_holds_nothing_back() {
        let ended = Timestamp::UNIX_EPOCH;
        let entry = BackoffRule::default().next(None, "h", ended, ended);
        assert_eq!(entry.until("h", ended, ended), Some(later(ended, Duration::from_secs(10))));
        let before = ended - jiff::SignedDuration::from_hours(48);
        assert_eq!(entry.until("h", ended, before), None);
    }
}
