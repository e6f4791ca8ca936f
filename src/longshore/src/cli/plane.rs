//! `longshore plane`: the bundled control plane alone, and `plane node-kubeconfig` for a node that joins it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use longshore_plane::PlaneOptions;
use longshore_util::Tasks;

use super::etcd;
use super::print::out;
use crate::app::fail::Usage;
use crate::app::paths::Paths;
use crate::app::plane::{self, PlaneRun};
use crate::app::{memory, runtime, up};

/// Flags of `plane`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Keys, certificates and stored objects
    #[arg(long, value_name = "DIR", default_value = Paths::DATA)]
    data_dir: PathBuf,
    /// Where the apiserver listens
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    bind: SocketAddr,
    /// Copy the administrator's kubeconfig here
    #[arg(long, value_name = "FILE")]
    write_kubeconfig: Option<PathBuf>,
    /// Write who did what, without bodies, to this file (level Metadata)
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    #[command(flatten)]
    etcd: etcd::Flags,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Write a kubeconfig with a node's rights
    NodeKubeconfig {
        /// Name of the node
        name: String,
        /// The plane's data
        #[arg(long, value_name = "DIR", default_value = Paths::DATA)]
        data_dir: PathBuf,
        /// URL of the apiserver
        #[arg(long, value_name = "URL", default_value = "https://127.0.0.1:6443")]
        server: String,
        /// Write here instead of to stdout
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
    },
}

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        Some(Command::NodeKubeconfig { name, data_dir, server, write }) => {
            if longshore_api::names::dns1123_subdomain(&name).is_empty() {
                let text = plane::node_kubeconfig(&data_dir, &name, &server)?;
                match write {
                    Some(file) => longshore_util::atomic::write(&file, text.as_bytes(), 0o600)
                        .with_context(|| format!("write {}", file.display()))?,
                    None => out(text.trim_end())?,
                }
                Ok(ExitCode::SUCCESS)
            } else {
                Err(Usage(format!("{name:?} is no node name: lower case letters, digits, - and . only")).into())
            }
        }
        None => {
            runtime::block_on(async {
                let tasks = Tasks::new();
                memory::keep_small(&tasks);
                let options = PlaneOptions {
                    audit_log: arguments.audit_log_path,
                    etcd: arguments.etcd.options()?,
                    ..PlaneOptions::new(arguments.data_dir, arguments.bind)
                };
                let plane = PlaneRun::start(options, &tasks).await?;
                if let Some(file) = &arguments.write_kubeconfig {
                    plane.copy_admin_kubeconfig(file).await?;
                }
                tracing::info!(url = plane.url(), "control plane is ready");
                let outcome = up::until_told(&tasks).await;
                tasks.cancel();
                drop(tokio::time::timeout(std::time::Duration::from_secs(10), tasks.join()).await);
                plane.close().await;
                outcome
            })?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
