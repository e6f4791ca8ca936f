//! The node's own face in the API: registration, status with conditions, lease, CSINode; and what it is made from, the
//! state of the runtime and of the machine. The status task alone writes the Node object.
//!
//! ```text
//! runtime poll (5 s) ──watch──► status task ──PATCH──► Node       lease task ──PUT──► Lease
//!                                  ▲   ▲                              ▲
//!                      pressure ───┘   └── own Node (watch)  ─────────┘ uid
//! ```

mod address;
mod capacity;
mod conditions;
mod csinode;
mod images;
mod lease;
mod options;
mod register;
mod runtime;
pub mod startup;
mod status;
mod task;
#[cfg(test)]
mod tests;
mod watch;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use longshore_cri::{SharedImages, SharedRuntime};
use longshore_util::Tasks;
use longshore_util::clock::SharedClock;
use tokio::sync::watch as channel;

pub use capacity::{Capacity, Reserved, Threshold};
pub use conditions::Pressure;
pub use options::NodeOptions;
pub use runtime::{RuntimeHandler, RuntimeState, RuntimeVersion};

use crate::event::EventRecorder;
use crate::telemetry::SharedTelemetry;

/// The Kubernetes version whose behaviour this agent follows; clients compare it with the apiserver's.
pub const KUBELET_VERSION: &str = "v1.36.2+longshore";

/// A check that must pass for the node to be Ready; its error is shown in the condition's message.
#[derive(Clone)]
pub struct ReadyCheck(Arc<dyn Fn() -> Result<(), String> + Send + Sync>);

impl ReadyCheck {
    /// Wraps a check. It must be cheap: it runs at each status computation.
    pub fn new(check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    pub(super) fn run(&self) -> Result<(), String> {
        (self.0)()
    }
}

impl std::fmt::Debug for ReadyCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadyCheck")
    }
}

/// What the node room works with.
#[derive(Clone)]
pub struct NodeDeps {
    /// The API; `None` = no apiserver, static pods alone.
    pub client: Option<kube::Client>,
    /// A client of its own for the lease, so that other traffic never delays it.
    pub heartbeat: Option<kube::Client>,
    /// The container runtime.
    pub runtime: SharedRuntime,
    /// Its image service.
    pub images: SharedImages,
    /// Wall clock.
    pub clock: SharedClock,
    /// Where events go.
    pub events: EventRecorder,
    /// Metrics.
    pub telemetry: SharedTelemetry,
    /// Further checks for Ready, e.g. the observer's.
    pub checks: Vec<ReadyCheck>,
    /// What eviction has found.
    pub pressure: channel::Receiver<Pressure>,
}

impl std::fmt::Debug for NodeDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeDeps").field("api", &self.client.is_some()).finish_non_exhaustive()
    }
}

/// What other rooms may know of the node.
#[derive(Debug, Clone)]
pub struct NodeHandle {
    name: Arc<str>,
    capacity: Capacity,
    runtime: channel::Receiver<RuntimeState>,
    addresses: channel::Receiver<Vec<IpAddr>>,
    node: channel::Receiver<Option<Arc<Node>>>,
    /// As this agent would make it: what counts while the API has shown none.
    own: Arc<Node>,
}

impl NodeHandle {
    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Capacity and allocatable, as at the start.
    pub const fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// The runtime's state, now and as it changes.
    pub fn runtime(&self) -> channel::Receiver<RuntimeState> {
        self.runtime.clone()
    }

    /// The node's addresses, the preferred one first: `status.hostIP` and `status.hostIPs` of pods.
    pub fn host_ips(&self) -> Vec<IpAddr> {
        self.addresses.borrow().clone()
    }

    /// The node's addresses, now and as they change.
    pub fn addresses(&self) -> channel::Receiver<Vec<IpAddr>> {
        self.addresses.clone()
    }

    /// The Node object as last seen in the API.
    pub fn node(&self) -> Option<Arc<Node>> {
        self.node.borrow().clone()
    }

    /// The Node object as last seen in the API, else as this agent would make it.
    pub fn node_or_own(&self) -> Arc<Node> {
        self.node().unwrap_or_else(|| Arc::clone(&self.own))
    }

    /// The Node object as it changes.
    pub fn changes(&self) -> channel::Receiver<Option<Arc<Node>>> {
        self.node.clone()
    }

    /// Waits until the Node was seen in the API.
    pub async fn registered(&self) -> Arc<Node> {
        let mut node = self.node.clone();
        match node.wait_for(Option::is_some).await.map(|node| node.clone()) {
            Ok(Some(node)) => node,
            _ => std::future::pending().await,
        }
    }
}

/// Starts the tasks. Returns as soon as the machine is read, without waiting for the API or the runtime.
pub async fn start(options: NodeOptions, deps: NodeDeps, tasks: &Tasks) -> NodeHandle {
    let options = Arc::new(options);
    let machine = longshore_host::facts::MachineFacts::read(&options.machine_root);
    let capacity = Capacity::compute(&machine, options.root_size(), &options);
    deps.telemetry.node.set_name(&options.name);
    let first = address::find(&options).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the node has no address yet");
        Vec::new()
    });
    let (addresses, addresses_rx) = channel::channel(first);
    let runtime = runtime::start(deps.runtime.clone(), tasks);
    let (node, node_rx) = channel::channel(None);
    let handle = NodeHandle {
        name: options.name.as_str().into(),
        capacity: capacity.clone(),
        runtime: runtime.clone(),
        addresses: addresses_rx,
        node: node_rx.clone(),
        own: Arc::new(register::initial(&options)),
    };
    let Some(client) = deps.client.clone() else { return handle };
    let target = crate::event::EventTarget::node(&options.name);
    deps.events.normal(&target, "Starting", "Starting kubelet.");
    if options.cgroup_v1 {
        deps.events.warning(
            &target,
            "CgroupV1",
            "cgroup v1 support is in maintenance mode, please migrate to cgroup v2",
        );
    }
    let heartbeat = deps.heartbeat.clone().unwrap_or_else(|| client.clone());
    let clock = deps.clock.clone();
    let node = Arc::new(node);
    watch::start(client.clone(), &options.name, Arc::clone(&node), tasks);
    tasks.essential("node-lease", lease::Lease::new(heartbeat, &options, clock, node_rx).run(tasks.token().clone()));
    let task = task::StatusTask::new(client, options, deps, machine, capacity, runtime, addresses, node);
    tasks.essential("node-status", Box::pin(task.run(tasks.token().clone())));
    handle
}

/// Spreads a period by up to `factor` of itself, so that nodes don't beat together.
fn jitter(period: Duration, factor: f64, seed: &mut u64) -> Duration {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    let share = f64::from(u32::try_from(*seed % 10_000).unwrap_or(0)) / 10_000.0;
    period.mul_f64(1.0 + factor * share)
}

/// A seed from a name; never zero.
fn seed_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        | 1
}
