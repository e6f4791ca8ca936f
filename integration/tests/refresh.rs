//! What pods have mounted of the API follows its changes within seconds, also while a pod ends; pods that wait for what is
//! missing run once it is there; a container that mounts one file of a configmap starts with the newest content.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, Version, eventually, newest, pause};
use serde_json::{Value, json};

/// Bound of `docs/field-reports.md` for what is followed.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);
const IDLE: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";
const STUBBORN: &str = "trap '' TERM; while :; do sleep 1; done";

fn create(cluster: &Cluster<'_>, name: &str, object: &Value) -> Result<()> {
    let file = cluster.env().directory().join(format!("{name}.json"));
    std::fs::write(&file, object.to_string())?;
    cluster.kubectl(&["create", "--validate=false", "-f", &file.display().to_string()]).map(drop)
}

fn pod(name: &str, script: &str, volumes: &Value, mounts: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": {
        "nodeName": Cluster::NODE, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 60,
        "volumes": volumes,
        "containers": [{"name": "c", "image": "localhost/busybox:1", "command": ["sh", "-c", script], "volumeMounts": mounts}]}})
}

fn map(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"n": value}})
}

fn set(cluster: &Cluster<'_>, kind: &str, name: &str, patch: &Value) -> Result<()> {
    cluster.kubectl(&["patch", kind, name, "--type=merge", "-p", &patch.to_string()]).map(drop)
}

/// Where a volume of a pod stands on the host.
fn volume(cluster: &Cluster<'_>, pod: &str, plugin: &str) -> Result<String> {
    let uid = cluster.pod(pod)["metadata"]["uid"].as_str().context("no uid")?.to_owned();
    Ok(format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~{plugin}/v"))
}

/// How long it takes until a file has that content.
fn shown_after(cluster: &Cluster<'_>, file: &str, content: &str) -> Result<Duration> {
    let begin = Instant::now();
    let seen = || std::fs::read_to_string(file).is_ok_and(|text| text == content);
    eventually(&format!("{file} holds {content}"), Duration::from_secs(90), || {
        cluster.env().within(seen).unwrap_or(false)
    })?;
    Ok(begin.elapsed())
}

/// O-058: ten changes of a configmap, and one of a secret and of the pod's own labels.
fn changes_show_within_seconds(cluster: &Cluster<'_>) -> Result<()> {
    create(cluster, "settings", &map("0"))?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"k": "0"}});
    create(cluster, "key", &secret)?;
    let mount = json!([{"name": "v", "mountPath": "/v"}]);
    let follows = [
        ("maps", "configmap", json!([{"name": "v", "configMap": {"name": "settings"}}])),
        ("secrets", "secret", json!([{"name": "v", "secret": {"secretName": "key"}}])),
        (
            "labels",
            "downward-api",
            json!([{"name": "v", "downwardAPI": {"items": [
            {"path": "app", "fieldRef": {"fieldPath": "metadata.labels['app']"}}]}}]),
        ),
    ];
    for (name, _, volumes) in &follows {
        create(cluster, name, &pod(name, IDLE, volumes, &mount))?;
    }
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/maps", "pod/secrets", "pod/labels", "--timeout=90s"])?;
    let file = volume(cluster, "maps", "configmap")? + "/n";
    let mut took = Vec::new();
    for value in 1..=10 {
        set(cluster, "configmap", "settings", &json!({"data": {"n": value.to_string()}}))?;
        took.push(shown_after(cluster, &file, &value.to_string())?);
        pause(Duration::from_millis(700));
    }
    let inside = cluster.kubectl(&["exec", "maps", "--", "cat", "/v/n"])?;
    ensure!(inside == "10", "the pod sees {inside}");
    set(cluster, "secret", "key", &json!({"stringData": {"k": "new"}}))?;
    took.push(shown_after(cluster, &(volume(cluster, "secrets", "secret")? + "/k"), "new")?);
    set(cluster, "pod", "labels", &json!({"metadata": {"labels": {"app": "other"}}}))?;
    took.push(shown_after(cluster, &(volume(cluster, "labels", "downward-api")? + "/app"), "other")?);
    longshore_integration::tools::say(&format!("changes were shown after {took:?}"));
    ensure!(took.iter().all(|took| *took < SHOWN_WITHIN), "{took:?}");
    Ok(())
}

/// O-057: one file of a configmap, changed; the next instance has the new content.
fn a_restart_has_the_newest_content(cluster: &Cluster<'_>) -> Result<()> {
    let volumes = json!([{"name": "v", "configMap": {"name": "settings"}}]);
    let mounts = json!([{"name": "v", "mountPath": "/n", "subPath": "n"}]);
    let script = format!("cat /n; echo; {IDLE}");
    create(cluster, "part", &pod("part", &script, &volumes, &mounts))?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/part", "--timeout=60s"])?;
    set(cluster, "configmap", "settings", &json!({"data": {"n": "changed"}}))?;
    shown_after(cluster, &(volume(cluster, "part", "configmap")? + "/n"), "changed")?;
    ensure!(cluster.kubectl(&["exec", "part", "--", "cat", "/n"])? == "10", "one file does not follow");
    // The command may go down with the container.
    drop(cluster.kubectl(&["exec", "part", "--", "kill", "-TERM", "1"]));
    cluster.until_pod("part", "the next instance", Duration::from_secs(60), |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"] == 1 && status["ready"] == true
    })?;
    let said = cluster.kubectl(&["logs", "part"])?;
    ensure!(said.trim() == "changed", "it started with {said:?}");
    Ok(())
}

