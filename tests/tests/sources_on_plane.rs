//! Sources, mirrors and the status writer against the bundled control plane, with a table of the test's own in place of
//! the workers: what the API holds comes in, what the node knows goes out, also over an outage.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use longshore_node::event::EventRecorder;
use longshore_node::mirror::{MirrorOptions, MirrorSink, Mirrors};
use longshore_node::model::{DesiredPod, MirrorUid, PodChange, PodKey, PodSink, PodUid, PodView, ReadPods, SourceKind};
use longshore_node::pod::{StatusSink as _, StatusUpdate};
use longshore_node::source::{SourceOptions, Sources};
use longshore_node::status::StatusWriter;
use longshore_plane::{Plane, PlaneOptions};
use longshore_transport::client::{ClientOptions, Kubeconfig};
use longshore_util::Tasks;
use longshore_util::clock::{Clock as _, SharedClock, SystemClock};
use serde_json::{Value, json};

const NODE: &str = "sources-on-plane";

/// What the sources want, and which mirrors stand for it.
#[derive(Debug, Default)]
struct Table {
    pods: Mutex<BTreeMap<PodUid, DesiredPod>>,
    mirrors: Mutex<BTreeMap<PodUid, MirrorUid>>,
    ready: Mutex<bool>,
}

impl PodSink for Table {
    fn apply(&self, change: PodChange) {
        match change {
            PodChange::Set(pod) | PodChange::Status(pod) => {
                drop(self.pods.lock().unwrap().insert(pod.uid.clone(), pod));
            }
            PodChange::Remove(uid) => drop(self.pods.lock().unwrap().remove(&uid)),
            PodChange::AllSourcesReady => *self.ready.lock().unwrap() = true,
        }
    }
}

impl ReadPods for Table {
    fn pods(&self) -> Vec<PodView> {
        let pods = self.pods.lock().unwrap();
        pods.values().map(|desired| PodView { desired: desired.clone(), status: None, mirror: None }).collect()
    }

    fn by_key(&self, key: &PodKey) -> Option<PodView> {
        self.pods().into_iter().find(|view| view.desired.key == *key)
    }

    fn by_uid(&self, uid: &str) -> Option<PodView> {
        self.pods().into_iter().find(|view| view.desired.uid.as_str() == uid)
    }
}

#[derive(Debug)]
struct Notes(Arc<Table>, StatusWriter);

impl MirrorSink for Notes {
    fn mirror(&self, uid: &PodUid, mirror: Option<&Pod>) {
        let mut mirrors = self.0.mirrors.lock().unwrap();
        match mirror.and_then(|pod| pod.metadata.uid.as_deref()) {
            Some(mirror) => drop(mirrors.insert(uid.clone(), MirrorUid::from(mirror))),
            None => drop(mirrors.remove(uid)),
        }
        drop(mirrors);
        self.1.mirror(uid, mirror);
    }
}

struct World {
    dir: tempfile::TempDir,
    pods: Api<Pod>,
    table: Arc<Table>,
    writer: StatusWriter,
    plane: Plane,
    plane_tasks: Tasks,
    tasks: Tasks,
}

async fn client(path: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::load(path, SystemClock.now()).await.unwrap();
    kubeconfig.client(&ClientOptions::default()).unwrap()
}

