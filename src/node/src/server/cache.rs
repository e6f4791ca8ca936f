//! Answers kept for a while: bounded, by hash, so that no token stands in memory.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

const ENTRIES: usize = 8192;

/// What an answer is found by.
pub(super) type Key = [u8; 32];

/// Hashes parts, each with its length, so that no two lists run into one.
pub(super) fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> Key {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// A map whose entries end by themselves.
#[derive(Debug)]
pub(super) struct Cache<V>(Mutex<HashMap<Key, (Instant, V)>>);

impl<V> Default for Cache<V> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<V: Clone> Cache<V> {
    pub(super) fn get(&self, key: &Key) -> Option<V> {
        let map = self.0.lock();
        let (until, value) = map.get(key)?;
        (*until > Instant::now()).then(|| value.clone())
    }

    pub(super) fn put(&self, key: Key, value: V, ttl: Duration) {
        let now = Instant::now();
        let mut map = self.0.lock();
        if map.len() >= ENTRIES {
            map.retain(|_, (until, _)| *until > now);
        }
        if map.len() >= ENTRIES {
            // All are still good: the quarter that would end first goes.
            let mut ends: Vec<Instant> = map.values().map(|(until, _)| *until).collect();
            let at = ends.len() / 4;
            let limit = *ends.select_nth_unstable(at).1;
            map.retain(|_, (until, _)| *until > limit);
        }
        map.insert(key, (now + ttl, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn entries_end_and_stay_few() {
        let cache = Cache::default();
        cache.put(key(["a"]), 1, Duration::from_secs(10));
        assert_eq!(cache.get(&key(["a"])), Some(1));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(cache.get(&key(["a"])), None);
        for n in 0..10_000u64 {
            cache.put(key([n.to_string().as_str()]), n, Duration::from_secs(n));
        }
        assert!(cache.0.lock().len() <= ENTRIES);
        assert_eq!(cache.get(&key(["9999"])), Some(9999));
        assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
    }
}
