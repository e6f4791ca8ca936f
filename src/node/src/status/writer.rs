//! Writes pod statuses to the API: the newest of each pod only, a few pods at a time, with the pod's uid as precondition,
//! and deletes the API object when nothing of a deleted pod is left.
//!
//! Everyone may put; one task sends. A failed write is tried again with growing delays, always with the newest status.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use longshore_transport::client::{Typed, brief};
use longshore_util::Tasks;
use longshore_util::backoff::Backoff;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::diff;
use crate::mirror::MirrorSink;
use crate::model::{DesiredPod, PodChange, PodKey, PodSink, PodUid};
use crate::pod::{StatusSink, StatusUpdate};

/// Pods whose status is being written at the same time: enough to hide the round trip, few enough to spare the server.
const IN_FLIGHT: usize = 8;
/// One request takes no longer than this.
const DEADLINE: Duration = Duration::from_secs(10);
/// A status that others changed is put right at most this often for a pod.
const REPAIR_EVERY: Duration = Duration::from_secs(10);

/// Writes statuses; clones share it.
#[derive(Debug, Clone)]
pub struct StatusWriter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Notify,
    /// Woken when nothing is left to send.
    idle: Notify,
}

#[derive(Debug, Default)]
struct State {
    slots: BTreeMap<PodUid, Slot>,
    /// Pods with something to send, oldest first.
    queue: VecDeque<PodUid>,
}

/// What is known of one pod's status.
#[derive(Debug)]
struct Slot {
    key: PodKey,
    is_static: bool,
    /// The uid of the API object: the pod's own, or the mirror's once there is one.
    target: Option<String>,
    status: Arc<PodStatus>,
    done: bool,
    /// The API object has a deletion timestamp.
    deleting: bool,
    /// The status that the API is known to have, with its version.
    base: Option<Base>,
    busy: bool,
    queued: bool,
    /// The API object is gone for good.
    gone: bool,
    not_before: Option<Instant>,
    repaired: Option<Instant>,
    backoff: Backoff,
    /// The last error, so that it is told once.
    told: String,
}

#[derive(Debug, Clone)]
struct Base {
    status: Value,
    version: String,
}

impl Base {
    fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref().and_then(|status| serde_json::to_value(status).ok()).unwrap_or_default();
        Self { status, version: pod.metadata.resource_version.clone().unwrap_or_default() }
    }

    /// Says whether a version is certainly older: those of one kind can be compared as numbers.
    fn is_newer_than(&self, version: &str) -> bool {
        matches!((self.version.parse::<u64>(), version.parse::<u64>()), (Ok(mine), Ok(other)) if mine > other)
    }
}

/// One thing to do for a pod.
#[derive(Debug)]
struct Job {
    uid: PodUid,
    key: PodKey,
    target: String,
    status: Arc<PodStatus>,
    base: Option<Base>,
    delete: bool,
}

/// How a job ended.
#[derive(Debug)]
enum Outcome {
    /// The API has this status now.
    Written(Base),
    /// The API object is gone or another pod has its name.
    Gone,
    /// It must be tried again; what is known of the API's status may be wrong.
    Failed(String),
}

