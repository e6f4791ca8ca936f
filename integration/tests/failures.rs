//! Processes that the kernel kills for memory: what the status and the events say, on a real kernel.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, Version, newest, pause};
use longshore_integration::tools;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

fn create(cluster: &Cluster<'_>, name: &str, mut spec: Value) -> Result<()> {
    spec["nodeName"] = json!(Cluster::NODE);
    spec["automountServiceAccountToken"] = json!(false);
    spec["terminationGracePeriodSeconds"] = json!(1);
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    let file = cluster.env().directory().join(format!("{name}.json"));
    std::fs::write(&file, object.to_string())?;
    cluster.kubectl(&["create", "--validate=false", "-f", &file.display().to_string()]).map(drop)
}

fn container(name: &str, script: &str, memory: &str) -> Value {
    json!({"name": name, "image": "localhost/busybox:1", "command": ["sh", "-c", script],
        "resources": {"limits": {"memory": memory}}})
}

/// O-075: a child is killed, the container lives on; process, container and reason are told.
fn a_child(cluster: &Cluster<'_>) -> Result<()> {
    create(cluster, "child", json!({"containers": [container("hungry", "tail /dev/zero; sleep 3600", "32Mi")]}))?;
    cluster.until_told("child", "OOMKilling", PATIENCE)?;
    cluster.until_told("child", "Process tail (pid ", PATIENCE)?;
    cluster.until_told("child", "was killed: the memory limit of its ", PATIENCE)?;
    let selector = "involvedObject.name=child,reason=OOMKilling";
    let path = "jsonpath={.items[*].involvedObject.fieldPath}";
    let place = cluster.kubectl(&["get", "events", "--field-selector", selector, "-o", path])?;
    ensure!(place == "spec.containers{hungry}", "{place}");
    let pod = cluster.pod("child");
    let status = &pod["status"]["containerStatuses"][0];
    ensure!(status["restartCount"] == 0 && status["state"]["running"].is_object(), "{status:#}");
    Ok(())
}

/// The main process is killed: the status says so, an event would say it twice.
fn the_main_process(cluster: &Cluster<'_>) -> Result<()> {
    create(
        cluster,
        "main",
        json!({"restartPolicy": "Never", "containers": [container("c", "exec tail /dev/zero", "32Mi")]}),
    )?;
    let pod = cluster.until_pod("main", "the end", PATIENCE, |pod| pod["status"]["phase"] == "Failed")?;
    let end = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    ensure!(end["reason"] == "OOMKilled" && end["exitCode"] == 137 && end["message"].is_null(), "{end:#}");
    pause(Duration::from_secs(8));
    let told = cluster.kubectl(&["get", "events", "--field-selector", "involvedObject.name=main"])?;
    ensure!(!told.contains("OOMKilling"), "{told}");
    Ok(())
}

/// O-076: a file in a memory volume leaves no room for the next instance; the status names the volume.
fn a_volume_in_memory(cluster: &Cluster<'_>) -> Result<()> {
    let script = "[ -e /m/full ] || dd if=/dev/zero of=/m/full bs=1M count=40; exec tail /dev/zero";
    let mut hungry = container("c", script, "64Mi");
    hungry["volumeMounts"] = json!([{"name": "cache", "mountPath": "/m"}]);
    let volumes = json!([{"name": "cache", "emptyDir": {"medium": "Memory"}}]);
    create(cluster, "volume", json!({"volumes": volumes, "containers": [hungry]}))?;
    let pod = cluster.until_pod("volume", "the second end", PATIENCE, |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"].as_i64().is_some_and(|count| count >= 1)
            && status["lastState"]["terminated"].is_object()
            && status["state"]["running"].is_null()
    })?;
    let status = &pod["status"]["containerStatuses"][0];
    let end = &status["lastState"]["terminated"];
    let end = if end.is_object() { end } else { &status["state"]["terminated"] };
    let message = end["message"].as_str().unwrap_or_default();
    ensure!(end["reason"] == "OOMKilled", "{status:#}");
    ensure!(message.starts_with("volume \"cache\" holds 4") && message.contains("memory limit of 64Mi"), "{status:#}");
    Ok(())
}

