//! Hostile and broken things, end to end on a real runtime: what is wrong is told where it can be seen, the agent lives
//! and goes on with everything else, and all is well once the cause is gone.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{BUSYBOX_IMAGE, Env, eventually, newest};
use serde_json::{Value, json};

const MANIFESTS: &str = "/etc/kubernetes/manifests";
const SOON: Duration = Duration::from_secs(20);

struct Node<'env> {
    cluster: Cluster<'env>,
}

impl Node<'_> {
    /// Creates a pod on the node, past the scheduler: what is looked at is the agent's own word.
    fn pod(&self, name: &str, more: Value) -> Result<()> {
        let mut spec = json!({
            "nodeName": Cluster::NODE, "terminationGracePeriodSeconds": 0, "containers": [container()],
            "tolerations": [{"operator": "Exists"}],
        });
        merge(&mut spec, more);
        self.create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}))
    }

    fn create(&self, object: &Value) -> Result<()> {
        let file = self.cluster.env().directory().join("object.json");
        std::fs::write(&file, object.to_string())?;
        self.cluster.kubectl(&["create", "--validate=false", "-f", &file.display().to_string()]).map(drop)
    }

    fn phase(&self, name: &str) -> String {
        self.cluster.kubectl(&["get", "pod", name, "-o", "jsonpath={.status.phase}"]).unwrap_or_default()
    }

    fn until_running(&self, name: &str) -> Result<()> {
        eventually(&format!("pod {name} runs"), SOON, || self.phase(name) == "Running")
            .with_context(|| format!("{}\n{}", self.events(name), self.log()))
    }

    /// Reasons and messages of a pod's events.
    fn events(&self, name: &str) -> String {
        let fields = format!("involvedObject.name={name}");
        let path = "jsonpath={range .items[*]}{.type} {.reason}: {.message}{\"\\n\"}{end}";
        self.cluster.kubectl(&["get", "events", "--field-selector", &fields, "-o", path]).unwrap_or_default()
    }

    fn until_event(&self, name: &str, words: &[&str]) -> Result<()> {
        let told = || self.events(name).lines().any(|line| words.iter().all(|word| line.contains(word)));
        eventually(&format!("event {words:?} of pod {name}"), SOON, told)
            .with_context(|| format!("{}\n{}", self.events(name), self.log()))
    }

    fn ready(&self) -> String {
        let path = "jsonpath={range .status.conditions[?(@.type==\"Ready\")]}{.status} {.message}{end}";
        self.cluster.kubectl(&["get", "node", Cluster::NODE, "-o", path]).unwrap_or_default()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.cluster.env().directory().join("logs/agent.log")).unwrap_or_default()
    }

    fn sh(&self, script: &str) -> Result<String> {
        self.cluster.env().run(Command::new("sh").args(["-ec", script]))
    }

    fn ensure_lives(&mut self) -> Result<()> {
        self.cluster.agent()?.check_alive()
    }
}