/// O-059: a pod that takes its time to end still sees changes, and its token is still renewed.
fn a_pod_that_ends_is_kept_up_to_date(cluster: &Cluster<'_>) -> Result<()> {
    let volumes = json!([{"name": "v", "projected": {"sources": [
        {"configMap": {"name": "settings"}}, {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}]}}]);
    create(cluster, "ending", &pod("ending", STUBBORN, &volumes, &json!([{"name": "v", "mountPath": "/v"}])))?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/ending", "--timeout=60s"])?;
    let file = volume(cluster, "ending", "projected")?;
    cluster.kubectl(&["delete", "pod", "ending", "--wait=false"])?;
    pause(Duration::from_secs(2));
    set(cluster, "configmap", "settings", &json!({"data": {"n": "late"}}))?;
    let took = shown_after(cluster, &format!("{file}/n"), "late")?;
    ensure!(took < SHOWN_WITHIN, "{took:?}");
    // What a renewal asks for, by the node's own right.
    let uid = cluster.pod("ending")["metadata"]["uid"].clone();
    ensure!(cluster.pod("ending")["metadata"]["deletionTimestamp"].is_string(), "the pod was gone too early");
    let ask = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [],
        "expirationSeconds": 600, "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "ending", "uid": uid}}});
    let asked = cluster.env().directory().join("token.json");
    std::fs::write(&asked, ask.to_string())?;
    let node = cluster.env().directory().join("node.kubeconfig");
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let answer = cluster.kubectl(&[
        "--kubeconfig",
        &node.display().to_string(),
        "create",
        "--raw",
        path,
        "-f",
        &asked.display().to_string(),
    ])?;
    let answer: Value = serde_json::from_str(&answer)?;
    ensure!(answer["status"]["token"].is_string(), "{answer:#}");
    cluster.kubectl(&["delete", "pod", "ending", "--grace-period=1", "--timeout=60s"]).map(drop)
}

/// O-060: fifty pods name a secret that comes late; all of them run soon after.
fn all_that_wait_for_a_secret_run(cluster: &Cluster<'_>) -> Result<()> {
    const PODS: usize = 50;
    let volumes = json!([{"name": "v", "secret": {"secretName": "late"}}]);
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    let items: Vec<Value> = (0..PODS)
        .map(|number| {
            let mut pod = pod(&format!("w{number}"), IDLE, &volumes, &mounts);
            pod["metadata"]["labels"] = json!({"waits": "yes"});
            pod["spec"]["terminationGracePeriodSeconds"] = json!(1);
            pod
        })
        .collect();
    create(cluster, "waiting", &json!({"apiVersion": "v1", "kind": "List", "items": items}))?;
    // Long enough for the pauses between tries to have grown to their longest.
    pause(Duration::from_secs(35));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late"}, "stringData": {"k": "v"}});
    let begin = Instant::now();
    create(cluster, "late", &secret)?;
    let running = || {
        let path = "jsonpath={.items[*].status.phase}";
        let phases = cluster.kubectl(&["get", "pods", "-l", "waits=yes", "-o", path]).unwrap_or_default();
        phases.split(' ').filter(|phase| *phase == "Running").count()
    };
    eventually("all that wait run", Duration::from_secs(60), || running() == PODS)
        .with_context(|| format!("{} of {PODS} run", running()))?;
    longshore_integration::tools::say(&format!("{PODS} pods run {:?} after the secret", begin.elapsed()));
    cluster.kubectl(&["delete", "pods", "-l", "waits=yes", "--timeout=120s"]).map(drop)
}

/// O-113: the host is called otherwise than the node, which keeps the name of its credential; one line says so.
fn the_node_keeps_its_name(cluster: &mut Cluster<'_>) -> Result<()> {
    let log = std::fs::read_to_string(cluster.agent()?.log())?;
    let line = log.lines().find(|line| line.contains("the host is called otherwise than its node"));
    let line = line.with_context(|| format!("not told:\n{log}"))?;
    ensure!(line.contains(Cluster::NODE), "{line}");
    Ok(())
}

fn all_of_it(version: Version) -> Result<()> {
    let env = Env::start(version)?;
    let flags = vec!["--hostname-override=".to_owned()];
    let mut cluster = Cluster::start(&env, ClusterOptions { flags, ..ClusterOptions::default() })?;
    let outcome = the_node_keeps_its_name(&mut cluster)
        .and_then(|()| changes_show_within_seconds(&cluster))
        .and_then(|()| a_restart_has_the_newest_content(&cluster))
        .and_then(|()| a_pod_that_ends_is_kept_up_to_date(&cluster))
        .and_then(|()| all_that_wait_for_a_secret_run(&cluster));
    let log = cluster.agent().map(|agent| agent.tail()).unwrap_or_default();
    outcome.with_context(|| format!("agent:\n{log}"))
}

#[test]
fn root_mounted_objects_follow_their_changes_on_the_newest_containerd() {
    all_of_it(newest()).unwrap();
}
