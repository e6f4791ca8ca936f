//! Twenty pods that start, run and stop while something is killed at random moments, and what must hold all the same:
//! containers of pods that should run are never touched, nothing runs twice, nothing is left over.

mod left;
mod passing;
mod steady;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use longshore_cri::{CriClient, RuntimeService as _, v1};
use serde_json::json;

pub use self::left::{leave_no_pods, leave_nothing};
use self::steady::Steady;
use crate::cluster::Cluster;
use crate::env::{Env, pause};
use crate::pods::ready_sandboxes;
use crate::tools::say;

/// Pods that run from the beginning to the end of the test.
const STEADY: usize = 8;
/// Pods that come and go at the same time.
const PASSING: usize = 12;
const NAMESPACE: &str = "default";

/// What is killed and started again.
pub trait Victim {
    /// SIGKILL, with no time to say goodbye.
    fn kill(&mut self) -> Result<()>;
    /// Starts it again; returns as soon as it was started.
    fn start(&mut self) -> Result<()>;
    /// Waits until it works.
    fn wait_ready(&mut self) -> Result<()>;
}

/// Where the pods run.
#[derive(Debug, Clone)]
pub struct Place {
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The node's name.
    pub node: String,
    /// The runtime's endpoint.
    pub endpoint: String,
    /// The agent's root directory.
    pub root: PathBuf,
    /// The cgroup root of the pods.
    pub cgroup_root: String,
}

impl Place {
    /// The node of a cluster.
    pub fn of(cluster: &Cluster<'_>) -> Self {
        Self {
            kubeconfig: cluster.kubeconfig(),
            node: Cluster::NODE.to_owned(),
            endpoint: cluster.env().endpoint(),
            root: PathBuf::from("/var/lib/kubelet"),
            cgroup_root: cluster.env().cgroup_root(),
        }
    }
}

/// Seeded random numbers (xorshift): a failing run is repeated with the seed it printed.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// Takes the seed from LONGSHORE_TEST_SEED, or from the clock, and prints it.
    pub fn from_environment() -> Self {
        let seed = std::env::var("LONGSHORE_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
            let now = uptime_seconds();
            now ^ u64::from(std::process::id()) << 20
        });
        say(&format!("seed {seed} (repeat with LONGSHORE_TEST_SEED={seed})"));
        Self(seed | 1)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

fn uptime_seconds() -> u64 {
    std::fs::read_to_string("/proc/uptime")
        .ok()
        .and_then(|text| text.split(['.', ' ']).next().and_then(|number| number.parse().ok()))
        .unwrap_or(1)
}

