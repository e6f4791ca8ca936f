//! The desired table: takes changes from the sources, keeps one worker per pod, answers readers.
//!
//! Two pods of one name never run at once: a newer static pod waits until the older one of that name has ended. A pod
//! that comes back under its old uid while it is still ending is started anew once that end is complete.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::PodStatus;
use longshore_util::{Tasks, spawn};
use parking_lot::{Mutex, RwLock};

use super::grants::Grant;
use super::inbox::Inbox;
use super::observed::Observed;
use super::turns::{Turn, Turns};
use super::worker::{Context, NetworkState, Worker};
use crate::journal::PodFacts;
use crate::model::annotations::revision;
use crate::model::{
    ContainerNotes, DesiredPod, MirrorUid, PodChange, PodControl, PodKey, PodSink, PodUid, PodView, ReadPods, Terminate,
};

pub use super::worker::PodTableOptions;

/// What readers see of a pod; written by its worker.
#[derive(Debug)]
pub(super) struct Shown {
    view: RwLock<PodView>,
    place: AtomicU8,
    pub(super) grant: Mutex<Grant>,
    pub(super) notes: Mutex<BTreeMap<String, ContainerNotes>>,
}

/// How a pod stands to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Place {
    /// Not judged yet.
    Asks = 0,
    /// It holds what it asked for.
    Holds = 1,
    /// It holds nothing any more.
    Over = 2,
    /// It was refused, and is judged again when others have gone.
    Refused = 3,
}

impl Shown {
    fn new(desired: DesiredPod, mirror: Option<MirrorUid>) -> Self {
        let view = PodView { desired, status: None, mirror };
        Self {
            view: RwLock::new(view),
            place: AtomicU8::new(Place::Asks as u8),
            grant: Mutex::default(),
            notes: Mutex::default(),
        }
    }

    /// The newest object.
    pub(super) fn desired(&self) -> DesiredPod {
        self.view.read().desired.clone()
    }

    /// Whether the pod holds what it was granted.
    pub(super) fn holds_place(&self) -> bool {
        self.is(Place::Holds)
    }

    /// Takes a newer object; returns the one before.
    fn set_desired(&self, desired: DesiredPod) -> DesiredPod {
        std::mem::replace(&mut self.view.write().desired, desired)
    }

    /// The newest status.
    pub(super) fn set_status(&self, status: Arc<PodStatus>) {
        self.view.write().status = Some(status);
    }

    /// The pod holds nothing any more.
    pub(super) fn set_over(&self) {
        self.set_place(Place::Over);
    }

    /// The pod was admitted.
    pub(super) fn set_admitted(&self) {
        self.set_place(Place::Holds);
    }

    /// The pod was refused.
    pub(super) fn set_refused(&self) {
        self.set_place(Place::Refused);
    }

    fn set_place(&self, place: Place) {
        self.place.store(place as u8, Ordering::Relaxed);
    }

    fn is(&self, place: Place) -> bool {
        self.place.load(Ordering::Relaxed) == place as u8
    }

    /// The mirror's uid, if known.
    pub(super) fn mirror(&self) -> Option<MirrorUid> {
        self.view.read().mirror.clone()
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) inbox: Arc<Inbox>,
    pub(super) shown: Arc<Shown>,
    /// Whether its worker was started; not yet while another pod of that name is ending.
    running: bool,
    /// Removed by its source and on its way out.
    pub(super) leaving: bool,
    /// Came back under the same uid while leaving.
    again: Option<DesiredPod>,
}

impl Entry {
    pub(super) fn new(desired: &DesiredPod, mirror: Option<MirrorUid>) -> Self {
        Self {
            inbox: Arc::default(),
            shown: Arc::new(Shown::new(desired.clone(), mirror)),
            running: false,
            leaving: false,
            again: None,
        }
    }
}

/// What was found at start.
#[derive(Debug, Default)]
pub struct Found {
    /// Facts of the journal.
    pub facts: PodFacts,
    /// The runtime's side.
    pub observed: Observed,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) pods: BTreeMap<PodUid, Entry>,
    pub(super) found: BTreeMap<PodUid, Found>,
    /// Mirrors in the API, also of pods that are still to come or come back: they are told of once.
    pub(super) mirrors: HashMap<PodUid, MirrorUid>,
    pub(super) sources_ready: bool,
}

