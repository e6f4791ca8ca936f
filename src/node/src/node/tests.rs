use std::path::PathBuf;

use http::{Method, StatusCode};
use longshore_cri::fake::{Failure, FakeOptions, FakeRuntime, On};
use longshore_host::facts::{HugePages, MachineFacts};
use longshore_util::clock::ManualClock;
use serde_json::{Value, json};

use super::runtime::RuntimeHandler;
use super::*;
use crate::test_api::TestApi;

/// A name that is an address needs no lookup.
const NAME: &str = "192.0.2.7";
const NODE: &str = "/api/v1/nodes/192.0.2.7";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/192.0.2.7";

struct World {
    api: TestApi,
    runtime: FakeRuntime,
    clock: Arc<ManualClock>,
    pressure: channel::Sender<Pressure>,
    tasks: Tasks,
    _machine: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self {
            api: TestApi::default(),
            runtime: FakeRuntime::new(FakeOptions::default()),
            clock: Arc::new(ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap())),
            pressure: channel::Sender::default(),
            tasks: Tasks::new(),
            _machine: machine_root(),
        }
    }

    async fn start(&self) -> NodeHandle {
        let mut options = NodeOptions::new(NAME);
        options.machine_root = self._machine.path().to_owned();
        options.root_dir = PathBuf::from("/");
        let client = self.api.client();
        let telemetry = SharedTelemetry::default();
        let events = crate::event::EventOptions { node: NAME.into(), qps: 0, burst: 1 };
        let clock: SharedClock = self.clock.clone();
        let deps = NodeDeps {
            events: EventRecorder::start(
                Some(client.clone()),
                events,
                clock.clone(),
                telemetry.events.clone(),
                &self.tasks,
            ),
            client: Some(client.clone()),
            heartbeat: Some(client),
            runtime: Arc::new(self.runtime.clone()),
            images: Arc::new(self.runtime.clone()),
            clock,
            telemetry,
            checks: Vec::new(),
            pressure: self.pressure.subscribe(),
        };
        start(options, deps, &self.tasks).await
    }

    fn condition(&self, kind: &str) -> Value {
        let node = self.api.object(NODE).unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
    }

    fn events(&self) -> Vec<String> {
        let events = self.api.under("/api/v1/namespaces/default/events/");
        events.iter().map(|event| event["reason"].as_str().unwrap_or_default().to_owned()).collect()
    }

    async fn until(&self, what: impl Fn(&Self) -> bool) {
        let limit = tokio::time::Instant::now() + Duration::from_secs(300);
        while !what(self) {
            assert!(tokio::time::Instant::now() < limit, "never came true: {:#?}", self.api.object(NODE));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn status_patches(&self) -> usize {
        let asked = self.api.asked();
        asked.iter().filter(|asked| asked.method == Method::PATCH && asked.path.ends_with("/status")).count()
    }
}

fn machine_root() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("etc/machine-id", "m-1"),
        ("proc/sys/kernel/random/boot_id", "boot-2"),
        ("proc/meminfo", "MemTotal: 8388608 kB\n"),
        ("sys/devices/system/cpu/online", "0-1"),
    ] {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

#[tokio::test(start_paused = true)]
async fn a_ready_runtime_makes_a_ready_node_at_once() {
    let world = World::new();
    world.runtime.add_image("localhost/a:1");
    let begun = tokio::time::Instant::now();
    let handle = world.start().await;
    world.until(|world| world.condition("Ready")["status"] == "True").await;
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    let node = world.api.object(NODE).unwrap();
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], NAME);
    assert_eq!(node["status"]["nodeInfo"]["bootID"], "boot-2");
    assert_eq!(node["status"]["capacity"]["memory"], "8Gi");
    assert_eq!(node["status"]["images"][0]["names"][1], "localhost/a:1");
    assert_eq!(node["status"]["addresses"][0], json!({"type": "InternalIP", "address": NAME}));
    assert_eq!(handle.host_ips(), [NAME.parse::<IpAddr>().unwrap()]);
    world.until(|world| world.api.object(LEASE).is_some()).await;
    let lease = world.api.object(LEASE).unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], NAME);
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(lease["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
    let csinode = world.api.object(&format!("/apis/storage.k8s.io/v1/csinodes/{NAME}")).unwrap();
    assert_eq!(csinode["spec"]["drivers"], json!([]));
    world.until(|world| world.events().len() >= 4).await;
    for reason in ["Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"] {
        assert!(world.events().contains(&reason.to_owned()), "{reason} in {:?}", world.events());
    }
}

#[tokio::test(start_paused = true)]
async fn the_network_coming_up_is_told_within_a_second() {
    let world = World::new();
    world.runtime.set_condition("NetworkReady", false, "NetworkPluginNotReady", "cni plugin not initialized");
    world.start().await;
    world.until(|world| world.condition("Ready")["message"].as_str().is_some_and(|text| text.contains("cni"))).await;
    assert_eq!(
        world.condition("Ready")["message"],
        "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"
    );
    assert_eq!(world.condition("Ready")["reason"], "KubeletNotReady");
    tokio::time::sleep(Duration::from_secs(7)).await;
    world.runtime.set_condition("NetworkReady", true, "", "");
    let begun = tokio::time::Instant::now();
    world.until(|world| world.condition("Ready")["status"] == "True").await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    world.until(|world| world.events().contains(&"NodeReady".to_owned())).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_nothing_changes_until_a_report_is_due() {
    let world = World::new();
    world.start().await;
    world.until(|world| world.condition("Ready")["status"] == "True").await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let before = world.status_patches();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(world.status_patches(), before);
    world.pressure.send_replace(Pressure { disk: true, ..Pressure::default() });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.condition("DiskPressure")["status"], "True");
    assert_eq!(world.status_patches(), before + 1);
    tokio::time::sleep(Duration::from_secs(480)).await;
    assert!(world.status_patches() > before + 1, "the report");
}

#[tokio::test(start_paused = true)]
async fn a_silent_runtime_is_down_and_comes_back() {
    let world = World::new();
    world.start().await;
    world.until(|world| world.condition("Ready")["status"] == "True").await;
    let hang = world.runtime.failpoints().set(On::rpc("Status"), Failure::Hang);
    world.until(|world| world.condition("Ready")["status"] == "False").await;
    assert_eq!(world.condition("Ready")["message"], "container runtime is down: no answer within 10 s");
    world.runtime.failpoints().clear(hang);
    world.until(|world| world.condition("Ready")["status"] == "True").await;
}

#[tokio::test(start_paused = true)]
async fn an_older_node_is_put_right_and_a_reboot_is_told() {
    let world = World::new();
    world.api.put(
        NODE,
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": NAME, "uid": "old", "resourceVersion": "1", "labels": {"mine": "1", "kubernetes.io/os": "plan9"}},
            "spec": {"unschedulable": true},
            "status": {"nodeInfo": {
                "bootID": "boot-1", "machineID": "", "systemUUID": "", "kernelVersion": "", "osImage": "", "operatingSystem": "",
                "architecture": "", "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": ""}},
        }),
    );
    world.start().await;
    world.until(|world| world.condition("Ready")["status"] == "True").await;
    let node = world.api.object(NODE).unwrap();
    assert_eq!(node["metadata"]["labels"]["mine"], "1");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/os"], "linux");
    assert_eq!(node["metadata"]["annotations"][register::ATTACH_DETACH], "true");
    assert_eq!(node["spec"]["unschedulable"], true);
    world.until(|world| world.events().contains(&"Rebooted".to_owned())).await;
}

