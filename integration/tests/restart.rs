//! kill -9 of the agent, and of the whole `longshore up`, at random moments while twenty pods start, run and stop.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use longshore_integration::churn::{self, Place, Victim};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, Process, Version, newest, pause};
use longshore_integration::machine::Machine;

struct Agent<'a, 'env>(&'a mut Cluster<'env>);

impl Victim for Agent<'_, '_> {
    fn kill(&mut self) -> Result<()> {
        self.0.kill_agent()
    }

    fn start(&mut self) -> Result<()> {
        self.0.start_agent()
    }

    fn wait_ready(&mut self) -> Result<()> {
        self.0.wait_healthy(Duration::from_secs(60))
    }
}

fn agent_is_killed(version: Version, kills: usize) {
    let env = Env::start(version).unwrap();
    let mut cluster = Cluster::start(&env, ClusterOptions::default()).unwrap();
    let place = Place::of(&cluster);
    let outcome = churn::run(&env, &place, &mut Agent(&mut cluster), kills);
    if let Err(error) = outcome {
        panic!("{error:#}\nagent:\n{}", cluster.agent().map(|agent| agent.tail()).unwrap_or_default());
    }
}

/// Agent and control plane in one process; its containerd is nobody's child once it runs.
struct Up<'a> {
    machine: &'a Machine,
    process: Option<Process>,
}

impl Victim for Up<'_> {
    fn kill(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |mut process| process.kill())
    }

    fn start(&mut self) -> Result<()> {
        self.process = Some(self.machine.start_up(&["--node-name", NODE])?);
        Ok(())
    }

    fn wait_ready(&mut self) -> Result<()> {
        let process = self.process.as_mut().context("up was not started")?;
        self.machine.wait_up(process)
    }
}

/// Name of the node that `up` makes.
const NODE: &str = "kills-1";
/// Kills at moments from the very first start on: nothing is there then, and each of its parts may be half made.
const KILLS_OF_THE_FIRST_START: usize = 3;

fn up_is_killed(version: Version, kills: usize) -> Result<()> {
    let machine = Machine::new(version)?;
    let mut up = Up { machine: &machine, process: None };
    let mut dice = churn::Dice::from_environment();
    up.start()?;
    for _ in 0..KILLS_OF_THE_FIRST_START {
        pause(Duration::from_millis(dice.below(1500)));
        up.kill()?;
        up.start()?;
    }
    up.wait_ready()?;
    let containerd = machine.containerd()?;
    machine.env().import_images_into("/run/longshore/containerd.sock")?;
    let place = Place {
        kubeconfig: PathBuf::from("/var/lib/longshore/admin.kubeconfig"),
        node: NODE.to_owned(),
        endpoint: "unix:///run/longshore/containerd.sock".to_owned(),
        root: PathBuf::from("/var/lib/kubelet"),
        cgroup_root: machine.env().cgroup_root(),
    };
    let outcome = churn::run(machine.env(), &place, &mut up, kills);
    outcome.with_context(|| up.process.as_ref().map(Process::tail).unwrap_or_default())?;
    ensure!(machine.containerd()? == containerd, "the containerd of the first up was not adopted");
    machine.run(&["down", "--purge"])?;
    machine.ensure_nothing_left()
}

fn ok(result: Result<()>) {
    if let Err(error) = result {
        panic!("{error:#}");
    }
}

#[test]
fn root_ten_kills_of_up_change_nothing() {
    ok(up_is_killed(newest(), 10));
}

#[test]
#[ignore = "long: part of make test-all"]
fn root_fifty_kills_of_up_change_nothing() {
    ok(up_is_killed(newest(), 50));
}

#[test]
#[ignore = "long: part of make test-all"]
fn root_fifty_kills_of_up_change_nothing_on_debian_12_containerd() {
    ok(up_is_killed(Version::V1_6, 50));
}

#[test]
fn root_ten_kills_of_the_agent_change_nothing() {
    agent_is_killed(newest(), 10);
}

#[test]
#[ignore = "long: part of make test-all"]
fn root_fifty_kills_of_the_agent_change_nothing() {
    agent_is_killed(newest(), 50);
}

#[test]
#[ignore = "long: part of make test-all"]
fn root_fifty_kills_of_the_agent_change_nothing_on_debian_12_containerd() {
    agent_is_killed(Version::V1_6, 50);
}