impl StatusWriter {
    /// Starts the writer on `tasks`.
    pub fn start(client: kube::Client, tasks: &Tasks) -> Self {
        let writer = Self::new();
        let (looped, token) = (writer.clone(), tasks.token().clone());
        tasks.essential("status-writer", async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                () = looped.run(client) => {}
            }
        });
        writer
    }

    /// A writer for a node without an apiserver: takes statuses and keeps the newest.
    pub fn standalone() -> Self {
        Self::new()
    }

    fn new() -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State::default()), wake: Notify::new(), idle: Notify::new() }))
    }

    /// Returns a sink that shows the writer what the API has, on the way to the pod table.
    pub fn tap(&self, inner: Arc<dyn PodSink>) -> StatusTap {
        StatusTap { writer: self.clone(), inner }
    }

    /// Waits until everything is written, at most for `limit`; for the end of the agent.
    pub async fn flush(&self, limit: Duration) {
        let all = async {
            loop {
                let idle = self.0.idle.notified();
                let is_idle = self.0.state.lock().slots.values().all(|slot| !slot.busy && !slot.queued);
                if is_idle {
                    return;
                }
                idle.await;
            }
        };
        if timeout(limit, all).await.is_err() {
            tracing::warn!("some pod statuses were not written before the end; they will be after the next start");
        }
    }

    /// Takes note of what the API shows of a pod, and puts right what others changed.
    fn observe(&self, uid: &PodUid, object: &Pod) {
        let mut state = self.0.state.lock();
        let Some(slot) = state.slots.get_mut(uid) else { return };
        slot.deleting = object.metadata.deletion_timestamp.is_some();
        let version = object.metadata.resource_version.as_deref().unwrap_or_default();
        if slot.busy || slot.base.as_ref().is_some_and(|base| base.is_newer_than(version)) {
            return;
        }
        let is_to_go = slot.done && slot.deleting && !slot.is_static;
        // Most of what comes is the echo of our own write: nothing to compare.
        if !is_to_go && !version.is_empty() && slot.base.as_ref().is_some_and(|base| base.version == version) {
            return;
        }
        let seen = Base::of(object);
        let ours = serde_json::to_value(&*slot.status).unwrap_or_default();
        let differs = diff::patch(&seen.status, &ours, uid.as_str()).is_some();
        slot.base = Some(seen);
        let now = Instant::now();
        let recently = slot.repaired.is_some_and(|at| now.duration_since(at) < REPAIR_EVERY);
        if is_to_go {
            state.enqueue(uid);
        } else if differs && !slot.queued {
            if recently {
                slot.not_before = slot.repaired.map(|at| at + REPAIR_EVERY);
            }
            slot.repaired = Some(now);
            state.enqueue(uid);
        }
        drop(state);
        self.0.wake.notify_one();
    }

    async fn run(self, client: kube::Client) {
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < IN_FLIGHT {
                let Some(job) = self.0.state.lock().next_job(Instant::now()) else { break };
                running.push(perform(client.clone(), job));
            }
            if running.is_empty() {
                self.0.idle.notify_waiters();
            }
            // Without a free place a moment that has come changes nothing; the next end does.
            let next = if running.len() < IN_FLIGHT { self.0.state.lock().next_time() } else { None };
            let timer = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some((uid, status, outcome)) = running.next(), if !running.is_empty() => {
                    self.0.state.lock().finish(&uid, &status, outcome);
                }
                () = self.0.wake.notified() => {}
                () = timer => {}
            }
        }
    }
}

impl StatusSink for StatusWriter {
    fn put(&self, pod: &DesiredPod, update: StatusUpdate) {
        let StatusUpdate { uid, key, mirror, status, done } = update;
        let mut state = self.0.state.lock();
        let is_static = pod.source.is_static();
        let target = if is_static { mirror.map(|mirror| mirror.to_string()) } else { Some(uid.to_string()) };
        let slot = state.slots.entry(uid.clone()).or_insert_with(|| Slot {
            key,
            is_static,
            target: target.clone(),
            status: Arc::clone(&status),
            done,
            deleting: false,
            base: (!is_static).then(|| Base::of(&pod.pod)),
            busy: false,
            queued: false,
            gone: false,
            not_before: None,
            repaired: None,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(10), uid.as_str().len() as u64),
            told: String::new(),
        });
        slot.status = status;
        slot.done = done;
        slot.deleting |= pod.pod.metadata.deletion_timestamp.is_some();
        if target.is_some() && slot.target != target {
            slot.retarget(target, None);
        }
        state.enqueue(&uid);
        drop(state);
        self.0.wake.notify_one();
    }

    fn forget(&self, uid: &PodUid) {
        let mut state = self.0.state.lock();
        state.slots.remove(uid);
        state.queue.retain(|queued| queued != uid);
        drop(state);
        self.0.wake.notify_one();
    }
}

impl MirrorSink for StatusWriter {
    fn mirror(&self, uid: &PodUid, mirror: Option<&Pod>) {
        let mut state = self.0.state.lock();
        let Some(slot) = state.slots.get_mut(uid) else { return };
        let target = mirror.and_then(|pod| pod.metadata.uid.clone());
        if slot.target != target {
            slot.retarget(target, mirror.map(Base::of));
            state.enqueue(uid);
            drop(state);
            self.0.wake.notify_one();
        } else if let Some(pod) = mirror {
            drop(state);
            self.observe(uid, pod);
        }
    }
}

impl Slot {
    /// Another API object stands for the pod now.
    fn retarget(&mut self, target: Option<String>, base: Option<Base>) {
        self.target = target;
        self.base = base;
        self.gone = false;
        self.not_before = None;
        self.backoff.reset();
    }
}

impl State {
    /// Puts a pod in the queue, once.
    fn enqueue(&mut self, uid: &PodUid) {
        if let Some(slot) = self.slots.get_mut(uid)
            && !slot.queued
        {
            slot.queued = true;
            self.queue.push_back(uid.clone());
        }
    }

