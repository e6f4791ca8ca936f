//! kill -9 of a process that writes to the store, at many moments: every write that it saw answered is there afterwards.

#![expect(clippy::unwrap_used, reason = "helpers of tests stop at the first surprise, as the tests do")]

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_plane::store::{Draft, DurableOptions, DurableStore, ListRequest, Store as _};
use longshore_util::clock::SystemClock;

/// Set in the process that is killed: the store's file.
const CHILD: &str = "LONGSHORE_TEST_KILL_STORE";

fn open(path: &Path) -> DurableStore {
    DurableStore::open(&DurableOptions::new(path, Arc::new(SystemClock))).unwrap()
}

/// Writes from several tasks at once until it is killed, and says each answered key.
#[tokio::test(flavor = "multi_thread")]
async fn child_writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = open(Path::new(&path));
    let run = uuid::Uuid::new_v4();
    let writers = (0..4).map(|writer| {
        let store = &store;
        async move {
            for index in 0.. {
                let key = format!("k/{run}/{writer}/{index}");
                store.create(&key, Draft::plain(vec![b'x'; 200 + index % 3000])).await.unwrap();
                let mut out = std::io::stdout().lock();
                // The test harness indents nothing under `--nocapture`; the marker tells our lines from its own.
                writeln!(out, "answered {key}").unwrap();
                out.flush().unwrap();
            }
        }
    });
    futures_util::future::join_all(writers).await;
}

#[test]
fn answered_writes_survive_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.redb");
    let mut answered = HashSet::new();
    for round in 0u64..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_writes_until_it_is_killed", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let before = answered.len();
        let mut end = None;
        for line in lines.map_while(Result::ok) {
            let Some((_, key)) = line.split_once("answered ") else { continue };
            answered.insert(key.to_owned());
            // Killed a little later in each round, counted from its first answer.
            let end = *end.get_or_insert_with(|| Instant::now() + Duration::from_millis(round * 17));
            if Instant::now() >= end {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(answered.len() > before, "round {round}: it wrote nothing");
    }
    let store = open(&path);
    let listing = store.list(&ListRequest::default()).unwrap();
    let found: HashSet<String> = listing.entries.iter().map(|entry| entry.key.to_string()).collect();
    let lost: Vec<&String> = answered.difference(&found).collect();
    assert!(lost.is_empty(), "{} of {} answered writes are gone: {lost:?}", lost.len(), answered.len());
}
