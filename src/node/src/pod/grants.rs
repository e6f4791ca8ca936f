//! Who holds which size, and who may have another one. The table decides over all that ask, one after the other and in
//! order of rank, whenever a spec changes or room appears; each worker finds the outcome in its own [`Grant`].
//!
//! ```text
//! spec changes, a pod goes, the node changes --> settle --> granted: worker puts it into force
//!                                                      \--> pending: worker says so, asked again when room appears
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_api::resize::Sizes;
use longshore_api::resources::Amounts;

use super::table::{Entry, PodTable, Shown, State};
use crate::admit::{self, Decision, Neighbour, Node, Rank};
use crate::journal::{PendingFacts, PodFacts};
use crate::model::{DesiredPod, PodUid};

/// What an admitted pod holds.
#[derive(Debug, Clone)]
pub(super) struct Held {
    /// Its sizes.
    pub(super) sizes: Sizes,
    /// What that takes of the node.
    pub(super) requests: Amounts,
    /// Generation of the spec that asked for them.
    pub(super) generation: Option<i64>,
}

impl Held {
    /// What a pod holds that was granted what its spec asks for.
    pub(super) fn of(pod: &Pod) -> Self {
        Self { sizes: Sizes::of_pod(pod), requests: admit::requests(pod), generation: pod.metadata.generation }
    }

    /// What a pod of the journal holds; older records know no sizes.
    pub(super) fn found(facts: &PodFacts, desired: &DesiredPod) -> Self {
        match &facts.granted {
            Some(sizes) => Self { sizes: sizes.clone(), ..Self::of(&sizes.apply(&desired.pod)) },
            None => Self::of(&desired.pod),
        }
    }
}

/// What a worker is told about the size of its pod.
#[derive(Debug, Clone, Default)]
pub(super) struct Grant {
    /// Counts changes.
    pub(super) version: u64,
    /// What the pod holds; `None` before it is admitted.
    pub(super) held: Option<Held>,
    /// Another size that it asks for and does not get.
    pub(super) pending: Option<Pending>,
    /// The spec asks for another size, and nobody has decided yet.
    pub(super) undecided: bool,
}

/// A size that is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) facts: PendingFacts,
    /// The sizes asked for, for the event.
    pub(super) summary: String,
}

impl Grant {
    /// Notes what the spec asks for now; returns whether that is to be decided over.
    fn asked(&mut self, desired: &DesiredPod) -> bool {
        let Some(held) = &self.held else { return false };
        let ends = desired.pod.metadata.deletion_timestamp.is_some();
        let asks = !ends && !held.sizes.same(&Sizes::of_pod(&desired.pod));
        let decided = self.pending.as_ref().is_some_and(|p| p.facts.generation == desired.pod.metadata.generation);
        if !asks && (self.pending.is_some() || self.undecided) {
            self.pending = None;
            self.undecided = false;
            self.version += 1;
        }
        self.undecided = asks && !decided;
        self.undecided
    }

    fn asks(&self) -> bool {
        self.undecided || self.pending.is_some()
    }
}

/// While this lives, room is being made for a critical pod: nobody else may take it.
#[derive(Debug)]
pub(super) struct MakingRoom(PodTable);

impl Drop for MakingRoom {
    fn drop(&mut self) {
        self.0.makers().fetch_sub(1, Ordering::AcqRel);
        self.0.settle("pods_added");
    }
}

impl Shown {
    /// What is new about its pod's size for a worker that has seen a version.
    pub(super) fn grant_since(&self, seen: u64) -> Option<Grant> {
        let grant = self.grant.lock();
        (grant.version != seen).then(|| grant.clone())
    }

    /// Whether the spec asks for another size and nobody has decided yet.
    pub(super) fn undecided(&self) -> bool {
        self.grant.lock().undecided
    }

    /// The pod holds these sizes from now on.
    pub(super) fn hold(&self, held: Held) {
        let mut grant = self.grant.lock();
        grant.held = Some(held);
        grant.version += 1;
    }

    /// Takes over what an earlier agent granted; returns whether the pod asks for another size.
    pub(super) fn restore(&self, facts: &PodFacts, desired: &DesiredPod) -> bool {
        let mut grant = self.grant.lock();
        grant.held = Some(Held::found(facts, desired));
        grant.pending = facts.pending.clone().map(|facts| Pending { facts, summary: String::new() });
        grant.version += 1;
        grant.asked(desired);
        grant.asks()
    }

    /// Notes what a newer object asks for; returns whether that is to be decided over.
    pub(super) fn asked(&self, desired: &DesiredPod) -> bool {
        self.grant.lock().asked(desired)
    }
}

impl State {
    /// The pods other than `uid` that hold a place on the node, also those that no source has named yet.
    pub(super) fn neighbours(&self, uid: &PodUid) -> Vec<Neighbour> {
        let named = self.pods.iter().filter(|(other, entry)| *other != uid && entry.shown.holds_place());
        let unclaimed = self.found.iter().filter(|(other, found)| *other != uid && found.facts.holds_place());
        named
            .map(|(_, entry)| {
                let mut neighbour = Neighbour::of(&entry.shown.desired());
                if let Some(held) = &entry.shown.grant.lock().held {
                    neighbour.requests.clone_from(&held.requests);
                }
                neighbour
            })
            .chain(unclaimed.map(|(other, found)| Neighbour {
                uid: other.clone(),
                requests: found.facts.requests.clone(),
                pod: None,
                is_static: false,
            }))
            .collect()
    }

