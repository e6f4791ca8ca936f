//! Delays of steps that failed, and what ends them before their time.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use longshore_util::backoff::Backoff;

use super::Worker;
use crate::journal::FirstFailure;
use crate::model::{ContainerNotes, EndView};
use crate::pod::plan::later;

/// First and longest pause between tries of a failing step.
const RETRY_BASE: Duration = Duration::from_secs(1);
const RETRY_CAP: Duration = Duration::from_secs(20);

impl Worker {
    /// When to try a failing step again; grows with each call until [`Worker::succeeded`].
    pub(in crate::pod) fn retry_at(&mut self, step: &str, wanted: Option<Duration>) -> Timestamp {
        let seed = longshore_api::hash::fnv64(self.desired.uid.as_str().as_bytes());
        let backoff = self.retries.entry(step.to_owned()).or_insert_with(|| Backoff::new(RETRY_BASE, RETRY_CAP, seed));
        let delay = backoff.next_delay();
        later(self.cx.options.clock.now(), wanted.unwrap_or(delay))
    }

    /// Forgets the failures of a step.
    pub(in crate::pod) fn succeeded(&mut self, step: &str) {
        self.retries.remove(step);
    }

    /// Somebody at the machine has mended the cause: everything that waits after failures is tried at once, and further
    /// failures begin with the shortest delay.
    pub(super) fn forget_delays(&mut self) {
        tracing::info!(pod = %self.desired.key, "all delays are forgotten, as was asked for");
        self.holds.clear();
        self.retries.clear();
        self.cx.options.prepare.forget_delays(&self.desired.uid);
        for facts in self.facts.containers.values_mut() {
            facts.backoff = None;
        }
        self.unsaved = true;
    }

    /// What people at the machine may want to know of the containers beyond their status.
    pub(in crate::pod) fn notes(&self) -> BTreeMap<String, ContainerNotes> {
        let mut notes: BTreeMap<String, ContainerNotes> = BTreeMap::new();
        for (name, facts) in &self.facts.containers {
            if let Some(first) = &facts.first_failure {
                notes.entry(name.clone()).or_default().first_failure = Some(view(first));
            }
        }
        for held in &self.held_back {
            notes.entry(held.name.clone()).or_default().next_try = Some(held.until);
        }
        for (name, until) in self.holds.iter().filter(|(name, _)| self.waiting.contains_key(*name)) {
            notes.entry(name.clone()).or_default().next_try = Some(*until);
        }
        notes
    }
}

fn view(first: &FirstFailure) -> EndView {
    let moment = Timestamp::from_nanosecond(i128::from(first.exit.finished_at)).ok();
    EndView {
        restarts: first.attempt,
        code: first.exit.code,
        reason: first.exit.reason.clone(),
        message: first.exit.message.clone(),
        finished_at: moment.filter(|moment| *moment > Timestamp::UNIX_EPOCH),
    }
}
