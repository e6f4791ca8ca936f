//! The bundled control plane as `plane` and `up` run it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use longshore_plane::pki::PlanePki;
use longshore_plane::{Plane, PlaneOptions};
use longshore_transport::client::{ClientOptions, Kubeconfig};
use longshore_util::Tasks;
use longshore_util::clock::SystemClock;

/// A running control plane.
#[derive(Debug)]
pub(crate) struct PlaneRun {
    plane: Plane,
}

impl PlaneRun {
    /// Starts it; it answers when this returns.
    pub(crate) async fn start(options: PlaneOptions, tasks: &Tasks) -> Result<Self> {
        let plane = Plane::start(options, tasks).await.context("start the control plane")?;
        Ok(Self { plane })
    }

    /// The URL that clients use.
    pub(crate) fn url(&self) -> &str {
        &self.plane.server
    }

    /// Closes the store, when the tasks have ended.
    pub(crate) async fn close(&self) {
        self.plane.close().await;
    }

    /// A client with the administrator's rights, over the same port as everybody else.
    pub(crate) async fn client(&self) -> Result<kube::Client> {
        let kubeconfig = Kubeconfig::load(&self.plane.admin_kubeconfig, Timestamp::now()).await?;
        Ok(kubeconfig.client(&ClientOptions::default())?)
    }

    /// Copies the administrator's kubeconfig, readable by its owner only.
    pub(crate) async fn copy_admin_kubeconfig(&self, to: &Path) -> Result<()> {
        copy(self.plane.admin_kubeconfig.clone(), to.to_path_buf()).await
    }

    /// Writes a kubeconfig with a node's rights.
    pub(crate) async fn write_node_kubeconfig(&self, node: &str, to: &Path) -> Result<()> {
        let text = self.plane.pki().node_kubeconfig(node, &self.plane.server)?;
        write(to.to_path_buf(), text).await
    }
}

/// Makes a kubeconfig with a node's rights from the plane's keys; the plane need not run.
pub(crate) fn node_kubeconfig(data: &Path, node: &str, server: &str) -> Result<String> {
    let pki = PlanePki::open(&data.join("pki"), Arc::new(SystemClock))?;
    Ok(pki.node_kubeconfig(node, server)?)
}

async fn copy(from: PathBuf, to: PathBuf) -> Result<()> {
    let text = tokio::fs::read_to_string(&from).await.with_context(|| format!("read {}", from.display()))?;
    if tokio::fs::read_to_string(&to).await.is_ok_and(|there| there == text) {
        return Ok(());
    }
    write(to, text).await
}

async fn write(to: PathBuf, text: String) -> Result<()> {
    let about = format!("write {}", to.display());
    tokio::task::spawn_blocking(move || longshore_util::atomic::write(&to, text.as_bytes(), 0o600))
        .await
        .with_context(|| about.clone())?
        .context(about)
}
