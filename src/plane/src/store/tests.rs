//! The contract of every store, checked on both engines.

use std::sync::Arc;
use std::time::Duration;

use longshore_util::clock::{ManualClock, SharedClock};

use super::*;

fn draft(text: &str) -> Draft {
    Draft::with_gap(format!("{{\"v\":\"{text}\",\"rv\":\"").into_bytes(), b"\"}".to_vec())
}

fn text(entry: &Entry) -> String {
    String::from_utf8(entry.value.bytes().to_vec()).unwrap()
}

type Engine = (Arc<dyn Store>, Arc<ManualClock>, Option<tempfile::TempDir>);

/// Both engines, each with its clock and the folder that must outlive it.
fn engines(limits: Limits) -> Vec<Engine> {
    let clock = || Arc::new(ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
    let (first, second) = (clock(), clock());
    let memory: SharedClock = first.clone();
    let durable: SharedClock = second.clone();
    let dir = tempfile::tempdir().unwrap();
    let options = DurableOptions { limits, ..DurableOptions::new(dir.path().join("store.redb"), durable) };
    vec![
        (Arc::new(MemoryStore::new(limits, memory)), first, None),
        (Arc::new(DurableStore::open(&options).unwrap()), second, Some(dir)),
    ]
}

#[tokio::test]
async fn writes_are_checked_against_what_is_there() {
    for (store, _, _dir) in engines(Limits::default()) {
        let made = store.create("a/1", draft("x")).await.unwrap();
        assert_eq!(text(&made), r#"{"v":"x","rv":"1"}"#);
        assert!(matches!(store.create("a/1", draft("y")).await, Err(StoreError::Exists { .. })));
        let stale = store.update("a/1", Revision(9), draft("y")).await;
        assert!(matches!(stale, Err(StoreError::Conflict { found: Revision(1), .. })));
        let changed = store.update("a/1", made.revision, draft("y")).await.unwrap();
        assert_eq!((changed.revision, text(&changed)), (Revision(2), r#"{"v":"y","rv":"2"}"#.to_owned()));
        assert!(store.update("a/2", Revision(1), draft("y")).await.unwrap_err().is_not_found());
        assert!(store.delete("a/1", Revision(1), draft("z")).await.unwrap_err().is_conflict());
        let gone = store.delete("a/1", Revision(2), draft("z")).await.unwrap();
        assert_eq!(text(&gone), r#"{"v":"z","rv":"3"}"#);
        assert!(store.get("a/1").is_none());
        assert!(store.delete("a/1", Revision(3), draft("z")).await.unwrap_err().is_not_found());
        assert_eq!(store.revision(), Revision(3));
    }
}

#[tokio::test]
async fn lists_show_one_moment_in_pages() {
    for (store, _, _dir) in engines(Limits::default()) {
        for key in ["p/a/1", "p/a/2", "p/b/1", "q/x"] {
            store.create(key, draft(key)).await.unwrap();
        }
        let keys = |listing: &Listing| listing.entries.iter().map(|entry| entry.key.to_string()).collect::<Vec<_>>();
        let first = store.list(&ListRequest { prefix: "p/", limit: Some(2), ..ListRequest::default() }).unwrap();
        assert_eq!(
            (keys(&first), first.remaining, first.revision),
            (vec!["p/a/1".into(), "p/a/2".into()], 1, Revision(4))
        );
        // What happens between the pages is not seen by the second one.
        store.delete("p/b/1", Revision(3), draft("gone")).await.unwrap();
        store.create("p/b/0", draft("new")).await.unwrap();
        store.update("p/a/2", Revision(2), draft("changed")).await.unwrap();
        let request = ListRequest { prefix: "p/", after: Some("p/a/2"), at: Some(first.revision), limit: Some(2) };
        let second = store.list(&request).unwrap();
        assert_eq!((keys(&second), second.remaining), (vec!["p/b/1".into()], 0));
        let then = store.list(&ListRequest { prefix: "p/", at: Some(Revision(4)), ..ListRequest::default() }).unwrap();
        assert_eq!(text(&then.entries[1]), r#"{"v":"p/a/2","rv":"2"}"#);
        let now = store.list(&ListRequest { prefix: "p/", ..ListRequest::default() }).unwrap();
        assert_eq!(keys(&now), ["p/a/1", "p/a/2", "p/b/0"]);
        assert_eq!(store.count("p/a/"), 2);
        let future = store.list(&ListRequest { at: Some(Revision(99)), ..ListRequest::default() });
        assert!(matches!(future, Err(StoreError::Future { .. })));
    }
}

#[tokio::test]
async fn watches_resume_in_order_and_see_only_their_prefix() {
    for (store, _, _dir) in engines(Limits::default()) {
        store.create("p/1", draft("a")).await.unwrap();
        store.create("q/1", draft("b")).await.unwrap();
        store.update("p/1", Revision(1), draft("c")).await.unwrap();
        let mut watch = store.watch("p/", Revision(1)).unwrap();
        store.delete("p/1", Revision(3), draft("d")).await.unwrap();
        store.create("p/2", draft("e")).await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < 3 {
            seen.extend(watch.next().await.unwrap());
        }
        let facts: Vec<_> = seen.iter().map(|event| (event.kind, event.revision.0, event.previous.is_some())).collect();
        assert_eq!(
            facts,
            [(EventKind::Updated, 3, true), (EventKind::Deleted, 4, true), (EventKind::Created, 5, false)]
        );
        assert_eq!(&*seen[1].frame(), b"{\"type\":\"DELETED\",\"object\":{\"v\":\"d\",\"rv\":\"4\"}}\n");
        assert!(watch.try_next().unwrap().is_none());
        store.create("q/2", draft("f")).await.unwrap();
        // Nothing of its own happened, but it has seen all up to here.
        assert_eq!(watch.progress(), Revision(6));
        assert!(matches!(store.watch("p/", Revision(7)), Err(StoreError::Future { .. })));
    }
}

#[tokio::test]
async fn history_is_dropped_by_age_and_the_slow_are_told() {
    for (store, clock, _dir) in engines(Limits { age: Duration::from_secs(60), ..Limits::default() }) {
        store.create("p/1", draft("a")).await.unwrap();
        let mut slow = store.watch("p/", Revision(0)).unwrap();
        let mut other = store.watch("q/", Revision(0)).unwrap();
        // A sixteenth more is waited for, so that much is dropped at once.
        clock.advance(Duration::from_secs(63));
        store.create("q/1", draft("b")).await.unwrap();
        assert!(store.watch("p/", Revision(0)).is_ok());
        clock.advance(Duration::from_secs(1));
        store.create("q/2", draft("c")).await.unwrap();
        assert!(matches!(slow.next().await, Err(StoreError::Compacted { .. })));
        assert!(matches!(store.watch("p/", Revision(0)), Err(StoreError::Compacted { oldest: Revision(1), .. })));
        assert!(store.watch("p/", Revision(1)).is_ok());
        // A quiet watch is not slow, however much happens elsewhere.
        assert_eq!(other.next().await.unwrap().len(), 2);
        let old = store.list(&ListRequest { at: Some(Revision(0)), ..ListRequest::default() });
        assert!(matches!(old, Err(StoreError::Compacted { .. })));
    }
}

#[tokio::test]
async fn history_is_bounded_in_bytes_and_number() {
    for (store, _, _dir) in engines(Limits { bytes: 4000, events: 10, ..Limits::default() }) {
        for index in 0..40 {
            store.create(&format!("p/{index}"), draft("a")).await.unwrap();
        }
        assert!(matches!(store.watch("p/", Revision(10)), Err(StoreError::Compacted { .. })));
        assert!(store.watch("p/", Revision(36)).is_ok());
        assert_eq!(store.count("p/"), 40);
    }
}

#[tokio::test]
async fn a_thousand_watchers_wake_for_their_own_key_only() {
    for (store, _, _dir) in engines(Limits::default()) {
        let mut watches: Vec<Watch> =
            (0..1000).map(|index| store.watch(&format!("p/{index:04}"), Revision(0)).unwrap()).collect();
        store.create("p/0500", draft("a")).await.unwrap();
        for (index, watch) in watches.iter_mut().enumerate() {
            assert_eq!(watch.try_next().unwrap().is_some(), index == 500);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_writers_never_lose_a_write() {
    for (store, _, _dir) in engines(Limits::default()) {
        store.create("n", draft("0")).await.unwrap();
        let mut workers = Vec::new();
        for _ in 0..8 {
            let store = Arc::clone(&store);
            workers.push(async move {
                let mut done = 0;
                while done < 20 {
                    let entry = store.get("n").unwrap();
                    let value: serde_json::Value = serde_json::from_slice(&entry.value.bytes()).unwrap();
                    let next = value["v"].as_str().unwrap().parse::<u32>().unwrap() + 1;
                    match store.update("n", entry.revision, draft(&next.to_string())).await {
                        Ok(_) => done += 1,
                        Err(error) => assert!(error.is_conflict(), "{error}"),
                    }
                }
            });
        }
        futures_util::future::join_all(workers).await;
        assert!(text(&store.get("n").unwrap()).starts_with(r#"{"v":"160""#));
        assert_eq!(store.revision(), Revision(161));
    }
}