/// O-077: an init container lost a child for memory and says that all went well. Where the runtime calls that `OOMKilled`,
/// it is a failure as with the stock agent: what it should have done may be half done. Otherwise it is what it says, and the
/// event tells.
fn an_init_container(cluster: &Cluster<'_>) -> Result<()> {
    let init = container("prepare", "tail /dev/zero; exit 0", "32Mi");
    let main = container("c", "sleep 3600", "32Mi");
    create(cluster, "init", json!({"restartPolicy": "Never", "initContainers": [init], "containers": [main]}))?;
    cluster.until_told("init", "was killed: the memory limit of its ", PATIENCE)?;
    let pod = cluster.until_pod("init", "the end", PATIENCE, |pod| pod["status"]["phase"] != "Pending")?;
    let end = &pod["status"]["initContainerStatuses"][0]["state"]["terminated"];
    tools::say(&format!("init: phase {} {end}", pod["status"]["phase"]));
    ensure!(end["exitCode"] == 0, "{end:#}");
    if end["reason"] == "OOMKilled" {
        ensure!(pod["status"]["phase"] == "Failed", "{:#}", pod["status"]);
        ensure!(pod["status"]["containerStatuses"][0]["state"]["running"].is_null(), "{:#}", pod["status"]);
    } else {
        ensure!(end["reason"] == "Completed" && pod["status"]["phase"] == "Running", "{:#}", pod["status"]);
    }
    Ok(())
}

/// O-102: a container that crashes for want of a file; with the file there, it is tried at once. O-081: how it failed
/// first is told beside the last end.
fn a_retry(cluster: &Cluster<'_>) -> Result<()> {
    let script =
        "n=$(cat /v/count 2>/dev/null || echo 0); n=$((n+1)); echo $n >/v/count; [ -e /v/file ] || exit $n; sleep 3600";
    let mut main = container("c", script, "32Mi");
    main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    create(cluster, "crash", json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [main]}))?;
    let pod = cluster.until_pod("crash", "the third crash", Duration::from_secs(90), |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["lastState"]["terminated"]["exitCode"] == 3 || status["state"]["terminated"]["exitCode"] == 3
    })?;
    let uid = pod["metadata"]["uid"].as_str().context("no uid")?.to_owned();
    let longshore = tools::built("longshore")?;
    let ask = |what: &str| {
        let mut command = Command::new(&longshore);
        command.args([what, "crash", "--output", "json"]);
        cluster.env().run(&mut command)
    };
    let why: Value = serde_json::from_str(&ask("why")?)?;
    let told = &why["containers"][0];
    ensure!(told["firstFailure"]["exitCode"] == 1 && told["lastEnd"]["exitCode"] == 3, "{why:#}");
    ensure!(told["nextTrySeconds"].as_u64().is_some_and(|seconds| seconds > 2), "{why:#}");
    let file = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/v/file");
    cluster.env().within(move || std::fs::write(file, "").unwrap())?;
    let begin = std::time::Instant::now();
    ask("retry")?;
    cluster.until_pod("crash", "running", Duration::from_secs(10), |pod| {
        pod["status"]["containerStatuses"][0]["state"]["running"].is_object()
    })?;
    ensure!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    Ok(())
}

/// O-087: the link drops in the middle of a command; the client does not call that a success.
fn a_cut_link(cluster: &mut Cluster<'_>) -> Result<()> {
    create(cluster, "exec", json!({"containers": [container("c", "sleep 3600", "32Mi")]}))?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/exec", "--timeout=60s"])?;
    let mut command = cluster.kubectl_command(&["exec", "exec", "--", "sleep", "60"])?;
    let mut client = cluster.env().spawn("exec", &mut command)?;
    pause(Duration::from_secs(5));
    client.check_alive()?;
    cluster.kill_agent()?;
    let status = client.wait(Duration::from_secs(30))?;
    ensure!(!status.success(), "{status}: {}", client.tail());
    cluster.start_agent()?;
    cluster.wait_healthy(PATIENCE)
}

fn all_of_it(version: Version) -> Result<()> {
    let env = Env::start(version)?;
    let mut cluster = Cluster::start(&env, ClusterOptions::default())?;
    let outcome = a_child(&cluster)
        .and_then(|()| the_main_process(&cluster))
        .and_then(|()| a_volume_in_memory(&cluster))
        .and_then(|()| an_init_container(&cluster))
        .and_then(|()| a_retry(&cluster))
        .and_then(|()| a_cut_link(&mut cluster));
    let log = cluster.agent().map(|agent| agent.tail()).unwrap_or_default();
    outcome.with_context(|| format!("agent:\n{log}"))
}

#[test]
fn root_failures_are_told_as_they_were_on_the_newest_containerd() {
    all_of_it(newest()).unwrap();
}

#[test]
#[ignore = "takes minutes"]
fn root_failures_are_told_as_they_were_on_debian_12_containerd() {
    all_of_it(Version::V1_6).unwrap();
}
