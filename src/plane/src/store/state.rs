//! Objects, recent history and watchers in memory: what both engines answer reads from.
//! One lock guards all of it; it is held for map look-ups and pushes only, never over I/O or an await.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;

use super::StoreError;
use super::text::Pool;
use super::types::{Entry, Event, ListRequest, Listing, Revision};
use super::watchers::{Cursor, Watchers};

/// How much history is kept. What is older answers "too old" to watches and continued lists.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Events older than this are dropped.
    pub age: Duration,
    /// Oldest events are dropped beyond this many bytes.
    pub bytes: usize,
    /// Oldest events are dropped beyond this many.
    pub events: usize,
}

impl Default for Limits {
    /// Ten minutes cover an agent's restart; 12 MiB are some 2000 pod updates.
    fn default() -> Self {
        Self { age: Duration::from_secs(600), bytes: 12 << 20, events: 16_384 }
    }
}

/// So many of the latest events are news, to which watchers that filter come at about the same time.
const NEWS: usize = 128;

#[derive(Debug)]
struct Past {
    event: Arc<Event>,
    at: Timestamp,
}

#[derive(Debug)]
pub(super) struct State {
    objects: BTreeMap<Arc<str>, Entry>,
    /// What the objects' texts have in common.
    pool: Pool,
    /// What is stored but cannot be read, and why: keys that are taken, though nothing is shown.
    unreadable: BTreeMap<Arc<str>, Arc<str>>,
    revision: Revision,
    /// All events after `compacted`, in the order of their revisions. On etcd there are gaps, and foreign transactions
    /// may change several keys at one revision.
    history: VecDeque<Past>,
    history_bytes: usize,
    compacted: Revision,
    watchers: Watchers,
    limits: Limits,
}

pub(super) type Shared = Arc<RwLock<State>>;

