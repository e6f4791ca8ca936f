//! Twenty pods that start, run and stop while something is killed at random moments, and what must hold all the same:
//! containers of pods that should run are never touched, nothing runs twice, nothing is left over.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use longshore_cri::{CriClient, RuntimeService as _, v1};
use serde_json::json;

use crate::env::{Env, pause};
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
    let steady = env.block_on(|| start_steady(place))?;
    let faults = Arc::new(Mutex::new(BTreeSet::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let churn_dice = Dice(dice.below(u64::MAX) | 1);
    let outcome = std::thread::scope(|scope| {
        let churner = scope.spawn(|| env.block_on(|| churn(place, &stop, churn_dice, &faults)));
        let outcome = rounds(env, place, victim, kills, &mut dice, &steady, &faults);
        stop.store(true, Ordering::Relaxed);
        let churned = churner.join().map_err(|_| anyhow::anyhow!("the churn panicked"))?;
        outcome.and(churned)
    });
    outcome?;
    let count = env.block_on(|| check_steady(place, &steady, &faults))?;
    say(&format!("{kills} kills survived by {count} steady pods"));
    env.block_on(|| leave_nothing(place))?;
    let faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(faults.is_empty(), "{}", faults.iter().cloned().collect::<Vec<_>>().join("\n"));
    Ok(())
}

type Faults = Mutex<BTreeSet<String>>;
/// Pod name to container id and restart count.
type Steady = BTreeMap<String, (String, i32)>;

fn fault(faults: &Faults, text: String) {
    faults.lock().unwrap_or_else(PoisonError::into_inner).insert(text);
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
    for round in 0..kills {
        pause(Duration::from_millis(dice.below(1500)));
        victim.kill().with_context(|| format!("kill {round}"))?;
        pause(Duration::from_millis(dice.below(400)));
        victim.start().with_context(|| format!("start {round}"))?;
        victim.wait_ready().with_context(|| format!("round {round}"))?;
        env.block_on(|| check_runtime(place, round, faults))?;
        env.block_on(|| check_steady(place, steady, faults))?;
    }
    Ok(())
}

async fn client(place: &Place) -> Result<Client> {
    longshore_transport::tls::install_provider();
    let file = kube::config::Kubeconfig::read_from(&place.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn pod(place: &Place, name: &str, restart: &str, script: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": place.node, "restartPolicy": restart, "terminationGracePeriodSeconds": 2,
            "containers": [{"name": "c", "image": "localhost/busybox:1", "command": ["sh", "-c", script]}],
        }
    }))?)
}

const FOREVER: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

async fn start_steady(place: &Place) -> Result<Steady> {
    let api: Api<Pod> = Api::namespaced(client(place).await?, NAMESPACE);
    for index in 0..STEADY {
        api.create(&PostParams::default(), &pod(place, &format!("steady-{index}"), "Always", FOREVER)?).await?;
    }
    let mut steady = Steady::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while steady.len() < STEADY {
        ensure!(Instant::now() < deadline, "only {} of {STEADY} steady pods are Ready after 60 s", steady.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
        for pod in api.list(&ListParams::default()).await? {
            if let (true, Some(facts)) = (is_ready(&pod), facts(&pod)) {
                steady.insert(pod.metadata.name.clone().unwrap_or_default(), facts);
            }
        }
    }
    Ok(steady)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn facts(pod: &Pod) -> Option<(String, i32)> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some((status.container_id.clone()?, status.restart_count))
}

/// Every steady pod is in the API as it was before: same container, same count, Ready.
async fn check_steady(place: &Place, steady: &Steady, faults: &Faults) -> Result<usize> {
    let api: Api<Pod> = Api::namespaced(client(place).await?, NAMESPACE);
    for (name, wanted) in steady {
        let pod = api.get(name).await.with_context(|| format!("get {name}"))?;
        if facts(&pod).as_ref() != Some(wanted) {
            fault(faults, format!("{name}: was {wanted:?}, is {:?}", facts(&pod)));
        }
        if !is_ready(&pod) {
            fault(faults, format!("{name}: no longer Ready"));
        }
    }
    Ok(steady.len())
}

/// At most one ready sandbox per pod and one living container per name; pods here never restart, so a second container of
/// a name is one too many even when it is dead.
async fn check_runtime(place: &Place, round: usize, faults: &Faults) -> Result<()> {
    let runtime = CriClient::connect(&place.endpoint, longshore_cri::ClientOptions::default())?;
    let containers = runtime.list_containers(v1::ListContainersRequest::default()).await?.containers;
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
            fault(faults, format!("round {round}: {pod} ({key}) has {} containers: {ids:?}", ids.len()));
        }
    }
    let sandboxes = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.items;
    let mut ready: BTreeMap<String, usize> = BTreeMap::new();
    for sandbox in sandboxes.into_iter().filter(|sandbox| sandbox.state() == v1::PodSandboxState::SandboxReady) {
        *ready.entry(sandbox.metadata.map(|metadata| metadata.uid).unwrap_or_default()).or_default() += 1;
    }
    for (uid, count) in ready.into_iter().filter(|(_, count)| *count > 1) {
        fault(faults, format!("round {round}: pod {uid} has {count} ready sandboxes"));
    }
    Ok(())
}

