//! The node's own face against the bundled control plane: what it writes is taken, what it asks is answered, and the
//! apiserver reaches it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::storage::v1::CSINode;
use kube::api::{Api, ListParams, LogParams, PostParams};
use longshore_cri::fake::{FakeOptions, FakeRuntime};
use longshore_cri::{RuntimeService as _, v1};
use longshore_node::event::{EventOptions, EventRecorder};
use longshore_node::model::{DesiredPod, PodKey, PodUid, PodView, ReadPods, SourceKind};
use longshore_node::node::{self, NodeDeps, NodeOptions, Pressure};
use longshore_node::server::{self, HealthChecks, ServerDeps, ServerOptions};
use longshore_node::telemetry::{SharedTelemetry, Telemetry};
use longshore_plane::{Plane, PlaneOptions};
use longshore_transport::client::{ClientOptions, Clients, ClientsOptions, Kubeconfig};
use longshore_util::Tasks;
use longshore_util::clock::{Clock as _, SharedClock, SystemClock};
use serde_json::json;

const NODE: &str = "node-on-plane";

/// The pods that the test puts there.
#[derive(Debug, Default)]
struct Pods(std::sync::Mutex<Vec<PodView>>);

impl ReadPods for Pods {
    fn pods(&self) -> Vec<PodView> {
        self.0.lock().unwrap().clone()
    }

    fn by_key(&self, key: &PodKey) -> Option<PodView> {
        self.pods().into_iter().find(|view| view.desired.key == *key)
    }

    fn by_uid(&self, uid: &str) -> Option<PodView> {
        self.pods().into_iter().find(|view| view.desired.uid.as_str() == uid)
    }
}

struct World {
    admin: kube::Client,
    runtime: FakeRuntime,
    pods: Arc<Pods>,
    tasks: Tasks,
    plane: Plane,
    dir: tempfile::TempDir,
}

async fn clients(path: &Path) -> (Kubeconfig, Clients) {
    let kubeconfig = Kubeconfig::load(path, SystemClock.now()).await.unwrap();
    let clients = kubeconfig.clients(&ClientsOptions::default()).unwrap();
    (kubeconfig, clients)
}

impl World {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tasks = Tasks::new();
        let plane = Plane::start(PlaneOptions::new(dir.path().join("plane"), "127.0.0.1:0".parse().unwrap()), &tasks);
        let plane = plane.await.unwrap();
        let path = dir.path().join("node.kubeconfig");
        std::fs::write(&path, plane.pki().node_kubeconfig(NODE, &plane.server).unwrap()).unwrap();
        let (_, node_clients) = clients(&path).await;
        let (admin, _) = clients(&plane.admin_kubeconfig).await;
        let admin = admin.client(&ClientOptions::default()).unwrap();
        let runtime = FakeRuntime::new(FakeOptions::default());
        let pods: Arc<Pods> = Arc::default();
        let telemetry: SharedTelemetry = Arc::new(Telemetry::new());
        let clock: SharedClock = Arc::new(SystemClock);

        let mut options = ServerOptions::new(NODE, "0.0.0.0:0".parse().unwrap(), dir.path().join("node-pki"));
        options.client_ca_file = Some(dir.path().join("plane/pki/ca.crt"));
        let deps = ServerDeps {
            client: Some(node_clients.main.clone()),
            runtime: Arc::new(runtime.clone()),
            pods: pods.clone(),
            clock: clock.clone(),
            telemetry: telemetry.clone(),
            health: HealthChecks::new([]),
        };
        let server = server::start(options, deps, &tasks).await.unwrap();

