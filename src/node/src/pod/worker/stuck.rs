//! What keeps a whole pod from starting, its volumes or its sandbox, and since when: once that has lasted, the status says
//! so, because events are gone after an hour.

use std::time::Duration;

use jiff::Timestamp;

use super::Worker;
use crate::pod::plan::later;

/// How long it must last: what passes shows as the stock agent's.
const SHOWN_AFTER: Duration = Duration::from_secs(90);

/// Why no container of the pod can start.
#[derive(Debug)]
pub(in crate::pod) struct Stuck {
    since: Timestamp,
    message: String,
}

impl Worker {
    /// Notes what keeps the whole pod from starting, and since when something does.
    pub(in crate::pod) fn stuck_on(&mut self, message: String) {
        let since = self.stuck.as_ref().map_or_else(|| self.now(), |stuck| stuck.since);
        self.stuck = Some(Stuck { since, message });
    }

    /// What has kept the pod from starting for long.
    pub(in crate::pod) fn stuck_message(&self, now: Timestamp) -> Option<&str> {
        let stuck = self.stuck.as_ref()?;
        (later(stuck.since, SHOWN_AFTER) <= now).then_some(stuck.message.as_str())
    }
}
