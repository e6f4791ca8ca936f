//! A token bucket over given times, so that it can be tested and put to rest.

use std::time::Duration;

use jiff::Timestamp;

/// Allows `burst` at once and one more each `interval`.
#[derive(Debug, Clone)]
pub(crate) struct TokenBucket {
    interval: Duration,
    cap: Duration,
    /// Credit in time: one token is worth one interval.
    credit: Duration,
    seen: Timestamp,
}

impl TokenBucket {
    /// Returns a full bucket.
    pub(crate) fn new(burst: u32, interval: Duration, now: Timestamp) -> Self {
        let cap = interval.saturating_mul(burst);
        Self { interval, cap, credit: cap, seen: now }
    }

    /// Takes one token if there is one; otherwise says how long it takes to come.
    pub(crate) fn take(&mut self, now: Timestamp) -> Result<(), Duration> {
        // A wall clock that stepped back gives no credit and takes none.
        let elapsed = Duration::try_from(now.duration_since(self.seen)).unwrap_or(Duration::ZERO);
        self.seen = now;
        self.credit = self.credit.saturating_add(elapsed).min(self.cap);
        match self.credit.checked_sub(self.interval) {
            Some(rest) => {
                self.credit = rest;
                Ok(())
            }
            None => Err(self.interval.saturating_sub(self.credit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_then_one_per_interval() {
        let mut now = Timestamp::UNIX_EPOCH;
        let mut bucket = TokenBucket::new(2, Duration::from_secs(10), now);
        assert!(bucket.take(now).is_ok());
        assert!(bucket.take(now).is_ok());
        assert_eq!(bucket.take(now), Err(Duration::from_secs(10)));
        now += Duration::from_secs(4);
        assert_eq!(bucket.take(now), Err(Duration::from_secs(6)));
        now += Duration::from_secs(6);
        assert!(bucket.take(now).is_ok());
        now -= Duration::from_secs(3600);
        assert!(bucket.take(now).is_err());
    }
}
