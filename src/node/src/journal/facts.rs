//! The records. Every one carries its version; older ones are migrated, newer ones refused.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodStatus, ResourceRequirements};
use longshore_api::resize::Sizes;
use longshore_transport::client::Typed;
use serde::{Deserialize, Deserializer, Serialize};

use crate::model::{ContainerId, PodUid, SandboxId, SourceKind};
use crate::pod::{BackoffEntry, LinuxUser};

/// The newest record version that this agent writes and reads.
pub(super) const VERSION: u32 = 1;

/// A line of the journal. Its version is a field like the others: an enum with a tag is read twice, once into a buffer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// What is read as this.
    pub(super) version: RecordVersion,
    /// The pod.
    pub(super) uid: PodUid,
    /// Its facts; absent = forget it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) facts: Option<Box<PodFacts>>,
}

/// Versions of records that are read.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum RecordVersion {
    /// First version.
    #[serde(rename = "1")]
    V1,
}

/// Everything about one pod that must survive the agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PodFacts {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Where it was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceKind>,
    /// Which manifest it was made of, where the uid does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// When the agent saw it first; becomes `status.startTime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// Outcome of admission; absent = not yet decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Verdict>,
    /// What it holds of the node since it was admitted, so that it counts before its source has named it again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: longshore_api::resources::Amounts,
    /// The sizes that it was granted, which may not be those of its spec any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Sizes>,
    /// Another size that is asked for and not granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingFacts>,
    /// A granted size that is not wholly in force yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<ResizeFacts>,
    /// Attempt number of the sandbox that is about to be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_intent: Option<u32>,
    /// Pod addresses; kept after the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
    /// The sandbox that has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ips_of: Option<SandboxId>,
    /// Containers by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub containers: BTreeMap<String, ContainerFacts>,
    /// The order to end it, once given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<EndFacts>,
    /// Its source let go of it: should it come back, it begins anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
    /// Everything of the pod has ended and was released.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// `status` is the last one there will be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// Status as last reported, so that transition times and ends hold where no API keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "shaped")]
    pub status: Option<Box<PodStatus>>,
}

/// As all of the API's types: read in one way, or the program would have the code for it a second time.
fn shaped<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<PodStatus>>, D::Error> {
    let status = Option::<Typed<PodStatus>>::deserialize(deserializer)?;
    Ok(status.map(|Typed(status)| Box::new(status)))
}

/// Outcome of admission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It may run.
    Admitted,
    /// It may not.
    Rejected {
        /// `status.reason`.
        reason: String,
        /// `status.message`.
        message: String,
    },
}

/// A size that was asked for and not granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingFacts {
    /// `Deferred` or `Infeasible`.
    pub reason: String,
    /// Why.
    pub message: String,
    /// Generation of the spec that asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Since when it waits.
    pub since: Timestamp,
}

/// A resize under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResizeFacts {
    /// Generation of the spec that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The sizes that were wholly in force before it.
    pub before: Sizes,
    /// When it began.
    pub since: Timestamp,
    /// What was in the way at the last try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The order to end a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndFacts {
    /// Grace in seconds; only shrinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<i64>,
    /// `status.reason` where the node itself ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `status.message` where the node itself ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether `DisruptionTarget` is set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disruption: bool,
}

/// Facts of a container of the spec.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerFacts {
    /// Attempt number that is about to be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<u32>,
    /// Attempt number whose hook after the start has not come to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_due: Option<u32>,
    /// Instances seen, newest first; the two newest are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<InstanceFacts>,
    /// Highest attempt number of instances that were forgotten on purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<u32>,
    /// How it failed first; kept however often it fails after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<FirstFailure>,
    /// Its restart delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backoff: Option<BackoffEntry>,
}

/// Facts of one instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceFacts {
    /// The runtime's id.
    pub id: ContainerId,
    /// Restart count at the time it was made.
    pub attempt: u32,
    /// The sandbox it lives in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxId>,
    /// Hash of the definition it was made from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// When its process started, nanoseconds; 0 = not yet.
    #[serde(default)]
    pub started_at: i64,
    /// Whether it was reported ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ready: bool,
    /// Whether it counted as started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub started: bool,
    /// Image as the user wrote it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Image as the runtime resolved it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image_ref: String,
    /// The user of its first process, where the runtime tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<LinuxUser>,
    /// The size that it was made with or last given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<ResourceRequirements>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitFacts>,
}

/// How an instance ended; what was seen once is never reported differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitFacts {
    /// Exit code.
    pub code: i32,
    /// Reason, e.g. `OOMKilled`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Termination message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When, nanoseconds.
    #[serde(default)]
    pub finished_at: i64,
}

/// The first failure of a container: often the one that tells why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstFailure {
    /// Attempt number of the instance.
    pub attempt: u32,
    /// How it ended.
    pub exit: ExitFacts,
}

impl PodFacts {
    /// Says whether the pod was admitted and is not over.
    pub fn holds_place(&self) -> bool {
        self.admission == Some(Verdict::Admitted) && !self.ended
    }
}

/// How many instances of a container are remembered: the present one and the one `lastState` shows.
const REMEMBERED: usize = 2;

impl ContainerFacts {
    /// The facts of an instance, if remembered.
    pub fn instance(&self, id: &ContainerId) -> Option<&InstanceFacts> {
        self.instances.iter().find(|i| i.id == *id)
    }

    /// The same, to be changed.
    pub fn instance_mut(&mut self, id: &ContainerId) -> Option<&mut InstanceFacts> {
        self.instances.iter_mut().find(|i| i.id == *id)
    }

    /// Adds or replaces an instance and drops what is too old; returns whether anything changed.
    pub fn put(&mut self, instance: InstanceFacts) -> bool {
        if self.instances.contains(&instance) {
            return false;
        }
        self.instances.retain(|known| known.id != instance.id);
        self.instances.push(instance);
        self.instances.sort_by_key(|known| std::cmp::Reverse(known.attempt));
        self.instances.truncate(REMEMBERED);
        true
    }
}