/// Runs `kills` rounds; an error lists everything that was seen and must not be.
pub fn run(env: &Env, place: &Place, victim: &mut dyn Victim, kills: usize) -> Result<()> {
    let mut dice = Dice::from_environment();
    let steady = env.block_on(|| steady::start(place))?;
    let faults = Faults::default();
    let stop = AtomicBool::new(false);
    let churn_dice = Dice(dice.below(u64::MAX) | 1);
    let outcome = std::thread::scope(|scope| {
        let churner = scope.spawn(|| env.block_on(|| passing::churn(place, &stop, churn_dice, &faults)));
        let watcher = scope.spawn(|| env.block_on(|| steady::watch(place, &steady, &stop, &faults)));
        let outcome = rounds(env, place, victim, kills, &mut dice, &steady, &faults);
        stop.store(true, Ordering::Relaxed);
        for (what, thread) in [("churn", churner), ("watch", watcher)] {
            thread.join().map_err(|_| anyhow::anyhow!("the {what} panicked"))?.context(what)?;
        }
        outcome
    });
    let outcome = outcome.and_then(|()| env.block_on(|| left::leave_nothing(place)));
    say(&format!("{kills} kills, {} steady pods", steady.pods.len()));
    let mut found: Vec<String> = faults.0.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect();
    found.extend(outcome.err().map(|error| format!("{error:#}")));
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// What was seen and must not be.
#[derive(Debug, Default)]
struct Faults(Mutex<BTreeSet<String>>);

impl Faults {
    fn add(&self, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(text);
    }
}

fn rounds(
    env: &Env,
    place: &Place,
    victim: &mut dyn Victim,
    kills: usize,
    dice: &mut Dice,
    steady: &Steady,
    faults: &Faults,
) -> Result<()> {
    let mut done = 0;
    let mut kill = |victim: &mut dyn Victim, dice: &mut Dice, longest: u64| -> Result<()> {
        pause(Duration::from_millis(dice.below(longest)));
        done += 1;
        victim.kill().with_context(|| format!("kill {done}"))?;
        pause(Duration::from_millis(dice.below(400)));
        victim.start().with_context(|| format!("start after kill {done}"))
    };
    let mut left = kills;
    while left > 0 {
        kill(victim, dice, 1500)?;
        left -= 1;
        // One in three is killed again while it still comes up.
        if left > 0 && dice.below(3) == 0 {
            kill(victim, dice, 600)?;
            left -= 1;
        }
        let round = kills - left;
        victim.wait_ready().with_context(|| format!("after kill {round}"))?;
        env.block_on(|| async move {
            check_runtime(place, round, steady, faults).await?;
            steady::check(place, steady, faults).await
        })
        .with_context(|| format!("after kill {round}"))?;
    }
    Ok(())
}

/// Pods of the place, in the namespace `default`.
pub async fn pods(place: &Place) -> Result<Api<Pod>> {
    Ok(Api::namespaced(client(place).await?, NAMESPACE))
}

/// A client of the place's apiserver with all rights.
pub async fn client(place: &Place) -> Result<Client> {
    longshore_transport::tls::install_provider();
    let file = kube::config::Kubeconfig::read_from(&place.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn pod(place: &Place, name: &str, restart: &str, script: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"kind": name.split('-').next()}},
        "spec": {
            "nodeName": place.node, "restartPolicy": restart, "terminationGracePeriodSeconds": 2,
            "containers": [{"name": "c", "image": "localhost/busybox:1", "command": ["sh", "-c", script]}],
        }
    }))?)
}

const FOREVER: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

/// At most one ready sandbox per pod and one living container per name; pods here never restart, so a second container of
/// a name is one too many even when it is dead. The containers of steady pods run.
async fn check_runtime(place: &Place, round: usize, steady: &Steady, faults: &Faults) -> Result<()> {
    let runtime = CriClient::connect(&place.endpoint, longshore_cri::ClientOptions::default())?;
    let containers = runtime.list_containers(v1::ListContainersRequest::default()).await?.containers;
    let running: BTreeSet<&str> = containers
        .iter()
        .filter(|container| container.state() == v1::ContainerState::ContainerRunning)
        .map(|container| container.id.as_str())
        .collect();
    for (name, facts) in &steady.pods {
        if !running.contains(facts.container.rsplit('/').next().unwrap_or_default()) {
            faults.add(format!("round {round}: {name} does not run in the runtime"));
        }
    }
    let mut by_name: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for container in containers {
        let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
        let key = (
            label("io.kubernetes.pod.name"),
            label("io.kubernetes.pod.uid") + "/" + &label("io.kubernetes.container.name"),
        );
        by_name.entry(key).or_default().push(container.id);
    }
    for ((pod, key), ids) in by_name {
        if ids.len() > 1 {
            faults.add(format!("round {round}: {pod} ({key}) has {} containers: {ids:?}", ids.len()));
        }
    }
    let mut ready: BTreeMap<String, usize> = BTreeMap::new();
    let mut addresses: BTreeMap<String, String> = BTreeMap::new();
    for sandbox in ready_sandboxes(&runtime).await? {
        if let Some(address) = sandbox.address
            && let Some(other) = addresses.insert(address.clone(), sandbox.id.clone())
        {
            faults.add(format!("round {round}: sandboxes {other} and {} both have {address}", sandbox.id));
        }
        *ready.entry(sandbox.pod.uid).or_default() += 1;
    }
    for (uid, count) in ready.into_iter().filter(|(_, count)| *count > 1) {
        faults.add(format!("round {round}: pod {uid} has {count} ready sandboxes"));
    }
    Ok(())
}
