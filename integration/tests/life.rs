//! Probes, hooks and ends of pods on a real runtime: what people reported of node agents, each as a promise.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, Version, eventually, newest, pause};
use serde_json::{Value, json};

const IDLE: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";
const STUBBORN: &str = "trap '' TERM; while :; do sleep 1; done";

fn all_promises_hold(version: Version) {
    let env = Env::start(version).unwrap();
    let mut cluster = Cluster::start(&env, ClusterOptions::default()).unwrap();
    let outcome = leftovers(&cluster)
        .and_then(|()| probe_grace(&cluster))
        .and_then(|()| never_restarted_after_its_probe(&cluster))
        .and_then(|()| hung_hook(&cluster))
        .and_then(|()| forced(&cluster))
        .and_then(|()| shorter(&cluster))
        .and_then(|()| variables_from_a_file(&cluster))
        .and_then(|()| read_only_below(&cluster))
        .and_then(|()| stays_ready(&mut cluster));
    let log = cluster.agent().map(|agent| agent.tail()).unwrap_or_default();
    outcome.map_err(|error| format!("{error:#}\nagent:\n{log}")).unwrap();
}

#[test]
fn root_probes_hooks_and_ends_on_the_newest_containerd() {
    all_promises_hold(newest());
}

#[test]
fn root_probes_hooks_and_ends_on_debian_12_containerd() {
    all_promises_hold(Version::V1_6);
}

fn create(cluster: &Cluster<'_>, name: &str, spec: &Value, container: &Value, script: &str) -> Result<()> {
    let mut main = json!({"name": "c", "image": "localhost/busybox:1", "command": ["sh", "-c", script]});
    merge(&mut main, container);
    let mut all = json!({"nodeName": Cluster::NODE, "automountServiceAccountToken": false, "containers": [main]});
    merge(&mut all, spec);
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": all});
    let file = cluster.env().directory().join(format!("{name}.json"));
    std::fs::write(&file, object.to_string())?;
    cluster.kubectl(&["create", "--validate=false", "-f", &file.display().to_string()]).map(drop)
}

fn merge(into: &mut Value, from: &Value) {
    if let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) {
        into.extend(from.clone());
    }
}

fn shows(cluster: &Cluster<'_>, name: &str, path: &str) -> Result<String> {
    cluster.kubectl(&["get", "pod", name, "-o", &format!("jsonpath={{{path}}}")])
}

fn wait_ready(cluster: &Cluster<'_>, name: &str) -> Result<()> {
    cluster.kubectl(&["wait", "--for=condition=Ready", &format!("pod/{name}"), "--timeout=60s"]).map(drop)
}

/// What an init container writes is a variable of the main one, which does not mount the volume.
fn variables_from_a_file(cluster: &Cluster<'_>) -> Result<()> {
    let write = json!({
        "name": "w", "image": "localhost/busybox:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "command": ["sh", "-c", "printf \"# made\\nADDRESS='here and\\nthere'\\n\" > /v/made.env"],
    });
    let spec = json!({
        "restartPolicy": "Never", "initContainers": [write], "volumes": [{"name": "v", "emptyDir": {}}],
    });
    let key = |key: &str, optional: bool| {
        let reference = json!({"volumeName": "v", "path": "made.env", "key": key, "optional": optional});
        json!({"name": key, "valueFrom": {"fileKeyRef": reference}})
    };
    let container = json!({"env": [key("ADDRESS", false), key("NONE", true)]});
    create(cluster, "from-file", &spec, &container, "echo \"<$ADDRESS>${NONE-unset}\"; test -e /v")?;
    cluster.kubectl(&["wait", "--for=jsonpath={.status.phase}=Failed", "pod/from-file", "--timeout=60s"])?;
    let said = cluster.kubectl(&["logs", "from-file", "-c", "c"])?;
    ensure!(said == "<here and\nthere>unset\n", "said {said:?}");
    let missing = json!({"env": [key("GONE", false)]});
    create(cluster, "no-key", &spec, &missing, IDLE)?;
    let reason = ".status.containerStatuses[0].state.waiting.reason";
    cluster.kubectl(&["wait", &format!("--for=jsonpath={{{reason}}}=CreateContainerConfigError"), "pod/no-key"])?;
    let message = shows(cluster, "no-key", ".status.containerStatuses[0].state.waiting.message")?;
    ensure!(message == "couldn't find key GONE in file \"made.env\" of volume \"v\"", "says {message:?}");
    cluster.kubectl(&["delete", "pod", "from-file", "no-key", "--now"]).map(drop)
}

