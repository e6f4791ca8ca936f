//! One agent's life: its pod room, journal, observer, probes, status writer and collector on the machine of the case. It
//! is told of pods as sources do it, and dies at any moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_cri::fake::{Failure as Fault, FakeRuntime, On, Proxy};
use longshore_cri::{ErrorKind, SharedRuntime};
use longshore_integration::fuzz::Plan;
use longshore_node::admit::Grounds;
use longshore_node::event::EventRecorder;
use longshore_node::gc::{Cleaning, Collector};
use longshore_node::journal::Journal;
use longshore_node::mirror::{MirrorOptions, MirrorSink, Mirrors};
use longshore_node::model::{DesiredPod, MirrorUid, PodChange, PodControl, PodKey, PodSink, PodUid, SourceKind};
use longshore_node::observe::{Observer, ObserverOptions};
use longshore_node::pod::{
    BackoffRule, Found, PodCgroups, PodTable, PodTableOptions, Prepare, StatusSink, StatusUpdate,
};
use longshore_node::probe::{Probes, ProbesOptions};
use longshore_node::status::StatusWriter;
use longshore_node::telemetry::{PodMetrics, ProbeMetrics};
use longshore_util::clock::SharedClock;
use longshore_util::{Tasks, spawn};
use tokio::sync::Notify;

use super::api::Api;
use super::hands::Hands;
use super::scene::{Clocks, FakeDress, SharedBook};

/// What outlives agents.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) runtime: FakeRuntime,
    pub(crate) hands: Hands,
    pub(crate) api: Api,
    pub(crate) files: Files,
    pub(crate) book: SharedBook,
    pub(crate) clocks: Clocks,
    pub(crate) folder: Arc<tempfile::TempDir>,
}

/// The manifest directory: plans by name, each with its uid.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    pub(crate) plans: Arc<Mutex<BTreeMap<String, (String, Plan)>>>,
}

/// How late the sources speak, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lateness {
    pub(crate) files: u64,
    pub(crate) api: u64,
    pub(crate) news: u64,
}

/// A running agent.
#[derive(Debug)]
pub(crate) struct Agent {
    tasks: Tasks,
    pub(crate) table: PodTable,
    journal: Journal,
    line: Proxy,
}

/// Stands before the status writer and shows the model what passes.
#[derive(Debug)]
struct Watching {
    writer: StatusWriter,
    book: SharedBook,
    hands: Hands,
    clocks: Clocks,
}

/// Tells table and writer of mirrors, as the agent's sources do.
#[derive(Debug)]
struct Notes {
    table: PodTable,
    writer: StatusWriter,
}

impl MirrorSink for Notes {
    fn mirror(&self, uid: &PodUid, mirror: Option<&Pod>) {
        let id = mirror.and_then(|pod| pod.metadata.uid.as_deref()).map(MirrorUid::from);
        self.table.set_mirror(uid, id);
        self.writer.mirror(uid, mirror);
    }
}

impl StatusSink for Watching {
    fn put(&self, pod: &DesiredPod, update: StatusUpdate) {
        let uid = update.uid.as_str();
        let mut book = self.book.lock().unwrap();
        let phase = update.status.phase.as_deref().unwrap_or_default();
        book.note(self.clocks.millis(), &format!("status of {uid}: {phase}, done {}{}", update.done, brief(&update)));
        if update.done
            && let Some(what) = self.hands.holds(uid)
        {
            book.fault(format!("{uid} is done and still has its {what}"));
        }
        book.show(uid, &update.status, update.done, self.clocks.millis());
        drop(book);
        self.writer.put(pod, update);
    }

    fn forget(&self, uid: &PodUid) {
        self.book.lock().unwrap().over(uid.as_str());
        self.writer.forget(uid);
    }
}

fn brief(update: &StatusUpdate) -> String {
    let status = &update.status;
    let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    let all = lists.into_iter().flatten().flatten();
    all.map(|container| {
        let state = container.state.clone().unwrap_or_default();
        let text = match (state.running, state.terminated, state.waiting) {
            (Some(_), ..) => "runs".to_owned(),
            (_, Some(end), _) => format!("ended {}", end.exit_code),
            (.., Some(waiting)) => waiting.reason.unwrap_or_default(),
            _ => "?".to_owned(),
        };
        let ready = if container.ready { "+" } else { "-" };
        format!(" {}{ready}{}:{text}", container.name, container.restart_count)
    })
    .collect()
}