        let mut options = NodeOptions::new(NODE);
        options.port = server.address().port();
        options.root_dir = dir.path().to_owned();
        let events = EventOptions { node: NODE.to_owned(), qps: 50, burst: 100 };
        let events = EventRecorder::start(
            Some(node_clients.events.clone()),
            events,
            clock.clone(),
            telemetry.events.clone(),
            &tasks,
        );
        let deps = NodeDeps {
            client: Some(node_clients.main),
            heartbeat: Some(node_clients.heartbeat),
            runtime: Arc::new(runtime.clone()),
            images: Arc::new(runtime.clone()),
            clock,
            events,
            telemetry,
            checks: Vec::new(),
            pressure: tokio::sync::watch::channel(Pressure::default()).1,
        };
        node::start(options, deps, &tasks).await;
        Self { admin, runtime, pods, tasks, plane, dir }
    }

    async fn ready(&self) -> Option<String> {
        let node = Api::<Node>::all(self.admin.clone()).get_opt(NODE).await.unwrap()?;
        let conditions = node.status?.conditions?;
        conditions.into_iter().find(|condition| condition.type_ == "Ready").map(|condition| condition.status)
    }

    async fn until_ready(&self, wanted: &str) {
        for _ in 0..250 {
            if self.ready().await.as_deref() == Some(wanted) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("never Ready={wanted}");
    }

    async fn end(self) {
        self.tasks.cancel();
        tokio::time::timeout(Duration::from_secs(10), self.tasks.join()).await.unwrap();
        self.plane.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_registers_stays_and_is_reached() {
    let begun = std::time::Instant::now();
    let world = World::start().await;
    world.until_ready("True").await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());

    let nodes: Api<Node> = Api::all(world.admin.clone());
    let node = nodes.get(NODE).await.unwrap();
    let status = node.status.clone().unwrap();
    assert_eq!(status.addresses.as_ref().unwrap().last().unwrap().address, NODE);
    assert!(status.capacity.unwrap().contains_key("memory"));

    world.runtime.set_condition("NetworkReady", false, "NetworkPluginNotReady", "no plugin");
    world.until_ready("False").await;
    world.runtime.set_condition("NetworkReady", true, "", "");
    world.until_ready("True").await;
    let after = nodes.get(NODE).await.unwrap().status.unwrap();
    assert_eq!(after.addresses, status.addresses);
    assert_eq!(after.conditions.unwrap().len(), 4);

    let lease = Api::<Lease>::namespaced(world.admin.clone(), "kube-node-lease").get(NODE).await.unwrap();
    assert_eq!(lease.metadata.owner_references.unwrap()[0].uid, node.metadata.uid.unwrap());
    let csinode = Api::<CSINode>::all(world.admin.clone()).get(NODE).await.unwrap();
    assert!(csinode.spec.drivers.is_empty());
    let events: Api<Event> = Api::namespaced(world.admin.clone(), "default");
    let mut reasons = Vec::new();
    for _ in 0..100 {
        let list = events.list(&ListParams::default()).await.unwrap();
        reasons = list.items.into_iter().filter_map(|event| event.reason).collect();
        if reasons.iter().any(|reason| reason == "NodeNotReady") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for wanted in ["Starting", "NodeHasSufficientMemory", "NodeNotReady"] {
        assert!(reasons.iter().any(|reason| reason == wanted), "{wanted} in {reasons:?}");
    }

    logs_come_through(&world).await;
    world.end().await;
}

async fn logs_come_through(world: &World) {
    let api: Api<Pod> = Api::namespaced(world.admin.clone(), "default");
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "localhost/a:1"}]},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pod = api.create(&PostParams::default(), &pod).await.unwrap();
    let uid = pod.metadata.uid.clone().unwrap();
    let id = container(world, &uid).await;
    std::fs::write(world.dir.path().join("c.log"), "2026-01-01T00:00:00Z stdout F hello\n").unwrap();
    let status = json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "containerID": format!("containerd://{id}"), "state": {"running": {}}}]});
    let view = PodView {
        desired: DesiredPod {
            uid: PodUid::from(uid),
            key: PodKey::new("default", "p"),
            pod: Arc::new(pod),
            source: SourceKind::Api,
            seen: SystemClock.now(),
        },
        status: Some(Arc::new(serde_json::from_value(status).unwrap())),
        mirror: None,
    };
    world.pods.0.lock().unwrap().push(view);
    let text = api.logs("p", &LogParams::default()).await.unwrap();
    assert_eq!(text, "hello\n");
    let refused = api.logs("p", &LogParams { previous: true, ..LogParams::default() }).await.unwrap_err();
    assert!(refused.to_string().contains("previous terminated container"), "{refused}");
}

async fn container(world: &World, uid: &str) -> String {
    let sandbox_config = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "p".into(),
            namespace: "default".into(),
            uid: uid.to_owned(),
            attempt: 0,
        }),
        log_directory: world.dir.path().display().to_string(),
        ..v1::PodSandboxConfig::default()
    };
    let request = v1::RunPodSandboxRequest { config: Some(sandbox_config.clone()), ..Default::default() };
    let sandbox = world.runtime.run_pod_sandbox(request).await.unwrap().pod_sandbox_id;
    world.runtime.add_image("localhost/a:1");
    let config = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "c".into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: "localhost/a:1".into(), ..Default::default() }),
        log_path: "c.log".into(),
        ..v1::ContainerConfig::default()
    };
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: sandbox,
        config: Some(config),
        sandbox_config: Some(sandbox_config),
    };
    let id = world.runtime.create_container(request).await.unwrap().container_id;
    world.runtime.start_container(v1::StartContainerRequest { container_id: id.clone() }).await.unwrap();
    id
}
