//! Work that many may ask for at once and that is done once: all who ask while it goes on get its one result.
//! It is driven by those who wait for it, and given up when the last of them is gone.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;

type Work<V> = BoxFuture<'static, V>;

/// What is under way, by key. Its size is bounded by what is waited for.
pub(super) struct Flights<K, V: Clone> {
    under_way: Mutex<HashMap<K, WeakShared<Work<V>>>>,
}

impl<K, V: Clone> Default for Flights<K, V> {
    fn default() -> Self {
        Self { under_way: Mutex::new(HashMap::new()) }
    }
}

impl<K: fmt::Debug, V: Clone> fmt::Debug for Flights<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.under_way.lock().keys()).finish()
    }
}

impl<K: Hash + Eq, V: Clone + Send + Sync + 'static> Flights<K, V> {
    /// Joins what is under way for the key, else begins it.
    pub(super) fn join(&self, key: K, begin: impl FnOnce() -> Work<V>) -> Shared<Work<V>> {
        let mut under_way = self.under_way.lock();
        // A result that is there is history: who comes later wants a new one.
        under_way.retain(|_, work| work.upgrade().is_some_and(|work| work.peek().is_none()));
        if let Some(work) = under_way.get(&key).and_then(WeakShared::upgrade) {
            return work;
        }
        let work = begin().shared();
        if let Some(weak) = work.downgrade() {
            under_way.insert(key, weak);
        }
        work
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn who_asks_meanwhile_shares_and_who_asks_later_begins_anew() {
        let flights = Flights::<&str, usize>::default();
        let (count, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let begin = || -> Work<usize> {
            let (count, go) = (Arc::clone(&count), Arc::clone(&go));
            Box::pin(async move {
                go.notified().await;
                count.fetch_add(1, Ordering::SeqCst)
            })
        };
        let (first, second) = (flights.join("a", begin), flights.join("a", begin));
        go.notify_one();
        assert_eq!((first.await, second.await), (0, 0));
        go.notify_one();
        assert_eq!(flights.join("a", begin).await, 1);
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_any_more_is_given_up() {
        let flights = Flights::<&str, ()>::default();
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        let begin = move || -> Work<()> {
            Box::pin(async move {
                let _inside = inside;
                std::future::pending::<()>().await;
            })
        };
        let work = flights.join("a", begin);
        let other = flights.join("a", || unreachable!());
        drop(work);
        assert_eq!(Arc::strong_count(&held), 2);
        drop(other);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
