//! Long work on one task in steps between which the others come to their turn.

use std::task::{Context, Poll};

use tokio::task::coop;

/// Bytes for which a task gives up one of the 128 units of a turn: a turn hands out half a MiB, which takes less than a
/// millisecond to encrypt and send.
const UNIT: usize = 4 << 10;

/// Waits for the task's next turn if what it may do in this one has been done, and takes one unit off it.
pub fn poll_turn(cx: &mut Context<'_>) -> Poll<()> {
    coop::poll_proceed(cx).map(|unit| unit.made_progress())
}

/// Takes what was done off the task's turn: bytes that were written, encrypted or put together. When the turn is over, the
/// task is woken and what it polls next is not ready.
pub fn charge(cx: &mut Context<'_>, bytes: usize) {
    for _ in 0..bytes / UNIT {
        if poll_turn(cx).is_pending() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::ready;

    use super::*;
    use crate::{Tasks, spawn};

    #[tokio::test]
    async fn who_does_much_at_once_lets_others_come_in_between() {
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&turns);
        let tasks = Tasks::new();
        let token = tasks.token().clone();
        let other = spawn(&tasks, "other", async move {
            while !token.is_cancelled() {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        for _ in 0..64 {
            std::future::poll_fn(|cx| {
                ready!(poll_turn(cx));
                charge(cx, 256 << 10);
                Poll::Ready(())
            })
            .await;
        }
        // 16 MiB are 32 turns; without a charge they are half of one.
        assert!((20..100).contains(&turns.load(Ordering::Relaxed)), "{turns:?}");
        tasks.token().cancel();
        other.await.unwrap();
    }
}
