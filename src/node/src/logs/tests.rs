use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{Stream, StreamExt as _};
use longshore_util::Tasks;

use super::*;

struct Flag(Arc<AtomicBool>);

#[async_trait]
impl IsFinished for Flag {
    async fn is_finished(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

fn file(dir: &Path, text: &[u8]) -> PathBuf {
    let path = dir.join("0.log");
    fs::write(&path, text).unwrap();
    path
}

async fn collect(stream: impl Stream<Item = std::io::Result<bytes::Bytes>>) -> String {
    let chunks: Vec<_> = Box::pin(stream).collect().await;
    let bytes: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.unwrap().to_vec()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn read(text: &[u8], options: LogOptions) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), text);
    let finished = Flag(Arc::new(AtomicBool::new(true)));
    collect(open(&path, options, finished, &Tasks::new()).await.unwrap()).await
}

const LOG: &[u8] = b"2026-01-01T00:00:01.5Z stdout F one\n\
    2026-01-01T00:00:02Z stderr P tw\n\
    2026-01-01T00:00:03Z stderr F o\n\
    broken line\n\
    2026-01-01T00:00:04Z stdout F three\n\
    2026-01-01T00:00:05Z stdout F last without newline";

#[tokio::test]
async fn options_shape_the_output() {
    let all = LogOptions::default;
    let since = |text: &str| Some(text.parse().unwrap());
    for (options, want) in [
        (all(), "one\ntwo\nthree\nlast without newline\n"),
        (LogOptions { tail: Some(2), ..all() }, "three\nlast without newline\n"),
        (LogOptions { tail: Some(0), ..all() }, ""),
        (LogOptions { tail: Some(99), ..all() }, "one\ntwo\nthree\nlast without newline\n"),
        (LogOptions { since: since("2026-01-01T00:00:04Z"), ..all() }, "three\nlast without newline\n"),
        (LogOptions { limit: Some(6), ..all() }, "one\ntw"),
        (LogOptions { limit: Some(5), timestamps: true, ..all() }, "2026-"),
        (LogOptions { stream: LogStream::Stderr, ..all() }, "two\n"),
        (LogOptions { timestamps: true, stream: LogStream::Stderr, ..all() }, "2026-01-01T00:00:02.000000000Z two\n"),
        (LogOptions { timestamps: true, limit: Some(34), ..all() }, "2026-01-01T00:00:01.500000000Z one"),
    ] {
        assert_eq!(read(LOG, options.clone()).await, want, "{options:?}");
    }
}

#[tokio::test]
async fn what_is_written_after_the_start_was_found_is_shown_to_followers_alone() {
    for (tail, want) in [(Some(2), "two\nthree\n"), (None, "one\ntwo\nthree\n")] {
        let dir = tempfile::tempdir().unwrap();
        let line = |text: &str| format!("2026-01-01T00:00:01Z stdout F {text}\n");
        let path = file(dir.path(), [line("one"), line("two"), line("three")].concat().as_bytes());
        let finished = || Flag(Arc::new(AtomicBool::new(true)));
        let tasks = Tasks::new();
        let options = LogOptions { tail, ..LogOptions::default() };
        let whole = open(&path, options.clone(), finished(), &tasks).await.unwrap();
        let followed = open(&path, LogOptions { follow: true, ..options }, finished(), &tasks).await.unwrap();
        // On this runtime of one thread no reader has begun yet.
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(line("four").as_bytes()).unwrap();
        assert_eq!(collect(whole).await, want);
        assert_eq!(collect(followed).await, format!("{want}four\n"));
    }
}

#[tokio::test]
async fn a_big_file_comes_whole_and_its_tail_is_found() {
    let mut text = Vec::new();
    for n in 0..20_000 {
        writeln!(text, "2026-01-01T00:00:00.{n:09}Z stdout F line {n}").unwrap();
    }
    let whole = read(&text, LogOptions::default()).await;
    assert_eq!(whole.lines().count(), 20_000);
    assert!(whole.ends_with("line 19999\n"));
    let tail = read(&text, LogOptions { tail: Some(3), ..LogOptions::default() }).await;
    assert_eq!(tail, "line 19997\nline 19998\nline 19999\n");
    assert_eq!(read(&text, LogOptions { tail: Some(5000), ..LogOptions::default() }).await.lines().count(), 5000);
}

#[tokio::test]
async fn an_endless_line_is_left_out_and_the_rest_shown() {
    let mut text = b"2026-01-01T00:00:01Z stdout F a\n2026-01-01T00:00:01Z stdout F ".to_vec();
    text.extend(std::iter::repeat_n(b'x', 3 << 20));
    text.extend(b"\n2026-01-01T00:00:01Z stdout F b\n");
    assert_eq!(read(&text, LogOptions::default()).await, "a\nb\n");
}

