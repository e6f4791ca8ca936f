//! A slot that holds the latest value only: newest wins, nothing queues up.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Latest value plus a wake-up. Many may put, one takes.
#[derive(Debug)]
pub struct Mailbox<T> {
    slot: Mutex<Option<T>>,
    ready: Notify,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self { slot: Mutex::new(None), ready: Notify::new() }
    }
}

impl<T> Mailbox<T> {
    /// Returns an empty mailbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces what is inside and wakes the taker; returns what was replaced.
    pub fn put(&self, value: T) -> Option<T> {
        let old = self.slot.lock().replace(value);
        self.ready.notify_one();
        old
    }

    /// Merges a value into what is inside (for mailboxes that accumulate) and wakes the taker.
    pub fn merge(&self, merge: impl FnOnce(Option<T>) -> T) {
        let mut slot = self.slot.lock();
        let old = slot.take();
        *slot = Some(merge(old));
        drop(slot);
        self.ready.notify_one();
    }

    /// Takes what is inside, if anything.
    pub fn try_take(&self) -> Option<T> {
        self.slot.lock().take()
    }

    /// Waits for a value and takes it. Cancel-safe: a dropped wait loses nothing.
    pub async fn take(&self) -> T {
        loop {
            if let Some(value) = self.try_take() {
                return value;
            }
            self.ready.notified().await;
        }
    }
}