impl World {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (tasks, plane_tasks) = (Tasks::new(), Tasks::new());
        let options = PlaneOptions::new(dir.path().join("plane"), "127.0.0.1:0".parse().unwrap());
        let plane = Plane::start(options, &plane_tasks).await.unwrap();
        let admin = client(&plane.admin_kubeconfig).await;
        let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}})).unwrap();
        Api::all(admin.clone()).create(&PostParams::default(), &node).await.unwrap();
        let path = dir.path().join("node.kubeconfig");
        std::fs::write(&path, plane.pki().node_kubeconfig(NODE, &plane.server).unwrap()).unwrap();
        let own = client(&path).await;
        std::fs::create_dir(dir.path().join("manifests")).unwrap();

        let table: Arc<Table> = Arc::default();
        let writer = StatusWriter::start(own.clone(), &tasks);
        let mirrors = MirrorOptions {
            client: own.clone(),
            node_name: NODE.to_owned(),
            pods: table.clone(),
            notes: Arc::new(Notes(table.clone(), writer.clone())),
        };
        let mirrors = Mirrors::start(mirrors, &tasks);
        let clock: SharedClock = Arc::new(SystemClock);
        let mut options = SourceOptions::new(&Default::default(), NODE, EventRecorder::log_only(clock.clone()), clock);
        options.static_pods = Some(dir.path().join("manifests"));
        options.client = Some(own);
        options.mirrors = Some(mirrors);
        Sources::start(options, Arc::new(writer.tap(table.clone())), &tasks);
        let pods = Api::namespaced(admin, "default");
        Self { dir, pods, table, writer, plane, plane_tasks, tasks }
    }

    fn put(&self, pod: &DesiredPod, status: Value, done: bool) {
        let status: PodStatus = serde_json::from_value(status).unwrap();
        let mirror = self.table.mirrors.lock().unwrap().get(&pod.uid).cloned();
        let update =
            StatusUpdate { uid: pod.uid.clone(), key: pod.key.clone(), mirror, status: Arc::new(status), done };
        self.writer.put(pod, update);
    }

    /// Waits until the table holds a pod of that name that fits.
    async fn wanted(&self, name: &str, fits: impl Fn(&DesiredPod) -> bool) -> DesiredPod {
        let key = PodKey::new("default", name);
        until(&format!("{name} in the table"), || async {
            self.table.by_key(&key).map(|view| view.desired).filter(&fits)
        })
        .await
    }

    /// Waits until the API shows a pod that fits.
    async fn shown(&self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        until(&format!("{name} in the API"), || async {
            let pod = self.pods.get_opt(name).await.ok().flatten()?;
            Some(serde_json::to_value(pod).unwrap()).filter(&fits)
        })
        .await
    }

    async fn gone(&self, name: &str) {
        until(&format!("{name} gone"), || async { self.pods.get_opt(name).await.ok()?.is_none().then_some(()) }).await;
    }

    fn manifest(&self, file: &str, image: &str) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "st", "labels": {"tier": "static"}},
            "spec": {"containers": [{"name": "c", "image": image}]}});
        std::fs::write(self.dir.path().join("manifests").join(file), pod.to_string()).unwrap();
    }

    async fn end(self) {
        self.tasks.cancel();
        tokio::time::timeout(Duration::from_secs(10), self.tasks.join()).await.unwrap();
        self.plane_tasks.cancel();
        self.plane.close().await;
    }
}

async fn until<T, F: Future<Output = Option<T>>>(what: &str, look: impl Fn() -> F) -> T {
    for _ in 0..1000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: did not happen in 20 s");
}

fn pod(name: &str) -> Pod {
    let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "c", "image": "localhost/a:1"}]}});
    serde_json::from_value(pod).unwrap()
}

