//! The writers: requests are sent when their time has come, whether earlier ones were answered or not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use http::Method;
use longshore_util::{Tasks, spawn};

use super::fill::{LEASES, STRATEGIC};
use super::wire::{Answer, revision_of};
use super::{Crew, Figures, Filled, Scale, bodies};

/// Kinds that are written or watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Pods.
    Pod,
    /// Heartbeats.
    Lease,
    /// Events.
    Event,
    /// Configmaps.
    ConfigMap,
    /// Secrets; nobody writes them.
    Secret,
}

impl Kind {
    /// The path of the kind, in one namespace or all.
    pub fn path(self, namespace: &str) -> String {
        let (base, plural) = match self {
            Self::Pod => ("/api/v1", "pods"),
            Self::Lease => ("/apis/coordination.k8s.io/v1", "leases"),
            Self::Event => ("/api/v1", "events"),
            Self::ConfigMap => ("/api/v1", "configmaps"),
            Self::Secret => ("/api/v1", "secrets"),
        };
        if namespace.is_empty() {
            format!("{base}/{plural}")
        } else {
            format!("{base}/namespaces/{namespace}/{plural}")
        }
    }
}

/// A write that was answered.
#[derive(Debug, Clone)]
pub struct Write {
    /// What was written.
    pub kind: Kind,
    /// Where.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The node of a pod, where it was known.
    pub node: Option<usize>,
    /// The revision that the answer told.
    pub revision: u64,
    /// When the request was sent.
    pub sent: Instant,
    /// When the whole answer was here.
    pub answered: Instant,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Run {
    /// Writes that were answered with success.
    pub writes: Vec<Write>,
    /// What was said of the others.
    pub failures: Vec<String>,
    /// How far requests were sent behind their time.
    pub behind: Figures,
    /// Most requests under way at once.
    pub most: usize,
}

impl Run {
    /// How long the writes took.
    pub fn times(&self) -> Figures {
        self.writes.iter().map(|write| write.answered.duration_since(write.sent)).collect()
    }

