//! Pods of the API as they were last known, on disk: where the apiserver cannot be reached after a start, they run from
//! there until it can be. The first word of the apiserver replaces all of it.
//!
//! One file per pod, `UID.json`, mode 0600, without the status (what was seen of a pod is in the journal). Objects of the
//! kind Secret are never kept. A file whose pod the journal does not know to be admitted and alive counts for nothing: it
//! may be a pod that was deleted since.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use longshore_host::file::{Links, open_regular, read_within};
use longshore_transport::client::Typed;
use longshore_util::{Tasks, atomic};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use super::mux::Mux;
use crate::model::{Alone, PodChange, PodSink, PodUid, SourceKind};

/// So long the apiserver may take for its first word before pods run as they were last known.
const PATIENCE: Duration = Duration::from_secs(15);
/// Pods are written this long after they came: those of a burst together and after it, and those that end sooner not at all.
const GATHER: Duration = Duration::from_secs(20);
/// While the node stands alone it is looked this often whether it still does.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A file that failed is tried again after this.
const RETRY: Duration = Duration::from_secs(30);
/// More than the largest object that an apiserver takes.
const LONGEST: u64 = 4 << 20;

/// What recalling pods needs.
#[derive(Debug, Clone)]
pub struct RecallOptions {
    /// Where the files lie; made when it is missing.
    pub directory: PathBuf,
    /// Pods that the journal knows to be admitted and not to have ended.
    pub alive: BTreeSet<PodUid>,
    /// Told while pods run from memory.
    pub alone: Alone,
}

/// The file's content.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: &'a ObjectMeta,
    spec: &'a Option<PodSpec>,
}

/// What is to be written: the pod, or `None` to remove its file.
type Open = BTreeMap<PodUid, Option<Arc<Pod>>>;

/// Passes changes on and keeps pods of the API on disk.
#[derive(Debug)]
pub(super) struct Recall {
    options: RecallOptions,
    inner: Arc<dyn PodSink>,
    state: Mutex<State>,
    bell: Notify,
    /// A pod that is kept has changed: what is kept would undo the change.
    urgent: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Pods whose files are written.
    kept: BTreeSet<PodUid>,
    /// Pods of the API that are wanted now.
    wanted: BTreeSet<PodUid>,
    open: Open,
    /// The apiserver has spoken: files of pods that it did not name may go.
    settled: bool,
}

impl PodSink for Recall {
    fn apply(&self, change: PodChange) {
        let is_news = match &change {
            PodChange::Set(desired) if desired.source == SourceKind::Api => {
                let mut state = self.state.lock();
                state.wanted.insert(desired.uid.clone());
                // That a pod is told to end is in the journal; a write for it would only be in the way of its end.
                let ends = desired.pod.metadata.deletion_timestamp.is_some();
                if ends {
                    state.open.remove(&desired.uid);
                } else {
                    state.open.insert(desired.uid.clone(), Some(Arc::clone(&desired.pod)));
                    if state.kept.contains(&desired.uid) {
                        self.urgent.notify_one();
                    }
                }
                !ends
            }
            PodChange::Remove(uid) => {
                let mut state = self.state.lock();
                let is_ours = state.wanted.remove(uid);
                if is_ours {
                    state.open.insert(uid.clone(), None);
                }
                is_ours
            }
            PodChange::AllSourcesReady => {
                self.state.lock().settled = true;
                true
            }
            PodChange::Set(_) | PodChange::Status(_) => false,
        };
        self.inner.apply(change);
        if is_news {
            self.bell.notify_one();
        }
    }
}

impl Recall {
    pub(super) fn new(options: RecallOptions, inner: Arc<dyn PodSink>) -> Self {
        Self { options, inner, state: Mutex::default(), bell: Notify::new(), urgent: Notify::new() }
    }

    /// Starts the writer, and the recall for the case that the apiserver stays silent.
    pub(super) fn start(self: Arc<Self>, mux: Arc<Mux>, tasks: &Tasks) {
        let (this, token) = (Arc::clone(&self), tasks.token().clone());
        tasks.essential("pod-memory", async move {
            token.run_until_cancelled(this.keep()).await;
        });
        let token = tasks.token().clone();
        drop(longshore_util::spawn(tasks, "pod-recall", async move {
            token.run_until_cancelled(self.recall(&mux)).await;
        }));
    }

