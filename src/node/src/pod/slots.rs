//! A bound on how many pods start at once: a few in parallel finish sooner than all together. A call that hangs gives its
//! place back after a while, so that stuck pods never keep others from starting.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Pods that start at once for each core. A start waits half its time for others (the kernel's network set-up, the
/// runtime's locks): eight on two cores left neither idle and ended a burst of thirty sooner than four, and the first pods
/// are Ready much sooner than with all at once.
const STARTS_PER_CORE: usize = 4;
/// More at once only lengthen each other, however many cores there are: the kernel makes one network after the other.
const MOST_STARTS: usize = 32;
/// How many sandboxes are taken down at once.
pub(crate) const PARALLEL_STOPS: usize = 4;
/// How long one pod may keep a place.
const LEASE: Duration = Duration::from_secs(3);

/// How many pods start at once on this machine.
pub(crate) fn parallel_starts() -> usize {
    starts_on(std::thread::available_parallelism().map_or(1, usize::from))
}

fn starts_on(cores: usize) -> usize {
    cores.saturating_mul(STARTS_PER_CORE).min(MOST_STARTS)
}

/// Places for heavy work.
#[derive(Debug, Clone)]
pub(crate) struct Slots(Arc<Semaphore>);

/// A place; given back when dropped or when its lease ends.
#[derive(Debug)]
pub(crate) struct Slot {
    permit: Option<OwnedSemaphorePermit>,
    until: Instant,
}

impl Slots {
    /// Returns `count` places.
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// Waits for a place, first come, first served.
    pub(crate) async fn take(&self) -> Slot {
        // The semaphore is never closed; without a permit the work is done all the same, only unbounded.
        let permit = Arc::clone(&self.0).acquire_owned().await.ok();
        Slot { permit, until: Instant::now() + LEASE }
    }
}

impl Slot {
    /// Runs `work`; if it outlives the lease, the place goes to the next pod while the work goes on.
    pub(crate) async fn run<F: Future>(&mut self, work: F) -> F::Output {
        tokio::pin!(work);
        if self.permit.is_some() {
            tokio::select! {
                biased;
                output = &mut work => return output,
                () = tokio::time::sleep_until(self.until) => self.permit = None,
            }
        }
        work.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_grow_with_cores_up_to_a_bound() {
        assert_eq!([1, 2, 64].map(starts_on), [4, 8, 32]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_start_gives_its_place_back() {
        let slots = Slots::new(1);
        let mut first = slots.take().await;
        let hang = first.run(std::future::pending::<()>());
        tokio::pin!(hang);
        let begin = Instant::now();
        tokio::select! {
            () = &mut hang => unreachable!(),
            _slot = slots.take() => assert_eq!(begin.elapsed(), LEASE),
        }
    }
}
