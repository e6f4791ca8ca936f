//! A container runtime that dies and comes back: the pods go on, the node says what is wrong for as long as it is, what was
//! asked for meanwhile is made up for, and no container is touched.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::cost;
use longshore_integration::env::{BUSYBOX_IMAGE, Env, Version, eventually, newest, pause};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);
const PODS: usize = 6;
/// Kills of a runtime that has only just come back.
const KILLS: usize = 4;
/// Share of a core that an agent with nothing to do may use; its idle level is a hundredth of that.
const IDLE: f64 = 0.05;
const REST: Duration = Duration::from_secs(5);

struct Node<'env> {
    cluster: Cluster<'env>,
}

impl Node<'_> {
    fn create(&self, name: &str) -> Result<()> {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "nodeName": Cluster::NODE, "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "c", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "10000"],
                "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 5},
            }],
        }});
        let file = self.cluster.env().directory().join("pod.json");
        std::fs::write(&file, pod.to_string())?;
        self.cluster.kubectl(&["create", "--validate=false", "-f", &file.display().to_string()]).map(drop)
    }

    fn until_ready(&self, count: usize) -> Result<()> {
        let all = || {
            self.cluster
                .first_containers()
                .is_ok_and(|pods| pods.len() == count && pods.values().all(|(_, _, ready)| *ready))
        };
        eventually(&format!("{count} pods are Ready"), SOON, all)
            .with_context(|| format!("{:?}", self.cluster.first_containers()))
    }

    /// The node's Ready condition: status, reason and message.
    fn condition(&self) -> String {
        let path = "jsonpath={range .status.conditions[?(@.type==\"Ready\")]}{.status} {.reason} {.message}{end}";
        self.cluster.kubectl(&["get", "node", Cluster::NODE, "-o", path]).unwrap_or_default()
    }

    fn until_node(&self, word: &str) -> Result<()> {
        eventually(&format!("the node is {word}"), SOON, || self.condition().starts_with(word))
            .with_context(|| self.condition())
    }
}

fn dies_and_comes_back(version: Version) -> Result<()> {
    let env = Env::start(version)?;
    let mut node = Node { cluster: Cluster::start(&env, ClusterOptions::default())? };
    for number in 0..PODS {
        node.create(&format!("p{number}"))?;
    }
    node.until_ready(PODS)?;
    let before = node.cluster.first_containers()?;

    env.kill_containerd()?;
    node.until_node("False KubeletNotReady")?;
    let said = node.condition();
    ensure!(said.contains("container runtime"), "the node does not say why: {said}");
    ensure!(said.contains(&env.socket()), "the node does not name the socket: {said}");
    // Asked for while the runtime is away.
    node.create("late")?;
    node.cluster.kubectl(&["delete", "pod", "p0", "--wait=false"])?;
    let named = |pods: &BTreeMap<String, (String, u64, bool)>| pods.keys().cloned().collect::<Vec<_>>();
    ensure!(
        named(&node.cluster.first_containers()?).contains(&"p0".to_owned()),
        "a pod is let go of although its container runs"
    );
    env.start_containerd()?;
    node.until_node("True")?;
    let gone = || node.cluster.first_containers().is_ok_and(|pods| !pods.contains_key("p0"));
    eventually("the deleted pod goes", SOON, gone)?;
    node.until_ready(PODS)?;
    for _ in 0..KILLS {
        env.kill_containerd()?;
        env.start_containerd()?;
        pause(Duration::from_secs(1));
    }
    node.until_node("True")?;
    node.until_ready(PODS)?;

    let after = node.cluster.first_containers()?;
    for (name, (id, restarts, _)) in before.iter().filter(|(name, _)| *name != "p0") {
        let now = after.get(name).with_context(|| format!("{name} is gone"))?;
        ensure!(now.0 == *id && now.1 == *restarts, "{name}: {id}, {restarts} became {now:?}");
    }
    let agent = node.cluster.agent()?.pid();
    let mut used = f64::MAX;
    let calm = eventually("the agent comes to rest", SOON, || {
        let first = cost::cpu_time(agent);
        pause(REST);
        if let (Ok(first), Ok(last)) = (first, cost::cpu_time(agent)) {
            used = last.saturating_sub(first).as_secs_f64() / REST.as_secs_f64();
        }
        used < IDLE
    });
    calm.with_context(|| format!("it uses {:.1} % of a core", used * 100.0))?;
    node.cluster.agent()?.check_alive()?;
    node.cluster.remove_pods()
}

#[test]
fn root_a_runtime_that_dies_and_comes_back_costs_no_container() {
    if let Err(error) = dies_and_comes_back(newest()) {
        panic!("{error:#}");
    }
}

#[test]
#[ignore = "long: part of make test-all"]
fn root_a_debian_12_runtime_that_dies_and_comes_back_costs_no_container() {
    if let Err(error) = dies_and_comes_back(Version::V1_6) {
        panic!("{error:#}");
    }
}