    /// The oldest job that may run now.
    fn next_job(&mut self, now: Instant) -> Option<Job> {
        let mut index = 0;
        while let Some(uid) = self.queue.get(index).cloned() {
            let Some(slot) = self.slots.get_mut(&uid) else {
                self.queue.remove(index);
                continue;
            };
            if slot.busy || slot.not_before.is_some_and(|at| at > now) {
                index += 1;
                continue;
            }
            self.queue.remove(index);
            slot.queued = false;
            let Some(target) = slot.target.clone().filter(|_| !slot.gone) else { continue };
            slot.busy = true;
            slot.not_before = None;
            let delete = slot.done && slot.deleting && !slot.is_static;
            return Some(Job {
                uid,
                key: slot.key.clone(),
                target,
                status: Arc::clone(&slot.status),
                base: slot.base.clone(),
                delete,
            });
        }
        None
    }

    /// When the next delayed job may run.
    fn next_time(&self) -> Option<Instant> {
        let delayed = self.queue.iter().filter_map(|uid| self.slots.get(uid)).filter(|slot| !slot.busy);
        delayed.filter_map(|slot| slot.not_before).min()
    }

    fn finish(&mut self, uid: &PodUid, sent: &Arc<PodStatus>, outcome: Outcome) {
        let Some(slot) = self.slots.get_mut(uid) else { return };
        slot.busy = false;
        match outcome {
            Outcome::Written(base) => {
                slot.base = Some(base);
                slot.backoff.reset();
                slot.told.clear();
                // Deleted or ended while it was written: there is one more thing to do.
                if slot.done && slot.deleting && !slot.is_static || !Arc::ptr_eq(sent, &slot.status) {
                    self.enqueue(uid);
                }
            }
            Outcome::Gone => slot.gone = true,
            Outcome::Failed(error) => {
                slot.base = None;
                slot.not_before = Some(Instant::now() + slot.backoff.next_delay());
                if slot.told == error {
                    tracing::debug!(pod = %slot.key, %uid, error, "pod status not written");
                } else {
                    tracing::warn!(pod = %slot.key, %uid, error, "pod status not written, will be tried again");
                    slot.told = error;
                }
                self.enqueue(uid);
            }
        }
    }
}

async fn perform(client: kube::Client, job: Job) -> (PodUid, Arc<PodStatus>, Outcome) {
    let api: Api<Typed<Pod>> = Api::namespaced(client, &job.key.namespace);
    let outcome = match timeout(DEADLINE, write(&api, &job)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Outcome::Gone,
        Ok(Err(error)) => Outcome::Failed(brief(&error)),
        Err(_) => Outcome::Failed(format!("no answer within {DEADLINE:?}")),
    };
    (job.uid, job.status, outcome)
}

/// Sends what differs and, when the pod is done, deletes the object.
async fn write(api: &Api<Typed<Pod>>, job: &Job) -> Result<Outcome, kube::Error> {
    let mut base = match &job.base {
        Some(base) => base.clone(),
        None => {
            let object = api.get(&job.key.name).await?;
            if object.metadata.uid.as_deref() != Some(job.target.as_str()) {
                return Ok(Outcome::Gone);
            }
            Base::of(&object)
        }
    };
    let ours = serde_json::to_value(&*job.status).unwrap_or_default();
    if let Some(patch) = diff::patch(&base.status, &ours, &job.target) {
        let sent = api.patch_status(&job.key.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        base = match sent {
            Ok(object) => Base::of(&object),
            // The name belongs to another pod, or what we knew is old: the next try looks first.
            Err(kube::Error::Api(status)) if matches!(status.code, 409 | 422) => {
                let object = api.get(&job.key.name).await?;
                let is_other = object.metadata.uid.as_deref() != Some(job.target.as_str());
                return Ok(if is_other { Outcome::Gone } else { Outcome::Failed(status.message.clone()) });
            }
            Err(error) => return Err(error),
        };
    }
    if !job.delete {
        return Ok(Outcome::Written(base));
    }
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: Some(job.target.clone()), resource_version: None }),
        ..DeleteParams::default()
    };
    match api.delete(&job.key.name, &parameters).await {
        Ok(_) => {
            tracing::info!(pod = %job.key, uid = %job.uid, "pod deleted from the API: nothing of it is left on the node");
        }
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        // Another pod has the name, or the server could not do it now: only a look tells.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let object = api.get(&job.key.name).await?;
            if object.metadata.uid.as_deref() == Some(job.target.as_str()) {
                return Ok(Outcome::Failed(status.message.clone()));
            }
        }
        Err(error) => return Err(error),
    }
    Ok(Outcome::Gone)
}

/// Shows the writer what the API source says on its way to the pod table.
#[derive(Debug)]
pub struct StatusTap {
    writer: StatusWriter,
    inner: Arc<dyn PodSink>,
}

impl PodSink for StatusTap {
    fn apply(&self, change: PodChange) {
        if let PodChange::Set(desired) | PodChange::Status(desired) = &change
            && !desired.source.is_static()
        {
            self.writer.observe(&desired.uid, &desired.pod);
        }
        self.inner.apply(change);
    }
}

#[cfg(test)]
mod tests;
