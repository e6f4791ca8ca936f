//! `longshore up` and `down` as a user meets them: from nothing to an answering pod, through kill -9 and back, and
//! nothing left behind.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use longshore_integration::env::{Env, Process, Version, eventually, newest};
use longshore_integration::tools;

/// One machine with nothing but the programs.
struct Machine {
    env: Env,
}

impl Machine {
    fn new(version: Version) -> Result<Self> {
        let env = Env::bare(version)?;
        // As fresh as can be: no network configuration of anybody.
        env.within(|| std::fs::remove_file("/etc/cni/net.d/10-longshore-test.conflist"))??;
        Ok(Self { env })
    }

    fn longshore(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(tools::built("longshore")?);
        command.args(arguments).env("PATH", self.env.search_path()?).env_remove("KUBECONFIG").env("HOME", "/root");
        Ok(command)
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        self.env.run(&mut self.longshore(arguments)?)
    }

    fn flags(&self) -> String {
        format!("--cgroup-root={}", self.env.cgroup_root())
    }

    /// `up` in the foreground; returns it and how long it took until it said ready.
    fn up(&self, arguments: &[&str]) -> Result<(Process, Duration)> {
        let mut words = vec!["up"];
        words.extend(arguments);
        let flags = self.flags();
        words.extend(["--", &flags]);
        // One that was killed left this behind.
        drop(self.env.within(|| std::fs::remove_file("/run/longshore/ready"))?);
        let started = Instant::now();
        let mut process = self.env.spawn("up", &mut self.longshore(&words)?)?;
        let mut failure = None;
        let ready = eventually("up is ready", Duration::from_secs(60), || {
            failure = process.check_alive().err();
            failure.is_some() || self.exists("/run/longshore/ready")
        });
        if let Some(error) = failure {
            return Err(error);
        }
        ready.with_context(|| process.tail())?;
        Ok((process, started.elapsed()))
    }

    fn exists(&self, path: &str) -> bool {
        self.env.within(|| Path::new(path).exists()).unwrap_or(false)
    }

    fn containers(&self) -> Result<Vec<String>> {
        let text = self.run(&["ps", "--output", "json"])?;
        let rows: serde_json::Value = serde_json::from_str(&text)?;
        let rows = rows.as_array().context("ps gives a list")?;
        Ok(rows.iter().map(|row| format!("{} {} {}", row["pod"], row["id"], row["state"])).collect())
    }

    /// What must not be there after `down`.
    fn ensure_nothing_left(&self) -> Result<()> {
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

fn from_nothing_to_a_pod_and_back(version: Version) -> Result<()> {
    let machine = Machine::new(version)?;
    let (mut up, _) = machine.up(&["--demo"])?;
    let said = std::fs::read_to_string(up.log())?;
    ensure!(said.contains("Hello from pod hello"), "the sample did not answer:\n{said}");
    let listed = machine.run(&["get", "pods", "-A"])?;
    ensure!(listed.contains("hello") && listed.contains("Running"), "{listed}");
    let logs = machine.run(&["logs", "hello"])?;
    ensure!(logs.contains("demo server listens"), "{logs}");
    let before = machine.containers()?;
    ensure!(before.len() == 1, "{before:?}");

    // A second up on the same machine says so in one line.
    let second = machine.env.output(&mut machine.longshore(&["up"])?)?;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    ensure!(!second.status.success() && said.contains("runs already"), "{said}");

    // kill -9: the pod goes on, and the next up finds it.
    up.kill()?;
    ensure!(machine.containers()? == before, "the pod did not outlive up");
    let (mut up, took) = machine.up(&[])?;
    ensure!(took < Duration::from_secs(5), "up took {took:?} with all in place");
    ensure!(machine.containers()? == before, "the pod was not adopted");
    let listed = machine.run(&["get", "pods"])?;
    ensure!(listed.contains("1/1"), "{listed}");

    // Ctrl-C ends up, not the pod.
    up.signal(nix::sys::signal::Signal::SIGINT)?;
    let status = up.stop(Duration::from_secs(15))?;
    ensure!(status.success(), "{status}:\n{}", up.tail());
    ensure!(machine.containers()? == before, "the pod did not outlive Ctrl-C");

    machine.run(&["down"])?;
    machine.ensure_nothing_left()?;
    ensure!(machine.exists("/var/lib/longshore/pki/ca.crt"), "down without --purge keeps the data");
    machine.run(&["down", "--purge"])?;
    ensure!(!machine.exists("/var/lib/longshore/pki"), "down --purge removes the data");
    Ok(())
}

fn down_works_after_everything_was_killed(version: Version) -> Result<()> {
    let machine = Machine::new(version)?;
    let flags = machine.flags();
    machine.run(&["up", "--detach", "--demo", "--", &flags])?;
    ensure!(machine.containers()?.len() == 1);
    for file in ["/run/longshore/up.pid", "/run/longshore/containerd.pid"] {
        let pid = machine.env.within(|| std::fs::read_to_string(file))??;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.trim().parse()?), nix::sys::signal::Signal::SIGKILL)?;
    }
    machine.run(&["down"])?;
    machine.ensure_nothing_left()
}

fn ok(result: Result<()>) {
    if let Err(error) = result {
        panic!("{error:#}");
    }
}

#[test]
fn root_from_nothing_to_a_pod_and_back_on_debian_12_containerd() {
    ok(from_nothing_to_a_pod_and_back(Version::V1_6));
}

#[test]
fn root_from_nothing_to_a_pod_and_back_on_the_newest_containerd() {
    ok(from_nothing_to_a_pod_and_back(newest()));
}

#[test]
fn root_down_works_after_everything_was_killed() {
    ok(down_works_after_everything_was_killed(Version::V1_6));
}

#[test]
fn root_what_is_missing_is_said_with_the_command_that_mends_it() {
    let machine = Machine::new(Version::V1_6).unwrap();
    let mut command = machine.longshore(&["up"]).unwrap();
    command.env("PATH", "/nowhere");
    // Programs are also looked for where systems keep them: cover the runtime's.
    machine.env.run(Command::new("mount").args(["--bind", "/dev/null", "/usr/bin/containerd"])).unwrap();
    let output = machine.env.output(&mut command).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("containerd: not installed") && said.contains("apt-get install containerd"), "{said}");
}