/// Makes and deletes pods until told to stop: some run until deleted, some end by themselves with a code.
async fn churn(place: &Place, stop: &AtomicBool, mut dice: Dice, faults: &Faults) -> Result<()> {
    let mut made = 0usize;
    let mut alive: Vec<(String, bool)> = Vec::new();
    let mut api: Option<Api<Pod>> = None;
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(50 + dice.below(150))).await;
        // The control plane may be the victim: what is refused now is tried again.
        let Some(pods) = api.clone().or(client(place).await.ok().map(|client| Api::namespaced(client, NAMESPACE)))
        else {
            continue;
        };
        api = Some(pods.clone());
        if alive.len() < PASSING {
            let ends = dice.below(3) == 0;
            let name = format!("passing-{made}");
            let new = if ends {
                pod(place, &name, "Never", "sleep 0.3; exit 3")?
            } else {
                pod(place, &name, "Always", FOREVER)?
            };
            if within(pods.create(&PostParams::default(), &new)).await.is_ok() {
                alive.push((name, ends));
            }
            made += 1;
            continue;
        }
        let index = usize::try_from(dice.below(alive.len() as u64))?;
        let (name, ends) = alive[index].clone();
        let Ok(pod) = within(pods.get(&name)).await else { continue };
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        if ends && phase == "Failed" {
            check_exit(&pod, faults);
        }
        if within(pods.delete(&name, &DeleteParams::default())).await.is_ok() {
            alive.swap_remove(index);
        }
    }
    say(&format!("{made} pods came and went"));
    Ok(())
}

/// A call that may meet a dead server: given up after two seconds.
async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T> {
    Ok(tokio::time::timeout(Duration::from_secs(2), call).await??)
}

fn check_exit(pod: &Pod, faults: &Faults) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let state = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first()?.state.clone());
    let terminated = state.and_then(|state| state.terminated);
    // A kill in the middle of a start cancels the start in the runtime: the command never ran, and the runtime says so.
    if terminated.as_ref().is_some_and(|terminated| terminated.reason.as_deref() == Some("StartError")) {
        return;
    }
    let code = terminated.map(|terminated| terminated.exit_code);
    if code != Some(3) {
        fault(faults, format!("{name}: ended with code 3, the status says {code:?}"));
    }
}

/// Deletes all pods and checks that API, runtime, pod directories, mounts and cgroups are empty.
async fn leave_nothing(place: &Place) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(client(place).await?, NAMESPACE);
    for pod in api.list(&ListParams::default()).await? {
        drop(api.delete(&pod.metadata.name.unwrap_or_default(), &DeleteParams::default()).await);
    }
    let runtime = CriClient::connect(&place.endpoint, longshore_cri::ClientOptions::default())?;
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let left = leftovers(&api, &runtime, place).await?;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("left over 90 s after the last delete:\n{}", left.join("\n"));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

async fn leftovers(api: &Api<Pod>, runtime: &CriClient, place: &Place) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for pod in api.list(&ListParams::default()).await? {
        left.push(format!("pod {}", pod.metadata.name.unwrap_or_default()));
    }
    let mut stuck = BTreeSet::new();
    for container in runtime.list_containers(v1::ListContainersRequest::default()).await?.containers {
        if runtime_is_stuck(runtime, &container).await {
            stuck.insert(container.pod_sandbox_id);
            continue;
        }
        let name = container.labels.get("io.kubernetes.pod.name").cloned().unwrap_or_default();
        left.push(format!("container {} of {name}, state {}", container.id, container.state));
    }
    let sandboxes = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.items;
    for sandbox in sandboxes.into_iter().filter(|sandbox| !stuck.contains(&sandbox.id)) {
        left.push(format!(
            "sandbox {} of {}",
            sandbox.id,
            sandbox.metadata.map(|metadata| metadata.name).unwrap_or_default()
        ));
    }
    for entry in std::fs::read_dir(place.root.join("pods")).into_iter().flatten().flatten() {
        left.push(format!("directory {}", entry.path().display()));
    }
    let pods = format!("{}/pods/", place.root.display());
    for line in std::fs::read_to_string("/proc/self/mountinfo")?.lines().filter(|line| line.contains(&pods)) {
        left.push(format!("mount {line}"));
    }
    for top in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
        pod_cgroups(&Path::new(top).join(place.cgroup_root.trim_start_matches('/')), &mut left);
    }
    Ok(left)
}

/// Says whether the runtime refuses to remove a container that it shows as exited and that has no process: seen on
/// containerd under load after a `StartContainer` was cut off by the end of its caller (docs/scope.md). No CRI call mends
/// that, so it is reported and not held against the agent.
async fn runtime_is_stuck(runtime: &CriClient, container: &v1::Container) -> bool {
    if container.state() != v1::ContainerState::ContainerExited || has_process(&container.id) {
        return false;
    }
    let request = v1::RemoveContainerRequest { container_id: container.id.clone() };
    let refusal = runtime.remove_container(request).await.err();
    let stuck = refusal.is_some_and(|error| error.to_string().contains("cannot delete running task"));
    if stuck {
        say(&format!("containerd keeps a dead container that it will not remove: {}", container.id));
    }
    stuck
}

/// Says whether a process of the machine is in a cgroup of that container.
fn has_process(container: &str) -> bool {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut groups = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cgroup")).ok());
    groups.any(|text| text.contains(container))
}

fn pod_cgroups(directory: &Path, left: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if entry.file_name().to_string_lossy().starts_with("pod") {
                left.push(format!("cgroup {}", path.display()));
            } else {
                pod_cgroups(&path, left);
            }
        }
    }
}
