//! Exponential delays with a cap and seedable jitter.

use std::time::Duration;

/// Delays that grow by a factor of two up to a cap.
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    next: Duration,
    /// State of the jitter generator (xorshift); never zero.
    state: u64,
}

impl Backoff {
    /// Starts at `base` and never exceeds `cap`. `seed` makes the jitter repeatable.
    pub fn new(base: Duration, cap: Duration, seed: u64) -> Self {
        Self { base, cap, next: base, state: seed | 1 }
    }

    /// Returns the next delay: the present step plus up to 10 % jitter.
    pub fn next_delay(&mut self) -> Duration {
        let step = self.next.min(self.cap);
        self.next = step.saturating_mul(2).min(self.cap);
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let jitter = step / 1000 * u32::try_from(self.state % 100).unwrap_or(0);
        step + jitter
    }

    /// Starts again from the base delay.
    pub fn reset(&mut self) {
        self.next = self.base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_cap_and_resets() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(300), 7);
        for want in [100u64, 200, 300, 300] {
            let got = backoff.next_delay().as_millis();
            assert!((u128::from(want)..=u128::from(want + want / 10)).contains(&got), "{got} for {want}");
        }
        backoff.reset();
        assert!(backoff.next_delay() < Duration::from_millis(111));
    }
}
