//! What happens between the parts: connections whose packets are lost without a word, a machine that sleeps, a network
//! plugin that is slow and then fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use longshore_integration::churn::{Place, leave_no_pods};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{BUSYBOX_IMAGE, Env, eventually, newest, pause};
use longshore_integration::pods::is_ready;
use longshore_integration::tools::say;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);
/// Until an agent has a connection that works, from when its packets were lost (field report O-047).
const NEW_CONNECTION: Duration = Duration::from_secs(30);
/// How long the machine sleeps: longer than any deadline between the parts and than the lease.
const SLEEP: Duration = Duration::from_secs(75);
/// Pods that come and go on a network of thirteen addresses, so many at a time.
const VISITORS: usize = 24;
const WAVE: usize = 8;
/// The agent gives the making of a sandbox up after twice this; the plugin takes longer.
const RUNTIME_TIMEOUT: &str = "2s";

fn pod(name: &str, container: Value) -> Value {
    let mut whole =
        json!({"name": "c", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "10000"]});
    if let (Some(whole), Some(more)) = (whole.as_object_mut(), container.as_object()) {
        whole.extend(more.clone());
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": Cluster::NODE, "terminationGracePeriodSeconds": 1, "containers": [whole],
    }})
}

fn create(cluster: &Cluster<'_>, pods: &[Value]) -> Result<()> {
    let file = cluster.env().directory().join("pods.json");
    std::fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": pods}).to_string())?;
    cluster.kubectl(&["create", "-f", &file.display().to_string()]).map(drop)
}

/// Local ports of a process's connections to the apiserver.
fn ports_to_the_apiserver(env: &Env, pid: u32) -> Result<BTreeSet<u16>> {
    env.within(|| {
        let mut sockets = BTreeSet::new();
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
            let to = std::fs::read_link(entry.path()).unwrap_or_default().to_string_lossy().into_owned();
            sockets.extend(to.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')).map(str::to_owned));
        }
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp"))?;
        let port = |address: &str| address.rsplit(':').next().and_then(|hex| u16::from_str_radix(hex, 16).ok());
        let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        // Address, far address and state 1 (established) are columns 1 to 3, the socket's number is column 9.
        let ours = rows.filter(|row| row.len() > 9 && row[3] == "01" && sockets.contains(row[9]));
        Ok(ours.filter(|row| port(row[2]) == Some(6443)).filter_map(|row| port(row[1])).collect())
    })?
}

fn lost_connections() -> Result<()> {
    let env = Env::start(newest())?;
    let mut cluster = Cluster::start(&env, ClusterOptions::default())?;
    create(&cluster, &[pod("before", json!({}))])?;
    cluster.until_pod("before", "a pod runs", SOON, is_ready)?;
    let ports = ports_to_the_apiserver(&env, cluster.agent()?.pid())?;
    ensure!(ports.len() >= 2, "connections of the agent: {ports:?}");
    for port in &ports {
        for (side, near) in [("--sport", "--dport"), ("--dport", "--sport")] {
            let words = ["-w", "-A", "INPUT", "-p", "tcp", side, &port.to_string(), near, "6443", "-j", "DROP"];
            env.run(Command::new("iptables").args(words))?;
        }
    }
    let lost = Instant::now();
    create(&cluster, &[pod("after", json!({}))])?;
    cluster.kubectl(&["delete", "pod", "before", "--wait=false"])?;
    cluster.until_pod("after", "a pod that is made meanwhile runs", NEW_CONNECTION, is_ready)?;
    let left = NEW_CONNECTION.saturating_sub(lost.elapsed());
    cluster.until_pod("before", "a pod that is deleted meanwhile goes", left, Value::is_null)?;
    let now = ports_to_the_apiserver(&env, cluster.agent()?.pid())?;
    say(&format!(
        "{} connections were lost; working after {:.1} s over {now:?}",
        ports.len(),
        lost.elapsed().as_secs_f64()
    ));
    // The lease is kept, and the last dead connection goes as well.
    let renewed = || {
        cluster.kubectl(&["get", "lease", "-n", "kube-node-lease", Cluster::NODE, "-o", "jsonpath={.spec.renewTime}"])
    };
    let first = renewed()?;
    eventually("the lease is renewed", SOON, || renewed().is_ok_and(|now| now != first))?;
    cluster.wait_ready(Duration::from_secs(1))?;
    let agent = cluster.agent()?.pid();
    let dead = || ports_to_the_apiserver(&env, agent).map(|now| now.intersection(&ports).count());
    eventually("no dead connection is left", SOON, || dead().is_ok_and(|left| left == 0))?;
    cluster.remove_pods()
}

