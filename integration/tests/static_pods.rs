//! Static pods on a real runtime: manifests that come, change, go and come back; mirrors that are deleted; an apiserver that
//! is away; agents that are killed meanwhile.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use longshore_cri::{ClientOptions, CriClient, RuntimeService as _, labels, v1};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, Process, Version, eventually, newest, pause};
use longshore_integration::tools;
use serde_json::{Value, json};

const IDLE: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";
const STUBBORN: &str = "trap '' TERM; while :; do sleep 1; done";
const WITHIN: Duration = Duration::from_secs(40);
const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// Where the environment's own web server listens.
const WEB: &str = "127.0.0.1:8123";

struct Node<'env> {
    env: &'env Env,
    cluster: Cluster<'env>,
}

/// A manifest; the fields of `spec` replace the usual ones.
fn manifest(name: &str, script: &str, spec: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "terminationGracePeriodSeconds": 2,
        "containers": [{"name": "c", "image": "localhost/busybox:1", "command": ["sh", "-c", script]}]}});
    if let (Some(fields), Some(more)) = (object["spec"].as_object_mut(), spec.as_object()) {
        fields.extend(more.clone());
    }
    object
}

fn mirror(name: &str) -> String {
    format!("{name}-{}", Cluster::NODE)
}

impl Node<'_> {
    /// Puts a file in its place as a careful program does: whole, at once.
    fn put(&self, file: &str, object: &Value) -> Result<()> {
        let text = object.to_string();
        self.env.within(|| {
            let draft = format!("{MANIFESTS}/.{file}.tmp");
            std::fs::write(&draft, text)?;
            std::fs::rename(&draft, format!("{MANIFESTS}/{file}"))
        })??;
        Ok(())
    }

    fn take(&self, file: &str) -> Result<()> {
        self.env.within(|| std::fs::remove_file(format!("{MANIFESTS}/{file}")))??;
        Ok(())
    }

    fn object(&self, name: &str) -> Option<Value> {
        let text = self.cluster.kubectl(&["get", "pod", &mirror(name), "-o", "json"]).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Waits until the API shows the pod so.
    fn until(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = None;
        eventually(&format!("{name} {what}"), WITHIN, || {
            last = self.object(name);
            last.as_ref().is_some_and(&test)
        })
        .with_context(|| format!("{:#}", last.clone().unwrap_or_default()["status"]))?;
        last.context("no object")
    }

    fn until_ready(&self, name: &str) -> Result<Value> {
        self.until(name, "ready", |pod| condition(pod, "Ready") == "True")
    }

    fn until_phase(&self, name: &str, phase: &str) -> Result<Value> {
        self.until(name, phase, |pod| pod["status"]["phase"] == phase)
    }

    fn until_gone(&self, name: &str) -> Result<()> {
        eventually(&format!("{name} gone from the API"), WITHIN, || self.object(name).is_none())?;
        eventually(&format!("{name} gone from the runtime"), WITHIN, || {
            self.containers(name).is_ok_and(|containers| containers.is_empty())
        })
    }

    /// Containers of a static pod: id and whether it runs.
    fn containers(&self, name: &str) -> Result<Vec<(String, bool)>> {
        let name = mirror(name);
        self.env.block_on(|| async {
            let client = CriClient::connect(&self.env.endpoint(), ClientOptions::default())?;
            let filter = v1::ContainerFilter {
                label_selector: [(labels::POD_NAME.to_owned(), name)].into(),
                ..Default::default()
            };
            let answer = client.list_containers(v1::ListContainersRequest { filter: Some(filter) }).await?;
            let running = |c: &v1::Container| c.state() == v1::ContainerState::ContainerRunning;
            Ok(answer.containers.iter().map(|c| (c.id.clone(), running(c))).collect())
        })
    }

    /// The one container that runs.
    fn running(&self, name: &str) -> Result<String> {
        let containers = self.containers(name)?;
        let mut running = containers.into_iter().filter(|(_, running)| *running).map(|(id, _)| id);
        let first = running.next().with_context(|| format!("nothing of {name} runs"))?;
        ensure!(running.next().is_none(), "{name} runs twice");
        Ok(first)
    }

    /// Waits until one container runs, which needs no apiserver.
    fn until_running(&self, name: &str) -> Result<String> {
        let mut found = None;
        eventually(&format!("{name} running"), WITHIN, || {
            found = self.running(name).ok();
            found.is_some()
        })?;
        found.context("not running")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.env.directory().join("logs/agent.log")).unwrap_or_default()
    }

    fn restart(&mut self) -> Result<()> {
        self.cluster.kill_agent()?;
        self.cluster.start_agent()?;
        self.cluster.wait_healthy(WITHIN)
    }
}

