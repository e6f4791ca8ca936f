//! The agent as a whole: puts the rooms together, in the order that keeps pods safe. The journal is read before any
//! worker acts, workers look at the runtime before they act, and strangers are cleaned after every source has spoken.
//!
//! ```text
//! start-up chores -> journal -> telemetry, events -> node -> hands (volumes, images, cgroups)
//!   -> status writer -> pod table -> observer -> sources, mirrors -> garbage -> server
//! ```

mod driver;
mod error;
mod facts;
mod grounds;
mod images;
mod options;
mod server;
mod sources;
mod volumes;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_host::cgroup::Cgroups;
use longshore_util::{Tasks, spawn};

pub use error::AgentError;
pub use options::AgentOptions;

use crate::event::{EventOptions, EventRecorder};
use crate::gc::Collector;
use crate::hands::{Hands, HandsOptions};
use crate::journal::{Journal, PodFacts, Verdict};
use crate::model::{Alone, MemoryKills, PodControl, PodUid, ReadPods, SourceKind};
use crate::node::{NodeDeps, NodeHandle, Pressure, ReadyCheck, RuntimeState};
use crate::object::{Objects, ServiceMemory};
use crate::observe::{Observer, ObserverMetrics, ObserverOptions};
use crate::oom::OomOptions;
use crate::pod::{Found, NetworkState, PodCgroups, PodTable, PodTableOptions, Prepare, StatusSink};
use crate::probe::{Probes, ProbesOptions};
use crate::resource::{CgroupNames, CgroupTree};
use crate::server::ServerHandle;
use crate::source::RecallOptions;
use crate::status::StatusWriter;
use crate::telemetry::{SharedTelemetry, Telemetry};
use crate::userns::UserRanges;

/// Where links to container logs stand, whatever the root is: log shippers look there.
const LEGACY_LOGS: &str = "/var/log/containers";
/// How long the end of the agent waits for its tasks.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// How long it waits for statuses to be written.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    tasks: Tasks,
    journal: Journal,
    table: PodTable,
    node: NodeHandle,
    telemetry: SharedTelemetry,
    writer: StatusWriter,
    server: Option<ServerHandle>,
}

