//! A machine with nothing but the programs, for `longshore up` and `down`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::env::{Env, Process, Version, eventually};
use crate::tools;

/// Until `up` says that the node is ready; a loaded machine is slow.
const READY: Duration = Duration::from_secs(120);

/// One machine with nothing but the programs.
#[derive(Debug)]
pub struct Machine {
    env: Env,
}

impl Machine {
    /// Makes it; `version` is the containerd that is installed on it.
    pub fn new(version: Version) -> Result<Self> {
        let env = Env::bare(version)?;
        // As fresh as can be: no network configuration of anybody.
        env.within(|| std::fs::remove_file("/etc/cni/net.d/10-longshore-test.conflist"))??;
        Ok(Self { env })
    }

    /// The environment it is made of.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// A command of our program, as its user would type it.
    pub fn longshore(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(tools::built("longshore")?);
        command.args(arguments).env("PATH", self.env.search_path()?).env_remove("KUBECONFIG").env("HOME", "/root");
        Ok(command)
    }

    /// Runs one to its end and returns what it printed.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        self.env.run(&mut self.longshore(arguments)?)
    }

    /// What the agent of this machine must be told: its pods' cgroups are the run's.
    pub fn flags(&self) -> String {
        format!("--cgroup-root={}", self.env.cgroup_root())
    }

    /// Starts `up` in the foreground.
    pub fn start_up(&self, arguments: &[&str]) -> Result<Process> {
        let mut words = vec!["up"];
        words.extend(arguments);
        let flags = self.flags();
        words.extend(["--", &flags]);
        // One that was killed left this behind.
        drop(self.env.within(|| std::fs::remove_file("/run/longshore/ready"))?);
        self.env.spawn("up", &mut self.longshore(&words)?)
    }

    /// Waits until an `up` says that the node is ready.
    pub fn wait_up(&self, process: &mut Process) -> Result<()> {
        let mut failure = None;
        let ready = eventually("up is ready", READY, || {
            failure = process.check_alive().err();
            failure.is_some() || self.exists("/run/longshore/ready")
        });
        if let Some(error) = failure {
            return Err(error);
        }
        ready.with_context(|| process.tail())
    }

    /// `up` in the foreground; returns it and how long it took until it said ready.
    pub fn up(&self, arguments: &[&str]) -> Result<(Process, Duration)> {
        let started = Instant::now();
        let mut process = self.start_up(arguments)?;
        self.wait_up(&mut process)?;
        Ok((process, started.elapsed()))
    }

    /// Whether a path is there on the machine.
    pub fn exists(&self, path: &str) -> bool {
        self.env.within(|| Path::new(path).exists()).unwrap_or(false)
    }

    /// The containers as `ps` shows them: pod, id, state.
    pub fn containers(&self) -> Result<Vec<String>> {
        let text = self.run(&["ps", "--output", "json"])?;
        let rows: serde_json::Value = serde_json::from_str(&text)?;
        let rows = rows.as_array().context("ps gives a list")?;
        Ok(rows.iter().map(|row| format!("{} {} {}", row["pod"], row["id"], row["state"])).collect())
    }

    /// The process ids of the containerds that `up` started and that run.
    pub fn containerd(&self) -> Result<Vec<u32>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let ours =
                String::from_utf8_lossy(&line).replace('\0', " ").contains("--config /run/longshore/containerd.toml");
            let space = std::fs::read_link(entry.path().join("ns/mnt")).ok();
            if ours
                && space.is_some()
                && space == self.env.within(|| std::fs::read_link("/proc/thread-self/ns/mnt").ok())?
            {
                found.push(pid);
            }
        }
        ensure!(found.len() == 1, "{} containerds of up run: {found:?}", found.len());
        Ok(found)
    }

    /// Fails when something is there that must not be after `down`.
    pub fn ensure_nothing_left(&self) -> Result<()> {
        ensure!(!self.exists("/run/longshore"), "/run/longshore is left");
        let devices = self.env.within(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
        ensure!(!devices.contains("longshore0:"), "the bridge is left");
        let mounts = self.env.within(|| std::fs::read_to_string("/proc/thread-self/mountinfo"))??;
        for line in mounts.lines() {
            let place = line.split(' ').nth(4).unwrap_or_default();
            let ours = ["/run/longshore", "/var/lib/longshore/", "/var/lib/kubelet/pods"];
            ensure!(!ours.iter().any(|folder| place.starts_with(folder)), "a mount is left: {line}");
        }
        let pods = self.env.within(|| entries(Path::new("/var/lib/kubelet/pods")))?;
        ensure!(pods.is_empty(), "pod folders are left: {pods:?}");
        let logs = self.env.within(|| entries(Path::new("/var/log/pods")))?;
        ensure!(logs.is_empty(), "logs are left: {logs:?}");
        let mark = format!("longshore-{}", self.env.id());
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let cgroup = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
            ensure!(!cgroup.contains(&mark), "process {} is left", entry.file_name().display());
        }
        Ok(())
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
