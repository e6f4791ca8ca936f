//! `golden --containerd 2.1 [CASE…]`: runs golden cases by hand and prints the differences.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use longshore_integration::env::Version;
use longshore_integration::foreign::Foreign;
use longshore_integration::golden::{GoldenRun, run};

/// Runs golden cases on a node and compares them with the stock kubelet's recordings.
#[derive(Debug, Parser)]
struct Arguments {
    /// containerd version: 1.6, 1.7 or 2.1
    #[arg(long, default_value = "2.1")]
    containerd: String,
    /// Cases at the same time
    #[arg(long, default_value_t = 7)]
    parallel: usize,
    /// Another agent that takes the kubelet's flags, e.g. "/usr/bin/kubelet"
    #[arg(long, default_value = "")]
    agent_cmd: String,
    /// An administrator's kubeconfig for an apiserver that runs already, in place of the bundled one
    #[arg(long, env = "LONGSHORE_TEST_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The node's kubeconfig there; the administrator's serves when there is none
    #[arg(long, env = "LONGSHORE_TEST_NODE_KUBECONFIG", requires = "kubeconfig")]
    node_kubeconfig: Option<PathBuf>,
    /// Cases to run; all without any
    cases: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let outcome = run(&GoldenRun {
        version: Version::parse(&arguments.containerd)?,
        only: arguments.cases,
        parallel: arguments.parallel,
        agent: arguments.agent_cmd.split_whitespace().map(str::to_owned).collect(),
        foreign: arguments.kubeconfig.map(|admin| Foreign { admin, node: arguments.node_kubeconfig }),
    })?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}\nrecordings: {}", outcome.text.trim_end(), outcome.directory.display())?;
    Ok(if outcome.differing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
