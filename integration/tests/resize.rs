//! Pods that get another size while they run, on a real runtime: what the kernel is told, and what everybody is shown.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, Version, newest};
use longshore_integration::pods::{condition, is_ready};
use serde_json::{Value, json};

const IMAGE: &str = "localhost/busybox:1";
const WITHIN: Duration = Duration::from_secs(40);
const MIB: u64 = 1 << 20;

struct Node<'a, 'env>(&'a Cluster<'env>);

impl Node<'_, '_> {
    /// Makes a pod; `spec` and `container` are added to a plain one.
    fn pod(&self, name: &str, spec: Value, container: Value) {
        let mut object = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
                "nodeName": Cluster::NODE, "containers": [{"name": "c", "image": IMAGE,
                    "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"]}]}});
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        object["spec"]["containers"][0].as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let file = self.0.env().directory().join(format!("{name}.json"));
        std::fs::write(&file, object.to_string()).unwrap();
        self.0.kubectl(&["create", "-f", file.to_str().unwrap()]).unwrap();
    }

    #[track_caller]
    fn until(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        self.0.until_pod(name, what, WITHIN, test).unwrap()
    }

    #[track_caller]
    fn until_ready(&self, name: &str) -> Value {
        self.until(name, "ready", is_ready)
    }

    /// Asks for other sizes of the container.
    fn resize(&self, name: &str, resources: &Value) {
        self.patch(name, &json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}));
    }

    fn patch(&self, name: &str, patch: &Value) {
        self.0.kubectl(&["patch", "pod", name, "--subresource", "resize", "-p", &patch.to_string()]).unwrap();
    }

    /// Waits until the newest spec was looked at and nothing of it is left to do.
    #[track_caller]
    fn until_settled(&self, name: &str) -> Value {
        self.until(name, "resized", |pod| {
            pod["status"]["observedGeneration"] == pod["metadata"]["generation"]
                && condition(pod, "PodResizePending").is_null()
                && condition(pod, "PodResizeInProgress").is_null()
                && is_ready(pod)
        })
    }

    #[track_caller]
    fn until_event(&self, name: &str, text: &str) {
        self.0.until_told(name, text, WITHIN).unwrap();
    }

    fn exec(&self, name: &str, command: &str) -> String {
        self.0.kubectl(&["exec", name, "--", "sh", "-c", command]).unwrap().trim().to_owned()
    }

    fn delete(&self, name: &str) {
        self.0.kubectl(&["delete", "pod", name, "--timeout=30s"]).unwrap();
    }

    /// What the kernel holds for a pod's group, or for its container's group in it.
    #[track_caller]
    fn kernel(&self, pod: &Value, class: &str, container: bool) -> Bounds {
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap();
        let id = id.trim_start_matches("containerd://");
        let below = if container { format!("/{id}") } else { String::new() };
        let group = format!("{}/kubepods{class}/pod{uid}{below}", self.0.env().cgroup_root());
        let read = |controllers: &[&str], file: &str| {
            let paths: Vec<PathBuf> =
                controllers.iter().map(|own| PathBuf::from(format!("/sys/fs/cgroup/{own}{group}/{file}"))).collect();
            let text =
                self.0.env().within(|| paths.iter().find_map(|path| std::fs::read_to_string(path).ok())).unwrap();
            text.unwrap_or_else(|| panic!("{paths:?}")).trim().parse::<i64>().unwrap()
        };
        let cpu = ["cpu,cpuacct", "cpu"];
        Bounds {
            shares: read(&cpu, "cpu.shares"),
            quota: read(&cpu, "cpu.cfs_quota_us"),
            memory: read(&["memory"], "memory.limit_in_bytes"),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Bounds {
    shares: i64,
    quota: i64,
    memory: i64,
}

fn bounds(shares: i64, quota: i64, mebibytes: u64) -> Bounds {
    Bounds { shares, quota, memory: i64::try_from(mebibytes * MIB).unwrap() }
}

fn size(cpu: &str, memory: &str, cpu_limit: &str, memory_limit: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu_limit, "memory": memory_limit}})
}

