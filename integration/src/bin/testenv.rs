//! `testenv --containerd 2.1 -- COMMAND…`: runs a command inside a fresh environment, for hands and scripts.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::Parser;
use longshore_integration::env::{Env, Version};

/// Runs a command in a world of its own with a real containerd; everything is removed afterwards.
#[derive(Debug, Parser)]
struct Arguments {
    /// containerd version: 1.6, 1.7 or 2.1
    #[arg(long, default_value = "1.6")]
    containerd: String,
    /// The command; a shell without one. It finds CONTAINER_RUNTIME_ENDPOINT, CGROUP_ROOT, NODE_IP and TEST_DIR set
    #[arg(last = true)]
    command: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let env = Env::start(Version::parse(&arguments.containerd)?)?;
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
        .env("NODE_IP", longshore_integration::env::NODE_ADDRESS)
        .env("TEST_DIR", env.directory())
        .env("CTR", format!("{:?}", env.ctr(&[])?).replace('"', ""));
    let status = env.within(|| command.status())?.with_context(|| format!("run {program}"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
