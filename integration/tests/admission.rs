//! Who is let in and who is not, and with what rights, on a real runtime.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, Version, newest};
use longshore_integration::pods::is_ready;
use serde_json::{Value, json};

const IMAGE: &str = "localhost/busybox:1";
const WITHIN: Duration = Duration::from_secs(30);

struct Node<'a, 'env>(&'a Cluster<'env>);

impl Node<'_, '_> {
    fn apply(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let file = self.0.env().directory().join(format!("{name}.json"));
        std::fs::write(&file, object.to_string()).unwrap();
        self.0.kubectl(&["apply", "-f", file.to_str().unwrap()]).unwrap();
    }

    /// Makes a pod; `spec` and `container` are added to a plain one.
    fn pod(&self, name: &str, spec: Value, container: Value) {
        self.apply(&pod(name, spec, container));
    }

    fn manifest(&self, name: &str, cpu: &str) {
        let object = pod(name, json!({}), json!({"resources": {"requests": {"cpu": cpu}}}));
        let text = object.to_string();
        let path = format!("/etc/kubernetes/manifests/{name}.json");
        self.0.env().within(move || std::fs::write(path, text)).unwrap().unwrap();
    }

    fn remove_manifest(&self, name: &str) {
        let path = format!("/etc/kubernetes/manifests/{name}.json");
        self.0.env().within(move || std::fs::remove_file(path)).unwrap().unwrap();
    }

    fn get(&self, name: &str) -> Value {
        self.0.pod(name)
    }

    #[track_caller]
    fn until(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        self.0.until_pod(name, what, WITHIN, test).unwrap()
    }

    fn until_ready(&self, name: &str) -> Value {
        self.until(name, "ready", is_ready)
    }

    fn until_event(&self, name: &str, text: &str) {
        self.0.until_told(name, text, WITHIN).unwrap();
    }

    fn exec(&self, name: &str, container: &str, command: &str) -> String {
        self.0.kubectl(&["exec", name, "-c", container, "--", "sh", "-c", command]).unwrap().trim().to_owned()
    }

    fn delete(&self, name: &str) {
        self.0.kubectl(&["delete", "pod", name, "--timeout=30s"]).unwrap();
    }
}

fn pod(name: &str, spec: Value, container: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1, "nodeName": Cluster::NODE,
            "containers": [{"name": "c", "image": IMAGE,
                "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"]}]}});
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object["spec"]["containers"][0].as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    object
}

fn room(node: &Node<'_, '_>) {
    let cpus: u64 = node
        .0
        .kubectl(&["get", "node", Cluster::NODE, "-o", "jsonpath={.status.allocatable.cpu}"])
        .unwrap()
        .parse()
        .unwrap();
    let most = format!("{}m", cpus * 1000 - 400);
    node.pod("filler", json!({}), json!({"resources": {"requests": {"cpu": most}}}));
    node.until_ready("filler");
    node.pod("late", json!({}), json!({"resources": {"requests": {"cpu": "500m"}}}));
    let late = node.until("late", "refused", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(late["status"]["reason"], "OutOfcpu");
    // A static pod has the filler make room.
    node.manifest("first", &most);
    let first = format!("first-{}", Cluster::NODE);
    node.until_ready(&first);
    let filler = node.until("filler", "preempted", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(filler["status"]["reason"], "Preempting");
    let marks = filler["status"]["conditions"].as_array().unwrap();
    assert!(marks.iter().any(|mark| mark["type"] == "DisruptionTarget" && mark["status"] == "True"), "{marks:?}");
    // Another static pod finds nobody who could go, waits, and runs once the first one has gone.
    node.manifest("second", "1");
    let second = format!("second-{}", Cluster::NODE);
    node.until(&second, "refused", |pod| pod["status"]["reason"] == "UnexpectedAdmissionError");
    node.remove_manifest("first");
    let second = node.until_ready(&second);
    assert_eq!((&second["status"]["phase"], &second["status"]["reason"]), (&json!("Running"), &Value::Null));
    node.remove_manifest("second");
}

fn classes(node: &Node<'_, '_>) {
    let class = |name: &str, handler: &str| {
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler,
            "overhead": {"podFixed": {"memory": "16Mi"}}})
    };
    node.apply(&class("plain", "runc"));
    node.pod("classy", json!({"runtimeClassName": "plain"}), json!({}));
    let classy = node.until_ready("classy");
    assert_eq!(classy["spec"]["overhead"]["memory"], "16Mi");
    node.apply(&class("gone", "runc"));
    node.0.kubectl(&["cordon", Cluster::NODE]).unwrap();
    let mut waiting = pod("classless", json!({"runtimeClassName": "gone"}), json!({}));
    waiting["spec"].as_object_mut().unwrap().remove("nodeName");
    node.apply(&waiting);
    node.0.kubectl(&["delete", "runtimeclass", "gone"]).unwrap();
    node.0.kubectl(&["uncordon", Cluster::NODE]).unwrap();
    node.until_event("classless", "Failed to create pod sandbox: runtimeclass.node.k8s.io \"gone\" not found");
    node.apply(&class("gone", "runc"));
    node.until_ready("classless");
    for name in ["classy", "classless"] {
        node.delete(name);
    }
}

