//! What the hands that play a case and the eyes that watch it share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_integration::fuzz::{Book, Kind, Lifetime, Size};

/// How long a worker may take to take notice of an order: a loaded machine is slow.
const NOTICE: u64 = 6000;
/// A process may begin later than its container, by this much.
const SLOW_START: Duration = Duration::from_millis(600);

/// One case as it goes.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) book: Book,
    /// Begin, in milliseconds since the epoch.
    begin: i64,
    /// All that the processes of a container were ever told to do, by its name.
    pub(crate) lives: BTreeMap<String, Vec<Lifetime>>,
    /// Probes that say no.
    pub(crate) bad: BTreeSet<(String, Kind)>,
    /// Containers whose processes the case itself has ended.
    pub(crate) hit: BTreeSet<String>,
    /// Objects that a user has taken away by force.
    pub(crate) forced: BTreeSet<String>,
    /// First processes of running containers and ready sandboxes, by id.
    pub(crate) pids: BTreeMap<String, i32>,
    /// Sizes of running containers, as the kernel has them.
    pub(crate) sizes: BTreeMap<String, Size>,
    /// Objects that the API has, by uid: names.
    pub(crate) objects: BTreeMap<String, String>,
    /// How often the eyes have looked.
    pub(crate) looks: u64,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let mut book = Book::default();
        book.notice = NOTICE;
        Self {
            book,
            begin: jiff::Timestamp::now().as_millisecond(),
            lives: BTreeMap::new(),
            bad: BTreeSet::new(),
            hit: BTreeSet::new(),
            forced: BTreeSet::new(),
            pids: BTreeMap::new(),
            sizes: BTreeMap::new(),
            objects: BTreeMap::new(),
            looks: 0,
        }
    }

    /// Milliseconds since the begin.
    pub(crate) fn now(&self) -> u64 {
        self.at(jiff::Timestamp::now().as_nanosecond())
    }

    /// The same of a moment that the runtime told.
    pub(crate) fn at(&self, nanos: i128) -> u64 {
        u64::try_from(nanos / 1_000_000 - i128::from(self.begin)).unwrap_or(0)
    }

    pub(crate) fn note(&mut self, text: &str) {
        let now = self.now();
        self.book.note(now, text);
    }

    /// Whether a process of a container that ran for so long may have come to its end by itself.
    pub(crate) fn may_have_ended(&self, name: &str, ran: Duration) -> bool {
        let lives = self.lives.get(name).into_iter().flatten();
        lives.filter_map(|life| life.runs_for).any(|time| time <= ran + SLOW_START)
    }
}

pub(crate) fn locked(scene: &Mutex<Scene>) -> MutexGuard<'_, Scene> {
    scene.lock().unwrap_or_else(PoisonError::into_inner)
}
