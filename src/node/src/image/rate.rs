//! A token bucket: so many at once, so many a second after that. Never waits; says yes or no.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// `registryPullQPS` and `registryBurst`.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Time in which one token comes back.
    every: Duration,
    burst: u32,
    /// The time at which the bucket will be full again; all before it is debt.
    full_at: Mutex<Option<Instant>>,
}

impl Bucket {
    /// A bucket that starts full; `None` when the rate is not bounded.
    pub(super) fn new(per_second: i32, burst: i32) -> Option<Self> {
        let rate = u32::try_from(per_second).ok().filter(|rate| *rate > 0)?;
        let burst = u32::try_from(burst).unwrap_or(0).max(1);
        Some(Self { every: Duration::from_secs(1) / rate, burst, full_at: Mutex::new(None) })
    }

    /// Takes a token if there is one.
    pub(super) fn try_take(&self) -> bool {
        let now = Instant::now();
        let mut full_at = self.full_at.lock();
        let debt = full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now)) + self.every;
        if debt > self.every * self.burst {
            return false;
        }
        *full_at = Some(now + debt);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_then_only_the_rate() {
        let bucket = Bucket::new(5, 10).unwrap();
        assert_eq!((0..20).filter(|_| bucket.try_take()).count(), 10);
        tokio::time::advance(Duration::from_millis(399)).await;
        assert_eq!((0..5).filter(|_| bucket.try_take()).count(), 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!((0..20).filter(|_| bucket.try_take()).count(), 10);
    }

    #[test]
    fn zero_means_no_bound() {
        assert!(Bucket::new(0, 10).is_none());
        assert!(Bucket::new(-1, 10).is_none());
        assert!(Bucket::new(1, 0).is_some());
    }
}