    async fn keep(&self) {
        let mut told = String::new();
        let mut failed = Open::new();
        loop {
            match failed.is_empty() {
                true => self.bell.notified().await,
                false => drop(tokio::time::timeout(RETRY, self.bell.notified()).await),
            }
            drop(tokio::time::timeout(GATHER, self.urgent.notified()).await);
            let (open, others) = {
                let mut state = self.state.lock();
                let others = std::mem::take(&mut state.settled).then(|| state.wanted.clone());
                (std::mem::take(&mut state.open), others)
            };
            failed.extend(open);
            let (work, directory) = (std::mem::take(&mut failed), self.options.directory.clone());
            let tried: Vec<(PodUid, bool)> = work.iter().map(|(uid, pod)| (uid.clone(), pod.is_some())).collect();
            let written = spawn_blocking(move || write(&directory, work, others.as_ref())).await;
            let Ok((left, fault)) = written else { continue };
            self.note(tried, &left);
            failed = left;
            match fault {
                Some(fault) if fault != told => {
                    tracing::warn!(error = fault, "pods cannot be kept for a start without the apiserver");
                    told = fault;
                }
                Some(_) => {}
                None => told.clear(),
            }
        }
    }

    /// Notes which files there are, after those that are not among `failed` were written or removed.
    fn note(&self, tried: Vec<(PodUid, bool)>, failed: &Open) {
        let mut state = self.state.lock();
        for (uid, is_there) in tried {
            if !is_there {
                state.kept.remove(&uid);
            } else if !failed.contains_key(&uid) {
                state.kept.insert(uid);
            }
        }
    }

    /// Gives pods to the mux as they were last known, unless the apiserver says its word in time.
    async fn recall(&self, mux: &Mux) {
        tokio::time::sleep(PATIENCE).await;
        if mux.has_spoken(SourceKind::Api) {
            return;
        }
        let (directory, alive) = (self.options.directory.clone(), self.options.alive.clone());
        let Ok(pods) = spawn_blocking(move || read(&directory, &alive)).await else { return };
        if pods.is_empty() {
            return;
        }
        let count = pods.len();
        self.options.alone.set(true);
        if mux.recall(SourceKind::Api, pods) {
            let seconds = PATIENCE.as_secs();
            tracing::warn!(pods = count, seconds, "no word from the apiserver: its pods run as they were last known");
            while !mux.has_spoken(SourceKind::Api) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        self.options.alone.set(false);
    }
}

/// Writes and removes files; returns what failed, with the first fault in words.
fn write(directory: &Path, open: Open, others: Option<&BTreeSet<PodUid>>) -> (Open, Option<String>) {
    let mut fault = None;
    let mut failed = Open::new();
    if let Err(error) = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        return (open, Some(format!("{}: {error}", directory.display())));
    }
    for (uid, pod) in open {
        let path = directory.join(format!("{uid}.json"));
        let done = match &pod {
            Some(pod) => keep(&path, pod),
            None => match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!("{}: {error}", path.display())),
                Ok(()) | Err(_) => Ok(()),
            },
        };
        if let Err(error) = done {
            fault.get_or_insert(error);
            failed.insert(uid, pod);
        }
    }
    for (uid, path) in files(directory) {
        if others.is_some_and(|others| !others.contains(&uid)) {
            drop(std::fs::remove_file(path));
        }
    }
    (failed, fault)
}

fn keep(path: &Path, pod: &Pod) -> Result<(), String> {
    let kept = Kept { api_version: "v1", kind: "Pod", metadata: &pod.metadata, spec: &pod.spec };
    let content = serde_json::to_vec(&kept).map_err(|error| error.to_string())?;
    // Without the temporary file's name, which is another one each time: the same fault is told once.
    atomic::write(path, &content, 0o600)
        .map_err(|error| format!("{}: cannot {}: {}", path.display(), error.step, error.source))
}

/// The files that are there, by the uid in their name.
fn files(directory: &Path) -> Vec<(PodUid, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let uid = name.to_str()?.strip_suffix(".json").filter(|uid| !uid.is_empty() && !uid.starts_with('.'))?;
            Some((PodUid::from(uid), entry.path()))
        })
        .collect()
}

/// Reads what was kept of the pods that are alive; what cannot be read is told and left out.
fn read(directory: &Path, alive: &BTreeSet<PodUid>) -> Vec<Pod> {
    let mut pods = Vec::new();
    for (uid, path) in files(directory) {
        if !alive.contains(&uid) {
            continue;
        }
        match read_one(&path, &uid) {
            Ok(pod) => pods.push(pod),
            Err(error) => tracing::warn!(path = %path.display(), error, "a pod that was kept cannot be read"),
        }
    }
    pods
}

fn read_one(path: &Path, uid: &PodUid) -> Result<Pod, String> {
    let file = open_regular(path, Links::Refuse).map_err(|error| error.to_string())?.ok_or("it is no regular file")?;
    let content = read_within(&file, LONGEST).map_err(|error| error.to_string())?;
    let Typed(pod): Typed<Pod> = serde_json::from_slice(&content).map_err(|error| error.to_string())?;
    let found = pod.metadata.uid.as_deref().unwrap_or_default();
    if found != uid.as_str() || pod.spec.is_none() {
        return Err(format!("it is of the pod {found:?}, not {:?}, or has no spec", uid.as_str()));
    }
    Ok(pod)
}

#[cfg(test)]
mod tests;
