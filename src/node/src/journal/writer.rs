//! The writer: one thread that appends what was put, tells who waits, and syncs in batches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::PodFacts;
#[cfg(any(test, feature = "fakes"))]
use super::inline;
use super::log::Log;
use crate::model::PodUid;

/// How long appended records may wait for others before they are synced together.
const SYNC_AFTER: Duration = Duration::from_millis(50);
/// Pause before records that could not be written are tried again.
const RETRY_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct Pending {
    /// Newest facts per pod, so the size is bounded by the number of pods.
    records: BTreeMap<PodUid, Option<PodFacts>>,
    last: u64,
    flush: u64,
    closed: bool,
}

#[derive(Debug)]
struct Shared {
    pending: Mutex<Pending>,
    ready: Condvar,
    written: watch::Sender<u64>,
    synced: watch::Sender<u64>,
}

/// Owner of the thread.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Writes on the caller's thread: paused time in tests must not run on while a thread writes.
    #[cfg(any(test, feature = "fakes"))]
    inline: Option<inline::Inline>,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(log: Log) -> Self {
        let shared = Arc::new(Shared {
            pending: Mutex::new(Pending::default()),
            ready: Condvar::new(),
            written: watch::Sender::new(0),
            synced: watch::Sender::new(0),
        });
        let inside = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || run(&inside, log))
            .inspect_err(|error| tracing::error!(%error, "journal thread cannot start, facts are not kept"))
            .ok();
        if thread.is_none() {
            shared.written.send_replace(u64::MAX);
            shared.synced.send_replace(u64::MAX);
        }
        Self {
            shared,
            thread,
            #[cfg(any(test, feature = "fakes"))]
            inline: None,
        }
    }

    /// A writer without a thread that is as late as one with a thread.
    #[cfg(any(test, feature = "fakes"))]
    pub(super) fn delayed(log: Log) -> Self {
        let shared = Arc::new(Shared {
            pending: Mutex::new(Pending::default()),
            ready: Condvar::new(),
            written: watch::Sender::new(u64::MAX),
            synced: watch::Sender::new(u64::MAX),
        });
        Self { shared, thread: None, inline: Some(inline::Inline::new(log)) }
    }

    /// Ends as a killed agent's writer does.
    #[cfg(any(test, feature = "fakes"))]
    pub(super) fn die(&self, lose: bool) {
        if let Some(inline) = &self.inline {
            inline.die(lose);
        }
    }

    /// Hands a record over; returns its number.
    pub(super) fn put(&self, uid: PodUid, facts: Option<PodFacts>) -> u64 {
        #[cfg(any(test, feature = "fakes"))]
        if let Some(inline) = &self.inline {
            inline.put(uid, facts);
            return 0;
        }
        let mut pending = self.shared.pending.lock();
        pending.records.insert(uid, facts);
        pending.last += 1;
        let number = pending.last;
        drop(pending);
        self.shared.ready.notify_one();
        number
    }

    /// Waits until record `number` is in the file.
    pub(super) async fn written(&self, number: u64) {
        #[cfg(any(test, feature = "fakes"))]
        if let Some(inline) = &self.inline {
            inline.write_all();
        }
        let mut written = self.shared.written.subscribe();
        drop(written.wait_for(|done| *done >= number).await);
    }

    /// Waits until everything put so far is synced.
    pub(super) async fn flush(&self) {
        let number = {
            let mut pending = self.shared.pending.lock();
            pending.flush = pending.last;
            pending.last
        };
        self.shared.ready.notify_one();
        let mut synced = self.shared.synced.subscribe();
        drop(synced.wait_for(|done| *done >= number).await);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.pending.lock().closed = true;
        self.shared.ready.notify_one();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn run(shared: &Shared, mut log: Log) {
    // Records that could not be written; they go out with the next ones.
    let mut left: BTreeMap<PodUid, Option<PodFacts>> = BTreeMap::new();
    let mut unsynced = None;
    loop {
        let mut pending = shared.pending.lock();
        while pending.records.is_empty() && !pending.closed {
            match unsynced {
                None if left.is_empty() => shared.ready.wait(&mut pending),
                None => {
                    if shared.ready.wait_for(&mut pending, RETRY_AFTER).timed_out() {
                        break;
                    }
                }
                Some(number) => {
                    let flush = pending.flush >= number;
                    if flush || shared.ready.wait_for(&mut pending, SYNC_AFTER).timed_out() {
                        drop(pending);
                        sync(shared, &mut log, number);
                        unsynced = None;
                        pending = shared.pending.lock();
                    }
                }
            }
        }
        let records = std::mem::take(&mut pending.records);
        let (last, closed) = (pending.last, pending.closed);
        drop(pending);
        let had_left = !left.is_empty();
        left.extend(records);
        if !left.is_empty() {
            let batch: Vec<_> = std::mem::take(&mut left).into_iter().collect();
            match log.append(&batch) {
                Ok(()) if had_left => tracing::info!("journal can be written again"),
                Ok(()) => {}
                Err(error) => {
                    // One line per fault, not per record: the disk is full for everybody.
                    if !had_left {
                        tracing::error!(path = %log.path().display(), %error, "journal cannot be written, facts may be lost on a restart");
                    }
                    left = batch.into_iter().collect();
                }
            }
            // Whoever waits goes on in either case: a full disk must not stop pods.
            shared.written.send_replace(last);
            unsynced = Some(last);
            if log.is_bloated()
                && let Err(error) = log.compact()
            {
                tracing::warn!(path = %log.path().display(), %error, "journal cannot be rewritten");
            }
        }
        if closed {
            sync(shared, &mut log, last);
            return;
        }
    }
}

fn sync(shared: &Shared, log: &mut Log, number: u64) {
    if let Err(error) = log.sync() {
        tracing::error!(path = %log.path().display(), %error, "journal cannot be synced");
    }
    shared.synced.send_replace(number);
}
