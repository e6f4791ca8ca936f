//! One worker per pod: a task that owns what was observed of the pod and takes its next step whenever its bell rings.
//!
//! ```text
//! Sync --(deleted, removed, deadline, evicted, nothing left to run)--> Ending --(all released)--> Ended --(removed)--> gone
//! ```
//! Never backwards. From the moment `Ending` is entered nothing of the pod may start.

mod admission;
mod end;
mod facts;
mod memory;
mod network;
mod pass;
mod retry;
mod stuck;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use longshore_cri::SharedRuntime;
use longshore_util::Tasks;
use longshore_util::backoff::Backoff;
use longshore_util::clock::SharedClock;

pub(in crate::pod) use self::network::Network;
pub use self::network::NetworkState;
use super::inbox::{Inbox, merge_end};
use super::observed::Observed;
use super::plan::{BackoffRule, HeldBack, Wanted};
use super::ports::{Failure, PodCgroups, Prepare, PulledImage, StatusSink};
use super::slots::{PARALLEL_STOPS, Slots, parallel_starts};
use super::table::{Found, PodTable, Shown};
use super::turns::Turn;
use super::{resize, wanted};
use crate::admit::Grounds;
use crate::event::{EventRecorder, EventTarget};
use crate::journal::{EndFacts, Journal, PodFacts, Verdict};
use crate::model::annotations::revision;
use crate::model::{ContainerId, DesiredPod, MemoryKills};
use crate::probe::Probes;
use crate::telemetry::PodMetrics;

/// What the table and its workers work with.
#[derive(Debug, Clone)]
pub struct PodTableOptions {
    /// The node's name.
    pub node_name: String,
    /// What admission knows of the node.
    pub grounds: Arc<dyn Grounds>,
    /// The runtime.
    pub runtime: SharedRuntime,
    /// The runtime's name, the scheme of container ids.
    pub runtime_name: String,
    /// Volumes, images, configurations.
    pub prepare: Arc<dyn Prepare>,
    /// Pod cgroups.
    pub cgroups: Arc<dyn PodCgroups>,
    /// Where statuses go.
    pub statuses: Arc<dyn StatusSink>,
    /// Events.
    pub events: EventRecorder,
    /// Figures of pods and containers.
    pub metrics: PodMetrics,
    /// Probes.
    pub probes: Probes,
    /// Facts.
    pub journal: Journal,
    /// Wall-clock time.
    pub clock: SharedClock,
    /// `/var/log/containers`, where upstream keeps one link per container.
    pub legacy_logs: PathBuf,
    /// Delays between restarts.
    pub backoff: BackoffRule,
    /// Signals that end containers are shown (upstream's gate `ContainerStopSignals`).
    pub stop_signals: bool,
    /// Where the kernel killed for memory.
    pub kills: MemoryKills,
    /// The node's addresses, primary first; may change while the agent runs.
    pub host_ips: Arc<arc_swap::ArcSwap<Vec<String>>>,
}

/// Options plus what all workers share.
#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) options: Arc<PodTableOptions>,
    pub(super) starts: Slots,
    pub(super) stops: Slots,
    pub(super) backoff: BackoffRule,
    pub(super) tasks: Tasks,
    pub(super) changes: Arc<Changes>,
    pub(super) network: Arc<Network>,
}

type Told = Box<dyn Fn() + Send + Sync>;

/// Whom to tell that the runtime is about to report something.
#[derive(Default)]
pub(super) struct Changes(std::sync::OnceLock<Told>);

impl Changes {
    pub(super) fn set(&self, told: Told) {
        drop(self.0.set(told));
    }

    pub(super) fn tell(&self) {
        if let Some(told) = self.0.get() {
            told();
        }
    }
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Changes")
    }
}