impl Agent {
    /// Starts everything and returns when the pieces stand; it does not wait for the API or the runtime.
    pub async fn start(options: AgentOptions, tasks: Tasks) -> Result<Self, AgentError> {
        let root = PathBuf::from(&options.settings.process.root_dir);
        let config = &options.settings.config;
        for warning in &options.settings.warnings {
            tracing::warn!("{warning}");
        }
        let groups = Cgroups::detect();
        let is_v2 = groups.as_ref().is_ok_and(Cgroups::is_v2);
        crate::node::startup::prepare(&options.startup(is_v2))?;
        let home = root.join("longshore");
        let (journal, known) = Journal::open(&home)?;

        let telemetry: SharedTelemetry = Arc::new(Telemetry::new());
        let events = EventRecorder::start(
            options.clients.as_ref().map(|c| c.events.clone()),
            EventOptions {
                node: options.node_name.clone(),
                qps: u32::try_from(config.event_record_qps).unwrap_or(0),
                burst: u32::try_from(config.event_burst).unwrap_or(0),
            },
            Arc::clone(&options.clock),
            telemetry.events.clone(),
            &tasks,
        );
        let driver = options.cgroup_driver().await;
        let names = CgroupNames::new(driver, &config.cgroup_root, config.cgroups_per_qos);
        let tree = match groups {
            Ok(groups) => {
                let tree =
                    Arc::new(CgroupTree::new(groups, names.clone(), options.cpu_policy(), config.pod_pids_limit));
                if let Err(error) = tree.prepare() {
                    tracing::warn!(%error, "control groups above the pods cannot be made");
                }
                Some(tree)
            }
            Err(error) => {
                tracing::warn!(%error, "no control groups: pods run without limits of their own");
                None
            }
        };

        // The observer is made after the table that it wakes; its health is asked for later.
        let observed: Arc<std::sync::OnceLock<Observer>> = Arc::default();
        let health = Arc::clone(&observed);
        let check = ReadyCheck::new(move || health.get().map_or(Ok(()), Observer::check));
        // Eviction is not there yet: the node never tells of pressure.
        let (_calm, pressure) = tokio::sync::watch::channel(Pressure::default());
        let node = crate::node::start(
            options.node(is_v2),
            NodeDeps {
                client: options.clients.as_ref().map(|c| c.main.clone()),
                heartbeat: options.clients.as_ref().map(|c| c.heartbeat.clone()),
                runtime: Arc::clone(&options.runtime),
                images: Arc::clone(&options.images),
                clock: Arc::clone(&options.clock),
                events: events.clone(),
                telemetry: Arc::clone(&telemetry),
                checks: vec![check],
                pressure: pressure.clone(),
            },
            &tasks,
        )
        .await;

        if let Some(tree) = &tree {
            options.enforce_allocatable(tree, &node, &events);
        }
        let facts = facts::read(&options, &node, is_v2);
        let memory = ServiceMemory { file: Some(home.join("services.json")), alone: Alone::default() };
        let recall = RecallOptions { directory: home.join("pods"), alive: alive(&known), alone: memory.alone.clone() };
        let objects = Objects::start(options.client(), Arc::clone(&options.clock), memory, &tasks);
        let images = images::start(&options, &objects, &events, &telemetry, &tasks)?;
        let volumes = volumes::start(&facts, &objects, &options.clock);
        let hands = Arc::new(Hands::new(HandsOptions {
            volumes: Arc::new(volumes.clone()),
            facts,
            node_name: options.node_name.clone(),
            resolv_conf: config.resolv_conf.clone(),
            names,
            objects,
            images,
            events: events.clone(),
            users: UserRanges::open(root.join("pods"), options.user_span(node.capacity().pods)?),
            runtime: node.runtime(),
        }));
        let writer = match options.client() {
            Some(client) => StatusWriter::start(client, &tasks),
            None => StatusWriter::standalone(),
        };
        let found = known.into_iter().map(|(uid, facts)| (uid, Found { facts, ..Found::default() })).collect();
        let cgroups: Arc<dyn PodCgroups> = match &tree {
            Some(tree) => Arc::clone(tree) as Arc<dyn PodCgroups>,
            None => Arc::new(crate::resource::NoCgroups),
        };
        let probes = Probes::start(
            ProbesOptions {
                runtime: Arc::clone(&options.runtime),
                events: events.clone(),
                metrics: telemetry.probes.clone(),
                clock: Arc::clone(&options.clock),
                node_name: options.node_name.clone(),
                processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            },
            &tasks,
        );
        let kills = MemoryKills::default();
        let table = PodTable::new(
            PodTableOptions {
                node_name: options.node_name.clone(),
                grounds: Arc::new(grounds::Grounds::new(&options, &node, pressure.clone())),
                runtime: Arc::clone(&options.runtime),
                runtime_name: options.runtime_name().await,
                prepare: Arc::clone(&hands) as Arc<dyn Prepare>,
                cgroups,
                statuses: Arc::new(writer.clone()) as Arc<dyn StatusSink>,
                events: events.clone(),
                metrics: telemetry.pods.clone(),
                probes: probes.clone(),
                journal: journal.clone(),
                clock: Arc::clone(&options.clock),
                legacy_logs: LEGACY_LOGS.into(),
                backoff: options.backoff(),
                stop_signals: options.settings.gates.is_enabled("ContainerStopSignals"),
                kills: kills.clone(),
                host_ips: hands.host_ips(),
            },
            found,
            &tasks,
        );
        let observer = Observer::start(
            Arc::clone(&options.runtime),
            Arc::new(table.clone()) as Arc<dyn PodControl>,
            ObserverOptions {
                clock: Arc::clone(&options.clock),
                metrics: telemetry.register(ObserverMetrics::register),
            },
            &tasks,
        );
        follow_network(&node, &table, &tasks);
        probes.connect(Arc::new(table.clone()));
        let expect = observer.clone();
        table.on_change(move || expect.expect());
        drop(observed.set(observer));
        crate::oom::watch(
            OomOptions {
                node_name: options.node_name.clone(),
                pods: Arc::new(table.clone()),
                kills,
                events: events.clone(),
                clock: Arc::clone(&options.clock),
            },
            &tasks,
        );
        volumes.keep_fresh(Arc::new(table.clone()), &tasks);
        if let Some(bounds) = options.log_bounds(Arc::new(table.clone())) {
            crate::logs::rotate(bounds, &tasks);
        }
        sources::start(&options, recall, &table, &writer, &events, &tasks);
        Collector {
            runtime: Arc::clone(&options.runtime),
            table: table.clone(),
            prepare: Arc::clone(&hands) as Arc<dyn Prepare>,
            cgroups: tree,
            journal: journal.clone(),
            pod_logs: config.pod_logs_dir.clone().into(),
            legacy_logs: LEGACY_LOGS.into(),
            pods_folder: root.join("pods"),
            cleaning: options.cleaning,
            endpoint: config.container_runtime_endpoint.clone(),
            told: Default::default(),
        }
        .start(&tasks);
        grounds::follow(&node, pressure, &table, &tasks);
        follow_addresses(&node, &hands, &tasks);
        crate::control::start(&root, Arc::new(table.clone()), Arc::clone(&options.clock), &tasks);
        let server = server::start(&options, &node, &table, &telemetry, &tasks).await?;
        Ok(Self { tasks, journal, table, node, telemetry, writer, server })
    }