fn condition<'a>(pod: &'a Value, kind: &str) -> &'a str {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|c| c["type"] == kind).and_then(|c| c["status"].as_str()).unwrap_or_default()
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Serves a folder of the environment's own at [`WEB`].
fn serve(env: &Env) -> Result<Process> {
    let folder = env.directory().join("web");
    std::fs::create_dir_all(&folder)?;
    let (address, port) = WEB.split_once(':').context("no port")?;
    let mut command = Command::new(tools::python()?.join("python"));
    command.args(["-m", "http.server", port, "--bind", address, "--directory"]).arg(folder);
    env.spawn("web", &mut command)
}

fn all_promises_hold(version: Version, restarts: usize) {
    let env = Env::start(version).unwrap();
    let _web = serve(&env).unwrap();
    let config = json!({"staticPodURL": format!("http://{WEB}/pods.json"), "httpCheckFrequency": "1s"});
    let config = config.as_object().cloned().unwrap();
    let cluster = Cluster::start(&env, ClusterOptions { config: config.clone(), ..Default::default() }).unwrap();
    let mut node = Node { env: &env, cluster };
    let outcome = refused_beside_a_healthy_one(&node)
        .and_then(|()| mirrors_come_back_and_stay(&node))
        .and_then(|()| edits_and_moves(&node))
        .and_then(|()| jobs(&node))
        .and_then(|()| from_a_url(&node))
        .and_then(|()| without_an_apiserver(&mut node))
        .and_then(|()| gone_while_no_agent_ran(&mut node))
        .and_then(|()| no_room(&mut node, config))
        .and_then(|()| eight_and_restarts(&mut node, restarts));
    if let Err(error) = outcome {
        panic!("{error:#}\nagent:\n{}", node.cluster.agent().map(|agent| agent.tail()).unwrap_or_default());
    }
}

#[test]
fn root_static_pods_converge_on_the_newest_containerd() {
    all_promises_hold(newest(), 5);
}

#[test]
#[ignore = "takes minutes"]
fn root_static_pods_converge_on_debian_12_containerd() {
    all_promises_hold(Version::V1_6, 20);
}

/// O-018: one message for what names an object of the API; the pod beside it runs.
fn refused_beside_a_healthy_one(node: &Node<'_>) -> Result<()> {
    let volumes = json!({"volumes": [{"name": "v", "configMap": {"name": "x"}}]});
    node.put("a-refused.json", &manifest("refused", IDLE, &volumes))?;
    node.put("healthy.json", &manifest("healthy", IDLE, &json!({})))?;
    node.until_ready("healthy")?;
    let told = node.log().matches("static pods may not refer to API objects: spec.volumes[0].configMap").count();
    ensure!(told == 1, "told {told} times");
    ensure!(node.object("refused").is_none(), "there is a mirror of a refused pod");
    node.take("a-refused.json")
}

/// O-020: one mirror for as long as the file is unchanged. A deleted one comes back, and the pod does not notice.
fn mirrors_come_back_and_stay(node: &Node<'_>) -> Result<()> {
    let first = node.until_ready("healthy")?;
    let container = node.running("healthy")?;
    for _ in 0..4 {
        node.put("healthy.json", &manifest("healthy", IDLE, &json!({})))?;
        pause(Duration::from_secs(1));
    }
    ensure!(uid(&node.until_ready("healthy")?) == uid(&first), "the mirror was made anew though nothing changed");
    for force in [&["--grace-period=30"][..], &["--force", "--grace-period=0"]] {
        let before = uid(&node.until_ready("healthy")?);
        let name = mirror("healthy");
        node.cluster.kubectl(&[&["delete", "pod", &name, "--wait=false"], force].concat())?;
        node.until("healthy", "anew", |pod| uid(pod) != before && condition(pod, "Ready") == "True")?;
    }
    ensure!(node.running("healthy")? == container, "the container was touched");
    Ok(())
}