#[tokio::test]
async fn an_absent_file_is_an_error_with_its_path() {
    let finished = Flag(Arc::new(AtomicBool::new(true)));
    let Err(error) = open(Path::new("/nowhere/0.log"), LogOptions::default(), finished, &Tasks::new()).await else {
        panic!("opened");
    };
    assert!(error.to_string().starts_with("failed to open log file \"/nowhere/0.log\""), "{error}");
}

#[tokio::test]
async fn following_goes_through_rotation_and_ends_with_the_container() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), b"2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:01Z stdo");
    let ended = Arc::new(AtomicBool::new(false));
    let options = LogOptions { follow: true, ..LogOptions::default() };
    let tasks = Tasks::new();
    let mut stream = Box::pin(open(&path, options, Flag(Arc::clone(&ended)), &tasks).await.unwrap());
    let mut next = async || {
        let chunk = tokio::time::timeout(Duration::from_secs(5), stream.next()).await.expect("in time");
        chunk.map(|chunk| String::from_utf8(chunk.unwrap().to_vec()).unwrap())
    };
    assert_eq!(next().await.as_deref(), Some("one\n"));
    let mut old = fs::OpenOptions::new().append(true).open(&path).unwrap();
    old.write_all(b"ut F two\n").unwrap();
    assert_eq!(next().await.as_deref(), Some("two\n"));
    let rotated = dir.path().join("0.log.20260101-000000");
    fs::rename(&path, &rotated).unwrap();
    old.write_all(b"2026-01-01T00:00:02Z stdout F still old\n").unwrap();
    assert_eq!(next().await.as_deref(), Some("still old\n"));
    file(dir.path(), b"2026-01-01T00:00:03Z stdout F new\n");
    assert_eq!(next().await.as_deref(), Some("new\n"));
    ended.store(true, Ordering::SeqCst);
    assert_eq!(next().await, None);
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_the_task() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), b"2026-01-01T00:00:01Z stdout F one\n");
    let tasks = Tasks::new();
    let options = LogOptions { follow: true, ..LogOptions::default() };
    let stream = open(&path, options, Flag(Arc::new(AtomicBool::new(false))), &tasks).await.unwrap();
    drop(stream);
    tokio::time::timeout(Duration::from_secs(5), tasks.join()).await.expect("the task ended");
}

#[test]
fn the_end_of_a_log_serves_as_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), LOG);
    assert_eq!(last_lines(&path, 2, 2048).unwrap(), b"three\nlast without newline\n");
    assert_eq!(last_lines(&path, 80, 8).unwrap(), b"newline\n");
}

/// Three parts of a log, the oldest packed, and the one that is written.
fn parts(dir: &Path) -> std::path::PathBuf {
    let line = |text: &str| format!("2026-01-01T00:00:01Z stdout F {text}\n").into_bytes();
    super::parts::write_packed(&dir.join("0.log.20260101-000001.gz"), &[line("1"), line("2")].concat());
    fs::write(dir.join("0.log.20260101-000002"), line("3")).unwrap();
    fs::write(dir.join("1.log.20260101-000002"), line("another instance")).unwrap();
    file(dir, &[line("4"), line("5")].concat())
}

#[tokio::test]
async fn rotated_parts_are_read_in_order() {
    for (tail, want) in [
        (None, "1\n2\n3\n4\n5\n"),
        (Some(9), "1\n2\n3\n4\n5\n"),
        (Some(4), "2\n3\n4\n5\n"),
        (Some(3), "3\n4\n5\n"),
        (Some(2), "4\n5\n"),
        (Some(0), ""),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = parts(dir.path());
        let ended = Flag(Arc::new(AtomicBool::new(true)));
        let options = LogOptions { tail, ..LogOptions::default() };
        let stream = open(&path, options, ended, &Tasks::new()).await.unwrap();
        let chunks: Vec<_> = stream.collect().await;
        let text: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.unwrap().to_vec()).collect();
        assert_eq!(String::from_utf8(text).unwrap(), want, "{tail:?}");
    }
}

#[tokio::test]
async fn a_reader_that_is_two_rotations_behind_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let line = |number: usize| format!("2026-01-01T00:00:01Z stdout F {number}\n").into_bytes();
    let path = file(dir.path(), &line(0));
    let ended = Arc::new(AtomicBool::new(false));
    let options = LogOptions { follow: true, ..LogOptions::default() };
    let mut stream = open(&path, options, Flag(Arc::clone(&ended)), &Tasks::new()).await.unwrap();
    let mut seen = stream.next().await.unwrap().unwrap().to_vec();
    // All in one go: the reader is not asked in between.
    for number in 1..4 {
        fs::rename(&path, dir.path().join(format!("0.log.20260101-00000{number}"))).unwrap();
        file(dir.path(), &line(number));
    }
    ended.store(true, Ordering::SeqCst);
    while let Ok(Some(chunk)) = tokio::time::timeout(Duration::from_secs(10), stream.next()).await {
        seen.extend(chunk.unwrap());
    }
    assert_eq!(String::from_utf8(seen).unwrap(), "0\n1\n2\n3\n");
}