impl Context {
    pub(super) fn new(options: PodTableOptions, tasks: Tasks) -> Self {
        Self {
            backoff: options.backoff,
            options: Arc::new(options),
            starts: Slots::new(parallel_starts()),
            stops: Slots::new(PARALLEL_STOPS),
            tasks,
            changes: Arc::default(),
            network: Arc::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It should run.
    Sync,
    /// It was told to end.
    Ending,
    /// Nothing of it is left but its records.
    Ended,
}

/// Why a container waits, as shown in its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) reason: String,
    pub(super) message: String,
}

/// An image on its way; the task fills the cell and rings the bell.
#[derive(Debug)]
pub(super) struct Pull {
    pub(super) outcome: Arc<parking_lot::Mutex<Option<Result<PulledImage, Failure>>>>,
    pub(super) task: tokio::task::AbortHandle,
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) cx: Context,
    pub(super) desired: DesiredPod,
    pub(super) wanted: Wanted,
    pub(super) inbox: Arc<Inbox>,
    pub(super) shown: Arc<Shown>,
    pub(super) table: PodTable,
    pub(super) stage: Stage,
    pub(super) removed: bool,
    pub(super) facts: PodFacts,
    /// Version of the grant that was last taken over.
    pub(super) grant_seen: u64,
    /// Whether facts changed since they were put into the journal.
    pub(super) unsaved: bool,
    /// Its place in the queue of pods to be admitted.
    pub(super) turn: Option<Turn>,
    /// Whether others have gone since it was refused.
    pub(super) room: bool,
    pub(super) observed: Observed,
    /// Whether `observed` holds all that is known; a wake-up or an interrupted pass makes it stale.
    pub(super) fresh: bool,
    /// Whether cgroup and volumes stand.
    pub(super) prepared: bool,
    /// Containers whose last try failed, and when to try again.
    pub(super) holds: BTreeMap<String, Timestamp>,
    /// Growing delays of failing steps, by container or step.
    pub(super) retries: BTreeMap<String, Backoff>,
    /// What could not be removed at the end, as it was last told, by step.
    complaints: BTreeMap<&'static str, String>,
    pub(super) waiting: BTreeMap<String, Waiting>,
    pub(super) held_back: Vec<HeldBack>,
    /// Whether all containers are being put back to the beginning.
    pub(super) restarts_all: bool,
    /// Attempt of which the restart delay was last told in an event.
    pub(super) told: BTreeMap<String, u32>,
    pub(super) pulls: BTreeMap<String, Pull>,
    network_told: Option<network::Told>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) published: Option<(Arc<PodStatus>, bool)>,
    /// Held by a create or start in flight, which goes on when its pass is interrupted.
    pub(super) calls: Arc<tokio::sync::Mutex<()>>,
    /// The container last made by this agent, by name: what becomes of its start is its own doing.
    pub(super) made: BTreeMap<String, ContainerId>,
    /// Containers whose hook before the stop has been run.
    pub(super) hooked: BTreeSet<ContainerId>,
    /// What holds up the whole pod.
    pub(super) stuck: Option<stuck::Stuck>,
}

/// Seconds that a pod gets whose API object was deleted by force.
const FORCED_GRACE: i64 = 2;

impl Worker {
    pub(super) fn new(
        cx: Context,
        desired: DesiredPod,
        inbox: Arc<Inbox>,
        shown: Arc<Shown>,
        found: Found,
        turn: Option<Turn>,
        table: PodTable,
    ) -> Self {
        Self {
            wanted: wanted::wanted(&desired.pod),
            cx,
            desired,
            inbox,
            shown,
            table,
            stage: Stage::Sync,
            removed: false,
            facts: found.facts,
            grant_seen: 0,
            unsaved: true,
            turn,
            room: false,
            observed: found.observed,
            fresh: false,
            prepared: false,
            holds: BTreeMap::new(),
            retries: BTreeMap::new(),
            complaints: BTreeMap::new(),
            waiting: BTreeMap::new(),
            held_back: Vec::new(),
            restarts_all: false,
            told: BTreeMap::new(),
            pulls: BTreeMap::new(),
            network_told: None,
            wake_at: None,
            published: None,
            calls: Arc::default(),
            made: BTreeMap::new(),
            hooked: BTreeSet::new(),
            stuck: None,
        }
    }

