//! Workers on the fake runtime, with paused time.

mod admission;
mod crash;
mod fuzzed;
mod hooks;
mod life;
mod probes;
mod reboot;
mod resize;
mod restart;
mod static_pods;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use longshore_api::resize::Bound;
use longshore_cri::fake::{FakeOptions, FakeRuntime};
use longshore_cri::{RuntimeService as _, SharedRuntime, labels, v1};
use longshore_util::clock::SharedClock;
use longshore_util::{Tasks, spawn};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::admit::{self, Grounds};
use crate::event::{EventOptions, EventRecorder};
use crate::journal::Journal;
use crate::model::{
    ContainerId, DesiredPod, PodChange, PodControl as _, PodKey, PodSink as _, PodUid, ReadPods as _, SourceKind,
};
use crate::pod::table::Found;
use crate::probe::{Probes, ProbesOptions};
use crate::test_api::TestApi;

/// Volumes, images and cgroups that are there at once, unless told otherwise.
#[derive(Debug, Default)]
pub(crate) struct Hands {
    pub(crate) log: Mutex<Vec<String>>,
    no_volumes: Mutex<Option<Failure>>,
    no_image: Mutex<HashMap<String, Failure>>,
    /// Images never come.
    slow_images: std::sync::atomic::AtomicBool,
    /// Bounds of pod cgroups.
    groups: fakes::Groups,
    /// What every pod has in use.
    memory_usage: Mutex<Option<i64>>,
    /// Folders of pods cannot be removed.
    pub(crate) no_removal: std::sync::atomic::AtomicBool,
    /// The agent's journal; volumes are noted with whether their pod is in it.
    journal: Mutex<Option<std::path::PathBuf>>,
}

impl Hands {
    fn note(&self, what: impl Into<String>) {
        self.log.lock().push(what.into());
    }
}

#[async_trait]
impl Prepare for Hands {
    async fn volumes(&self, pod: &DesiredPod) -> Result<(), Failure> {
        self.note(format!("volumes {}", pod.uid));
        if let Some(journal) = &*self.journal.lock() {
            let bytes = std::fs::read(journal).unwrap();
            let known = bytes.windows(pod.uid.as_str().len()).any(|part| part == pod.uid.as_str().as_bytes());
            self.note(format!("{} is {}in the journal", pod.uid, if known { "" } else { "not " }));
        }
        self.no_volumes.lock().clone().map_or(Ok(()), Err)
    }

    async fn release(&self, uid: &PodUid) -> Result<(), Failure> {
        self.note(format!("release {uid}"));
        Ok(())
    }

    async fn image(&self, _pod: &DesiredPod, container: &str) -> Result<PulledImage, Failure> {
        if self.slow_images.load(std::sync::atomic::Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        match self.no_image.lock().get(container) {
            Some(failure) => Err(failure.clone()),
            None => Ok(fakes::pulled("sha256:1")),
        }
    }

    fn recursive_read_only(&self, _pod: &DesiredPod) -> Option<bool> {
        Some(false)
    }

    async fn runtime_handler(&self, _pod: &DesiredPod) -> Result<String, Failure> {
        Ok(String::new())
    }

    async fn sandbox_config(
        &self,
        pod: &DesiredPod,
        attempt: u32,
        _tell: bool,
    ) -> Result<v1::PodSandboxConfig, Failure> {
        Ok(fakes::sandbox_config(pod, attempt))
    }

    async fn container_config(&self, request: ContainerRequest<'_>) -> Result<v1::ContainerConfig, Failure> {
        if let Some(target) = request.target {
            self.note(format!("{} looks into {target}", request.container));
        }
        Ok(fakes::container_config(&request))
    }

    fn container_size(&self, pod: &DesiredPod, container: &str) -> Option<v1::LinuxContainerResources> {
        fakes::container_size(pod, container)
    }

    async fn forget(&self, pod: &DesiredPod) -> Result<(), Failure> {
        self.note(format!("forget {}", pod.uid));
        Ok(())
    }

    async fn forget_uid(&self, uid: &PodUid) -> Result<(), Failure> {
        if self.no_removal.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Failure::new("FailedCleanup", "still mounted"));
        }
        self.note(format!("forget {uid}"));
        Ok(())
    }
}

#[async_trait]
impl PodCgroups for Hands {
    async fn ensure(&self, pod: &DesiredPod, moving: bool) -> Result<(), Failure> {
        self.note(format!("cgroup {}", pod.uid));
        self.groups.ensure(pod, moving);
        Ok(())
    }

    fn bounds(&self, pod: &DesiredPod) -> Result<Option<PodBounds>, Failure> {
        Ok(self.groups.bounds(pod))
    }