    /// How long the writes of a kind took.
    pub fn times_of(&self, kind: Kind) -> Figures {
        let own = self.writes.iter().filter(|write| write.kind == kind);
        own.map(|write| write.answered.duration_since(write.sent)).collect()
    }
}

/// Of twenty writes eight are states of pods, four heartbeats, three events, three configmaps, one a new pod that no node
/// has yet, and one the end of such a pod.
const TURNS: [Turn; 20] = {
    use Turn::{Change, Create, Delete, Happen, Renew, Tell};
    [
        Tell, Renew, Happen, Tell, Change, Tell, Renew, Create, Tell, Happen, Change, Tell, Renew, Tell, Delete,
        Happen, Tell, Change, Renew, Tell,
    ]
};

#[derive(Debug, Clone, Copy)]
enum Turn {
    Tell,
    Renew,
    Happen,
    Change,
    Create,
    Delete,
}

struct Writer {
    crew: Crew,
    scale: Scale,
    sets: Vec<String>,
    /// Versions of the nodes' leases: a node renews its lease when the time before was answered.
    leases: Vec<tokio::sync::Mutex<u64>>,
    told: AtomicUsize,
    renewed: AtomicUsize,
    /// So many pods were made; of them those of more than a moment ago are deleted.
    made: AtomicUsize,
    deleted: AtomicUsize,
    under_way: AtomicUsize,
    most: AtomicUsize,
    outcome: Mutex<Run>,
}

/// Writes at the scale's pace until its time is over, and waits for the last answers.
pub async fn run(crew: &Crew, scale: &Scale, filled: &Filled, tasks: &Tasks) -> Run {
    let writer = Arc::new(Writer {
        crew: crew.clone(),
        scale: *scale,
        sets: filled.sets.clone(),
        leases: filled.leases.iter().copied().map(tokio::sync::Mutex::new).collect(),
        told: AtomicUsize::new(0),
        renewed: AtomicUsize::new(0),
        made: AtomicUsize::new(0),
        deleted: AtomicUsize::new(0),
        under_way: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        outcome: Mutex::default(),
    });
    let begin = Instant::now();
    let every = Duration::from_secs(1) / scale.writes.max(1);
    let count = usize::try_from(u64::from(scale.writes) * scale.seconds).unwrap_or(usize::MAX);
    let (mut behind, mut all) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for index in 0..count {
        let due = begin + every * u32::try_from(index).unwrap_or(u32::MAX);
        tokio::time::sleep_until(due.into()).await;
        behind.push(due.elapsed());
        let writer = Arc::clone(&writer);
        all.push(spawn(tasks, "write", async move { writer.write(index).await }));
    }
    for task in all {
        // A panic is told by the runtime; the write is then missing.
        drop(task.await);
    }
    let mut outcome = std::mem::take(&mut *writer.outcome.lock().unwrap_or_else(PoisonError::into_inner));
    outcome.behind = behind.into_iter().collect();
    outcome.most = writer.most.load(Ordering::Relaxed);
    outcome.writes.sort_by_key(|write| write.revision);
    outcome
}

/// Renews the first node's lease every ten seconds for a while, as an agent does; ends early when that fails.
pub async fn renew_for(crew: Crew, over: Duration) {
    let (begin, name) = (Instant::now(), Scale::node(0));
    let path = format!("{LEASES}/{name}");
    while begin.elapsed() < over {
        let Ok(now) = crew.nodes[0].get(&path).await.and_then(Answer::good) else { return };
        let body = bodies::lease(&name, Some(revision_of(&now.body)));
        let done = crew.nodes[0].call(Method::PUT, &path, "application/json", body).await.and_then(Answer::good);
        if done.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

impl Writer {
    async fn write(&self, index: usize) {
        let now = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        let (turn, round) = (TURNS[index % TURNS.len()], index / TURNS.len());
        let outcome = match turn {
            Turn::Tell => self.tell(index).await,
            Turn::Renew => self.renew().await,
            Turn::Happen => self.happen(index).await,
            Turn::Change => self.change(index).await,
            Turn::Create => self.create().await,
            Turn::Delete => self.delete(round).await,
        };
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        let mut kept = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(write) => kept.writes.push(write),
            Err(error) => kept.failures.push(format!("{turn:?}: {error:#}")),
        }
    }

    /// A node tells a new state of one of its pods.
    async fn tell(&self, index: usize) -> Result<Write> {
        // A step without a common divisor with the number of pods: no pod has its turn again before all others.
        let pod = self.told.fetch_add(1, Ordering::Relaxed) * 7919 % self.scale.pods;
        let (namespace, name, node) = self.scale.pod(pod);
        let path = format!("{}/{name}/status", Kind::Pod.path(&namespace));
        let body = bodies::status(pod, index + 1);
        let sent = Instant::now();
        let answer = self.crew.nodes[node].call(Method::PATCH, &path, STRATEGIC, body).await?;
        written(Kind::Pod, namespace, name, Some(node), sent, answer)
    }

    /// A node renews its lease, each in turn: a node's next one comes seconds after the last.
    async fn renew(&self) -> Result<Write> {
        let node = self.renewed.fetch_add(1, Ordering::Relaxed) % self.scale.nodes;
        let name = Scale::node(node);
        let mut version = self.leases[node].lock().await;
        let body = bodies::lease(&name, Some(*version));
        let path = format!("{LEASES}/{name}");
        let sent = Instant::now();
        let answer = self.crew.nodes[node].call(Method::PUT, &path, "application/json", body).await?;
        let write = written(Kind::Lease, "kube-node-lease".to_owned(), name, None, sent, answer)?;
        *version = write.revision;
        Ok(write)
    }

    /// A node tells an event of one of its pods.
    async fn happen(&self, index: usize) -> Result<Write> {
        let (namespace, pod, node) = self.scale.pod(index * 31 % self.scale.pods);
        let name = format!("{pod}.load{index:x}");
        let body = bodies::event(&namespace, &name, &pod, &Scale::node(node));
        let sent = Instant::now();
        let answer = self.crew.nodes[node].post(&Kind::Event.path(&namespace), body).await?;
        written(Kind::Event, namespace, name, None, sent, answer)
    }

    /// A controller replaces a configmap.
    async fn change(&self, index: usize) -> Result<Write> {
        let which = index * 13 % self.scale.configmaps();
        let (namespace, name) = self.scale.configmap(which);
        let body = bodies::configmap(&name, which, index + 1);
        let path = format!("{}/{name}", Kind::ConfigMap.path(&namespace));
        let sent = Instant::now();
        let wire = self.crew.controller(index);
        let answer = wire.call(Method::PUT, &path, "application/json", body).await?;
        written(Kind::ConfigMap, namespace, name, None, sent, answer)
    }

    fn extra(&self, number: usize) -> (usize, String, String) {
        let set = number % self.scale.sets();
        let (namespace, owner) = self.scale.set(set);
        (set, namespace, format!("{owner}-new{number}"))
    }

    /// A controller makes a pod, for which the plane then finds a node.
    async fn create(&self) -> Result<Write> {
        let (set, namespace, name) = self.extra(self.made.fetch_add(1, Ordering::Relaxed));
        let body = bodies::pod(&self.scale, set, &self.sets[set], &name, None);
        let sent = Instant::now();
        let answer = self.crew.controller(set).post(&Kind::Pod.path(&namespace), body).await?;
        written(Kind::Pod, namespace, name, None, sent, answer)
    }

    /// A pod that was made a while ago goes at once; in the first moments there is none, and another configmap changes.
    async fn delete(&self, round: usize) -> Result<Write> {
        let made = self.made.load(Ordering::Relaxed);
        let moment = usize::try_from(self.scale.writes).unwrap_or(0) / 5;
        if self.deleted.load(Ordering::Relaxed) + moment > made {
            return self.change(1_000_000 + round).await;
        }
        let number = self.deleted.fetch_add(1, Ordering::Relaxed);
        let (set, namespace, name) = self.extra(number);
        let path = format!("{}/{name}?gracePeriodSeconds=0", Kind::Pod.path(&namespace));
        let sent = Instant::now();
        let answer = self.crew.controller(set).call(Method::DELETE, &path, "application/json", "").await?;
        written(Kind::Pod, namespace, name, None, sent, answer)
    }
}

fn written(
    kind: Kind,
    namespace: String,
    name: String,
    node: Option<usize>,
    sent: Instant,
    answer: Answer,
) -> Result<Write> {
    let answered = Instant::now();
    let revision = revision_of(&answer.good()?.body);
    anyhow::ensure!(revision > 0, "{kind:?} {name}: an answer without a version");
    Ok(Write { kind, namespace, name, node, revision, sent, answered })
}
