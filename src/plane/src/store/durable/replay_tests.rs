//! Power loss and full disks, played on a disk that is ours: it knows what was synced, can forget the rest, and can run
//! out of space. After every cut all answered writes must be there.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use longshore_util::clock::{ManualClock, SharedClock};
use parking_lot::Mutex;
use redb::{Database, StorageBackend};

use super::super::{Draft, Limits, ListRequest, Revision, Store as _, StoreError};
use super::{DurableOptions, DurableStore};

/// One thing that was done to the disk.
#[derive(Debug, Clone)]
enum Act {
    Write(u64, Vec<u8>),
    Length(u64),
    Sync,
}

#[derive(Debug, Default)]
struct Platter {
    content: Vec<u8>,
    /// Everything done since the start, in order.
    acts: Vec<Act>,
    /// The disk is full at this length, if anything.
    space: Option<u64>,
    /// How many writes at most still succeed, if limited; then the disk breaks.
    writes_left: Option<usize>,
    sync_fails: bool,
}

/// A disk in memory, shared with the test.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<Platter>>);

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.lock().content.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let platter = self.0.lock();
        let start = usize::try_from(offset).unwrap();
        let found = platter.content.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let mut platter = self.0.lock();
        if platter.space.is_some_and(|space| len > space) {
            return Err(full());
        }
        platter.content.resize(usize::try_from(len).unwrap(), 0);
        platter.acts.push(Act::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut platter = self.0.lock();
        if platter.sync_fails {
            return Err(io::Error::other("the disk is broken"));
        }
        platter.acts.push(Act::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut platter = self.0.lock();
        if let Some(left) = &mut platter.writes_left {
            *left = left.checked_sub(1).ok_or_else(full)?;
        }
        let start = usize::try_from(offset).unwrap();
        let end = start + data.len();
        if platter.content.len() < end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        platter.content[start..end].copy_from_slice(data);
        platter.acts.push(Act::Write(offset, data.to_vec()));
        Ok(())
    }
}

impl Disk {
    fn acts(&self) -> Vec<Act> {
        self.0.lock().acts.clone()
    }

