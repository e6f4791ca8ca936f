//! `testenv --containerd 2.1 -- COMMAND…`: runs a command inside a fresh environment, for hands and scripts.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::Parser;
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, NODE_ADDRESS, Version, newest};

/// Runs a command in a world of its own with a real containerd; everything is removed afterwards.
#[derive(Debug, Parser)]
struct Arguments {
    /// containerd version: 1.6, 1.7, 2.1 or newest
    #[arg(long, default_value = "1.6")]
    containerd: String,
    /// Also start a control plane and an agent; KUBECONFIG, NODE and AGENT_PID are set then
    #[arg(long)]
    node: bool,
    /// Put the recorder between agent and runtime
    #[arg(long)]
    record: bool,
    /// Another agent that takes the kubelet's flags, e.g. "/usr/bin/kubelet"
    #[arg(long, default_value = "")]
    agent_cmd: String,
    /// The command; a shell without one. It finds CONTAINER_RUNTIME_ENDPOINT, CGROUP_ROOT, NODE_IP, CTR and TEST_DIR set
    #[arg(last = true)]
    command: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let version = if arguments.containerd == "newest" { newest() } else { Version::parse(&arguments.containerd)? };
    let env = Env::start(version)?;
    let mut cluster = None;
    if arguments.node {
        cluster = Some(Cluster::start(
            &env,
            ClusterOptions {
                record: arguments.record,
                agent: arguments.agent_cmd.split_whitespace().map(str::to_owned).collect(),
                ..ClusterOptions::default()
            },
        )?);
    }
    let shell = ["sh".to_owned()];
    let words = if arguments.command.is_empty() { &shell[..] } else { &arguments.command };
    let (program, rest) = words.split_first().context("no command")?;
    let mut command = Command::new(program);
    command
        .args(rest)
        // Entering a mount namespace leads to its root.
        .current_dir(std::env::current_dir()?)
        .env("CONTAINER_RUNTIME_ENDPOINT", env.endpoint())
        .env("CGROUP_ROOT", env.cgroup_root())
        .env("NODE_IP", NODE_ADDRESS)
        .env("TEST_DIR", env.directory())
        .env("CTR", format!("{:?}", env.ctr(&[])?).replace('"', ""));
    if let Some(cluster) = &mut cluster {
        command.env("KUBECONFIG", cluster.kubeconfig()).env("NODE", Cluster::NODE);
        command.env("AGENT_PID", cluster.agent()?.pid().to_string());
    }
    let status = env.within(|| command.status())?.with_context(|| format!("run {program}"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
