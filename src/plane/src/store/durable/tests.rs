//! What only a disk can show: finding everything again, and refusing in words what cannot be opened.

use std::sync::Arc;

use longshore_util::clock::{ManualClock, SharedClock};
use redb::TableDefinition;

use super::super::{Draft, EventKind, ListRequest, OpenError, Revision, Store as _, StoreError};
use super::{DurableOptions, DurableStore};

fn options(dir: &std::path::Path) -> DurableOptions {
    let clock: SharedClock = Arc::new(ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
    DurableOptions::new(dir.join("store.redb"), clock)
}

fn draft(text: &str) -> Draft {
    Draft::plain(format!("{{\"v\":\"{text}\"}}").into_bytes())
}

#[tokio::test]
async fn everything_is_found_again_history_included() {
    let dir = tempfile::tempdir().unwrap();
    let store = DurableStore::open(&options(dir.path())).unwrap();
    store.create("a", draft("1")).await.unwrap();
    store.create("b", draft("2")).await.unwrap();
    store.update("a", Revision(1), draft("3")).await.unwrap();
    store.delete("b", Revision(2), draft("4")).await.unwrap();
    store.close().await;
    assert!(matches!(store.create("c", draft("5")).await, Err(StoreError::Closed)));
    assert!(store.get("a").is_some(), "reads go on");
    drop(store);

    let store = DurableStore::open(&options(dir.path())).unwrap();
    assert_eq!(store.revision(), Revision(4));
    let found = store.list(&ListRequest::default()).unwrap();
    assert_eq!(found.entries.len(), 1);
    assert_eq!((&*found.entries[0].value.bytes(), found.entries[0].revision), (&b"{\"v\":\"3\"}"[..], Revision(3)));
    let mut watch = store.watch("", Revision(1)).unwrap();
    let events = watch.next().await.unwrap();
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Created, EventKind::Updated, EventKind::Deleted]);
    assert_eq!(events[1].previous.as_ref().unwrap().bytes(), &b"{\"v\":\"1\"}"[..]);
    store.update("a", Revision(3), draft("6")).await.unwrap();
}

#[tokio::test]
async fn a_store_in_use_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let _first = DurableStore::open(&options(dir.path())).unwrap();
    let error = DurableStore::open(&options(dir.path())).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("in use by another process"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_store_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.redb");
    for content in [vec![7u8; 10], vec![7u8; 100_000], b"{}".to_vec()] {
        std::fs::write(&path, &content).unwrap();
        let error = DurableStore::open(&options(dir.path())).unwrap_err();
        assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}

#[tokio::test]
async fn a_file_with_a_flipped_page_is_refused_or_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.redb");
    let store = DurableStore::open(&options(dir.path())).unwrap();
    for index in 0..50 {
        store.create(&format!("k/{index}"), draft(&"x".repeat(500))).await.unwrap();
    }
    store.close().await;
    drop(store);
    let whole = std::fs::read(&path).unwrap();
    for at in (4096..whole.len()).step_by(whole.len() / 20) {
        let mut broken = whole.clone();
        broken[at..(at + 64).min(whole.len())].fill(0xa5);
        std::fs::write(&path, &broken).unwrap();
        match DurableStore::open(&options(dir.path())) {
            // The damage hit a page that nothing uses.
            Ok(store) => {
                assert_eq!(store.count("k/"), 50);
                store.close().await;
            }
            Err(error) => assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}"),
        }
    }
}

#[tokio::test]
async fn a_store_of_a_newer_release_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.redb");
    let database = redb::Database::create(&path).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(TableDefinition::<&str, u64>::new("meta")).unwrap().insert("format", 99).unwrap();
    write.commit().unwrap();
    drop(database);
    let error = DurableStore::open(&options(dir.path())).unwrap_err();
    assert!(matches!(error, OpenError::TooNew { found: 99, supported: 1, .. }), "{error:?}");
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = DurableStore::open(&options(&dir.path().join("none"))).unwrap_err();
    assert!(error.to_string().contains("none/store.redb"), "{error}");
}