fn conditions(pod: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    list.iter().map(|condition| (text(&condition["type"]), text(&condition["status"]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_the_api_lives_and_goes() {
    let world = World::start().await;
    world.pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    let desired = world.wanted("a", |_| true).await;
    assert_eq!(desired.source, SourceKind::Api);
    assert!(*world.table.ready.lock().unwrap());
    assert_eq!(desired.pod.metadata.managed_fields, None);

    let status = |ready: &str| {
        json!({"phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}],
            "conditions": [{"type": "Ready", "status": ready}, {"type": "PodScheduled", "status": "True"}]})
    };
    world.put(&desired, status("False"), false);
    world.shown("a", |pod| pod["status"]["podIP"] == "10.0.0.9").await;
    // Another owner's condition stays when ours change.
    let gate = json!({"status": {"conditions": [{"type": "example.com/gate", "status": "True"}]}});
    world.pods.patch_status("a", &PatchParams::default(), &Patch::Strategic(gate)).await.unwrap();
    world.put(&desired, status("True"), false);
    let shown = world.shown("a", |pod| conditions(pod).contains(&("Ready".into(), "True".into()))).await;
    assert_eq!(conditions(&shown).len(), 3, "{shown}");
    assert!(conditions(&shown).contains(&("example.com/gate".into(), "True".into())));
    // What another breaks is put right.
    let broken = json!({"status": {"phase": "Failed"}});
    world.pods.patch_status("a", &PatchParams::default(), &Patch::Merge(broken)).await.unwrap();
    world.shown("a", |pod| pod["status"]["phase"] == "Running").await;

    world.pods.delete("a", &DeleteParams::default()).await.unwrap();
    let ending = world.wanted("a", |pod| pod.pod.metadata.deletion_timestamp.is_some()).await;
    world.put(&ending, json!({"phase": "Running"}), false);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(world.pods.get_opt("a").await.unwrap().is_some());
    world.put(&ending, json!({"phase": "Succeeded"}), true);
    world.gone("a").await;
    until("the table forgets it", || async { world.table.by_uid(ending.uid.as_str()).is_none().then_some(()) }).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_pod_has_a_mirror_that_shows_it() {
    let world = World::start().await;
    let name = format!("st-{NODE}");
    world.manifest("st.yaml", "localhost/a:1");
    let desired = world.wanted(&name, |_| true).await;
    assert_eq!(desired.source, SourceKind::File);
    world.put(&desired, json!({"phase": "Running"}), false);
    let mirror = world.shown(&name, |pod| pod["status"]["phase"] == "Running").await;
    let notes = &mirror["metadata"]["annotations"];
    assert_eq!(notes["kubernetes.io/config.mirror"], desired.uid.as_str());
    assert_eq!(notes["kubernetes.io/config.hash"], desired.uid.as_str());
    assert_eq!(
        (notes["kubernetes.io/config.source"].as_str(), mirror["metadata"]["labels"]["tier"].as_str()),
        (Some("file"), Some("static"))
    );
    assert_eq!(mirror["metadata"]["ownerReferences"][0]["kind"], "Node");

    // Deleted by somebody: it comes back, with its status.
    let first = mirror["metadata"]["uid"].clone();
    world.pods.delete(&name, &DeleteParams::default()).await.unwrap();
    world.shown(&name, |pod| pod["metadata"]["uid"] != first && pod["status"]["phase"] == "Running").await;
    assert!(world.table.by_key(&desired.key).is_some());

    // Another manifest is another pod with another mirror.
    world.manifest("st.yaml", "localhost/a:2");
    let second = world.wanted(&name, |pod| pod.uid != desired.uid).await;
    world.shown(&name, |pod| pod["metadata"]["annotations"]["kubernetes.io/config.hash"] == second.uid.as_str()).await;
    std::fs::remove_file(world.dir.path().join("manifests/st.yaml")).unwrap();
    world.gone(&name).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_api_loses_nothing() {
    let mut world = World::start().await;
    world.pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    let desired = world.wanted("a", |_| true).await;
    let address = world.plane.address;
    world.plane_tasks.cancel();
    tokio::time::timeout(Duration::from_secs(10), world.plane_tasks.join()).await.unwrap();
    world.plane.close().await;
    for message in ["one", "two", "newest"] {
        world.put(&desired, json!({"phase": "Running", "message": message}), false);
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    world.manifest("st.yaml", "localhost/a:1");
    world.wanted(&format!("st-{NODE}"), |_| true).await;
    assert!(world.table.by_uid(desired.uid.as_str()).is_some());

    world.plane_tasks = Tasks::new();
    let options = PlaneOptions::new(world.dir.path().join("plane"), address);
    world.plane = Plane::start(options, &world.plane_tasks).await.unwrap();
    world.shown("a", |pod| pod["status"]["message"] == "newest").await;
    world.shown(&format!("st-{NODE}"), |_| true).await;
    world.pods.create(&PostParams::default(), &pod("b")).await.unwrap();
    world.wanted("b", |_| true).await;
    world.end().await;
}