impl State {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            objects: BTreeMap::new(),
            pool: Pool::default(),
            unreadable: BTreeMap::new(),
            revision: Revision(0),
            history: VecDeque::new(),
            history_bytes: 0,
            compacted: Revision(0),
            watchers: Watchers::default(),
            limits,
        }
    }

    /// Sets what was loaded from disk: objects, and the bounds between which `remember` then adds the history.
    pub(super) fn load(&mut self, objects: impl IntoIterator<Item = Entry>, compacted: Revision) {
        self.objects.clear();
        objects.into_iter().for_each(|entry| self.put(entry));
        self.compacted = compacted;
        self.revision = compacted;
    }

    /// Keeps an object.
    pub(super) fn put(&mut self, entry: Entry) {
        let value = self.pool.pack(&entry.value.bytes());
        self.objects.insert(Arc::clone(&entry.key), Entry { value, ..entry });
    }

    /// Adds a loaded event to the history without applying it: the loaded objects have it already.
    pub(super) fn remember(&mut self, event: Event, at: Timestamp) {
        self.revision = event.revision;
        self.history_bytes += event.weight();
        self.history.push_back(Past { event: Arc::new(event), at });
    }

    /// Notes that what is under a key cannot be read. An object that was there before stays as it is known.
    pub(super) fn cannot_read(&mut self, key: Arc<str>, why: String) {
        if !self.objects.contains_key(&key) {
            self.unreadable.insert(key, why.into());
        }
    }

    /// Notes that there is nothing under a key that could not be read.
    pub(super) fn can_read(&mut self, key: &str) {
        self.unreadable.remove(key);
    }

    /// Returns why what is under a key cannot be read.
    pub(super) fn unreadable(&self, key: &str) -> Option<Arc<str>> {
        self.unreadable.get(key).cloned()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        self.objects.get(key)
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn count(&self, prefix: &str) -> usize {
        self.under(prefix, None).count()
    }

    fn under<'s>(&'s self, prefix: &'s str, after: Option<&str>) -> impl Iterator<Item = &'s Entry> + use<'s> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.objects
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .map(|(_, entry)| entry)
    }

    pub(super) fn list(&self, request: &ListRequest<'_>) -> Result<Listing, StoreError> {
        let limit = request.limit.unwrap_or(usize::MAX);
        let at = request.at.unwrap_or(self.revision);
        if at > self.revision {
            return Err(StoreError::Future { requested: at, current: self.revision });
        }
        if at < self.revision && at < self.compacted {
            return Err(StoreError::Compacted { requested: at, oldest: self.compacted });
        }
        let mut listing = Listing { revision: at, ..Listing::default() };
        let past = self.undo(request.prefix, at);
        if past.is_empty() {
            let mut entries = self.under(request.prefix, request.after);
            listing.entries.extend(entries.by_ref().take(limit).cloned());
            listing.remaining = entries.count();
            return Ok(listing);
        }
        let mut then: BTreeMap<&str, Entry> = self
            .under(request.prefix, request.after)
            .filter(|entry| !past.contains_key(&*entry.key))
            .map(|entry| (&*entry.key, entry.clone()))
            .collect();
        for (key, entry) in &past {
            if let Some(entry) = entry
                && request.after.is_none_or(|after| *key > after)
            {
                then.insert(key, entry.clone());
            }
        }
        listing.remaining = then.len().saturating_sub(limit);
        listing.entries = then.into_values().take(limit).collect();
        Ok(listing)
    }

    /// Returns, for each key under `prefix` written after `at`, what was there at `at`.
    fn undo(&self, prefix: &str, at: Revision) -> HashMap<&str, Option<Entry>> {
        let mut past = HashMap::new();
        for Past { event, .. } in self.history.iter().rev().take_while(|past| past.event.revision > at) {
            if event.key.starts_with(prefix) {
                // The revision of the older state only matters to writers, who never use an old list's entries.
                let before = event.previous.clone();
                let entry = before.map(|value| Entry { key: Arc::clone(&event.key), revision: at, value });
                past.insert(&*event.key, entry);
            }
        }
        past
    }

    /// Replaces everything: the history between is not known, so all watchers have to list again.
    pub(super) fn reset(&mut self, objects: Vec<Entry>, revision: Revision) {
        self.load(objects, revision);
        self.unreadable.clear();
        self.history.clear();
        self.history_bytes = 0;
        for cursor in self.watchers.all() {
            // A place before the history: the next look of the watcher says so.
            cursor.pending.store(1, Ordering::Relaxed);
            cursor.wake.notify_one();
        }
    }

    /// Goes on to a revision at which nothing of ours changed.
    pub(super) fn pass(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }

    /// Applies a durable event and wakes those who watch its key.
    pub(super) fn publish(&mut self, event: Event, at: Timestamp) {
        let revision = event.revision;
        match event.entry() {
            Some(entry) => self.put(entry),
            None => drop(self.objects.remove(&*event.key)),
        }
        self.revision = revision;
        self.history_bytes += event.weight();
        for cursor in self.watchers.of(&event) {
            if cursor.pending.load(Ordering::Relaxed) == 0 {
                cursor.pending.store(revision.0, Ordering::Relaxed);
            }
            cursor.wake.notify_one();
        }
        self.history.push_back(Past { event: Arc::new(event), at });
        if let Some(old) = self.history.len().checked_sub(NEWS + 1).and_then(|index| self.history.get(index)) {
            old.event.age();
        }
    }

    /// Returns up to which revision the history should be dropped now. It may grow a sixteenth over its limits before: what
    /// is dropped at once costs the durable engine much less than the same one by one.
    pub(super) fn compaction(&self, now: Timestamp) -> Option<Revision> {
        let (mut bytes, mut events) = (self.history_bytes, self.history.len());
        let Limits { age: most_age, bytes: most_bytes, events: most_events } = self.limits;
        let oldest = self.history.front().map(|past| now.duration_since(past.at).unsigned_abs()).unwrap_or_default();
        if bytes <= most_bytes + most_bytes / 16
            && events <= most_events + most_events / 16
            && oldest <= most_age + most_age / 16
        {
            return None;
        }
        let mut upto = None;
        for Past { event, at } in &self.history {
            let age = now.duration_since(*at).unsigned_abs();
            if bytes <= self.limits.bytes && events <= self.limits.events && age <= self.limits.age {
                break;
            }
            bytes = bytes.saturating_sub(event.weight());
            events -= 1;
            upto = Some(event.revision);
        }
        upto
    }

    /// Drops the history up to and including `upto`.
    pub(super) fn compact(&mut self, upto: Revision) {
        while let Some(Past { event, .. }) = self.history.front()
            && event.revision <= upto
        {
            self.history_bytes = self.history_bytes.saturating_sub(event.weight());
            self.history.pop_front();
        }
        self.compacted = self.compacted.max(upto);
    }

    pub(super) fn watch(
        &mut self,
        prefix: &str,
        node: Option<&str>,
        from: Revision,
    ) -> Result<Arc<Cursor>, StoreError> {
        if from > self.revision {
            return Err(StoreError::Future { requested: from, current: self.revision });
        }
        if from < self.compacted {
            return Err(StoreError::Compacted { requested: from, oldest: self.compacted });
        }
        let cursor = self.watchers.add(prefix, node);
        let first = self.events_after(from).find(|event| cursor.sees(event));
        cursor.pending.store(first.map_or(0, |event| event.revision.0), Ordering::Relaxed);
        Ok(cursor)
    }

    pub(super) fn unwatch(&mut self, cursor: &Cursor) {
        self.watchers.remove(cursor);
    }

    fn events_after(&self, after: Revision) -> impl Iterator<Item = &Arc<Event>> {
        let skip = self.history.partition_point(|past| past.event.revision <= after);
        self.history.range(skip..).map(|past| &past.event)
    }

    /// Takes up to `most` unseen events of a cursor; none if it has seen all.
    pub(super) fn take(&self, cursor: &Cursor, most: usize) -> Result<Option<Vec<Arc<Event>>>, StoreError> {
        let pending = cursor.pending.load(Ordering::Relaxed);
        if pending == 0 {
            return Ok(None);
        }
        if pending <= self.compacted.0 {
            return Err(StoreError::Compacted { requested: Revision(pending), oldest: self.compacted });
        }
        let mut matching = self.events_after(Revision(pending - 1)).filter(|event| cursor.sees(event)).peekable();
        let mut events: Vec<Arc<Event>> = matching.by_ref().take(most).cloned().collect();
        // The place is a revision: what has the same one goes along.
        let last = events.last().map(|event| event.revision);
        while let Some(event) = matching.next_if(|event| Some(event.revision) == last) {
            events.push(Arc::clone(event));
        }
        let next = matching.next().map_or(0, |event| event.revision.0);
        cursor.pending.store(next, Ordering::Relaxed);
        Ok(Some(events))
    }

    /// Returns the revision up to which the cursor has seen everything.
    pub(super) fn progress(&self, cursor: &Cursor) -> Revision {
        match cursor.pending.load(Ordering::Relaxed) {
            0 => self.revision,
            pending => Revision(pending - 1),
        }
    }
}