/// What a sleep must not change: container ids and restart counts.
fn facts(cluster: &Cluster<'_>) -> Result<BTreeMap<String, (String, u64)>> {
    let pods = cluster.first_containers()?.into_iter();
    Ok(pods.map(|(name, (id, restarts, _))| (name, (id, restarts))).collect())
}

/// All processes of the environment: control plane, agent, runtime and what it started.
fn processes(env: &Env) -> Result<Vec<Pid>> {
    let (ours, mark) = (env.within(|| std::fs::read_link("/proc/thread-self/ns/mnt"))??, env.cgroup_root());
    let all = longshore_host::process::all().into_iter().map(|process| process.pid);
    let stands_there = |pid: &i32| {
        let space = std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        space.as_ref() == Some(&ours) || groups.contains(&mark)
    };
    Ok(all.filter(stands_there).map(Pid::from_raw).collect())
}

fn sleep_of_the_machine() -> Result<()> {
    let env = Env::start(newest())?;
    let mut cluster = Cluster::start(&env, ClusterOptions::default())?;
    let liveness = |handler: Value| {
        let mut probe = json!({"periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": 1});
        if let (Some(whole), Some(more)) = (probe.as_object_mut(), handler.as_object()) {
            whole.extend(more.clone());
        }
        json!({"livenessProbe": probe, "command": ["httpd", "-f", "-p", "80", "-h", "/etc"]})
    };
    let mut pods = Vec::new();
    for number in 0..3 {
        pods.push(pod(&format!("http-{number}"), liveness(json!({"httpGet": {"path": "/hosts", "port": 80}}))));
        pods.push(pod(&format!("tcp-{number}"), liveness(json!({"tcpSocket": {"port": 80}}))));
        // Something to do at all times: the question is under way when the machine falls asleep.
        pods.push(pod(&format!("exec-{number}"), liveness(json!({"exec": {"command": ["sleep", "0.7"]}}))));
    }
    create(&cluster, &pods)?;
    for pod in &pods {
        cluster.until_pod(pod["metadata"]["name"].as_str().unwrap_or_default(), "a pod runs", SOON, is_ready)?;
    }
    let before = facts(&cluster)?;
    let all = processes(&env)?;
    ensure!(all.len() > pods.len(), "{all:?}");
    // One that has ended meanwhile is none that sleeps.
    let send = |signal| all.iter().filter(|pid| kill(**pid, signal).is_ok()).count();
    ensure!(send(Signal::SIGSTOP) > pods.len(), "nothing sleeps");
    pause(SLEEP);
    // The agent wakes first, when nobody can answer it yet.
    let agent = Pid::from_raw(i32::try_from(cluster.agent()?.pid())?);
    kill(agent, Signal::SIGCONT)?;
    pause(Duration::from_millis(100));
    send(Signal::SIGCONT);
    let woke = Instant::now();
    create(&cluster, &[pod("after", json!({}))])?;
    cluster.until_pod("after", "a pod that is made afterwards runs", SOON, is_ready)?;
    cluster.wait_ready(SOON.saturating_sub(woke.elapsed()))?;
    say(&format!("works {:.1} s after the sleep", woke.elapsed().as_secs_f64()));
    pause(Duration::from_secs(10));
    let mut after = facts(&cluster)?;
    after.remove("after");
    ensure!(before == after, "{before:?}\nbecame\n{after:?}\n{}", cluster.kubectl(&["get", "events"])?);
    cluster.remove_pods()
}

