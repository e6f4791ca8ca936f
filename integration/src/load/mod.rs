//! A crowd on one apiserver: tens of thousands of objects, a thousand watchers, hundreds of writes a second. The client is
//! kept cheap, because it shares the machine with what it measures: raw HTTP/2, and nothing parsed but a revision.

mod bodies;
mod figures;
mod fill;
mod reads;
mod server;
mod watchers;
mod wire;
mod writers;

pub use figures::{Figures, fsync_times};
pub use fill::{Filled, fill};
pub use reads::{Read, listing, pages};
pub use server::{Crew, start};
pub use watchers::{Crowd, Lateness, Scope};
pub use wire::{Answer, Identity, Wire, revision_of};
pub use writers::{Kind, Run, Write, renew_for, run};

/// How large the cluster is, and what is done to it.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Nodes, each with a connection and a certificate of its own.
    pub nodes: usize,
    /// Namespaces over which everything is spread.
    pub namespaces: usize,
    /// Pods, spread over all nodes.
    pub pods: usize,
    /// Objects of all kinds together; what the other kinds leave are events.
    pub objects: usize,
    /// Watches.
    pub watchers: usize,
    /// Writes a second.
    pub writes: u32,
    /// For so many seconds.
    pub seconds: u64,
}

impl Scale {
    /// The load of the project's promise.
    pub const FULL: Self =
        Self { nodes: 500, namespaces: 50, pods: 10_000, objects: 50_000, watchers: 1000, writes: 500, seconds: 60 };

    /// The same in small, for a test of some seconds.
    pub const SMALL: Self =
        Self { nodes: 20, namespaces: 5, pods: 200, objects: 1200, watchers: 50, writes: 40, seconds: 5 };

    /// Pods of one replica set.
    const REPLICAS: usize = 10;

    /// Replica sets.
    pub(crate) fn sets(&self) -> usize {
        self.pods.div_ceil(Self::REPLICAS)
    }

    /// A share of the objects, given for the full load.
    pub(crate) fn share(&self, full: usize) -> usize {
        full * self.objects / Self::FULL.objects
    }

    pub(crate) fn node(index: usize) -> String {
        format!("worker-{index:03}")
    }

    pub(crate) fn namespace(&self, index: usize) -> String {
        format!("team-{:02}", index % self.namespaces)
    }

    /// Namespace and name of a replica set.
    pub(crate) fn set(&self, index: usize) -> (String, String) {
        (self.namespace(index), format!("app-{index}-7c9d8f6b5d"))
    }

    /// Namespace, name and node of a pod.
    pub(crate) fn pod(&self, index: usize) -> (String, String, usize) {
        let (namespace, set) = self.set(index / Self::REPLICAS);
        (namespace, format!("{set}-{index:05}"), index % self.nodes)
    }

    /// A pod of a node.
    pub(crate) fn pod_of(&self, node: usize, which: usize) -> usize {
        let each = self.pods / self.nodes;
        node + which % each.max(1) * self.nodes
    }

    /// Namespace and name of a configmap.
    pub(crate) fn configmap(&self, index: usize) -> (String, String) {
        (self.namespace(index), format!("settings-{index}"))
    }

    pub(crate) fn configmaps(&self) -> usize {
        self.share(6000)
    }

    /// Namespace and name of a secret.
    pub(crate) fn secret(&self, index: usize) -> (String, String) {
        (self.namespace(index), format!("credentials-{index}"))
    }

    pub(crate) fn secrets(&self) -> usize {
        self.share(4000)
    }
}
