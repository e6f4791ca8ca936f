//! Counting, merging and filtering of events as the Go client does it, so that a crash loop makes one event with a count.
//! Pure: times come in, decisions go out.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::TokenBucket;
use super::record::Occurrence;

/// Entries kept per table, as upstream.
const CACHE_ENTRIES: usize = 4096;
/// Events about one object from one source at once, and the time for one more.
const SPAM_BURST: u32 = 25;
const SPAM_REFILL: Duration = Duration::from_secs(300);
/// Different messages of one reason within the window, after which they are merged.
const SIMILAR_MAX: usize = 10;
const SIMILAR_WINDOW: SignedDuration = SignedDuration::from_secs(600);
const MERGED_PREFIX: &str = "(combined from similar events): ";

/// What is to be written for one occurrence.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) message: String,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    /// 1 = create, more = patch the event that stands.
    pub(super) count: i32,
    key: u64,
}

/// The memory of what was written lately.
#[derive(Debug)]
pub(super) struct Correlator {
    hasher: RandomState,
    counted: Bounded<Counted>,
    similar: Bounded<Similar>,
    spam: Bounded<TokenBucket>,
    /// The last moment used for a name: two events never share one.
    named: i128,
}

#[derive(Debug, Clone)]
struct Counted {
    name: String,
    first: Timestamp,
    count: i32,
}

#[derive(Debug)]
struct Similar {
    messages: HashSet<u64>,
    last: Timestamp,
}

impl Correlator {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            counted: Bounded::new(),
            similar: Bounded::new(),
            spam: Bounded::new(),
            named: 0,
        }
    }

    /// Decides what one occurrence becomes; `None` when there are too many about that object.
    pub(super) fn correlate(&mut self, event: &Occurrence, now: Timestamp) -> Option<Entry> {
        let object = self.hasher.hash_one(ObjectKey::of(event));
        let group = self.hasher.hash_one((object, event.kind, &event.reason));
        let (key, message) = if self.is_one_of_many(group, &event.message, now) {
            (group, format!("{MERGED_PREFIX}{}", event.message))
        } else {
            let exact = (group, &event.target.reference().field_path, &event.message);
            (self.hasher.hash_one(exact), event.message.clone())
        };
        let entry = self.count(key, event, message, now);
        let bucket = self.spam.entry(object, || TokenBucket::new(SPAM_BURST, SPAM_REFILL, now));
        bucket.take(now).is_ok().then_some(entry)
    }

    /// Remembers what the API has: the next same occurrence counts on from there.
    pub(super) fn written(&mut self, entry: &Entry) {
        let state = Counted { name: entry.name.clone(), first: entry.first, count: entry.count };
        self.counted.put(entry.key, state);
    }

    fn is_one_of_many(&mut self, group: u64, message: &str, now: Timestamp) -> bool {
        let message = self.hasher.hash_one(message);
        let similar = self.similar.entry(group, || Similar { messages: HashSet::new(), last: now });
        if now.duration_since(similar.last) > SIMILAR_WINDOW {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(message);
        if similar.messages.len() < SIMILAR_MAX {
            return false;
        }
        // The set never grows past the limit; which one leaves does not matter.
        let any = similar.messages.iter().next().copied();
        if let Some(any) = any {
            similar.messages.remove(&any);
        }
        true
    }

    fn count(&mut self, key: u64, event: &Occurrence, message: String, now: Timestamp) -> Entry {
        let reference = event.target.reference();
        let object = reference.name.as_deref().unwrap_or_default();
        let named = &mut self.named;
        let counted = self.counted.entry(key, || {
            *named = event.at.as_nanosecond().max(*named + 1);
            Counted { name: event_name(object, *named), first: event.at, count: 0 }
        });
        counted.count = counted.count.saturating_add(1);
        Entry {
            namespace: reference.namespace.clone().filter(|n| !n.is_empty()).unwrap_or_else(|| "default".into()),
            name: counted.name.clone(),
            message,
            first: counted.first,
            last: if counted.count == 1 { event.at } else { now.max(event.at) },
            count: counted.count,
            key,
        }
    }
}

/// `<object>.<nanoseconds in hex>`; a name that would be too long is cut, the time keeps it unique enough.
fn event_name(object: &str, nanoseconds: i128) -> String {
    const LONGEST: usize = 253 - 17;
    let end =
        object.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|end| *end <= LONGEST).last().unwrap_or(0);
    format!("{}.{nanoseconds:x}", &object[..end])
}

#[derive(Hash)]
struct ObjectKey<'a> {
    kind: Option<&'a str>,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    uid: Option<&'a str>,
}

impl<'a> ObjectKey<'a> {
    fn of(event: &'a Occurrence) -> Self {
        let reference = event.target.reference();
        Self {
            kind: reference.kind.as_deref(),
            namespace: reference.namespace.as_deref(),
            name: reference.name.as_deref(),
            uid: reference.uid.as_deref(),
        }
    }
}

/// A map that forgets what was used longest ago.
#[derive(Debug)]
struct Bounded<T> {
    map: HashMap<u64, (u64, T)>,
    tick: u64,
}

impl<T> Bounded<T> {
    fn new() -> Self {
        Self { map: HashMap::new(), tick: 0 }
    }

    fn put(&mut self, key: u64, value: T) {
        self.make_room_for(key);
        self.map.insert(key, (self.tick, value));
    }

    fn entry(&mut self, key: u64, fresh: impl FnOnce() -> T) -> &mut T {
        self.make_room_for(key);
        let slot = self.map.entry(key).or_insert_with(|| (0, fresh()));
        slot.0 = self.tick;
        &mut slot.1
    }

    fn make_room_for(&mut self, key: u64) {
        self.tick += 1;
        if self.map.len() >= CACHE_ENTRIES && !self.map.contains_key(&key) {
            self.forget_a_quarter();
        }
    }

    fn forget_a_quarter(&mut self) {
        let mut ticks: Vec<u64> = self.map.values().map(|(tick, _)| *tick).collect();
        let at = ticks.len() / 4;
        let (_, limit, _) = ticks.select_nth_unstable(at);
        let limit = *limit;
        self.map.retain(|_, (tick, _)| *tick > limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_stays_bounded_and_keeps_the_newest() {
        let mut table = Bounded::new();
        for key in 0..10_000u64 {
            *table.entry(key, || 0) = key;
        }
        assert!(table.map.len() <= CACHE_ENTRIES);
        assert_eq!(*table.entry(9_999, || 0), 9_999);
        assert_eq!(*table.entry(9_000, || 0), 9_000);
    }

    #[test]
    fn long_names_are_cut() {
        let name = event_name(&"ä".repeat(200), i64::MAX.into());
        assert!(name.len() <= 253);
        assert_eq!(event_name("p", 255), "p.ff");
    }
}
