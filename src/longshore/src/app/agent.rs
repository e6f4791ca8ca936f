//! The node agent as `agent` and `up` run it: from flags to a running [`longshore_node`].

use std::time::Duration;

use anyhow::Result;
use longshore_api::flags::Flags;
use longshore_node::settings::{self, Settings};
use longshore_util::Tasks;

use super::fail::Usage;

/// The version of the kubelet whose contract this agent keeps.
pub(crate) const VERSION: &str = "v1.36.0";

/// Reads files that the flags name; all faults are told together.
pub(crate) fn settings(flags: &Flags) -> Result<Settings> {
    settings::load(flags).map_err(|errors| Usage(errors.to_string()).into())
}

/// A running agent.
#[derive(Debug)]
pub(crate) struct AgentRun;

impl AgentRun {
    /// Starts it.
    pub(crate) async fn start(_settings: Settings, _tasks: &Tasks) -> Result<Self> {
        anyhow::bail!("the node agent is not in this build")
    }

    /// Ends it in order: no new work, then what is being written, then the rest.
    pub(crate) async fn stop(self, tasks: &Tasks) {
        tasks.cancel();
        drop(tokio::time::timeout(Duration::from_secs(10), tasks.join()).await);
    }
}
