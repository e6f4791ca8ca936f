//! placeholder
use anyhow::Result;
use longshore_util::Tasks;
pub(crate) struct AgentRun;
impl AgentRun {
    pub(crate) async fn start(_f: &[String], _t: &Tasks) -> Result<Self> {
        anyhow::bail!("no agent")
    }
}
