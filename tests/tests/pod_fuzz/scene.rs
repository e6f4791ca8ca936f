//! Time and the book, shared by everything in a case.

use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use longshore_integration::fuzz::{Book, Dress, Kind, Part};
use longshore_util::clock::Clock;
use tokio::time::Instant;

/// The model.
pub(crate) type SharedBook = Arc<Mutex<Book>>;

/// A wall clock that goes with tokio's paused one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clocks {
    epoch: Timestamp,
    begin: Instant,
}

impl Clocks {
    pub(crate) fn start() -> Self {
        Self { epoch: Timestamp::from_second(1_800_000_000).unwrap(), begin: Instant::now() }
    }

    /// Milliseconds since the beginning.
    pub(crate) fn at(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap()
    }

    /// Now and so many seconds, as the API writes it.
    pub(crate) fn stamp(&self, seconds: u64) -> String {
        let then = self.now().checked_add(SignedDuration::from_secs(i64::try_from(seconds).unwrap())).unwrap();
        Timestamp::from_second(then.as_second()).unwrap().to_string()
    }
}

impl Clock for Clocks {
    fn now(&self) -> Timestamp {
        self.epoch.checked_add(SignedDuration::try_from(self.begin.elapsed()).unwrap()).unwrap()
    }
}

/// Pods for the fake runtime.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FakeDress;

impl Dress for FakeDress {
    fn image(&self, number: u64) -> String {
        format!("img:{number}")
    }

    fn command(&self, _part: &Part) -> Option<Vec<String>> {
        None
    }

    fn probe(&self, part: &Part, kind: Kind) -> Vec<String> {
        vec!["probe".to_owned(), kind.word().to_owned(), part.name.clone()]
    }

    fn hook(&self, part: &Part, when: &str) -> Vec<String> {
        vec!["hook".to_owned(), when.to_owned(), part.name.clone()]
    }
}