#[derive(Debug)]
pub(super) struct Inner {
    state: Mutex<State>,
    context: Context,
    tasks: Tasks,
    ready: tokio::sync::watch::Sender<bool>,
    turns: Turns,
    /// Counts pods that gave back what they held.
    departures: tokio::sync::watch::Sender<u64>,
    /// Pods for which room is being made.
    pub(super) makers: AtomicUsize,
}

/// The desired table; clones share it.
#[derive(Debug, Clone)]
pub struct PodTable(Arc<Inner>);

impl PodTable {
    /// Builds the table. `found` is what the first look at the runtime and the journal gave.
    pub fn new(options: PodTableOptions, found: HashMap<PodUid, Found>, tasks: &Tasks) -> Self {
        let context = Context::new(options, tasks.clone());
        let state = Mutex::new(State { found: found.into_iter().collect(), ..State::default() });
        Self(Arc::new(Inner {
            state,
            context,
            tasks: tasks.clone(),
            ready: tokio::sync::watch::Sender::new(false),
            turns: Turns::default(),
            departures: tokio::sync::watch::Sender::new(0),
            makers: AtomicUsize::new(0),
        }))
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }

    pub(super) fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.0.state.lock()
    }

    pub(super) fn context(&self) -> &Context {
        &self.0.context
    }

    /// Waits until every source has spoken: from then on what no source wants may be cleaned.
    pub async fn sources_ready(&self) {
        let mut ready = self.0.ready.subscribe();
        if ready.wait_for(|ready| *ready).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Says whether the uid is known, also while it is on its way out.
    pub fn knows(&self, uid: &PodUid) -> bool {
        self.0.state.lock().pods.contains_key(uid)
    }

    /// Calls `told` whenever a worker has asked the runtime for a change that it will report later.
    pub fn on_change(&self, told: impl Fn() + Send + Sync + 'static) {
        self.0.context.changes.set(Box::new(told));
    }

    /// Notes whether pods can get a network of their own; those that waited for one go on.
    pub fn set_network(&self, state: NetworkState) {
        if self.0.context.network.set(state) {
            self.nudge_all();
        }
    }

    /// Rings every bell: what workers waited for, like an answer of the runtime, may be there.
    pub fn nudge_all(&self) {
        for entry in self.0.state.lock().pods.values() {
            entry.inbox.nudge();
        }
    }

    /// Notes or clears the mirror of a static pod.
    pub fn set_mirror(&self, uid: &PodUid, mirror: Option<MirrorUid>) {
        let mut state = self.0.state.lock();
        match &mirror {
            Some(mirror) => drop(state.mirrors.insert(uid.clone(), mirror.clone())),
            None => drop(state.mirrors.remove(uid)),
        }
        if let Some(entry) = state.pods.get(uid) {
            entry.shown.view.write().mirror = mirror;
            entry.inbox.nudge();
        }
    }

    /// Uids of which the journal or the first look knows but that no source has named yet.
    pub fn unclaimed(&self) -> Vec<PodUid> {
        self.0.state.lock().found.keys().cloned().collect()
    }

    /// Drops what was found for a uid that no source wants.
    pub fn drop_unclaimed(&self, uid: &PodUid) {
        self.0.state.lock().found.remove(uid);
    }

    /// The next place in the queue of pods to be admitted.
    pub(super) fn take_turn(&self) -> Turn {
        self.0.turns.take()
    }

    /// The pod as wanted.
    pub(super) fn desired(&self, uid: &PodUid) -> Option<DesiredPod> {
        self.0.state.lock().pods.get(uid).map(|entry| entry.shown.view.read().desired.clone())
    }

    /// Those of these pods that still hold their place.
    pub(super) fn holding(&self, uids: &[PodUid]) -> Vec<DesiredPod> {
        let state = self.0.state.lock();
        let entries = uids.iter().filter_map(|uid| state.pods.get(uid)).filter(|entry| entry.shown.is(Place::Holds));
        entries.map(|entry| entry.shown.view.read().desired.clone()).collect()
    }

    /// Waits until none of these pods holds anything any more.
    pub(super) async fn all_over(&self, uids: &[PodUid]) {
        let mut departures = self.0.departures.subscribe();
        let over = |_: &u64| {
            let state = self.0.state.lock();
            !uids.iter().any(|uid| state.pods.get(uid).is_some_and(|entry| entry.shown.is(Place::Holds)))
        };
        if departures.wait_for(over).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// A pod has given back what it held, or the node has changed: who was refused may fit now.
    pub fn room_appeared(&self) {
        self.0.departures.send_modify(|count| *count += 1);
        let state = self.0.state.lock();
        for entry in state.pods.values().filter(|entry| entry.shown.is(Place::Refused)) {
            entry.inbox.room();
        }
        drop(state);
        self.settle("pods_removed");
    }

    fn set(&self, desired: DesiredPod) {
        let mut state = self.0.state.lock();
        if let Some(entry) = state.pods.get_mut(&desired.uid) {
            if entry.leaving {
                entry.again = Some(desired);
                return;
            }
            let before = entry.shown.set_desired(desired.clone());
            if before.pod.spec != desired.pod.spec {
                self.0.context.options.metrics.resizes.requested(&before.pod, &desired.pod);
            }
            let (now, then) = (&desired.pod.metadata, &before.pod.metadata);
            if now.labels != then.labels || now.annotations != then.annotations {
                self.0.context.options.prepare.relabelled(&desired.uid);
            }
            let asks = entry.shown.asked(&desired);
            let inbox = Arc::clone(&entry.inbox);
            drop(state);
            if asks {
                // Before the worker sees the object: what it shows of it must say what becomes of its size.
                self.settle("pod_updated");
            }
            inbox.set(desired);
            return;
        }
        let uid = desired.uid.clone();
        let mirror = state.mirrors.get(&uid).cloned();
        state.pods.insert(uid.clone(), Entry::new(&desired, mirror));
        let asks = self.start_if_free(&mut state, &uid, &desired);
        drop(state);
        if asks {
            self.settle("pods_added");
        }
    }

    /// Starts the worker unless a pod of the same name is still there.
    /// Returns whether it asks for another size than it holds.
    fn start_if_free(&self, state: &mut State, uid: &PodUid, desired: &DesiredPod) -> bool {
        if desired.source.is_static() {
            self.end_predecessors(state, desired);
        }
        let taken = state.pods.iter().any(|(other, entry)| {
            other != uid
                && entry.running
                && entry.shown.view.read().desired.key == desired.key
                && desired.source.is_static()
        });
        if taken {
            return false;
        }
        let found = state.found.remove(uid).unwrap_or_default();
        let Some(entry) = state.pods.get_mut(uid) else { return false };
        let was = found.facts.source.is_some();
        let revision = revision(&desired.pod).map(str::to_owned);
        if desired.source.is_static() && was && (found.facts.left || found.facts.revision != revision) {
            // The manifest went and came back, or changed, while no agent ran: what was there before ends first.
            entry.leaving = true;
            entry.again = Some(desired.clone());
            entry.inbox.remove();
        }
        self.run(entry, desired.clone(), found)
    }

    /// Starts the worker; returns whether it asks for another size than it holds.
    pub(super) fn run(&self, entry: &mut Entry, desired: DesiredPod, found: Found) -> bool {
        entry.running = true;
        let turn = match &found.facts.admission {
            Some(_) => None,
            // Taken here, so that turns come in the order in which the pods came.
            None => Some(self.take_turn()),
        };
        let asks = found.facts.holds_place() && {
            entry.shown.set_admitted();
            entry.shown.restore(&found.facts, &desired)
        };
        let uid = desired.uid.clone();
        let worker = Worker::new(
            self.0.context.clone(),
            desired,
            Arc::clone(&entry.inbox),
            Arc::clone(&entry.shown),
            found,
            turn,
            self.clone(),
        );
        let table = self.clone();
        // Boxed: the future holds whole CRI requests.
        let run = Box::pin(async move {
            worker.run().await;
            table.ended(&uid);
        });
        drop(spawn(&self.0.tasks, "pod", run));
        asks
    }

    /// Ends a pod of an earlier agent that no source wants, in the ordinary way: with its grace, its hooks and its last
    /// status. Unknown to the table until now.
    pub fn end_unwanted(&self, desired: DesiredPod) {
        let mut state = self.0.state.lock();
        if !state.pods.contains_key(&desired.uid) {
            self.leave(&mut state, desired);
        }
    }

    /// A worker is through: its pod is gone from the node.
    fn ended(&self, uid: &PodUid) {
        if self.0.tasks.token().is_cancelled() {
            return;
        }
        let mut state = self.0.state.lock();
        let Some(entry) = state.pods.remove(uid) else { return };
        let key = entry.shown.view.read().desired.key.clone();
        drop(entry.shown);
        if let Some(desired) = entry.again {
            drop(state);
            self.set(desired);
            state = self.0.state.lock();
        }
        let waiting: Vec<(PodUid, DesiredPod)> = state
            .pods
            .iter()
            .filter(|(_, e)| !e.running)
            .map(|(uid, e)| (uid.clone(), e.shown.view.read().desired.clone()))
            .filter(|(_, desired)| desired.key == key)
            .collect();
        for (uid, desired) in waiting {
            self.start_if_free(&mut state, &uid, &desired);
        }
    }

    fn remove(&self, uid: &PodUid) {
        let mut state = self.0.state.lock();
        let Some(entry) = state.pods.get_mut(uid) else { return };
        entry.again = None;
        if entry.running {
            entry.leaving = true;
            entry.inbox.remove();
        } else {
            state.pods.remove(uid);
        }
    }
}

impl PodSink for PodTable {
    fn apply(&self, change: PodChange) {
        match change {
            PodChange::Set(desired) => self.set(desired),
            PodChange::Status(desired) => self.set(desired),
            PodChange::Remove(uid) => self.remove(&uid),
            PodChange::AllSourcesReady => {
                self.0.state.lock().sources_ready = true;
                self.0.ready.send_replace(true);
                self.settle("pods_added");
            }
        }
    }
}

impl PodControl for PodTable {
    fn wake(&self, uid: &PodUid) {
        let inbox = self.0.state.lock().pods.get(uid).map(|e| Arc::clone(&e.inbox));
        if let Some(inbox) = inbox {
            inbox.wake();
        }
    }

    fn verdict(&self, uid: &PodUid) {
        let inbox = self.0.state.lock().pods.get(uid).map(|e| Arc::clone(&e.inbox));
        if let Some(inbox) = inbox {
            inbox.nudge();
        }
    }

    fn terminate(&self, uid: &PodUid, order: Terminate) {
        let inbox = self.0.state.lock().pods.get(uid).map(|e| Arc::clone(&e.inbox));
        if let Some(inbox) = inbox {
            inbox.terminate(order);
        }
    }
}

impl ReadPods for PodTable {
    fn pods(&self) -> Vec<PodView> {
        self.0.state.lock().pods.values().map(|e| e.shown.view.read().clone()).collect()
    }

    fn by_key(&self, key: &PodKey) -> Option<PodView> {
        let state = self.0.state.lock();
        let mut found = state.pods.values().filter(|e| e.shown.view.read().desired.key == *key);
        // While an older pod of that name ends, it is the one that has containers.
        let first = found.next()?;
        let entry = if first.running { first } else { found.find(|e| e.running).unwrap_or(first) };
        Some(entry.shown.view.read().clone())
    }

    fn by_uid(&self, uid: &str) -> Option<PodView> {
        let state = self.0.state.lock();
        if let Some(entry) = state.pods.get(&PodUid::from(uid)) {
            return Some(entry.shown.view.read().clone());
        }
        state.pods.values().find_map(|e| {
            let view = e.shown.view.read();
            view.mirror.as_ref().is_some_and(|m| m.as_str() == uid).then(|| view.clone())
        })
    }
}