fn container() -> Value {
    json!({"name": "c", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1000"]})
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

fn static_pod(name: &str, more: Value) -> Value {
    let mut spec = json!({"terminationGracePeriodSeconds": 0, "containers": [container()]});
    merge(&mut spec, more);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

#[test]
fn root_hostile_input_and_missing_parts_hurt_nothing_else() {
    let run = || -> Result<()> {
        let env = Env::start(newest())?;
        // Small disks of their own, so that they can be filled.
        let plane = env.directory().join("plane");
        std::fs::create_dir_all(&plane)?;
        for (size, folder) in [("8m", Path::new("/var/lib/kubelet")), ("16m", &plane)] {
            let options = format!("size={size},mode=0755");
            env.run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder))?;
            env.run(Command::new("mount").arg("--make-rshared").arg(folder))?;
        }
        let mut node = Node { cluster: Cluster::start(&env, ClusterOptions::default())? };
        node.pod("witness", json!({}))?;
        node.until_running("witness")?;
        manifests(&mut node)?;
        sub_paths(&mut node)?;
        network(&mut node)?;
        full_root(&mut node)?;
        full_store(&mut node, &plane)?;
        ensure!(node.phase("witness") == "Running", "the witness was hurt: {}", node.events("witness"));
        let restarts = "jsonpath={.status.containerStatuses[0].restartCount}";
        ensure!(node.cluster.kubectl(&["get", "pod", "witness", "-o", restarts])? == "0");
        node.cluster.remove_pods()
    };
    if let Err(error) = run() {
        panic!("{error:#}");
    }
}

/// Files that are no manifests, or hostile ones: each is named in the log with its fault, the good one beside them runs.
fn manifests(node: &mut Node<'_>) -> Result<()> {
    let mut wrong = static_pod("wrong-type", json!({}));
    wrong["spec"]["containers"][0]["ports"] = json!([{"containerPort": "eighty"}]);
    let bomb = (1..9).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, level| {
        let inner = vec![format!("*a{}", level - 1); 9].join(",");
        format!("{text}a{level}: &a{level} [{inner}]\n")
    });
    let half = static_pod("half", json!({})).to_string();
    let files: Vec<(&str, Vec<u8>, &str)> = vec![
        ("broken.yaml", b"apiVersion: v1\nkind: Pod\nmetadata: {name: bro: ken".to_vec(), "line 3, column"),
        ("half.json", half.as_bytes()[..half.len() / 2].to_vec(), "line 1, column"),
        ("huge.yaml", vec![b'#'; (10 << 20) + 1], "larger than the limit of 10485760 bytes"),
        ("bomb.yaml", bomb.into_bytes(), "alias"),
        ("deep.yaml", vec![b'['; 200_000], "recursion"),
        ("kind.yaml", b"apiVersion: apps/v1\nkind: Deployment\n".to_vec(), "wanted a Pod of v1"),
        ("noise.yaml", vec![0xff; 64], "not UTF-8"),
        (
            "type.json",
            wrong.to_string().into_bytes(),
            "spec.containers[0].ports[0].containerPort: invalid type: string",
        ),
        ("twice.yaml", b"apiVersion: v1\napiVersion: v1\n".to_vec(), "duplicate mapping key: apiVersion"),
        ("name.json", static_pod("../../etc", json!({})).to_string().into_bytes(), "metadata.name: Invalid value"),
        (
            "volume.json",
            static_pod("v", json!({"volumes": [{"name": "../up", "emptyDir": {}}]})).to_string().into_bytes(),
            "spec.volumes[0].name: Invalid value",
        ),
        ("good.json", static_pod("good", json!({})).to_string().into_bytes(), ""),
    ];
    let env = node.cluster.env();
    env.within(|| {
        files.iter().try_for_each(|(name, content, _)| std::fs::write(Path::new(MANIFESTS).join(name), content))
    })??;
    node.sh(&format!(
        "cd {MANIFESTS}; mkfifo pipe.yaml; ln -s /dev/zero endless.yaml; ln -s loop.yaml loop.yaml; mkdir folder.yaml"
    ))?;
    node.until_running(&format!("good-{}", Cluster::NODE))?;
    let special = ["pipe.yaml", "endless.yaml", "loop.yaml", "folder.yaml"].map(|name| (name, "not a manifest"));
    let faults = files.iter().map(|(name, _, fault)| (*name, *fault)).filter(|(_, fault)| !fault.is_empty());
    for (name, fault) in faults.chain(special) {
        let told = || node.log().lines().any(|line| line.contains(name) && line.contains(fault));
        eventually(&format!("{name} is named with {fault:?}"), SOON, told).with_context(|| node.log())?;
    }
    ensure!(!node.log().contains("DuplicateKeyPolicy"), "words for programmers are shown to users");
    node.sh(&format!("rm -rf {MANIFESTS}/*"))?;
    node.ensure_lives()
}

/// Ways out of a volume: refused by the apiserver where they can be seen in the spec, else by the agent when they are used.
fn sub_paths(node: &mut Node<'_>) -> Result<()> {
    let with = |path: &str| {
        let mut main = container();
        main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v", "subPath": path}]);
        let mut maker = container();
        maker["name"] = json!("maker");
        maker["command"] = json!(["sh", "-c", "ln -s / /v/root; ln -s ../../../.. /v/up; echo x > /v/file"]);
        maker["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        json!({"volumes": [{"name": "v", "emptyDir": {}}], "initContainers": [maker], "containers": [main]})
    };
    for path in ["../..", "/etc", "a/../../b"] {
        let error = node.pod("escape", with(path)).map(|()| path).err().context("a way out was taken")?;
        ensure!(format!("{error:#}").contains("volumeMounts[0].subPath: Invalid value"), "{error:#}");
    }
    for (name, path) in [("link", "root/etc"), ("up", "up/x"), ("file", "file/below")] {
        node.pod(name, with(path))?;
    }
    for name in ["link", "up", "file"] {
        node.until_event(name, &["Warning Failed:", "failed to prepare subPath for volumeMount \"v\""])?;
        ensure!(node.phase(name) == "Pending", "{name} started: {}", node.phase(name));
    }
    node.cluster.kubectl(&["delete", "pod", "link", "up", "file", "--timeout=20s"])?;
    ensure!(node.sh("ls -d /etc/below /x 2>/dev/null || true")?.is_empty(), "something was made outside of the volume");
    node.ensure_lives()
}

/// No CNI configuration when runtime and agent start, then no plugins.
fn network(node: &mut Node<'_>) -> Result<()> {
    node.cluster.kill_agent()?;
    node.cluster.env().kill_containerd()?;
    node.sh("mkdir -p /run/aside; mv /etc/cni/net.d/* /run/aside")?;
    node.cluster.env().start_containerd()?;
    node.cluster.start_agent()?;
    node.cluster.wait_healthy(SOON)?;
    let why = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin \
               returns error: cni plugin not initialized";
    let not_ready = format!("False {why}");
    eventually("the node says why it is not Ready", SOON, || node.ready() == not_ready)
        .with_context(|| node.ready())?;
    node.pod("needs-network", json!({}))?;
    node.pod("hosts-network", json!({"hostNetwork": true}))?;
    node.until_running("hosts-network")?;
    node.until_event("needs-network", &[&format!("Warning NetworkNotReady: network is not ready: {why}")])?;
    ensure!(!node.events("needs-network").contains("FailedCreatePodSandBox"), "{}", node.events("needs-network"));
    node.sh("mv /run/aside/* /etc/cni/net.d")?;
    node.until_running("needs-network")?;
    eventually("the node is Ready again", SOON, || node.ready().starts_with("True")).with_context(|| node.ready())?;

    node.sh("mount -t tmpfs tmpfs /usr/lib/cni")?;
    node.pod("needs-plugin", json!({}))?;
    node.until_event("needs-plugin", &["Warning FailedCreatePodSandBox", "failed to find plugin"])?;
    node.sh("umount /usr/lib/cni")?;
    node.until_running("needs-plugin")?;
    node.ensure_lives()
}

/// A full disk under the agent's root.
fn full_root(node: &mut Node<'_>) -> Result<()> {
    let data = "x".repeat(40_000);
    node.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"a": data}}))?;
    node.sh("cat /dev/zero > /var/lib/kubelet/fill 2>/dev/null || true")?;
    let mut main = container();
    main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    node.pod("on-full-disk", json!({"volumes": [{"name": "v", "configMap": {"name": "big"}}], "containers": [main]}))?;
    node.until_event("on-full-disk", &["Warning FailedMount", "volume \"v\"", "/v/a: No space left on device"])?;
    let events = node.events("on-full-disk");
    ensure!(events.matches("FailedMount").count() == 1, "one fault makes several events: {events}");
    ensure!(!events.contains("(os error 28): No space"), "the fault is told twice in one line: {events}");
    ensure!(node.cluster.kubectl(&["exec", "witness", "--", "echo", "lives"])?.trim() == "lives");
    node.cluster.kubectl(&["delete", "pod", "needs-plugin", "--timeout=20s"])?;
    // Also an agent that starts on a full disk comes up and finds its pods.
    node.cluster.kill_agent()?;
    node.cluster.start_agent()?;
    node.cluster.wait_healthy(SOON)?;
    ensure!(node.cluster.kubectl(&["exec", "witness", "--", "echo", "lives"])?.trim() == "lives");
    node.sh("rm /var/lib/kubelet/fill")?;
    node.until_running("on-full-disk")?;
    node.ensure_lives()
}