    /// Pods of the node, for readers.
    pub fn pods(&self) -> Arc<dyn ReadPods> {
        Arc::new(self.table.clone())
    }

    /// The node's own face.
    pub fn node(&self) -> &NodeHandle {
        &self.node
    }

    /// Metrics.
    pub fn telemetry(&self) -> &SharedTelemetry {
        &self.telemetry
    }

    /// The node's server; `None` when it is turned off.
    pub fn server(&self) -> Option<&ServerHandle> {
        self.server.as_ref()
    }

    /// Stops the agent; pods run on.
    pub async fn stop(self) {
        self.writer.flush(FLUSH_WITHIN).await;
        self.tasks.cancel();
        if tokio::time::timeout(STOP_WITHIN, self.tasks.join()).await.is_err() {
            tracing::warn!("some tasks did not end in time");
        }
        if tokio::time::timeout(STOP_WITHIN, self.journal.flush()).await.is_err() {
            tracing::warn!("the journal could not be synced in time");
        }
    }
}

/// Keeps the addresses that pods show in step with the node's.
fn follow_addresses(node: &NodeHandle, hands: &Arc<Hands>, tasks: &Tasks) {
    let mut addresses = node.addresses();
    let hands = Arc::clone(hands);
    let token = tasks.token().clone();
    let follow = async move {
        loop {
            let now: Vec<String> = addresses.borrow_and_update().iter().map(ToString::to_string).collect();
            hands.set_host_ips(now);
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                changed = addresses.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    };
    drop(spawn(tasks, "addresses", follow));
}

/// Lets pods know whether the runtime can give them a network, and that it answers again after it was away.
fn follow_network(node: &NodeHandle, table: &PodTable, tasks: &Tasks) {
    let mut runtime = node.runtime();
    let token = tasks.token().clone();
    let state = |runtime: &RuntimeState| match &runtime.network_error {
        _ if !runtime.answered => NetworkState::Unknown,
        Some(why) => NetworkState::NotReady(why.clone()),
        None => NetworkState::Ready,
    };
    // Before any source speaks: no pod must be tried without this being known.
    table.set_network(state(&runtime.borrow_and_update()));
    let table = table.clone();
    let mut was_away = false;
    let follow = async move {
        loop {
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                changed = runtime.changed() => if changed.is_err() {
                    return;
                },
            }
            let (now, away) = {
                let seen = runtime.borrow_and_update();
                (state(&seen), seen.version.is_none() || !seen.is_ready())
            };
            table.set_network(now);
            if std::mem::replace(&mut was_away, away) && !away {
                table.nudge_all();
            }
        }
    };
    drop(spawn(tasks, "network", follow));
}

/// Pods of the API that may run again without a word from it: admitted and not ended. One that was told to end goes on ending.
fn alive<'a>(known: impl IntoIterator<Item = (&'a PodUid, &'a PodFacts)>) -> BTreeSet<PodUid> {
    let is_alive = |facts: &PodFacts| {
        facts.source == Some(SourceKind::Api)
            && facts.admission == Some(Verdict::Admitted)
            && !(facts.left || facts.ended || facts.closed)
    };
    known.into_iter().filter(|(_, facts)| is_alive(facts)).map(|(uid, _)| uid.clone()).collect()
}