#[tokio::test(start_paused = true)]
async fn registration_and_lease_outlast_an_absent_api() {
    let world = World::new();
    world.api.fail_next([StatusCode::SERVICE_UNAVAILABLE; 30]);
    world.start().await;
    world.until(|world| world.condition("Ready")["status"] == "True" && world.api.object(LEASE).is_some()).await;
    let renewals = |world: &World| {
        let asked = world.api.asked();
        asked.iter().filter(|asked| asked.method == Method::PUT && asked.path == LEASE).count()
    };
    let before = renewals(&world);
    // Somebody else writes it: the next renewal meets a conflict and reads it again.
    let mut lease = world.api.object(LEASE).unwrap();
    lease["metadata"]["resourceVersion"] = json!("other");
    world.api.put(LEASE, lease);
    world.clock.advance(Duration::from_secs(60));
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(renewals(&world), before + 2);
    assert_eq!(world.api.object(LEASE).unwrap()["spec"]["renewTime"], "2026-01-01T00:01:00.000000Z");
    world.api.remove(LEASE);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(world.api.object(LEASE).is_some(), "made anew");
}

#[test]
fn the_recorded_node_status_is_reproduced() {
    let golden: Value = serde_json::from_str(include_str!("tests/node.json")).unwrap();
    let machine = MachineFacts {
        machine_id: "ID".into(),
        system_uuid: "3d1219c7c4c5404aaa1f6d2a48adfda4".into(),
        boot_id: "ID".into(),
        kernel: "6.18.44-fc-v669".into(),
        os_image: "Debian GNU/Linux 12 (bookworm)".into(),
        cpus: 2,
        memory: 24_684_084 * 1024,
        swap: 0,
        hugepages: vec![HugePages { page: 2 << 20, count: 0 }, HugePages { page: 1 << 30, count: 0 }],
    };
    let mut options = NodeOptions::new("node-1");
    options.port = 20250;
    let capacity = Capacity::compute(&machine, Some(264_212_084 * 1024), &options);
    let handler =
        |name: &str| RuntimeHandler { name: name.into(), recursive_read_only_mounts: true, user_namespaces: false };
    let runtime = RuntimeState {
        version: Some(RuntimeVersion { name: "containerd".into(), version: "2.1.9+unknown".into() }),
        runtime_error: None,
        network_error: None,
        handlers: vec![handler(""), handler("runc")],
        supplemental_groups_policy: Some(true),
        answered: true,
        was_ready: true,
    };
    let image = |name: &str, size| k8s_openapi::api::core::v1::ContainerImage {
        names: Some(vec![name.into()]),
        size_bytes: Some(size),
    };
    let inputs = status::Inputs {
        options: &options,
        machine: &machine,
        capacity: &capacity,
        runtime: &runtime,
        addresses: &["192.0.2.1".parse().unwrap()],
        images: vec![image("localhost/busybox:1", 1_032_188), image("localhost/pause:3.10", 329_687)],
        pressure: Pressure::default(),
        errors: Vec::new(),
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
    };
    let (status, _) = status::compute(inputs, None);
    let mut ours = serde_json::to_value(&status).unwrap();
    let mut theirs = golden["status"].clone();
    for condition in ours["conditions"].as_array_mut().unwrap() {
        condition["lastHeartbeatTime"] = json!("TIME");
        condition["lastTransitionTime"] = json!("TIME");
    }
    ours["addresses"][0]["address"] = json!("NODE_IP");
    // Ours says which agent it is, and declares no feature that it does not have.
    assert_eq!(ours["nodeInfo"]["kubeletVersion"], KUBELET_VERSION);
    ours["nodeInfo"]["kubeletVersion"] = theirs["nodeInfo"]["kubeletVersion"].clone();
    theirs.as_object_mut().unwrap().remove("declaredFeatures");
    assert_eq!(ours, theirs);
    let labels = &golden["metadata"]["labels"];
    assert_eq!(serde_json::to_value(register::initial(&options).metadata.labels).unwrap(), *labels);
}
