//! The agent needs nothing that only our control plane gives: golden cases on an apiserver of which it gets a kubeconfig
//! and no more. With `LONGSHORE_TEST_KUBECONFIG=FILE` (and `LONGSHORE_TEST_NODE_KUBECONFIG=FILE`, or the agent uses the first)
//! all of them run on that apiserver; without it a few run on a control plane of ours that stands outside of the
//! environment and shares nothing with it.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use longshore_integration::env::{eventually, newest};
use longshore_integration::foreign::Foreign;
use longshore_integration::golden::{GoldenRun, all_cases, run_twice};
use longshore_integration::tools;

const NODE: &str = longshore_integration::cluster::Cluster::NODE;
/// What agent and apiserver have to do with each other: objects, mirrors, tokens, events, graceful deletion.
const FEW: [&str; 8] = [
    "configmap-volume",
    "env-sources",
    "crashloop",
    "image-invalid",
    "minimal",
    "projected",
    "static-pod",
    "stubborn-kill",
];

/// A control plane outside, ended with the test.
struct Outside {
    process: Child,
    folder: tempfile::TempDir,
}

impl Outside {
    fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let mut command = Command::new(tools::built("longshore")?);
        command.arg("plane").arg("--data-dir").arg(folder.path().join("data")).args(["--bind", &address]);
        command.arg("--write-kubeconfig").arg(folder.path().join("admin"));
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut this = Self { process, folder };
        let written = this.folder.path().join("admin");
        eventually("the control plane has started", Duration::from_secs(60), || written.exists())?;
        ensure!(this.process.try_wait()?.is_none(), "the control plane has ended");
        let mut command = Command::new(tools::built("longshore")?);
        command.args(["plane", "node-kubeconfig", NODE, "--data-dir"]).arg(this.folder.path().join("data"));
        command.args(["--server", &format!("https://{address}"), "--write"]).arg(this.folder.path().join("node"));
        ensure!(command.status()?.success(), "no kubeconfig for the node");
        Ok(this)
    }

    fn join(&self) -> Foreign {
        Foreign { admin: self.folder.path().join("admin"), node: Some(self.folder.path().join("node")) }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn cases_hold() -> Result<()> {
    let (outside, foreign, only) = match Foreign::from_environment() {
        Some(foreign) => (None, foreign, all_cases()?),
        None => {
            let outside = Outside::start()?;
            let foreign = outside.join();
            (Some(outside), foreign, FEW.map(str::to_owned).to_vec())
        }
    };
    let run = GoldenRun { version: newest(), only, parallel: 8, agent: Vec::new(), foreign: Some(foreign) };
    let outcome = run_twice(&run).context("run the cases")?;
    drop(outside);
    ensure!(outcome.differing.is_empty(), "{}\nrecordings: {}", outcome.text, outcome.directory.display());
    Ok(())
}

#[test]
fn root_golden_cases_hold_on_an_apiserver_that_is_not_ours() {
    if let Err(error) = cases_hold() {
        panic!("{error:#}");
    }
}
