//! A writer for tests: on the caller's thread, so that paused time stands still while it writes, and yet as late as the
//! real one: what was put a moment ago is lost when the agent is killed.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::PodFacts;
use super::log::Log;
use crate::model::PodUid;

/// After this time a thread has certainly written what was put.
const LATE: Duration = Duration::from_millis(1);

type Late = (Instant, PodUid, Option<PodFacts>);

#[derive(Debug)]
struct State {
    log: Log,
    waiting: Vec<Late>,
    dead: bool,
}

/// The writer.
#[derive(Debug)]
pub(super) struct Inline {
    state: Mutex<State>,
}

impl Inline {
    pub(super) fn new(log: Log) -> Self {
        Self { state: Mutex::new(State { log, waiting: Vec::new(), dead: false }) }
    }

    /// Takes a record and writes those that have waited long enough.
    pub(super) fn put(&self, uid: PodUid, facts: Option<PodFacts>) {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.waiting.push((now, uid, facts));
        state.write(|at| now.duration_since(at) >= LATE);
    }

    /// Writes everything.
    pub(super) fn write_all(&self) {
        self.state.lock().write(|_| true);
    }

    /// Writes nothing from now on; with `lose`, not even what was put in this moment.
    pub(super) fn die(&self, lose: bool) {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.write(|at| !lose || now.duration_since(at) >= LATE);
        state.dead = true;
    }
}

impl State {
    fn write(&mut self, is_due: impl Fn(Instant) -> bool) {
        if self.dead {
            self.waiting.clear();
            return;
        }
        let count = self.waiting.iter().take_while(|(at, ..)| is_due(*at)).count();
        let due: Vec<_> = self.waiting.drain(..count).map(|(_, uid, facts)| (uid, facts)).collect();
        if due.is_empty() {
            return;
        }
        if let Err(error) = self.log.append(&due) {
            tracing::error!(%error, "journal cannot be written");
        }
        if self.log.is_bloated()
            && let Err(error) = self.log.compact()
        {
            tracing::error!(%error, "journal cannot be rewritten");
        }
    }
}

impl Drop for Inline {
    fn drop(&mut self) {
        self.write_all();
    }
}