fn rights(node: &Node<'_, '_>) {
    let sysctls = json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}});
    node.pod("tuned", sysctls, json!({}));
    node.until_ready("tuned");
    assert_eq!(node.exec("tuned", "c", "cat /proc/sys/kernel/msgmax"), "65536");

    let profile = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]});
    let write = move || {
        std::fs::create_dir_all("/var/lib/kubelet/seccomp/mine")?;
        std::fs::write("/var/lib/kubelet/seccomp/mine/no-mkdir.json", profile.to_string())
    };
    node.0.env().within(write).unwrap().unwrap();
    let local = json!({"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "mine/no-mkdir.json"},
        "runAsUser": 1234, "runAsGroup": 3456, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]}}});
    node.pod("small", json!({"securityContext": {"supplementalGroups": [77], "runAsNonRoot": true}}), local);
    node.until_ready("small");
    assert_eq!(node.exec("small", "c", "mkdir /dev/shm/x 2>/dev/null; ls -d /dev/shm/x 2>/dev/null | wc -l"), "0");
    assert_eq!(node.exec("small", "c", "id -u; id -g"), "1234\n3456");
    let status = node.exec("small", "c", "cat /proc/1/status");
    for line in ["NoNewPrivs:\t1", "CapEff:\t0000000000000000", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line}:\n{status}");
    }
    assert!(node.exec("small", "c", "touch /x 2>&1 || true").contains("Read-only"), "the root is read-only");

    node.pod("own-users", json!({"hostUsers": false}), json!({}));
    node.until_event("own-users", "can't set `spec.hostUsers: false`, runtime does not support user namespaces");
    for name in ["tuned", "small", "own-users"] {
        node.delete(name);
    }
}

fn guests(node: &Node<'_, '_>) {
    let name = "visited";
    node.pod(name, json!({}), json!({}));
    node.until_ready(name);
    let main = node.exec(name, "c", "readlink /proc/1/ns/pid");
    let debug = [
        "debug",
        name,
        "--image",
        IMAGE,
        "--target",
        "c",
        "-c",
        "dbg",
        "--profile",
        "general",
        "--",
        "sh",
        "-c",
        "sleep 3600",
    ];
    node.0.kubectl(&debug).unwrap();
    let guest = |pod: &Value| pod["status"]["ephemeralContainerStatuses"][0].clone();
    node.until(name, "visited", |pod| guest(pod)["state"]["running"].is_object());
    assert_eq!(node.exec(name, "dbg", "readlink /proc/self/ns/pid"), main, "it sees the processes of its target");
    // Killed and removed behind the agent's back: it has ended, and does not come again.
    let id = guest(&node.get(name))["containerID"].as_str().unwrap().trim_start_matches("containerd://").to_owned();
    let env = node.0.env();
    env.run(&mut env.ctr(&["tasks", "kill", "-s", "SIGKILL", &id]).unwrap()).unwrap();
    let ended = |pod: &Value| guest(pod)["state"]["terminated"]["exitCode"] == 137;
    node.until(name, "ended", ended);
    drop(env.run(&mut env.ctr(&["containers", "delete", &id]).unwrap()));
    node.until(name, "still ended", ended);
    node.delete(name);
}

fn exits(node: &Node<'_, '_>) {
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]);
    let command = "test -e /d/again && exec sleep 3600; touch /d/again; sleep 1; exit 88";
    let spec = json!({"restartPolicy": "Never", "volumes": [{"name": "d", "emptyDir": {}}],
        "initContainers": [{"name": "i", "image": IMAGE, "command": ["true"]}]});
    node.pod(
        "anew",
        spec,
        json!({"command": ["sh", "-c", command], "restartPolicy": "Never", "restartPolicyRules": rules,
            "volumeMounts": [{"name": "d", "mountPath": "/d"}]}),
    );
    let anew = node.until("anew", "begun anew", |pod| {
        pod["status"]["containerStatuses"][0]["restartCount"] == 1
            && pod["status"]["containerStatuses"][0]["state"]["running"].is_object()
    });
    assert_eq!(anew["status"]["initContainerStatuses"][0]["restartCount"], 1);
    assert_eq!(anew["status"]["phase"], "Running");
    node.delete("anew");
}

fn let_in(version: Version) {
    let env = Env::start(version).unwrap();
    let config = json!({"allowedUnsafeSysctls": ["kernel.msg*"]});
    let options = ClusterOptions { config: config.as_object().unwrap().clone(), ..ClusterOptions::default() };
    let mut cluster = Cluster::start(&env, options).unwrap();
    let node = Node(&cluster);
    room(&node);
    classes(&node);
    rights(&node);
    guests(&node);
    exits(&node);

    // What runs stays, whatever the next agent thinks of it.
    node.pod(
        "stays",
        json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}}),
        json!({}),
    );
    let before = node.until_ready("stays")["status"]["containerStatuses"].clone();
    cluster.kill_agent().unwrap();
    cluster.set_config(json!({"maxPods": 1, "systemReserved": {"cpu": "1"}}).as_object().unwrap().clone());
    cluster.start_agent().unwrap();
    let node = Node(&cluster);
    node.pod("newcomer", json!({}), json!({}));
    let newcomer = node.until("newcomer", "refused", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(newcomer["status"]["reason"], "OutOfpods");
    assert_eq!(node.until_ready("stays")["status"]["containerStatuses"], before);
    cluster.remove_pods().unwrap();
}

#[test]
fn root_pods_are_let_in_and_limited_as_they_should() {
    let_in(newest());
}

#[test]
#[ignore = "long: part of make test-all"]
fn root_pods_are_let_in_and_limited_as_they_should_on_debian_12_containerd() {
    let_in(Version::V1_6);
}
