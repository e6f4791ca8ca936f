//! Pods are admitted one after the other, in the order in which they came: each is judged with all that were admitted
//! before it in place. A turn that is dropped, whatever became of its pod, lets the next one come.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    waiting: BTreeMap<u64, Arc<Notify>>,
}

/// The queue; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns(Arc<Mutex<Queue>>);

impl Turns {
    /// Takes the next place in the queue.
    pub(super) fn take(&self) -> Turn {
        let mut queue = self.0.lock();
        let number = queue.next;
        queue.next += 1;
        let bell = Arc::new(Notify::new());
        queue.waiting.insert(number, Arc::clone(&bell));
        if queue.waiting.len() == 1 {
            bell.notify_one();
        }
        drop(queue);
        Turn { queue: self.clone(), number, bell }
    }
}

/// A place in the queue.
#[derive(Debug)]
pub(super) struct Turn {
    queue: Turns,
    number: u64,
    bell: Arc<Notify>,
}

impl Turn {
    /// Waits until everybody before has had their turn; may be called again.
    pub(super) async fn come(&self) {
        while !self.is_first() {
            self.bell.notified().await;
        }
    }

    fn is_first(&self) -> bool {
        self.queue.0.lock().waiting.first_key_value().is_some_and(|(first, _)| *first == self.number)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queue = self.queue.0.lock();
        queue.waiting.remove(&self.number);
        if let Some((_, bell)) = queue.waiting.first_key_value() {
            bell.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_come_in_order_and_a_dropped_one_is_passed_over() {
        let turns = Turns::default();
        let (first, second, third) = (turns.take(), turns.take(), turns.take());
        first.come().await;
        first.come().await;
        let mut late = Box::pin(third.come());
        assert!(futures_util::poll!(&mut late).is_pending());
        drop(second);
        assert!(futures_util::poll!(&mut late).is_pending());
        drop(first);
        late.await;
    }
}
