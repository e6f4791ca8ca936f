//! What the runtime said about one pod, reduced to what decisions and the status need.
//! The worker owns it: each answer of the runtime updates it at once, a wake-up has it read anew.

use std::path::PathBuf;

use longshore_api::resources::Actual;
use longshore_cri::v1;

use crate::model::{ContainerId, SandboxId};

/// State of a container instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstanceState {
    /// Made, not started.
    Created,
    /// Its process runs.
    Running,
    /// Its process is gone.
    Exited,
    /// The runtime does not know.
    Unknown,
}

/// One pod sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// The runtime's id.
    pub id: SandboxId,
    /// The attempt number in its metadata.
    pub attempt: u32,
    /// Whether the runtime calls it ready.
    pub ready: bool,
    /// When it was made, nanoseconds since the epoch.
    pub created_at: i64,
    /// Pod addresses, the primary one first; empty with the host's network.
    pub ips: Vec<String>,
}

/// The user a container's first process got.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LinuxUser {
    /// User id.
    pub uid: i64,
    /// Group id.
    pub gid: i64,
    /// Supplemental groups.
    pub groups: Vec<i64>,
}

/// One instance of a container of the spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The runtime's id.
    pub id: ContainerId,
    /// The container's name in the spec.
    pub name: String,
    /// The attempt number, equal to the restart count at the time it was made.
    pub attempt: u32,
    /// The sandbox it lives in.
    pub sandbox: SandboxId,
    /// Its state.
    pub state: InstanceState,
    /// When it was made, nanoseconds since the epoch; 0 = not known.
    pub created_at: i64,
    /// When it was started; 0 = never.
    pub started_at: i64,
    /// When it ended; 0 = not yet.
    pub finished_at: i64,
    /// Exit code, meaningful once it has exited.
    pub exit_code: i32,
    /// The runtime's word for its state, e.g. `Completed`, `OOMKilled`.
    pub reason: String,
    /// Termination message, or the runtime's message.
    pub message: String,
    /// Image as the user wrote it.
    pub image: String,
    /// Image as the runtime resolved it.
    pub image_ref: String,
    /// Hash of the definition it was made from.
    pub hash: String,
    /// File on the host that holds the termination message.
    pub termination_file: Option<PathBuf>,
    /// Log file on the host.
    pub log_path: String,
    /// The user of its first process, where the runtime tells.
    pub user: Option<LinuxUser>,
    /// The signal that ends it, where the runtime tells.
    pub stop_signal: Option<v1::Signal>,
    /// Its size, where the runtime tells.
    pub actual: Option<Actual>,
}

impl Instance {
    /// Says whether it was filled from facts because the runtime did not show it; the runtime's word counts more.
    pub fn is_recalled(&self) -> bool {
        self.created_at == 0
    }

    /// Says whether it may have a process now or get one without a new create.
    pub fn is_live(&self) -> bool {
        match self.state {
            InstanceState::Created | InstanceState::Running | InstanceState::Unknown => true,
            InstanceState::Exited => false,
        }
    }
}

/// Everything the runtime has of one pod, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Sandboxes, newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Container instances, newest first.
    pub containers: Vec<Instance>,
}

impl Observed {
    /// Puts everything in order: newest first. Attempts count, not clocks, because wall time steps.
    pub fn sort(&mut self) {
        self.sandboxes.sort_by(|a, b| b.attempt.cmp(&a.attempt).then(b.created_at.cmp(&a.created_at)));
        self.containers.sort_by(|a, b| b.attempt.cmp(&a.attempt).then(b.created_at.cmp(&a.created_at)));
    }

    /// The newest sandbox.
    pub fn newest_sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first()
    }

    /// The newest instance of a container.
    pub fn newest(&self, name: &str) -> Option<&Instance> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// The newest instance of a container inside one sandbox.
    pub fn newest_in(&self, name: &str, sandbox: &SandboxId) -> Option<&Instance> {
        self.containers.iter().find(|c| c.name == name && c.sandbox == *sandbox)
    }

    /// Adds or replaces an instance.
    pub fn put(&mut self, instance: Instance) {
        self.containers.retain(|c| c.id != instance.id);
        self.containers.push(instance);
        self.sort();
    }

    /// Adds or replaces a sandbox.
    pub fn put_sandbox(&mut self, sandbox: Sandbox) {
        self.sandboxes.retain(|s| s.id != sandbox.id);
        self.sandboxes.push(sandbox);
        self.sort();
    }

    /// Says whether any container may still have a process.
    pub fn has_live_containers(&self) -> bool {
        self.containers.iter().any(Instance::is_live)
    }
}