    /// Decides over what one pod asks for; returns whether its worker has news.
    fn settle_one(&self, uid: &PodUid, node: &Node, now: Timestamp) -> Option<Settled> {
        let entry = self.pods.get(uid)?;
        let desired = entry.shown.desired();
        let held = entry.shown.grant.lock().held.clone()?;
        let verdict = admit::resize(&desired, &held.sizes.apply(&desired.pod), node, &self.neighbours(uid));
        let generation = desired.pod.metadata.generation;
        let mut grant = entry.shown.grant.lock();
        grant.undecided = false;
        let before = grant.pending.take();
        let settled = match verdict {
            Ok(()) => {
                grant.held = Some(Held::of(&desired.pod));
                Settled { news: true, granted: true, was_pending: before.is_some(), detail: "" }
            }
            Err(not) => {
                let spec = desired.pod.spec.as_ref()?;
                let told =
                    before.as_ref().map(|p| (p.facts.reason.as_str(), p.facts.message.as_str(), p.facts.generation));
                let news = told != Some((not.reason, not.message.as_str(), generation));
                let facts = PendingFacts {
                    reason: not.reason.to_owned(),
                    message: not.message.clone(),
                    generation,
                    since: before.as_ref().map_or(now, |p| p.facts.since),
                };
                let number = generation.unwrap_or(0);
                let summary = longshore_api::resize::summary(spec, number, Some(&not.message));
                grant.pending = Some(Pending { facts, summary });
                Settled { news, granted: false, was_pending: before.is_some(), detail: not.detail }
            }
        };
        if settled.news {
            grant.version += 1;
            drop(grant);
            entry.inbox.nudge();
        }
        Some(settled)
    }
}

struct Settled {
    news: bool,
    granted: bool,
    was_pending: bool,
    detail: &'static str,
}

impl PodTable {
    /// Decides over all sizes that are asked for and not granted. Not before every source has spoken: pods that run and
    /// were not named yet hold a place, too.
    pub(super) fn settle(&self, trigger: &'static str) {
        let asks = |entry: &Entry| entry.shown.holds_place() && entry.shown.grant.lock().asks();
        let open = |state: &State| state.sources_ready && self.makers().load(Ordering::Acquire) == 0;
        {
            let state = self.state();
            if !open(&state) {
                return;
            }
            if !state.pods.values().any(asks) {
                self.context().options.metrics.resizes.set_pending(0, 0);
                return;
            }
        }
        let options = &self.context().options;
        let (node, now) = (options.grounds.node(), options.clock.now());
        let state = self.state();
        if !open(&state) {
            return;
        }
        let mut queue: Vec<(Rank, PodUid)> = state
            .pods
            .iter()
            .filter(|(_, entry)| asks(entry))
            .filter_map(|(uid, entry)| {
                let grant = entry.shown.grant.lock();
                let since = grant.pending.as_ref().map(|pending| pending.facts.since);
                let (asked, held) = (entry.shown.desired().pod, grant.held.as_ref()?);
                Some((Rank::of(&asked, &held.sizes.apply(&asked), since), uid.clone()))
            })
            .collect();
        queue.sort();
        let metrics = &options.metrics.resizes;
        for (_, uid) in queue {
            let Some(settled) = state.settle_one(&uid, &node, now) else { continue };
            if settled.granted && settled.was_pending {
                metrics.accepted_late(trigger);
            }
            if settled.news && !settled.detail.is_empty() {
                metrics.infeasible(settled.detail);
            }
        }
        let count = |reason: &str| {
            let pending = |entry: &&Entry| {
                asks(entry)
                    && entry.shown.grant.lock().pending.as_ref().is_some_and(|pending| pending.facts.reason == reason)
            };
            i64::try_from(state.pods.values().filter(pending).count()).unwrap_or(i64::MAX)
        };
        metrics.set_pending(count(admit::DEFERRED), count(admit::INFEASIBLE));
    }

    /// Decides whether a pod may run; from a yes on it holds its place.
    pub(super) fn judge(&self, desired: &DesiredPod, node: &Node, shown: &Arc<Shown>) -> Decision {
        let state = self.state();
        let decision = admit::decide(desired, node, &state.neighbours(&desired.uid));
        if decision == Decision::Admit {
            shown.hold(Held::of(&desired.pod));
            shown.set_admitted();
            // The object may have changed while the pod waited for its turn.
            shown.asked(&shown.desired());
        }
        decision
    }

    /// From now on nobody but the caller's pod may take the room that appears.
    pub(super) fn make_room(&self) -> MakingRoom {
        self.makers().fetch_add(1, Ordering::AcqRel);
        MakingRoom(self.clone())
    }

    pub(super) fn makers(&self) -> &AtomicUsize {
        &self.inner().makers
    }
}