/// O-014 and O-016: changed, twice there, moved out and in, and removed.
fn edits_and_moves(node: &Node<'_>) -> Result<()> {
    let before = node.running("healthy")?;
    let mut edited = manifest("healthy", IDLE, &json!({}));
    edited["metadata"]["labels"] = json!({"edit": "1"});
    node.put("healthy.json", &edited)?;
    node.until("healthy", "edited", |pod| {
        pod["metadata"]["labels"]["edit"] == "1" && condition(pod, "Ready") == "True"
    })?;
    ensure!(node.running("healthy")? != before, "the edited pod still runs the old container");
    // A second file of the name waits for the first.
    node.put("healthy-too.json", &manifest("healthy", IDLE, &json!({})))?;
    pause(Duration::from_secs(1));
    let held = node.running("healthy")?;
    node.take("healthy.json")?;
    node.until("healthy", "of the second file", |pod| {
        pod["metadata"]["labels"]["edit"].is_null() && condition(pod, "Ready") == "True"
    })?;
    ensure!(node.running("healthy")? != held, "the second file's pod does not run");
    for wait in [0, 100, 700, 3000] {
        node.take("healthy-too.json")?;
        pause(Duration::from_millis(400 + wait));
        node.put("healthy-too.json", &manifest("healthy", IDLE, &json!({})))?;
        pause(Duration::from_millis(wait));
        node.until_running("healthy")?;
        node.until_ready("healthy")?;
    }
    node.take("healthy-too.json")?;
    node.until_gone("healthy")
}

/// O-015 and O-019: one that has ended shows it in every mirror, and runs again when its file comes back.
fn jobs(node: &Node<'_>) -> Result<()> {
    let mut job = manifest("job", "exit 0", &json!({"restartPolicy": "OnFailure"}));
    job["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    for round in 0..2 {
        node.put("job.json", &job)?;
        let ended = node.until_phase("job", "Succeeded").with_context(|| format!("round {round}"))?;
        ensure!(ended["metadata"]["annotations"]["kubernetes.io/config.hash"] == job["metadata"]["uid"], "{ended:#}");
        node.cluster.kubectl(&["delete", "pod", &mirror("job"), "--wait=false"])?;
        let code = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0;
        node.until("job", "shown again", |pod| uid(pod) != uid(&ended) && code(pod))?;
        node.take("job.json")?;
        node.until_gone("job")?;
    }
    // Another manifest under the same uid.
    node.put("job.json", &job)?;
    node.until_phase("job", "Succeeded")?;
    job["spec"]["containers"][0]["command"] = json!(["sh", "-c", IDLE]);
    node.put("job.json", &job)?;
    let mirror = node.until_ready("job")?;
    ensure!(mirror["spec"]["containers"][0]["command"][2] == IDLE, "the mirror shows the old manifest");
    node.take("job.json")?;
    node.until_gone("job")
}

/// A list, an answer that is none, and one pod.
fn from_a_url(node: &Node<'_>) -> Result<()> {
    let file = node.env.directory().join("web/pods.json");
    let put = |text: &str| -> Result<()> {
        let draft = file.with_extension("tmp");
        std::fs::write(&draft, text)?;
        Ok(std::fs::rename(draft, &file)?)
    };
    let (one, two) = (manifest("one", IDLE, &json!({})), manifest("two", IDLE, &json!({})));
    put(&json!({"apiVersion": "v1", "kind": "PodList", "items": [one, two]}).to_string())?;
    let shown = node.until_ready("one")?;
    ensure!(shown["metadata"]["annotations"]["kubernetes.io/config.source"] == "http", "{shown:#}");
    node.until_ready("two")?;
    let before = (node.running("one")?, node.running("two")?);
    std::fs::remove_file(&file)?;
    pause(Duration::from_secs(3));
    put("<html>all is well</html>")?;
    pause(Duration::from_secs(3));
    ensure!((node.running("one")?, node.running("two")?) == before, "a bad answer touched the pods");
    put(&two.to_string())?;
    node.until_gone("one")?;
    ensure!(node.running("two")? == before.1, "the pod that stayed was touched");
    put(&json!({"apiVersion": "v1", "kind": "PodList", "items": []}).to_string())?;
    node.until_gone("two")
}