fn up_and_down(node: &Node<'_, '_>) {
    let (small, large) = (size("100m", "32Mi", "200m", "64Mi"), size("150m", "48Mi", "300m", "128Mi"));
    node.pod("sized", json!({}), json!({"resources": small}));
    node.until_ready("sized");
    for (wanted, kernel) in [(&large, bounds(153, 30_000, 128)), (&small, bounds(102, 20_000, 64))] {
        node.resize("sized", wanted);
        let pod = node.until_settled("sized");
        let own = &pod["status"]["containerStatuses"][0];
        assert_eq!((&own["resources"], &own["allocatedResources"]), (wanted, &wanted["requests"]));
        assert_eq!((&own["restartCount"], &pod["status"]["resources"]), (&json!(0), wanted));
        assert_eq!(node.kernel(&pod, "/burstable", true), kernel);
        assert_eq!(node.kernel(&pod, "/burstable", false), kernel);
    }
    node.until_event("sized", "Pod resize started: {\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":");
    node.until_event("sized", "\"generation\":3}");
    node.until_event("sized", "Pod resize completed: ");
    // Not through the pod itself.
    let patch = json!({"spec": {"containers": [{"name": "c", "resources": large}]}}).to_string();
    let refused = node.0.kubectl(&["patch", "pod", "sized", "-p", &patch]).unwrap_err().to_string();
    assert!(refused.contains("pod updates may not change fields other than"), "{refused}");
    node.delete("sized");
}

fn policies(node: &Node<'_, '_>) {
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let resources = size("100m", "32Mi", "200m", "64Mi");
    node.pod("anew", json!({}), json!({"resources": resources, "resizePolicy": policy}));
    let before = node.until_ready("anew");
    node.resize("anew", &size("150m", "32Mi", "200m", "64Mi"));
    let pod = node.until_settled("anew");
    let (old, own) = (&before["status"]["containerStatuses"][0], &pod["status"]["containerStatuses"][0]);
    assert_eq!(own["containerID"], old["containerID"], "cpu needs no new start");
    node.resize("anew", &size("150m", "48Mi", "200m", "96Mi"));
    let pod = node.until_settled("anew");
    let own = &pod["status"]["containerStatuses"][0];
    assert_eq!(own["restartCount"], 1);
    assert_ne!(own["containerID"], old["containerID"]);
    assert_eq!(own["resources"], size("150m", "48Mi", "200m", "96Mi"));
    assert_eq!(node.kernel(&pod, "/burstable", true), bounds(153, 20_000, 96));
    assert_eq!(node.kernel(&pod, "/burstable", false), bounds(153, 20_000, 96));
    node.until_event("anew", "Container c resize requires restart");
    node.delete("anew");
}

fn room(node: &Node<'_, '_>) {
    let path = "jsonpath={.status.allocatable.cpu}";
    let cpus: u64 = node.0.kubectl(&["get", "node", Cluster::NODE, "-o", path]).unwrap().parse().unwrap();
    let most = format!("{}m", cpus * 1000 - 400);
    node.pod("filler", json!({}), json!({"resources": {"requests": {"cpu": most}}}));
    node.pod("waits", json!({}), json!({"resources": {"requests": {"cpu": "100m"}}}));
    node.until_ready("filler");
    node.until_ready("waits");
    node.resize("waits", &json!({"requests": {"cpu": "500m"}}));
    let pod = node.until("waits", "deferred", |pod| condition(pod, "PodResizePending")["reason"] == "Deferred");
    let pending = condition(&pod, "PodResizePending");
    assert_eq!(
        pending["message"],
        format!(
            "Node didn't have enough resource: cpu, requested: 500, used: {}, capacity: {}",
            cpus * 1000 - 400,
            cpus * 1000
        )
    );
    assert_eq!(pending["observedGeneration"], 2);
    assert_eq!(pod["status"]["containerStatuses"][0]["allocatedResources"]["cpu"], "100m");
    assert_eq!(node.kernel(&pod, "/burstable", true).shares, 102);
    node.until_event("waits", "ResizeDeferred");
    node.delete("filler");
    let pod = node.until_settled("waits");
    assert_eq!(node.kernel(&pod, "/burstable", true).shares, 512);
    node.delete("waits");
}

fn whole_pods(node: &Node<'_, '_>) {
    // A stock apiserver takes such a resize only for a node that declares that it can.
    let path = "jsonpath={.status.declaredFeatures}";
    let declared = node.0.kubectl(&["get", "node", Cluster::NODE, "-o", path]).unwrap();
    assert!(declared.contains("InPlacePodLevelResourcesVerticalScaling"), "{declared}");
    let own = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    let spec = json!({"resources": {"requests": own("200m", "64Mi"), "limits": own("200m", "64Mi")}});
    node.pod("whole", spec, json!({}));
    let pod = node.until_ready("whole");
    assert_eq!(pod["status"]["qosClass"], "Guaranteed");
    assert_eq!(node.kernel(&pod, "", false), bounds(204, 20_000, 64));
    assert_eq!(node.kernel(&pod, "", true), bounds(204, 20_000, 64), "a container without limits has its pod's");
    let more = json!({"requests": own("300m", "128Mi"), "limits": own("300m", "128Mi")});
    node.patch("whole", &json!({"spec": {"resources": more}}));
    let pod = node.until_settled("whole");
    assert_eq!((&pod["status"]["allocatedResources"], &pod["status"]["resources"]), (&own("300m", "128Mi"), &more));
    assert_eq!(node.kernel(&pod, "", false), bounds(307, 30_000, 128));
    node.delete("whole");
}

/// The agent is killed while a resize cannot go on, because the container has more memory in use than it is to have.
fn cut_in_the_middle(cluster: &mut Cluster<'_>) {
    let node = Node(cluster);
    node.pod("kept", json!({}), json!({"resources": size("100m", "32Mi", "1", "100Mi")}));
    node.until_ready("kept");
    node.exec("kept", "dd if=/dev/zero of=/dev/shm/x bs=1M count=50 2>/dev/null");
    node.resize("kept", &size("900m", "16Mi", "1", "32Mi"));
    let in_trouble = |pod: &Value| condition(pod, "PodResizeInProgress")["reason"] == "Error";
    let pod = node.until("kept", "in trouble", in_trouble);
    let message = condition(&pod, "PodResizeInProgress")["message"].as_str().unwrap().to_owned();
    for text in [
        "cannot decrease memory limits: [attempting to set ",
        "attempting to set pod memory limit (33554432) below current usage (",
        "attempting to set container \"c\" memory limit (33554432) below current usage (",
    ] {
        assert!(message.contains(text), "{message}");
    }
    assert_eq!(node.kernel(&pod, "/burstable", false), bounds(102, 100_000, 100), "nothing was done by halves");
    node.until_event("kept", "ResizeError");
    cluster.kill_agent().unwrap();
    cluster.start_agent().unwrap();
    cluster.wait_healthy(WITHIN).unwrap();
    let node = Node(cluster);
    let pod = node.until("kept", "still in trouble", in_trouble);
    let own = &pod["status"]["containerStatuses"][0];
    assert_eq!((&own["allocatedResources"]["cpu"], &own["restartCount"]), (&json!("900m"), &json!(0)));
    assert_eq!(
        node.kernel(&pod, "/burstable", false).memory,
        bounds(0, 0, 100).memory,
        "the next agent leaves it alone"
    );
    // What was granted counts for others, not what is in force.
    let path = "jsonpath={.status.allocatable.cpu}";
    let cpus: u64 = cluster.kubectl(&["get", "node", Cluster::NODE, "-o", path]).unwrap().parse().unwrap();
    let rest = format!("{}m", cpus * 1000 - 500);
    node.pod("late", json!({}), json!({"resources": {"requests": {"cpu": rest}}}));
    let late = node.until("late", "refused", |pod| pod["status"]["phase"] == "Failed");
    assert!(late["status"]["message"].as_str().unwrap().contains("used: 900,"), "{:#}", late["status"]);
    node.exec("kept", "rm /dev/shm/x");
    let pod = node.until_settled("kept");
    assert_eq!(node.kernel(&pod, "/burstable", true), bounds(921, 100_000, 32));
    assert_eq!(node.kernel(&pod, "/burstable", false), bounds(921, 100_000, 32));
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
}

fn resized(version: Version) {
    let env = Env::start(version).unwrap();
    let mut cluster = Cluster::start(&env, ClusterOptions::default()).unwrap();
    let node = Node(&cluster);
    up_and_down(&node);
    policies(&node);
    room(&node);
    whole_pods(&node);
    cut_in_the_middle(&mut cluster);
    cluster.remove_pods().unwrap();
}

#[test]
fn root_running_pods_get_the_size_that_is_asked_for() {
    resized(newest());
}

#[test]
fn root_running_pods_get_the_size_that_is_asked_for_on_debian_12_containerd() {
    resized(Version::V1_6);
}