    fn open(&self, limits: Limits) -> DurableStore {
        let disk = self.clone();
        let opener = move |check: bool| {
            Database::builder()
                .set_cache_size(1 << 20)
                .set_check_integrity_on_open(check)
                .create_with_backend(disk.clone())
        };
        let clock: SharedClock = Arc::new(ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        DurableStore::start(Box::new(opener), Path::new("store.redb"), limits, &clock).unwrap()
    }
}

/// Returns the disk as a power cut at `cut` leaves it: what was synced before, and of the rest only what `keep` picks,
/// torn in the middle where `tear` says so.
fn after_cut(acts: &[Act], cut: usize, keep: impl Fn(usize) -> bool, tear: bool) -> Disk {
    let synced = acts[..cut].iter().rposition(|act| matches!(act, Act::Sync)).map_or(0, |at| at + 1);
    let mut content: Vec<u8> = Vec::new();
    for (index, act) in acts[..cut].iter().enumerate() {
        let lost = index >= synced && !keep(index);
        match act {
            Act::Length(length) if !lost => content.resize(usize::try_from(*length).unwrap(), 0),
            Act::Write(offset, data) if !lost => {
                let torn = tear && index >= synced && data.len() > 512;
                let data = if torn { &data[..data.len() / 2] } else { &data[..] };
                let start = usize::try_from(*offset).unwrap();
                if content.len() < start + data.len() {
                    content.resize(start + data.len(), 0);
                }
                content[start..start + data.len()].copy_from_slice(data);
            }
            Act::Sync | Act::Length(_) | Act::Write(..) => {}
        }
    }
    Disk(Arc::new(Mutex::new(Platter { content, ..Platter::default() })))
}

fn draft(text: &str) -> Draft {
    Draft::plain(text.as_bytes().to_vec())
}

/// What must be there: by number of acts done when the answer came, the state then.
type Answered = Vec<(usize, BTreeMap<String, Vec<u8>>)>;

async fn busy_life(disk: &Disk, limits: Limits) -> Answered {
    let store = disk.open(limits);
    let mut model: BTreeMap<String, (Revision, Vec<u8>)> = BTreeMap::new();
    let mut answered = vec![(disk.acts().len(), BTreeMap::new())];
    for step in 0u64..60 {
        let key = format!("k/{}", step * 7 % 13);
        let value = format!("{step}-{}", "x".repeat(usize::try_from(step * 97 % 3000).unwrap()));
        let present = model.get(&key).map(|(revision, _)| *revision);
        match present {
            None => {
                let entry = store.create(&key, draft(&value)).await.unwrap();
                model.insert(key, (entry.revision, value.into_bytes()));
            }
            Some(revision) if step % 5 == 0 => {
                store.delete(&key, revision, draft("")).await.unwrap();
                model.remove(&key);
            }
            Some(revision) => {
                let entry = store.update(&key, revision, draft(&value)).await.unwrap();
                model.insert(key, (entry.revision, value.into_bytes()));
            }
        }
        let state = model.iter().map(|(key, (_, value))| (key.clone(), value.clone())).collect();
        answered.push((disk.acts().len(), state));
    }
    store.close().await;
    answered
}

fn found(store: &DurableStore) -> BTreeMap<String, Vec<u8>> {
    let listing = store.list(&ListRequest::default()).unwrap();
    listing.entries.into_iter().map(|entry| (entry.key.to_string(), entry.value.bytes().to_vec())).collect()
}

#[tokio::test]
async fn answered_writes_survive_a_power_cut_at_any_moment() {
    let disk = Disk::default();
    // A short history, so that compaction is cut as well.
    let limits = Limits { events: 10, ..Limits::default() };
    let answered = busy_life(&disk, limits).await;
    let acts = disk.acts();
    let first = answered[0].0;
    let mut cuts = 0;
    for cut in (first..=acts.len()).step_by(5) {
        for mode in 0..4usize {
            let keep = |index: usize| match mode {
                0 => false,
                1 | 3 => index.is_multiple_of(2),
                _ => true,
            };
            let store = after_cut(&acts, cut, keep, mode == 3).open(limits);
            let state = found(&store);
            // The state is one that was answered, or the write under way on top of it: never older, never a mixture.
            let last = answered.iter().rposition(|(at, _)| *at <= cut).unwrap();
            let allowed = &answered[last..(last + 2).min(answered.len())];
            assert!(
                allowed.iter().any(|(_, wanted)| *wanted == state),
                "cut {cut} mode {mode}: an answered write is gone"
            );
            // And it can be written again.
            store.create("after", draft("the cut")).await.unwrap();
            cuts += 1;
        }
    }
    assert!(cuts > 200, "{cuts}");
}

#[tokio::test]
async fn a_first_start_that_was_cut_short_can_be_repeated() {
    let disk = Disk::default();
    disk.open(Limits::default()).close().await;
    let acts = disk.acts();
    let dir = tempfile::tempdir().unwrap();
    let clock: SharedClock = Arc::new(ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
    let options = DurableOptions::new(dir.path().join("store.redb"), clock);
    for cut in 0..=acts.len() {
        let torn = after_cut(&acts, cut, |index| index % 3 == 0, true);
        std::fs::write(dir.path().join("store.redb.new.77"), &torn.0.lock().content).unwrap();
        let store = DurableStore::open(&options).unwrap();
        assert_eq!(store.count(""), 0, "cut {cut}");
        store.create("a", draft("1")).await.unwrap();
        store.close().await;
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["store.redb"]);
        std::fs::remove_file(&options.path).unwrap();
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_in_words_reads_go_on_and_space_mends_it() {
    let disk = Disk::default();
    let store = disk.open(Limits::default());
    let kept = store.create("kept", draft("1")).await.unwrap();
    let space = disk.len().unwrap();
    disk.0.lock().space = Some(space);
    let big = "x".repeat(300_000);
    let mut stored = 0u32;
    let error = loop {
        match store.create(&format!("big/{stored}"), draft(&big)).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 100);
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
    // Reads go on, and nothing half-written shows.
    assert_eq!(&*store.get("kept").unwrap().value.bytes(), b"1");
    assert_eq!(store.count("big/"), stored as usize);
    let again = store.create("big/more", draft(&big)).await.unwrap_err();
    assert!(matches!(again, StoreError::Full { .. }), "{again}");
    let mut watch = store.watch("", kept.revision).unwrap();

    disk.0.lock().space = None;
    store.create("after", draft("2")).await.unwrap();
    let mut seen = Vec::new();
    while let Some(events) = watch.try_next().unwrap() {
        seen.extend(events.iter().map(|event| event.key.to_string()));
    }
    assert_eq!(seen.last().map(String::as_str), Some("after"));
    assert_eq!(seen.len(), stored as usize + 1);
    store.close().await;
    let reopened = disk.open(Limits::default());
    assert_eq!(found(&reopened).len(), stored as usize + 2);
}

#[tokio::test]
async fn a_disk_that_fills_between_any_two_writes_loses_nothing_answered() {
    for left in 0..40 {
        let disk = Disk::default();
        let store = disk.open(Limits::default());
        let mut model = BTreeMap::new();
        store.create("k/first", draft("1")).await.unwrap();
        model.insert("k/first".to_owned(), b"1".to_vec());
        disk.0.lock().writes_left = Some(left);
        for step in 0..20 {
            let key = format!("k/{step}");
            if store.create(&key, draft("2")).await.is_ok() {
                model.insert(key, b"2".to_vec());
            } else {
                disk.0.lock().writes_left = None;
            }
        }
        let state = found(&store);
        for (key, value) in &model {
            assert_eq!(state.get(key), Some(value), "left {left}");
        }
        store.close().await;
        assert_eq!(found(&disk.open(Limits::default())), state, "left {left}: memory and disk differ");
    }
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_written_until_a_restart() {
    let disk = Disk::default();
    let store = disk.open(Limits::default());
    store.create("a", draft("1")).await.unwrap();
    disk.0.lock().sync_fails = true;
    let error = store.create("b", draft("2")).await.unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }) && error.to_string().contains("restart"), "{error}");
    disk.0.lock().sync_fails = false;
    // What the disk kept is unknown now, so that a success could be a lie.
    assert!(store.create("c", draft("3")).await.is_err());
    assert!(store.get("a").is_some());
}