/// Processes of the machine whose command line holds that word.
fn processes(word: &str) -> usize {
    longshore_host::process::all().iter().filter(|process| process.command().iter().any(|part| part == word)).count()
}

/// A long time to sleep that no other run uses, be it in this process or another: processes are known by it.
fn seconds_of_our_own() -> String {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    (1_000_000 + std::process::id() % 10_000 * 100 + run).to_string()
}

/// O-011: what a timed-out command left behind is gone, its children too.
fn leftovers(cluster: &Cluster<'_>) -> Result<()> {
    let seconds = seconds_of_our_own();
    let command = format!("sleep {seconds} & sleep {seconds}; true");
    let probe = json!({"exec": {"command": ["sh", "-c", command]}, "periodSeconds": 2, "timeoutSeconds": 1});
    create(
        cluster,
        "leftovers",
        &json!({"terminationGracePeriodSeconds": 2}),
        &json!({"readinessProbe": probe}),
        IDLE,
    )?;
    eventually("the first command", Duration::from_secs(30), || processes(&seconds) > 0)?;
    pause(Duration::from_secs(9));
    // One probe may be under way: two processes of it.
    let left = processes(&seconds);
    ensure!(left <= 2, "{left} processes of probes are left");
    let events = cluster.kubectl(&["get", "events", "--field-selector", "involvedObject.name=leftovers"])?;
    ensure!(events.contains("Readiness probe failed: command timed out"), "{events}");
    cluster.kubectl(&["delete", "pod", "leftovers", "--timeout=30s"])?;
    ensure!(processes(&seconds) == 0, "a probe's process outlived its pod");
    Ok(())
}

/// O-013: the probe's own grace counts, not the pod's.
fn probe_grace(cluster: &Cluster<'_>) -> Result<()> {
    let probe = json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1, "terminationGracePeriodSeconds": 1});
    let spec = json!({"terminationGracePeriodSeconds": 300});
    create(cluster, "grace", &spec, &json!({"startupProbe": probe}), STUBBORN)?;
    eventually("a restart", Duration::from_secs(30), || {
        shows(cluster, "grace", ".status.containerStatuses[0].restartCount").is_ok_and(|count| count == "1")
    })?;
    let ended = shows(cluster, "grace", ".status.containerStatuses[0].lastState.terminated.exitCode")?;
    ensure!(ended == "137", "exit code {ended}");
    cluster.kubectl(&["delete", "pod", "grace", "--grace-period=1", "--timeout=30s"]).map(drop)
}

fn never_restarted_after_its_probe(cluster: &Cluster<'_>) -> Result<()> {
    let probe = json!({"tcpSocket": {"port": 9}, "periodSeconds": 1, "failureThreshold": 2});
    let spec = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 2});
    create(cluster, "never", &spec, &json!({"livenessProbe": probe}), STUBBORN)?;
    cluster.kubectl(&["wait", "--for=jsonpath={.status.phase}=Failed", "pod/never", "--timeout=30s"])?;
    let events = cluster.kubectl(&["get", "events", "--field-selector", "involvedObject.name=never"])?;
    ensure!(events.contains("connect: connection refused"), "{events}");
    ensure!(events.contains("Container c failed liveness probe") && !events.contains("will be restarted"), "{events}");
    cluster.kubectl(&["delete", "pod", "never", "--timeout=30s"]).map(drop)
}

/// O-023 and O-029: a hook that hangs takes its time off the stop, and what a failing one said can be read.
fn hung_hook(cluster: &Cluster<'_>) -> Result<()> {
    let hang = json!({"lifecycle": {"preStop": {"exec": {"command": ["sleep", "600"]}}}});
    create(cluster, "hung", &json!({"terminationGracePeriodSeconds": 5}), &hang, STUBBORN)?;
    let loud = json!({"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo no way >&2; exit 7"]}}}});
    create(cluster, "loud", &json!({"terminationGracePeriodSeconds": 5}), &loud, IDLE)?;
    wait_ready(cluster, "hung")?;
    wait_ready(cluster, "loud")?;
    let begin = Instant::now();
    cluster.kubectl(&["delete", "pod", "hung", "--timeout=30s"])?;
    let took = begin.elapsed();
    ensure!(took > Duration::from_secs(4) && took < Duration::from_secs(10), "{took:?}");
    cluster.kubectl(&["delete", "pod", "loud", "--timeout=30s"])?;
    let told = || cluster.kubectl(&["get", "events", "--field-selector", "involvedObject.name=loud"]);
    eventually("the event of the failed hook", Duration::from_secs(10), || {
        told().is_ok_and(|events| events.contains("FailedPreStopHook") && events.contains("exited with 7: no way"))
    })
}

