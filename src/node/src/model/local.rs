//! What people at the machine ask of the agent: more of a pod than its status has room for, and another try at once.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{PodUid, ReadPods};

/// How an instance of a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndView {
    /// How many instances there were before it.
    pub restarts: u32,
    /// Exit code.
    pub code: i32,
    /// Reason, e.g. `OOMKilled`.
    pub reason: String,
    /// Termination message.
    pub message: String,
    /// When, if known.
    pub finished_at: Option<Timestamp>,
}

/// What the node knows of a container beyond its status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerNotes {
    /// How it failed first: often the one that tells why.
    pub first_failure: Option<EndView>,
    /// When it is tried again, while it waits.
    pub next_try: Option<Timestamp>,
}

/// The pods, for people at the machine.
pub trait LocalPods: ReadPods {
    /// What is known of the containers of a pod beyond its status, by name.
    fn notes(&self, uid: &PodUid) -> BTreeMap<String, ContainerNotes>;
    /// Forgets all delays of a pod: what waits after failures is tried at once. Unknown uids are ignored.
    fn retry(&self, uid: &PodUid);
}