impl Agent {
    pub(crate) async fn start(machine: &Machine, lateness: Lateness, backoff: BackoffRule, cleaning: Cleaning) -> Self {
        let tasks = Tasks::new();
        let (journal, facts) = Journal::open_delayed(&machine.folder.path().join("longshore")).unwrap();
        let fake = Arc::new(machine.runtime.clone());
        let line = Proxy::before(fake.clone(), fake).with_deadlines(Duration::from_secs(120));
        let runtime: SharedRuntime = Arc::new(line.clone());
        let clock: SharedClock = Arc::new(machine.clocks);
        let events = EventRecorder::log_only(Arc::clone(&clock));
        let writer = StatusWriter::start(machine.api.client(), &tasks);
        let statuses = Watching {
            writer: writer.clone(),
            book: Arc::clone(&machine.book),
            hands: machine.hands.clone(),
            clocks: machine.clocks,
        };
        let probes = Probes::start(
            ProbesOptions {
                runtime: Arc::clone(&runtime),
                events: events.clone(),
                metrics: ProbeMetrics::default(),
                node_name: "n1".into(),
                processors: 2,
                clock: Arc::clone(&clock),
            },
            &tasks,
        );
        let hands = Arc::new(machine.hands.clone());
        let table = PodTable::new(
            PodTableOptions {
                node_name: "n1".into(),
                grounds: hands.clone() as Arc<dyn Grounds>,
                runtime: Arc::clone(&runtime),
                runtime_name: "containerd".into(),
                prepare: hands.clone() as Arc<dyn Prepare>,
                cgroups: hands.clone() as Arc<dyn PodCgroups>,
                statuses: Arc::new(statuses),
                events,
                metrics: PodMetrics::default(),
                probes: probes.clone(),
                journal: journal.clone(),
                clock: Arc::clone(&clock),
                legacy_logs: machine.folder.path().join("links"),
                backoff,
                stop_signals: false,
                kills: Default::default(),
                host_ips: Arc::new(arc_swap::ArcSwap::from_pointee(vec!["192.168.0.1".into()])),
            },
            facts.into_iter().map(|(uid, facts)| (uid, Found { facts, ..Found::default() })).collect(),
            &tasks,
        );
        probes.connect(Arc::new(table.clone()));
        let options = ObserverOptions { clock, ..ObserverOptions::default() };
        let pods: Arc<dyn PodControl> = Arc::new(table.clone());
        let observer = Observer::start(Arc::clone(&runtime), pods, options, &tasks);
        table.on_change(move || observer.expect());
        Collector {
            runtime,
            table: table.clone(),
            prepare: hands,
            cgroups: None,
            journal: journal.clone(),
            pod_logs: machine.folder.path().join("logs"),
            legacy_logs: machine.folder.path().join("links"),
            pods_folder: machine.hands.pods_folder(),
            cleaning,
            endpoint: String::new(),
            told: Default::default(),
        }
        .start(&tasks);
        let mirrors = Mirrors::start(
            MirrorOptions {
                client: machine.api.client(),
                node_name: "n1".into(),
                pods: Arc::new(table.clone()),
                notes: Arc::new(Notes { table: table.clone(), writer: writer.clone() }),
            },
            &tasks,
        );
        let sink: Arc<dyn PodSink> = Arc::new(mirrors.tap(Arc::new(writer.tap(Arc::new(table.clone())))));
        let source = Source {
            machine: machine.clone(),
            sink,
            mirrors,
            manifests: BTreeMap::new(),
            known: BTreeMap::new(),
            lateness,
            spoken: (false, false),
        };
        let token = tasks.token().clone();
        drop(spawn(&tasks, "source", async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                () = Box::pin(source.run()) => {}
            }
        }));
        Self { tasks, table, journal, line }
    }

    /// Ends it as SIGKILL does: at whatever await its tasks stand. Returns what is left of it.
    pub(crate) async fn kill(self, lose: bool) -> Option<String> {
        let Self { tasks, table, journal, line } = self;
        let failed = tokio::time::timeout(Duration::ZERO, tasks.failed()).await.ok();
        tasks.cancel();
        journal.die(lose);
        line.failpoints().set(On::any(), Fault::Error(ErrorKind::Unavailable, "the agent is dead".to_owned()));
        line.failpoints().crash();
        drop((table, journal));
        if failed.is_some() {
            return failed;
        }
        let ended = tokio::time::timeout(Duration::from_secs(5), tasks.join()).await;
        ended.err().map(|_| "tasks of a killed agent live on".to_owned())
    }
}

