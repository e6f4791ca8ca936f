//! The apiserver that is loaded, and the identities that load it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use longshore_plane::pki::PlanePki;
use longshore_util::Tasks;
use longshore_util::clock::SystemClock;

use super::Scale;
use super::wire::{Identity, Wire};
use crate::env::Process;
use crate::etcd::free_port;

/// For the server to come up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connections of the controllers.
const CONTROLLERS: usize = 4;

/// Starts `longshore plane` on the data under a folder.
pub fn start(program: &Path, folder: &Path) -> Result<Process> {
    std::fs::create_dir_all(folder)?;
    let kubeconfig = folder.join("admin.kubeconfig");
    drop(std::fs::remove_file(&kubeconfig));
    let mut command = Command::new(program);
    command.arg("plane").arg("--data-dir").arg(folder.join("plane"));
    command.args(["--bind", &format!("127.0.0.1:{}", free_port()?)]).arg("--write-kubeconfig").arg(&kubeconfig);
    let mut process = Process::spawn("plane", &mut command, folder.join("plane.log"))?;
    process.until("the plane serves", PATIENCE, || kubeconfig.exists())?;
    Ok(process)
}

/// Connections of all who take part.
#[derive(Debug, Clone)]
pub struct Crew {
    /// Of controllers, with an administrator's rights.
    pub controllers: Vec<Wire>,
    /// Of nodes, each with its own rights.
    pub nodes: Vec<Wire>,
}

impl Crew {
    /// Connects everybody to the server that was started on a folder.
    pub async fn connect(folder: &Path, nodes: usize, tasks: &Tasks) -> Result<Self> {
        let admin = std::fs::read_to_string(folder.join("admin.kubeconfig"))?;
        let identity = Identity::of(&admin, "kube-controller-manager/v1.37.0").await?;
        let mut crew = Self { controllers: Vec::new(), nodes: Vec::new() };
        for _ in 0..CONTROLLERS {
            crew.controllers.push(identity.connect(tasks).await?);
        }
        let server = admin.lines().find_map(|line| line.trim().strip_prefix("server: ")).context("a server")?;
        let pki = PlanePki::open(&folder.join("plane/pki"), Arc::new(SystemClock))?;
        for node in 0..nodes {
            let kubeconfig = pki.node_kubeconfig(&Scale::node(node), server.trim_matches('"'))?;
            crew.nodes.push(Identity::of(&kubeconfig, "kubelet/v1.37.0").await?.connect(tasks).await?);
        }
        Ok(crew)
    }

    /// One of the controllers' connections.
    pub fn controller(&self, index: usize) -> &Wire {
        &self.controllers[index % self.controllers.len()]
    }
}