/// O-025: deleted by force, the process is gone within seconds.
fn forced(cluster: &Cluster<'_>) -> Result<()> {
    let word = seconds_of_our_own();
    let script = format!("trap '' TERM; sleep {word} & while :; do sleep 1; done");
    create(cluster, "forced", &json!({"terminationGracePeriodSeconds": 600}), &json!({}), &script)?;
    wait_ready(cluster, "forced")?;
    eventually("its process", Duration::from_secs(10), || processes(&word) > 0)?;
    cluster.kubectl(&["delete", "pod", "forced", "--force", "--grace-period=0"])?;
    eventually("the end of its process", Duration::from_secs(10), || processes(&word) == 0)
}

/// O-024: the newest, shortest grace counts.
fn shorter(cluster: &Cluster<'_>) -> Result<()> {
    create(cluster, "shorter", &json!({}), &json!({}), STUBBORN)?;
    wait_ready(cluster, "shorter")?;
    cluster.kubectl(&["delete", "pod", "shorter", "--grace-period=600", "--wait=false"])?;
    pause(Duration::from_secs(1));
    let begin = Instant::now();
    cluster.kubectl(&["delete", "pod", "shorter", "--grace-period=3", "--timeout=30s"])?;
    ensure!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    Ok(())
}

/// O-009: a ready pod is ready before, during and after a restart of the agent.
fn stays_ready(cluster: &mut Cluster<'_>) -> Result<()> {
    let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 60});
    create(cluster, "steady", &json!({"terminationGracePeriodSeconds": 2}), &json!({"readinessProbe": probe}), IDLE)?;
    wait_ready(cluster, "steady")?;
    let since = ".status.conditions[?(@.type==\"Ready\")].lastTransitionTime";
    let before = shows(cluster, "steady", since)?;
    cluster.kill_agent()?;
    pause(Duration::from_secs(2));
    cluster.start_agent()?;
    cluster.wait_healthy(Duration::from_secs(20))?;
    pause(Duration::from_secs(3));
    let is_ready = shows(cluster, "steady", ".status.conditions[?(@.type==\"Ready\")].status")?;
    ensure!(is_ready == "True" && shows(cluster, "steady", since)? == before, "the pod was not ready for a while");
    cluster.kubectl(&["delete", "pod", "steady", "--timeout=30s"]).map(drop)
}

/// A read-only mount with another mount below it, which is read-only too where that was asked for and the runtime can.
fn read_only_below(cluster: &Cluster<'_>) -> Result<()> {
    let folder = "/var/lib/read-only-below";
    let script = format!("mkdir -p {folder}/sub; mount -t tmpfs tmpfs {folder}/sub; touch {folder}/sub/there");
    cluster.env().run(std::process::Command::new("sh").args(["-ec", &script]))?;
    let able = cluster.kubectl(&[
        "get",
        "node",
        Cluster::NODE,
        "-o",
        "jsonpath={.status.runtimeHandlers[?(@.name==\"\")].features.recursiveReadOnlyMounts}",
    ])? == "true";
    let volumes = json!({"volumes": [{"name": "v", "hostPath": {"path": folder}}], "terminationGracePeriodSeconds": 1});
    let mounts = |mode: &str| json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": mode}]});
    create(cluster, "rro-maybe", &volumes, &mounts("IfPossible"), IDLE)?;
    wait_ready(cluster, "rro-maybe")?;
    let shown = shows(cluster, "rro-maybe", ".status.containerStatuses[0].volumeMounts[0].recursiveReadOnly")?;
    ensure!(shown == if able { "Enabled" } else { "Disabled" }, "shown as {shown:?}, able: {able}");
    let write = "test -e /v/sub/there && touch /v/sub/x 2>/dev/null && echo written || echo refused";
    let wrote = cluster.kubectl(&["exec", "rro-maybe", "--", "sh", "-c", write])?;
    ensure!(wrote.trim() == if able { "refused" } else { "written" }, "a write below was {wrote:?}, able: {able}");
    create(cluster, "rro-must", &volumes, &mounts("Enabled"), IDLE)?;
    if able {
        wait_ready(cluster, "rro-must")?;
    } else {
        let told = || {
            let path = ".status.containerStatuses[0].state.waiting.message";
            shows(cluster, "rro-must", path).is_ok_and(|text| text.contains("not supported by the runtime"))
        };
        eventually("a wish that the runtime cannot do is refused in words", Duration::from_secs(20), told)?;
    }
    cluster.kubectl(&["delete", "pod", "rro-maybe", "rro-must", "--timeout=30s"]).map(drop)
}