/// Watches the API and the manifest directory and tells what differs from what was told.
struct Source {
    machine: Machine,
    sink: Arc<dyn PodSink>,
    mirrors: Arc<Mirrors>,
    /// Manifests that were read, by uid.
    manifests: BTreeMap<String, Arc<Pod>>,
    known: BTreeMap<String, DesiredPod>,
    lateness: Lateness,
    spoken: (bool, bool),
}

impl Source {
    async fn run(mut self) {
        let changed = Arc::clone(&self.machine.api.changed);
        let mut moments = [(self.lateness.files, true), (self.lateness.api, false)];
        moments.sort_unstable();
        let mut passed = 0;
        for (moment, is_files) in moments {
            tokio::time::sleep(Duration::from_millis(moment - passed)).await;
            passed = moment;
            if is_files {
                self.spoken.0 = true;
            } else {
                self.spoken.1 = true;
            };
            self.tell();
        }
        self.sink.apply(PodChange::AllSourcesReady);
        self.machine.book.lock().unwrap().note(self.machine.clocks.millis(), "all sources have spoken");
        loop {
            changed.notified().await;
            tokio::time::sleep(Duration::from_millis(self.lateness.news)).await;
            self.tell();
        }
    }

    fn wanted(&mut self) -> Vec<DesiredPod> {
        let mut wanted = Vec::new();
        if self.spoken.0 {
            for (uid, plan) in self.machine.files.plans.lock().unwrap().values() {
                let read = || Arc::new(serde_json::from_value(plan.object(uid, &FakeDress)).unwrap());
                let pod = self.manifests.entry(uid.clone()).or_insert_with(read);
                wanted.push(desired(uid, Arc::clone(pod), SourceKind::File));
            }
        }
        if self.spoken.1 {
            let pods = self.machine.api.pods(false);
            wanted
                .extend(pods.into_iter().map(|pod| desired(&pod.metadata.uid.clone().unwrap(), pod, SourceKind::Api)));
        }
        wanted
    }

    fn tell(&mut self) {
        if self.spoken.1 {
            let mirrors = self.machine.api.pods(true);
            self.mirrors.replace(mirrors.iter().map(|pod| Pod::clone(pod)).collect());
        }
        let wanted = self.wanted();
        let at = self.machine.clocks.millis();
        let gone: Vec<String> =
            self.known.keys().filter(|uid| wanted.iter().all(|pod| pod.uid.as_str() != **uid)).cloned().collect();
        for uid in gone {
            self.known.remove(&uid);
            let mut book = self.machine.book.lock().unwrap();
            book.told(&uid, at);
            book.note(at, &format!("told: {uid} is gone"));
            drop(book);
            self.sink.apply(PodChange::Remove(uid.as_str().into()));
        }
        for pod in wanted {
            let uid = pod.uid.to_string();
            let before = self.known.get(&uid);
            if before.is_some_and(|before| Arc::ptr_eq(&before.pod, &pod.pod)) {
                continue;
            }
            let meta = |pod: &DesiredPod| {
                let meta = &pod.pod.metadata;
                (meta.labels.clone(), meta.deletion_timestamp.clone(), meta.deletion_grace_period_seconds)
            };
            let same = before.is_some_and(|before| before.pod.spec == pod.pod.spec && meta(before) == meta(&pod));
            if same && before.is_some_and(|before| before.pod.status == pod.pod.status) {
                continue;
            }
            let mut book = self.machine.book.lock().unwrap();
            if pod.pod.metadata.deletion_timestamp.is_some() {
                book.told(&uid, at);
            }
            if !same {
                let grace = pod.pod.metadata.deletion_grace_period_seconds;
                book.note(at, &format!("told: {uid} as wanted, deletion grace {grace:?}"));
            }
            drop(book);
            self.known.insert(uid, pod.clone());
            self.sink.apply(if same { PodChange::Status(pod) } else { PodChange::Set(pod) });
        }
    }
}

fn desired(uid: &str, pod: Arc<Pod>, source: SourceKind) -> DesiredPod {
    let key = PodKey::of(&pod).unwrap();
    DesiredPod { uid: uid.into(), key, pod, source, seen: Timestamp::UNIX_EPOCH }
}

/// Rung when the files change, too.
pub(crate) fn ring(changed: &Notify) {
    changed.notify_one();
}