    fn bind(&self, pod: &DesiredPod, bound: Bound) -> Result<(), Failure> {
        self.note(format!("bind {bound:?}"));
        self.groups.bind(&pod.uid, bound);
        Ok(())
    }

    fn memory_usage(&self, _pod: &DesiredPod) -> Option<i64> {
        *self.memory_usage.lock()
    }

    async fn clear(&self, _pod: &DesiredPod, container: &ContainerId) {
        self.note(format!("clear {container}"));
    }

    async fn remove(&self, pod: &DesiredPod) -> Result<(), Failure> {
        self.note(format!("no cgroup {}", pod.uid));
        Ok(())
    }
}

/// A node that takes what tests say.
#[derive(Debug)]
struct FakeNode(Mutex<admit::Node>, fakes::Groups);

impl FakeNode {
    fn new() -> Self {
        let node = fakes::node(&[("cpu", "2"), ("memory", "4Gi"), ("pods", "110")]);
        Self(Mutex::new(node), fakes::Groups::default())
    }
}

#[async_trait]
impl Grounds for FakeNode {
    fn node(&self) -> admit::Node {
        self.0.lock().clone()
    }

    async fn runtime_known(&self) {}

    async fn look_again(&self) -> admit::Node {
        self.node()
    }
}

#[derive(Debug, Default)]
struct Statuses {
    all: Mutex<Vec<StatusUpdate>>,
    forgotten: Mutex<Vec<PodUid>>,
}

impl StatusSink for Statuses {
    fn put(&self, _pod: &DesiredPod, update: StatusUpdate) {
        self.all.lock().push(update);
    }

    fn forget(&self, uid: &PodUid) {
        self.forgotten.lock().push(uid.clone());
    }
}

