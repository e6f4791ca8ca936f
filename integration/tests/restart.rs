//! kill -9 of the agent at random moments while twenty pods start, run and stop.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use longshore_integration::churn::{self, Place, Victim};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, Version, newest};

struct Agent<'a, 'env>(&'a mut Cluster<'env>);

impl Victim for Agent<'_, '_> {
    fn kill(&mut self) -> Result<()> {
        self.0.kill_agent()
    }

    fn start(&mut self) -> Result<()> {
        self.0.start_agent()
    }

    fn wait_ready(&mut self) -> Result<()> {
        self.0.wait_healthy(Duration::from_secs(20))
    }
}

fn agent_is_killed(version: Version, kills: usize) {
    let env = Env::start(version).unwrap();
    let mut cluster = Cluster::start(&env, ClusterOptions::default()).unwrap();
    let place = Place {
        kubeconfig: cluster.kubeconfig(),
        node: Cluster::NODE.to_owned(),
        endpoint: env.endpoint(),
        root: PathBuf::from("/var/lib/kubelet"),
        cgroup_root: env.cgroup_root(),
    };
    let outcome = churn::run(&env, &place, &mut Agent(&mut cluster), kills);
    if let Err(error) = outcome {
        panic!("{error:#}\nagent:\n{}", cluster.agent().map(|agent| agent.tail()).unwrap_or_default());
    }
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
