//! Probes: one task owns all probes of the node, runs those that are due and keeps what they say of each container. Pods
//! are told through their handle that a verdict changed and read it themselves.
//!
//! ```text
//! pod worker --set(running containers)--> table --due--> engine --bounded runs--> HTTP, TCP, gRPC, ExecSync
//!      ^                                    ^                          |
//!      +-------- verdict(uid) -------- machine <------ outcome --------+
//! ```
//! A verdict belongs to a container id: another instance begins anew. A probe that cannot be asked changes nothing, and
//! no process of a command outlives the command's time.

mod address;
mod engine;
pub mod http;
mod leftover;
mod load;
mod machine;
mod run;
mod schedule;
mod table;
mod tcp;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use longshore_cri::SharedRuntime;
use longshore_util::Tasks;
use longshore_util::clock::SharedClock;

use crate::event::EventRecorder;
use crate::model::{ContainerId, DesiredPod, PodControl, PodUid};
use crate::telemetry::ProbeMetrics;

pub use address::{AddressError, container_port};
pub use machine::{Known, ProbeKind, Verdict};
use tcp::DialError;

/// How probes and hooks name themselves to servers; the version is that of the API we speak.
pub const PROBE_AGENT: &str = "kube-probe/1.36";
/// The same for hooks.
pub const HOOK_AGENT: &str = "kube-lifecycle/1.36";

/// Connects to a place and says in the usual words why that cannot be done.
pub async fn dial(host: &str, port: u16) -> Result<tokio::net::TcpStream, String> {
    tcp::dial(host.trim_matches(['[', ']']), port).await.map_err(|DialError(text)| text)
}

/// What probes work with.
#[derive(Debug)]
pub struct ProbesOptions {
    /// The runtime, for commands.
    pub runtime: SharedRuntime,
    /// Events.
    pub events: EventRecorder,
    /// Figures.
    pub metrics: ProbeMetrics,
    /// Wall-clock time.
    pub clock: SharedClock,
    /// The node, for what it has to say of all probes together.
    pub node_name: String,
    /// Its processors.
    pub processors: usize,
}

/// A running container with probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its id.
    pub id: ContainerId,
    /// Its name in the spec.
    pub name: String,
    /// When it was started; `None` = not known.
    pub started_at: Option<Timestamp>,
    /// What was known of it before, by this or an earlier agent.
    pub known: Known,
}

/// All probes of the node; clones share them.
#[derive(Debug, Clone)]
pub struct Probes(Arc<engine::Engine>);

impl Probes {
    /// Starts the task that runs them.
    pub fn start(options: ProbesOptions, tasks: &Tasks) -> Self {
        let engine = Arc::new(engine::Engine::new(options));
        tasks.essential("probes", Arc::clone(&engine).run(tasks.token().clone()));
        Self(engine)
    }

    /// Names whom to tell of changed verdicts.
    pub fn connect(&self, pods: Arc<dyn PodControl>) {
        self.0.connect(pods);
    }

    /// Says which containers of a pod run now, and under which address. While a pod ends only readiness is asked for.
    pub fn set(&self, pod: &DesiredPod, address: &str, running: &[Running], ending: bool) {
        self.0.set(pod, address, running, ending);
    }

    /// Ends all probes of a pod.
    pub fn forget(&self, uid: &PodUid) {
        self.0.forget(uid);
    }

    /// What the probes say of a container; `None` when it has none or is not known to run.
    pub fn verdict(&self, uid: &PodUid, id: &ContainerId) -> Option<Verdict> {
        self.0.verdict(uid, id)
    }
}