    /// Runs until the pod is gone from the node or the agent stops.
    pub(super) async fn run(mut self) {
        let token = self.cx.tasks.token().clone();
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = self.live() => {}
        }
    }

    async fn live(&mut self) {
        self.begin();
        loop {
            self.absorb();
            let before = self.stage;
            match self.stage {
                Stage::Sync => {
                    let inbox = Arc::clone(&self.inbox);
                    tokio::select! {
                        biased;
                        () = inbox.urgent() => {
                            // Whatever was in flight is found by the next look.
                            self.fresh = false;
                            continue;
                        }
                        () = Box::pin(self.pass_or_judge()) => {}
                    }
                }
                Stage::Ending => Box::pin(self.end()).await,
                Stage::Ended => {
                    if self.waits_for_room() {
                        let inbox = Arc::clone(&self.inbox);
                        tokio::select! {
                            biased;
                            () = inbox.urgent() => continue,
                            () = Box::pin(self.judge()) => {}
                        }
                        if self.stage == Stage::Sync {
                            continue;
                        }
                    }
                    if Box::pin(self.after_end()).await {
                        return;
                    }
                }
            }
            self.save();
            // A new stage has things to do that nothing rings for: a pod of which nothing ran has no events either.
            if self.stage == Stage::Ending || self.stage != before {
                continue;
            }
            self.sleep().await;
        }
    }

    /// The next step of a pod that is wanted.
    async fn pass_or_judge(&mut self) {
        if self.facts.admission.is_none() {
            self.judge().await;
        }
        if self.facts.admission == Some(Verdict::Admitted) {
            self.pass().await;
        }
    }

    /// Waits for news or for the time that the last pass asked for.
    async fn sleep(&self) {
        let Some(wake_at) = self.wake_at else { return self.inbox.rung().await };
        let pause = Duration::try_from(wake_at.duration_since(self.now())).unwrap_or_default();
        tokio::select! {
            biased;
            () = self.inbox.rung() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    /// First look at the pod: what is known of it decides where its life goes on.
    fn begin(&mut self) {
        if self.facts.admission.is_none() {
            self.facts.granted = resize::reported(&self.desired.pod);
        }
        self.desired = self.as_granted(self.desired.clone());
        if self.facts.resize.is_some() {
            self.cx.options.metrics.resizes.set_in_progress(true);
        }
        let pod = Arc::clone(&self.desired.pod);
        let status = pod.status.as_ref();
        self.facts.namespace = self.desired.key.namespace.to_string();
        self.facts.name = self.desired.key.name.to_string();
        if self.facts.source.is_none() {
            // Once: while an older manifest's pod ends under the same uid, the facts are that pod's.
            self.facts.source = Some(self.desired.source);
            self.facts.revision = revision(&pod).map(str::to_owned);
        }
        if self.facts.start_time.is_none() {
            // An API pod that another agent ran before keeps its start.
            self.facts.start_time =
                Some(status.and_then(|s| s.start_time.as_ref()).map_or_else(|| self.now(), |t| t.0));
        }
        if self.facts.ended {
            // No look at the runtime follows: the facts are all there is.
            self.recall();
        }
        let over = matches!(status.and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"));
        if self.facts.ended {
            self.stage = Stage::Ended;
            self.shown.set_over();
            // The node may be another one than the one that refused it.
            self.room = true;
            if self.waits_for_room() {
                self.shown.set_refused();
            }
        } else if over || self.facts.end.is_some() {
            self.order_end(EndFacts::default());
        }
        if self.stage != Stage::Ended && pod.metadata.deletion_timestamp.is_some() {
            // Deleted, or deleted once more with less grace, while no agent ran: the first object that comes in says so,
            // and no later one will.
            self.order_end(EndFacts {
                grace_seconds: pod.metadata.deletion_grace_period_seconds,
                ..EndFacts::default()
            });
        }
        if self.stage != Stage::Sync {
            // Nothing is asked for; those behind it must not wait.
            self.turn = None;
        }
        self.unsaved = true;
        self.save();
    }

    /// Takes what came in.
    pub(super) fn absorb(&mut self) {
        let news = self.inbox.take();
        if news.stale {
            self.fresh = false;
        }
        self.room |= news.room;
        self.take_grant();
        if let Some(desired) = news.desired {
            let desired = self.as_granted(desired);
            let meta = &desired.pod.metadata;
            if meta.deletion_timestamp.is_some() {
                self.order_end(EndFacts { grace_seconds: meta.deletion_grace_period_seconds, ..EndFacts::default() });
            }
            if desired.pod.spec != self.desired.pod.spec {
                self.wanted = wanted::wanted(&desired.pod);
                self.prepared = false;
            }
            self.desired = desired;
        }
        if news.removed {
            self.removed = true;
            self.facts.left = true;
            self.unsaved = true;
            self.order_end(EndFacts { grace_seconds: self.grace_of_removal(), ..EndFacts::default() });
        }
        if let Some(order) = news.end {
            self.order_end(order);
        }
        if news.retry && self.stage == Stage::Sync {
            self.forget_delays();
        }
    }

    /// Grace of a pod whose source let go of it. An API object that goes before the agent has let go of it was deleted by
    /// force: nobody counts on the pod any more, and nobody could stop it later.
    fn grace_of_removal(&self) -> Option<i64> {
        let asked = self.desired.pod.metadata.deletion_grace_period_seconds;
        if self.desired.source.is_static() { asked } else { Some(asked.map_or(FORCED_GRACE, |a| a.min(FORCED_GRACE))) }
    }

    /// Notes the order to end; grace may only shrink.
    pub(super) fn order_end(&mut self, order: EndFacts) {
        self.turn = None;
        if self.stage == Stage::Ended {
            return;
        }
        let before = self.facts.end.clone();
        // The pod's own grace is as much a bound as one that was asked for: a later delete with more does not lift it.
        let own = wanted::spec_grace(&self.desired.pod);
        match &mut self.facts.end {
            Some(end) => {
                // Records of older agents may have none.
                end.grace_seconds.get_or_insert(own);
                merge_end(end, order);
            }
            None => {
                let grace_seconds = Some(order.grace_seconds.unwrap_or(own));
                self.facts.end = Some(EndFacts { grace_seconds, ..order });
            }
        }
        if before != self.facts.end {
            self.unsaved = true;
        }
        self.stage = Stage::Ending;
    }

    /// Hands changed facts to the journal.
    pub(super) fn save(&mut self) {
        if self.unsaved {
            self.unsaved = false;
            drop(self.cx.options.journal.put(&self.desired.uid, self.facts.clone()));
        }
    }

    /// Hands facts to the journal and waits until they are in the file: for intents.
    pub(super) async fn save_and_wait(&mut self) {
        self.unsaved = false;
        let ticket = self.cx.options.journal.put(&self.desired.uid, self.facts.clone());
        self.cx.options.journal.written(ticket).await;
    }

    pub(super) fn now(&self) -> Timestamp {
        self.cx.options.clock.now()
    }

    pub(in crate::pod) fn wake_by(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |old| old.min(at)));
    }

    pub(super) fn target(&self) -> EventTarget {
        EventTarget::pod(&self.desired)
    }

    pub(super) fn events(&self) -> &EventRecorder {
        &self.cx.options.events
    }
}