/// The agent and the apiserver are away, the manifest changes: the new pod takes the old one's place without an apiserver,
/// and the API shows it when it is back.
fn without_an_apiserver(node: &mut Node<'_>) -> Result<()> {
    node.put("core.json", &manifest("core", IDLE, &json!({})))?;
    let before = uid(&node.until_ready("core")?);
    let container = node.running("core")?;
    node.cluster.kill_agent()?;
    node.cluster.kill_plane()?;
    let mut edited = manifest("core", IDLE, &json!({"terminationGracePeriodSeconds": 3}));
    edited["metadata"]["labels"] = json!({"edit": "away"});
    node.put("core.json", &edited)?;
    node.put("late.json", &manifest("late", IDLE, &json!({})))?;
    node.cluster.start_agent()?;
    node.until_running("late")?;
    eventually("the new pod in the old one's place", WITHIN, || {
        node.running("core").is_ok_and(|running| running != container)
    })?;
    let all = node.containers("core")?;
    ensure!(all.len() == 1, "of the old pod something is left: {all:?}");
    node.cluster.start_plane()?;
    let after = node.until("core", "shown", |pod| {
        pod["metadata"]["labels"]["edit"] == "away" && condition(pod, "Ready") == "True"
    })?;
    ensure!(uid(&after) != before, "the mirror is the old one");
    node.until_ready("late")?;
    node.take("late.json")?;
    node.take("core.json")?;
    node.until_gone("late")?;
    node.until_gone("core")
}

/// Removed while no agent ran: hook and grace count all the same.
fn gone_while_no_agent_ran(node: &mut Node<'_>) -> Result<()> {
    let folder = node.env.directory().join("hooked");
    std::fs::create_dir_all(&folder)?;
    let mut pod = manifest(
        "orphan",
        STUBBORN,
        &json!({"terminationGracePeriodSeconds": 5,
        "volumes": [{"name": "v", "hostPath": {"path": folder}}]}),
    );
    let container = &mut pod["spec"]["containers"][0];
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    container["lifecycle"] = json!({"preStop": {"exec": {"command": ["sh", "-c", "echo x >> /v/hook"]}}});
    node.put("orphan.json", &pod)?;
    node.until_ready("orphan")?;
    node.cluster.kill_agent()?;
    node.take("orphan.json")?;
    node.cluster.start_agent()?;
    eventually("the hook", WITHIN, || folder.join("hook").exists())?;
    let begin = Instant::now();
    node.until_gone("orphan")?;
    ensure!(begin.elapsed() > Duration::from_secs(3), "gone after {:?}", begin.elapsed());
    let hooks = std::fs::read_to_string(folder.join("hook"))?;
    ensure!(hooks == "x\n", "the hook ran {} times", hooks.lines().count());
    Ok(())
}

/// O-021: three have room; the fourth says why it waits and starts by itself.
fn no_room(node: &mut Node<'_>, config: serde_json::Map<String, Value>) -> Result<()> {
    let mut less = config.clone();
    less.insert("maxPods".into(), json!(3));
    node.cluster.set_config(less);
    node.restart()?;
    for index in 0..4 {
        let name = format!("room-{index}");
        node.put(&format!("{name}.json"), &manifest(&name, IDLE, &json!({})))?;
        if index < 3 {
            node.until_ready(&name)?;
        }
    }
    let refused = node.until_phase("room-3", "Failed")?;
    let text = refused["status"]["message"].as_str().unwrap_or_default();
    ensure!(!refused["status"]["reason"].is_null() && text.contains("pods"), "{:#}", refused["status"]);
    node.take("room-1.json")?;
    node.until_ready("room-3")?;
    for index in [0, 2, 3] {
        node.take(&format!("room-{index}.json"))?;
    }
    for index in [0, 2, 3] {
        node.until_gone(&format!("room-{index}"))?;
    }
    node.cluster.set_config(config);
    node.restart()
}

/// O-003: eight of them, and after each restart of the agent the same container of each.
fn eight_and_restarts(node: &mut Node<'_>, restarts: usize) -> Result<()> {
    let names: Vec<String> = (0..8).map(|index| format!("eight-{index}")).collect();
    for name in &names {
        node.put(&format!("{name}.json"), &manifest(name, IDLE, &json!({})))?;
    }
    let mut before = Vec::new();
    for name in &names {
        node.until_ready(name)?;
        before.push(node.running(name)?);
    }
    for round in 0..restarts {
        node.restart()?;
        pause(Duration::from_secs(1));
        for (name, container) in names.iter().zip(&before) {
            ensure!(node.running(name)? == *container, "{name} is another one after restart {round}");
        }
    }
    for name in &names {
        ensure!(condition(&node.until_ready(name)?, "Ready") == "True", "{name}");
        node.take(&format!("{name}.json"))?;
    }
    names.iter().try_for_each(|name| node.until_gone(name))
}