/// An agent's pod room on a fake runtime.
pub(crate) struct Bench {
    pub(crate) runtime: FakeRuntime,
    pub(crate) hands: Arc<Hands>,
    statuses: Arc<Statuses>,
    pub(crate) table: PodTable,
    pub(crate) tasks: Tasks,
    pub(crate) folder: Arc<tempfile::TempDir>,
    pub(crate) journal: Journal,
    clock: SharedClock,
    node: Arc<FakeNode>,
    /// Takes the events.
    api: TestApi,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let clock: SharedClock = Arc::new(fakes::TokioClock::start());
        let runtime = FakeRuntime::new(FakeOptions { clock: Arc::clone(&clock), ..FakeOptions::default() });
        runtime.add_image("sha256:1");
        Self::start(runtime, Arc::new(tempfile::tempdir().unwrap()), clock, Arc::new(FakeNode::new())).await
    }

    async fn start(
        runtime: FakeRuntime,
        folder: Arc<tempfile::TempDir>,
        clock: SharedClock,
        node: Arc<FakeNode>,
    ) -> Self {
        let tasks = Tasks::new();
        let (journal, facts) = Journal::open_delayed(&folder.path().join("longshore")).unwrap();
        let hands = Arc::new(Hands { groups: node.1.clone(), ..Hands::default() });
        let statuses = Arc::new(Statuses::default());
        let shared: SharedRuntime = Arc::new(runtime.clone());
        let found =
            facts.into_iter().map(|(uid, facts)| (uid, Found { facts, observed: Observed::default() })).collect();
        let api = TestApi::default();
        let events = EventRecorder::start(
            Some(api.client()),
            EventOptions { node: "n1".into(), qps: 0, burst: 0 },
            Arc::clone(&clock),
            crate::telemetry::EventMetrics::default(),
            &tasks,
        );
        let probes = Probes::start(
            ProbesOptions {
                runtime: Arc::clone(&shared),
                events: events.clone(),
                metrics: crate::telemetry::ProbeMetrics::default(),
                clock: Arc::clone(&clock),
                node_name: "n1".into(),
                processors: 2,
            },
            &tasks,
        );
        let table = PodTable::new(
            PodTableOptions {
                node_name: "n1".into(),
                grounds: Arc::clone(&node) as Arc<dyn Grounds>,
                runtime: Arc::clone(&shared),
                runtime_name: "containerd".into(),
                prepare: Arc::clone(&hands) as Arc<dyn Prepare>,
                cgroups: Arc::clone(&hands) as Arc<dyn PodCgroups>,
                statuses: Arc::clone(&statuses) as Arc<dyn StatusSink>,
                events,
                metrics: crate::telemetry::PodMetrics::default(),
                probes: probes.clone(),
                journal: journal.clone(),
                clock: Arc::clone(&clock),
                legacy_logs: folder.path().join("links"),
                backoff: BackoffRule::default(),
                stop_signals: true,
                kills: Default::default(),
                host_ips: Arc::new(arc_swap::ArcSwap::from_pointee(vec!["192.168.0.1".into()])),
            },
            found,
            &tasks,
        );
        probes.connect(Arc::new(table.clone()));
        // The runtime's events ring the bells, as the observer does.
        let mut events = runtime.container_events().await.unwrap();
        let bells = table.clone();
        let token = tasks.token().clone();
        drop(spawn(&tasks, "events", async move {
            loop {
                tokio::select! {
                    () = token.cancelled() => return,
                    event = futures_util::StreamExt::next(&mut events) => {
                        let Some(Ok(event)) = event else { return };
                        if let Some(uid) = event.pod_sandbox_status.and_then(|s| s.metadata).map(|m| m.uid) {
                            bells.wake(&PodUid::from(uid));
                        }
                    }
                }
            }
        }));
        Self { runtime, hands, statuses, table, tasks, folder, journal, clock, node, api }
    }

    /// Ends this agent as a kill does and starts the next one on the same runtime and folder.
    pub(crate) async fn again(self) -> Self {
        self.tasks.cancel();
        let Self { runtime, folder, clock, node, table, tasks, journal, .. } = self;
        drop(table);
        tokio::time::timeout(Duration::from_secs(600), tasks.join()).await.unwrap();
        journal.die(false);
        Self::start(runtime, folder, clock, node).await
    }

    /// The same with calls in flight, which are simply dropped.
    pub(crate) async fn killed(self) -> Self {
        self.tasks.cancel();
        let Self { runtime, folder, clock, node, journal, .. } = self;
        journal.die(false);
        Self::start(runtime, folder, clock, node).await
    }

    /// Reason, object and message of the events that were told.
    fn told(&self) -> Vec<(String, String, String)> {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let events = self.api.under("/api/v1/namespaces/");
        let told =
            |event: &Value| (word(&event["reason"]), word(&event["involvedObject"]["name"]), word(&event["message"]));
        events.iter().map(told).collect()
    }

    pub(crate) fn set(&self, pod: &DesiredPod) {
        self.table.apply(PodChange::Set(pod.clone()));
    }

    fn status(&self, uid: &str) -> Option<Arc<PodStatus>> {
        self.table.by_uid(uid).and_then(|view| view.status)
    }

    /// Waits until the status of a pod is so.
    async fn until(&self, uid: &str, what: &str, test: impl Fn(&PodStatus) -> bool) -> Arc<PodStatus> {
        for _ in 0..20_000 {
            if let Some(status) = self.status(uid).filter(|s| test(s)) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("never {what}: {:?}, calls {:?}", self.status(uid), self.runtime.failpoints().changes());
    }

    pub(crate) async fn until_ready(&self, uid: &str) -> Arc<PodStatus> {
        self.until(uid, "ready", |s| condition(s, "Ready") == "True").await
    }

    async fn until_gone(&self, uid: &str) {
        for _ in 0..20_000 {
            if self.table.by_uid(uid).is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("never gone: {:?}", self.status(uid));
    }

    fn delete(&self, pod: &DesiredPod, grace: i64) {
        let mut pod = pod.clone();
        let object = Arc::make_mut(&mut pod.pod);
        object.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.clock.now()));
        object.metadata.deletion_grace_period_seconds = Some(grace);
        self.set(&pod);
    }

    /// Plays the writer that deletes the object once the status says that all is released.
    async fn until_done(&self, uid: &str) -> Arc<PodStatus> {
        for _ in 0..20_000 {
            let done = self.statuses.all.lock().iter().rev().find(|u| u.uid.as_str() == uid && u.done).cloned();
            if let Some(update) = done {
                return update.status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("never done: {:?}", self.status(uid));
    }
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> &'a str {
    status.conditions.iter().flatten().find(|c| c.type_ == kind).map_or("", |c| c.status.as_str())
}

fn pod_with(uid: &str, spec: Value) -> DesiredPod {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": spec,
    });
    let pod: Pod = serde_json::from_value(object).unwrap();
    DesiredPod {
        uid: uid.into(),
        key: PodKey::new("default", uid),
        pod: Arc::new(pod),
        source: SourceKind::Api,
        seen: Timestamp::UNIX_EPOCH,
    }
}

pub(crate) fn pod(uid: &str) -> DesiredPod {
    pod_with(uid, json!({"terminationGracePeriodSeconds": 5, "containers": [{"name": "c", "image": "i"}]}))
}

fn phase(status: &PodStatus) -> &str {
    status.phase.as_deref().unwrap_or_default()
}