/// A plugin in front of the bridge: it writes down what it is asked for, and half of what it adds (by the sandbox's id)
/// comes too late and fails.
const PLUGIN: &str = r#"#!/bin/sh
input=$(cat)
echo "$CNI_COMMAND $CNI_CONTAINERID" >> /tmp/cni.log
[ "$CNI_COMMAND" = VERSION ] && { printf %s "$input" | /usr/lib/cni/bridge; exit; }
answer=$(printf %s "$input" | sed 's/"type": *"late"/"type":"bridge"/' | /usr/lib/cni/bridge)
code=$?
case "$CNI_COMMAND $CNI_CONTAINERID" in
  "ADD "*[02468ace])
    sleep 6
    echo '{"cniVersion":"1.0.0","code":11,"msg":"the switch did not answer"}'
    exit 1 ;;
esac
printf %s "$answer"
exit $code
"#;

fn install_plugin() -> Result<()> {
    let folder = Path::new("/tmp/cni");
    std::fs::create_dir_all(folder)?;
    for name in ["bridge", "host-local", "portmap", "loopback"] {
        std::fs::copy(Path::new("/usr/lib/cni").join(name), folder.join(name)).with_context(|| name.to_owned())?;
    }
    std::fs::write(folder.join("late"), PLUGIN)?;
    std::fs::set_permissions(folder.join("late"), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let none: Option<&str> = None;
    nix::mount::mount(Some(folder), "/usr/lib/cni", none, nix::mount::MsFlags::MS_BIND, none).context("bind")?;
    let path = "/etc/cni/net.d/10-longshore-test.conflist";
    let text = std::fs::read_to_string(path)?;
    let changed = text.replace(r#""type":"bridge""#, r#""type":"late""#).replace("10.88.0.0/16", "10.88.7.0/28");
    ensure!(changed.contains("late") && changed.contains("/28"), "{changed}");
    Ok(std::fs::write(path, changed)?)
}

fn slow_network() -> Result<()> {
    let env = Env::bare(newest())?;
    env.within(install_plugin)??;
    let env = env.started()?;
    let config = json!({"runtimeRequestTimeout": RUNTIME_TIMEOUT});
    let config = config.as_object().cloned().unwrap_or_default();
    let cluster = Cluster::start(&env, ClusterOptions { config, ..ClusterOptions::default() })?;
    for wave in 0..VISITORS / WAVE {
        let name = |number: usize| format!("visitor-{wave}-{number}");
        let pods: Vec<Value> = (0..WAVE).map(|number| pod(&name(number), json!({}))).collect();
        create(&cluster, &pods)?;
        let mut addresses = BTreeSet::new();
        for number in 0..WAVE {
            let pod = cluster.until_pod(&name(number), "a visitor runs", Duration::from_secs(120), is_ready)?;
            let address = pod["status"]["podIP"].as_str().unwrap_or_default().to_owned();
            ensure!(addresses.insert(address.clone()), "{address} is given twice");
        }
        cluster.remove_pods()?;
    }
    env.block_on(|| async { leave_no_pods(&Place::of(&cluster)).await })?;
    let log = env.within(|| std::fs::read_to_string("/tmp/cni.log"))??;
    let asked = |word: &str| -> BTreeSet<String> {
        log.lines().filter_map(|line| line.strip_prefix(word)).map(|id| id.trim().to_owned()).collect()
    };
    let (added, deleted) = (asked("ADD"), asked("DEL"));
    let late = added.iter().filter(|id| id.ends_with(['0', '2', '4', '6', '8', 'a', 'c', 'e'])).count();
    say(&format!("{} sandboxes, {late} of them late", added.len()));
    ensure!(late > 0, "no sandbox was late: {log}");
    let forgotten: Vec<&String> = added.difference(&deleted).collect();
    ensure!(forgotten.is_empty(), "added and never deleted: {forgotten:?}");
    Ok(())
}

#[test]
fn root_lost_connections_to_the_apiserver_are_replaced_within_half_a_minute() -> Result<()> {
    lost_connections()
}

#[test]
#[ignore = "long: part of make test-all"]
fn root_a_machine_that_slept_kills_no_pod() -> Result<()> {
    sleep_of_the_machine()
}

#[test]
#[ignore = "long: part of make test-all"]
fn root_a_slow_network_plugin_that_fails_costs_no_address() -> Result<()> {
    slow_network()
}
