//! The golden cases: each manifest is run on a real node, what the agent made of it is recorded by the same tools that
//! recorded the stock kubelet, and the two recordings are compared.

mod phases;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::cluster::{Cluster, ClusterOptions, golden_directory};
use crate::env::{Env, Version};
use crate::foreign::Foreign;
use crate::tools::{self, say};

/// The files of a recording that must not differ.
pub const FILES: [&str; 6] = ["result.json", "object.json", "cri.json", "status.json", "events.tsv", "inside.txt"];

/// Each distinct state that a watcher saw, in order.
const PHASES: &str = "phases.json";
/// The recordings of the stock agent, by runtime.
const RECORDINGS: [&str; 3] = ["recorded", "recorded-1.7", "recorded-1.6"];

/// So many cases that differ are run a second time; more are no accident.
const AGAIN: usize = 4;

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
    /// An apiserver that runs already, in place of the bundled one.
    pub foreign: Option<Foreign>,
}

/// The outcome: how the cases went and what differs.
#[derive(Debug)]
pub struct GoldenOutcome {
    /// Names of the cases that were run.
    pub cases: Vec<String>,
    /// Those that are not as recorded.
    pub differing: Vec<String>,
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
    let mut cluster = Cluster::start(
        &env,
        ClusterOptions {
            record: true,
            agent: options.agent.clone(),
            foreign: options.foreign.clone(),
            ..Default::default()
        },
    )?;
    let mut files = FILES.to_vec();
    if !cluster.is_reached_by_the_apiserver() {
        say("the apiserver does not reach the node: what is seen inside of containers is not compared");
        files.retain(|file| *file != "inside.txt");
    }
    let mut text = record(&cluster, &golden, &output, &cases, options.parallel)?;
    drop(std::fs::copy(env.directory().join("logs/agent.log"), output.join("agent.log")));
    drop(std::fs::copy(env.directory().join("logs/plane.log"), output.join("plane.log")));
    drop(std::fs::copy(cluster.calls(), output.join("calls.jsonl")));
    if options.foreign.is_some() {
        cluster.leave()?;
    }

    let recorded = golden.join(options.version.recordings());
    let (same, differences) = compare(&recorded, &output, &cases, &files)?;
    text.push_str(&differences);
    let mut differing = Vec::new();
    for case in &cases {
        let states = compare_phases(&golden, &recorded, &output, case)?;
        let is_same = same || compare(&recorded, &output, std::slice::from_ref(case), &files)?.0;
        if !is_same || !states.is_empty() {
            differing.push(case.clone());
        }
        for line in states {
            text.push_str(&line);
            text.push('\n');
        }
    }
    if !same && differing.is_empty() {
        bail!("the comparison fails, but no case does alone:\n{text}");
    }
    Ok(GoldenOutcome { cases, differing, text, directory: output })
}

/// Runs the cases, and those that differ a second time, alone: the recordings were made on a machine with nothing else to
/// do, and a busy one may not come as far within a case's time. A difference that stays is one.
pub fn run_twice(options: &GoldenRun) -> Result<GoldenOutcome> {
    let first = run(options)?;
    if first.differing.is_empty() || first.differing.len() > AGAIN {
        return Ok(first);
    }
    let second = run(&GoldenRun { only: first.differing.clone(), parallel: 1, ..options.clone() })?;
    let text = format!("{}\nagain, alone:\n{}", first.text, second.text);
    Ok(GoldenOutcome { differing: second.differing, directory: second.directory, text, ..first })
}

/// Whether the recordings are the same, and the comparison's text.
fn compare(recorded: &Path, output: &Path, cases: &[String], files: &[&str]) -> Result<(bool, String)> {
    let pattern = format!("^({})$", cases.join("|"));
    let mut diff = Command::new(tools::python()?.join("python"));
    diff.arg(golden_directory().join("golden.py")).arg("diff").arg(recorded).arg(output);
    diff.args(["--only", &pattern, "--most", "80", "--files"]).args(files);
    let outcome = diff.output().context("compare recordings")?;
    let mut text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&outcome.stderr));
    Ok((outcome.status.success(), text))
}

/// What differs in the states that were seen of a case.
fn compare_phases(golden: &Path, recorded: &Path, output: &Path, case: &str) -> Result<Vec<String>> {
    let read = |directory: &Path| -> Result<Vec<String>> {
        let path = directory.join(case).join(PHASES);
        let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
    };
    if !output.join(case).join(PHASES).exists() {
        return Ok(vec![format!("{case}: was not recorded, its recorder ended before")]);
    }
    let others = RECORDINGS.iter().map(|name| read(&golden.join(name))).collect::<Result<Vec<_>>>()?;
    let mut found = phases::differences(case, &read(recorded)?, &others, &read(output)?);
    if !found.is_empty() {
        found.extend(phases::reasons(case).map(|why| format!("{case}: kept on purpose is only: {why}")));
    }
    Ok(found)
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