/// A full disk under the control plane's store.
fn full_store(node: &mut Node<'_>, folder: &Path) -> Result<()> {
    let fill = folder.join("fill").display().to_string();
    node.sh(&format!("cat /dev/zero > {fill} 2>/dev/null || true"))?;
    let big = "y".repeat(900_000);
    let mut refused = None;
    for number in 0..20 {
        let name = format!("filler-{number}");
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": big}});
        if let Err(error) = node.create(&object) {
            refused = Some(format!("{error:#}"));
            break;
        }
    }
    let refused = refused.context("a full disk took 18 MB")?;
    ensure!(refused.contains("no space left for the store at"), "{refused}");
    ensure!(node.phase("witness") == "Running", "reads go on");
    ensure!(node.cluster.kubectl(&["exec", "witness", "--", "echo", "lives"])?.trim() == "lives");
    node.cluster.plane()?.check_alive()?;
    // Also one that starts on the full disk answers.
    node.cluster.kill_plane()?;
    node.cluster.start_plane()?;
    ensure!(node.phase("witness") == "Running", "reads go on after a restart");
    node.sh(&format!("rm {fill}"))?;
    eventually("writes go on", SOON, || {
        node.cluster
            .kubectl(&["create", "configmap", "after", "--dry-run=client", "-o", "json"])
            .is_ok_and(|text| serde_json::from_str(&text).is_ok_and(|object| node.create(&object).is_ok()))
    })?;
    node.pod("after-full-store", json!({}))?;
    node.until_running("after-full-store")?;
    node.ensure_lives()
}
