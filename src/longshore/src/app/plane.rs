//! placeholder until the plane lands
use anyhow::Result;
use longshore_util::Tasks;
use std::net::SocketAddr;
use std::path::Path;
pub(crate) struct PlaneRun;
impl PlaneRun {
    pub(crate) async fn start(_data: &Path, _bind: SocketAddr, _tasks: &Tasks) -> Result<Self> {
        anyhow::bail!("no plane")
    }
    pub(crate) fn url(&self) -> String {
        String::new()
    }
    pub(crate) fn client(&self) -> Result<kube::Client> {
        anyhow::bail!("no plane")
    }
    pub(crate) fn copy_admin_kubeconfig(&self, _f: &Path) -> Result<()> {
        Ok(())
    }
    pub(crate) fn write_node_kubeconfig(&self, _n: &str, _f: &Path) -> Result<()> {
        Ok(())
    }
}
pub(crate) fn node_kubeconfig(_d: &Path, _n: &str, _s: &str) -> Result<String> {
    anyhow::bail!("no plane")
}
