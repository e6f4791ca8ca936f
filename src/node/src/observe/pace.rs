//! How often the runtime is listed. Pure: asked with the present moment, answers with the next one.

use std::time::Duration;

use tokio::time::Instant;

/// Without events an end must be in the API within 1.2 s; the rest is for reading and writing.
const STEADY: Duration = Duration::from_millis(900);
/// Where something has just changed or is about to, more follows soon.
const LIVELY: Duration = Duration::from_millis(300);
const LIVELY_FOR: Duration = Duration::from_secs(3);
/// With events the relist is a safety net.
const NET: Duration = Duration::from_secs(20);
/// For so long a stream that lost events is not trusted.
const DISTRUST: Duration = Duration::from_secs(60);

/// A sandbox seldom ends by itself, so a steady relist looks at containers alone but for every so many.
const CONTAINERS_ONLY: u32 = 3;

#[derive(Debug)]
pub(super) struct Pace {
    lively_until: Option<Instant>,
    distrust_until: Option<Instant>,
    partial: u32,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Self { lively_until: None, distrust_until: None, partial: 0 }
    }

    /// Something changed or is about to.
    pub(super) fn stir(&mut self, now: Instant) {
        self.lively_until = Some(now + LIVELY_FOR);
    }

    /// The stream did not tell a change that a relist found.
    pub(super) fn distrust(&mut self, now: Instant) {
        self.distrust_until = Some(now + DISTRUST);
    }

    /// Whether the look at `now` must be at sandboxes too.
    pub(super) fn is_full(&mut self, now: Instant, has_events: bool) -> bool {
        let lively = self.lively_until.is_some_and(|until| until > now);
        let full = has_events || lively || self.partial == 0;
        self.partial = if full { CONTAINERS_ONLY } else { self.partial - 1 };
        full
    }

    /// Makes the next look a full one.
    pub(super) const fn want_full(&mut self) {
        self.partial = 0;
    }

    /// When to look again after a look at `now`.
    pub(super) fn next(&self, now: Instant, has_events: bool) -> Instant {
        let trusted = has_events && self.distrust_until.is_none_or(|until| until <= now);
        let lively = self.lively_until.is_some_and(|until| until > now);
        now + match (trusted, lively) {
            (true, _) => NET,
            (false, true) => LIVELY,
            (false, false) => STEADY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn without_events_a_look_is_never_further_than_the_bound() {
        let now = Instant::now();
        let mut pace = Pace::new();
        assert_eq!(pace.next(now, false), now + STEADY);
        assert_eq!(pace.next(now, false), now + STEADY);
        pace.stir(now);
        assert_eq!(pace.next(now, false), now + LIVELY);
        let later = now + LIVELY_FOR;
        assert_eq!(pace.next(later, false), later + STEADY);
        assert!(STEADY < Duration::from_millis(1200));
    }

    #[tokio::test(start_paused = true)]
    async fn sandboxes_are_looked_at_less_often_while_all_is_steady() {
        let now = Instant::now();
        let mut pace = Pace::new();
        let mut looks = |events| (0..8).map(|_| pace.is_full(now, events)).collect::<Vec<_>>();
        assert_eq!(looks(false), [true, false, false, false, true, false, false, false]);
        assert_eq!(looks(true), [true; 8]);
        let mut pace = Pace::new();
        pace.stir(now);
        assert!(pace.is_full(now, false) && pace.is_full(now, false));
        assert!(!pace.is_full(now + LIVELY_FOR, false));
        pace.want_full();
        assert!(pace.is_full(now + LIVELY_FOR, false));
    }

    #[tokio::test(start_paused = true)]
    async fn with_events_the_relist_is_a_net_until_one_was_lost() {
        let now = Instant::now();
        let mut pace = Pace::new();
        assert_eq!(pace.next(now, true), now + NET);
        pace.stir(now);
        assert_eq!(pace.next(now, true), now + NET, "events tell what follows");
        pace.distrust(now);
        assert_eq!(pace.next(now, true), now + LIVELY);
        let healed = now + DISTRUST;
        assert_eq!(pace.next(healed, true), healed + NET);
    }
}
