//! The one task that runs probes: takes those that are due, runs a bounded number side by side, hands on what they say.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::load::Load;
use super::machine::{ProbeKind, Verdict};
use super::run::{self, Answer, Question, Weight};
use super::table::{Age, Due, Scene, Table};
use super::{ProbesOptions, Running};
use crate::event::EventTarget;
use crate::model::{ContainerId, DesiredPod, PodControl, PodUid};

/// Commands at once: each makes the runtime start a process. Hung ones give their places back at their timeouts.
const COMMANDS: usize = 64;
/// Connections at once.
const CONNECTIONS: usize = 512;

/// A run under way.
type Run = Pin<Box<dyn Future<Output = Done> + Send>>;

/// A run that has ended.
struct Done {
    entry: u64,
    kind: ProbeKind,
    weight: Weight,
    answer: Answer,
    took: Duration,
}

/// Runs of one weight: those under way are bounded, the rest wait in order.
#[derive(Debug, Default)]
struct Places {
    taken: usize,
    waiting: VecDeque<Due>,
}

#[derive(Debug)]
pub(super) struct Engine {
    options: ProbesOptions,
    table: Mutex<Table>,
    load: Mutex<Load>,
    bell: Notify,
    pods: OnceLock<Arc<dyn PodControl>>,
    /// When this agent began: containers that are older were left running by another one.
    begun: Timestamp,
}

impl Engine {
    pub(super) fn new(options: ProbesOptions) -> Self {
        let begun = options.clock.now();
        let load = Mutex::new(Load::new(options.processors));
        Self { options, table: Mutex::default(), load, bell: Notify::new(), pods: OnceLock::new(), begun }
    }

    pub(super) fn connect(&self, pods: Arc<dyn PodControl>) {
        drop(self.pods.set(pods));
    }

    pub(super) fn set(&self, pod: &DesiredPod, address: &str, running: &[Running], ending: bool) {
        let wall = self.options.clock.now();
        let age = |container: &Running| {
            let since = container.started_at.map(|at| wall.duration_since(at));
            Age {
                since_start: since.and_then(|since| Duration::try_from(since).ok()).unwrap_or_default(),
                found: container.started_at.is_some_and(|at| at < self.begun),
            }
        };
        let scene = Scene { pod, address, ending, metrics: &self.options.metrics, now: Instant::now() };
        if self.table.lock().set(&scene, running, age) {
            self.bell.notify_one();
        }
    }

    pub(super) fn forget(&self, uid: &PodUid) {
        self.table.lock().forget(uid);
    }

    pub(super) fn verdict(&self, uid: &PodUid, id: &ContainerId) -> Option<Verdict> {
        self.table.lock().verdict(uid, id)
    }

    /// Runs until the agent stops.
    pub(super) async fn run(self: Arc<Self>, token: CancellationToken) {
        let mut runs: FuturesUnordered<Run> = FuturesUnordered::new();
        let (mut commands, mut connections) = (Places::default(), Places::default());
        loop {
            let next = self.collect(&mut commands, &mut connections);
            self.launch(&mut commands, COMMANDS, &runs);
            self.launch(&mut connections, CONNECTIONS, &runs);
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                Some(done) = runs.next(), if !runs.is_empty() => {
                    let places = match done.weight {
                        Weight::Command => &mut commands,
                        Weight::Network => &mut connections,
                    };
                    places.taken -= 1;
                    self.done(done);
                }
                () = self.bell.notified() => {}
                () = until(next) => {}
            }
        }
    }

    /// Moves what is due into the rows of its weight; returns when the next one is.
    fn collect(&self, commands: &mut Places, connections: &mut Places) -> Option<Instant> {
        let mut table = self.table.lock();
        let now = Instant::now();
        while let Some(due) = table.pop(now) {
            match run::weight(&due.probe) {
                Weight::Command => commands.waiting.push_back(due),
                Weight::Network => connections.waiting.push_back(due),
            }
        }
        table.next()
    }

    fn launch(&self, places: &mut Places, limit: usize, runs: &FuturesUnordered<Run>) {
        while places.taken < limit
            && let Some(due) = places.waiting.pop_front()
        {
            places.taken += 1;
            let weight = run::weight(&due.probe);
            let question = Question {
                runtime: Arc::clone(&self.options.runtime),
                id: due.id,
                container: due.container,
                probe: due.probe,
                address: due.address,
                timeout: due.timeout,
            };
            let (entry, kind) = (due.entry, due.kind);
            runs.push(Box::pin(async move {
                let begun = Instant::now();
                let answer = question.ask().await;
                Done { entry, kind, weight, answer, took: begun.elapsed() }
            }));
        }
    }

    fn done(&self, done: Done) {
        if done.weight == Weight::Command
            && let Some(heavy) = self.load.lock().add(done.took, Instant::now())
        {
            let node = EventTarget::node(&self.options.node_name);
            tracing::warn!(percent = %heavy.percent, runs = heavy.runs, "commands of probes are a heavy load");
            self.options.events.warning(&node, "ProbeLoad", heavy.text());
        }
        let outcome = self.table.lock().answered(done.entry, done.kind, &done.answer, done.took, Instant::now());
        if let Some(target) = outcome.tell {
            self.tell(&target, done.kind, &done.answer);
        }
        if let (Some(uid), Some(pods)) = (outcome.changed, self.pods.get()) {
            pods.verdict(&uid);
        }
    }

    fn tell(&self, target: &EventTarget, kind: ProbeKind, answer: &Answer) {
        let (reason, message) = match answer {
            Answer::Success => return,
            Answer::Warning(text) => ("ProbeWarning", format!("{} probe warning: {text}", kind.word())),
            Answer::Failure(text) => ("Unhealthy", format!("{} probe failed: {text}", kind.word())),
            Answer::Unknown(text) => {
                ("Unhealthy", format!("{} probe errored and resulted in unknown state: {text}", kind.word()))
            }
        };
        self.options.events.warning(target, reason, message);
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
