//! Time and the book, shared by everything in a case.

use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use longshore_integration::fuzz::{Book, Dress, Kind, Part};
use longshore_node::pod::fakes::TokioClock;
use longshore_util::clock::Clock as _;

/// The model.
pub(crate) type SharedBook = Arc<Mutex<Book>>;

/// Time of a case.
pub(crate) type Clocks = TokioClock;

/// So many seconds from now, as the API writes it.
pub(crate) fn stamp(clocks: Clocks, seconds: u64) -> String {
    let then = clocks.now().checked_add(SignedDuration::from_secs(i64::try_from(seconds).unwrap())).unwrap();
    Timestamp::from_second(then.as_second()).unwrap().to_string()
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
