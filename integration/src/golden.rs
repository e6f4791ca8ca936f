//! The golden cases: each manifest is run on a real node, what the agent made of it is recorded by the same tools that
//! recorded the stock kubelet, and the two recordings are compared.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::cluster::{Cluster, ClusterOptions, golden_directory};
use crate::env::{Env, Version};
use crate::tools;

/// The files of a recording that must not differ.
pub const FILES: [&str; 6] = ["result.json", "object.json", "cri.json", "status.json", "events.tsv", "inside.txt"];

/// What to run.
#[derive(Debug, Clone)]
pub struct GoldenRun {
    /// On which runtime.
    pub version: Version,
    /// Names of cases; all when empty.
    pub only: Vec<String>,
    /// Cases at the same time; they are told apart by namespace.
    pub parallel: usize,
    /// Another agent that takes the kubelet's flags.
    pub agent: Vec<String>,
}

/// The outcome: how the cases went and what differs.
#[derive(Debug)]
pub struct GoldenOutcome {
    /// Names of the cases that were run.
    pub cases: Vec<String>,
    /// Whether all are as recorded.
    pub same: bool,
    /// Progress and differences as text.
    pub text: String,
    /// Where the new recordings are.
    pub directory: PathBuf,
}

/// Runs the cases and compares them with the recording of the same runtime.
pub fn run(options: &GoldenRun) -> Result<GoldenOutcome> {
    let golden = golden_directory();
    let cases = cases(&golden, &options.only)?;
    let output = tools::cache()?.join(format!("golden-{}", options.version.name()));
    drop(std::fs::remove_dir_all(&output));
    std::fs::create_dir_all(&output)?;
    let env = Env::start(options.version)?;
    let cluster =
        Cluster::start(&env, ClusterOptions { record: true, agent: options.agent.clone(), ..Default::default() })?;
    let mut text = record(&cluster, &golden, &output, &cases, options.parallel)?;
    drop(std::fs::copy(env.directory().join("logs/agent.log"), output.join("agent.log")));
    drop(std::fs::copy(env.directory().join("logs/plane.log"), output.join("plane.log")));
    drop(std::fs::copy(cluster.calls(), output.join("calls.jsonl")));

    let pattern = format!("^({})$", cases.join("|"));
    let mut diff = Command::new(tools::python()?.join("python"));
    diff.arg(golden.join("golden.py")).arg("diff").arg(golden.join(options.version.recordings())).arg(&output);
    diff.args(["--only", &pattern, "--most", "80", "--files"]).args(FILES);
    let outcome = diff.output().context("compare recordings")?;
    text.push_str(&String::from_utf8_lossy(&outcome.stdout));
    text.push_str(&String::from_utf8_lossy(&outcome.stderr));
    Ok(GoldenOutcome { cases, same: outcome.status.success(), text, directory: output })
}

/// Deals the cases out to a few recorders that run side by side.
fn record(cluster: &Cluster<'_>, golden: &Path, output: &Path, cases: &[String], parallel: usize) -> Result<String> {
    let python = tools::python()?;
    let hands = parallel.clamp(1, cases.len().max(1));
    let root = format!("{}=", cluster.env().cgroup_root());
    let mut running = Vec::new();
    for hand in 0..hands {
        let mine = cases.iter().skip(hand).step_by(hands);
        let mut command = Command::new(python.join("python"));
        command.arg(golden.join("golden.py")).arg("record");
        command.arg("--kubeconfig").arg(cluster.kubeconfig()).args(["--node", Cluster::NODE, "--calls"]);
        command.arg(cluster.calls()).arg("--out").arg(output).args(["--path", &root]);
        command.args(mine.map(|case| golden.join("cases").join(format!("{case}.yaml"))));
        command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", python.display()));
        command.env("HOME", cluster.env().directory());
        running.push(command);
    }
    let outputs = std::thread::scope(|scope| {
        let threads: Vec<_> =
            running.iter_mut().map(|command| scope.spawn(move || cluster.env().output(command))).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let mut text = String::new();
    for output in outputs {
        let Ok(output) = output else { bail!("a recorder panicked") };
        let output = output?;
        text.push_str(&String::from_utf8_lossy(&output.stdout));
        if !output.status.success() {
            text.push_str(&String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(text)
}

/// The names of all cases.
pub fn all_cases() -> Result<Vec<String>> {
    cases(&golden_directory(), &[])
}

fn cases(golden: &Path, only: &[String]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(golden.join("cases"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
            && (only.is_empty() || only.iter().any(|wanted| wanted == name))
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    if names.is_empty() {
        bail!("no such case: {}", only.join(", "));
    }
    Ok(names)
}
