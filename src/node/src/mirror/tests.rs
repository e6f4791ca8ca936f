use http::{Method, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;
use crate::model::annotations::CONFIG_SOURCE;
use crate::model::{PodView, SourceKind};
use crate::source::fixture::{Recorder, pod};
use crate::source::manifest::static_pod;
use crate::test_api::TestApi;

const NODE: &str = "/api/v1/nodes/node";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// What the node still runs.
#[derive(Debug, Default)]
struct Running(Mutex<Vec<DesiredPod>>);

impl ReadPods for Running {
    fn pods(&self) -> Vec<PodView> {
        let pods = self.0.lock().clone();
        pods.into_iter().map(|desired| PodView { desired, status: None, mirror: None }).collect()
    }

    fn by_key(&self, key: &PodKey) -> Option<PodView> {
        self.pods().into_iter().find(|view| view.desired.key == *key)
    }

    fn by_uid(&self, uid: &str) -> Option<PodView> {
        self.pods().into_iter().find(|view| view.desired.uid.as_str() == uid)
    }
}

#[derive(Debug, Default)]
struct Notes(Mutex<Vec<(String, Option<String>)>>);

impl MirrorSink for Notes {
    fn mirror(&self, uid: &PodUid, mirror: Option<&Pod>) {
        self.0.lock().push((uid.to_string(), mirror.and_then(|pod| pod.metadata.uid.clone())));
    }
}

struct World {
    api: TestApi,
    running: Arc<Running>,
    notes: Arc<Notes>,
    mirrors: Arc<Mirrors>,
    tap: MirrorTap,
    tasks: Tasks,
}

impl World {
    fn new() -> Self {
        let (api, tasks) = (TestApi::default(), Tasks::new());
        let (running, notes) = (Arc::new(Running::default()), Arc::new(Notes::default()));
        api.put(NODE, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node", "uid": "nu"}}));
        let options = MirrorOptions {
            client: api.client(),
            node_name: "node".into(),
            pods: running.clone(),
            notes: notes.clone(),
        };
        let mirrors = Mirrors::start(options, &tasks);
        let tap = mirrors.tap(Recorder::new());
        Self { api, running, notes, mirrors, tap, tasks }
    }

    fn set(&self, pod: &DesiredPod) {
        self.tap.apply(PodChange::Set(pod.clone()));
    }

    async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }

    fn listed(&self) {
        self.mirrors
            .replace(self.api.under(PODS).into_iter().map(|value| serde_json::from_value(value).unwrap()).collect());
    }

    fn mirror(&self, name: &str) -> Option<Value> {
        self.api.object(&format!("{PODS}/{name}"))
    }

    fn asked(&self, method: &Method) -> usize {
        self.api.asked().iter().filter(|asked| asked.method == method).count()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

fn static_one(image: &str) -> DesiredPod {
    let mut manifest = crate::source::fixture::manifest("st", image);
    manifest["metadata"]["labels"] = json!({"tier": "static"});
    let mut object = static_pod(manifest, "node", "file:/m/st.yaml").unwrap();
    let notes = object.metadata.annotations.get_or_insert_default();
    notes.insert(CONFIG_SOURCE.to_owned(), "file".to_owned());
    DesiredPod {
        uid: PodUid::from(object.metadata.uid.clone().unwrap()),
        key: PodKey::of(&object).unwrap(),
        pod: Arc::new(object),
        source: SourceKind::File,
        seen: "2026-01-02T03:04:05Z".parse().unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_gets_a_mirror_once_the_api_has_been_listed() {
    let world = World::new();
    let pod = static_one("i");
    world.set(&pod);
    world.settle().await;
    assert_eq!(world.asked(&Method::POST), 0);
    world.listed();
    world.settle().await;
    let mirror = world.mirror("st-node").unwrap();
    let hash = pod.uid.as_str();
    assert_eq!(
        mirror["metadata"]["annotations"],
        json!({"kubernetes.io/config.hash": hash, "kubernetes.io/config.mirror": hash, "kubernetes.io/config.source": "file"})
    );
    assert_eq!(
        mirror["metadata"]["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "nu", "controller": true}])
    );
    assert_eq!(mirror["metadata"]["labels"], json!({"tier": "static"}));
    assert_eq!(mirror["spec"]["nodeName"], "node");
    assert_eq!(mirror["spec"]["tolerations"], json!([{"operator": "Exists", "effect": "NoExecute"}]));
    let uid = mirror["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_ne!(uid, hash);
    assert_eq!(world.notes.0.lock().as_slice(), [(hash.to_owned(), Some(uid))]);
    assert_eq!(world.asked(&Method::POST), 1);
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_somebody_deletes_comes_back() {
    let world = World::new();
    world.listed();
    let pod = static_one("i");
    world.set(&pod);
    world.settle().await;
    // Gracefully: it has a deletion timestamp until this room removes it.
    let mut mirror: Pod = serde_json::from_value(world.mirror("st-node").unwrap()).unwrap();
    let first = mirror.metadata.uid.clone();
    mirror.metadata.deletion_timestamp = Some(Time("2026-01-02T03:04:05Z".parse().unwrap()));
    world.mirrors.apply(mirror);
    world.settle().await;
    let second = world.mirror("st-node").unwrap()["metadata"]["uid"].as_str().map(str::to_owned);
    assert_ne!(first, second);
    // At once.
    world.api.remove(&format!("{PODS}/st-node"));
    world.mirrors.remove(
        &serde_json::from_value(json!({"metadata": {"name": "st-node", "namespace": "default", "uid": second}}))
            .unwrap(),
    );
    world.settle().await;
    assert!(world.mirror("st-node").is_some());
    assert!(world.notes.0.lock().iter().any(|(_, mirror)| mirror.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_mirror_whose_delete_meets_another_write_is_deleted_all_the_same() {
    let world = World::new();
    world.listed();
    let pod = static_one("i");
    world.set(&pod);
    world.settle().await;
    let mut mirror: Pod = serde_json::from_value(world.mirror("st-node").unwrap()).unwrap();
    let first = mirror.metadata.uid.clone();
    mirror.metadata.deletion_timestamp = Some(Time("2026-01-02T03:04:05Z".parse().unwrap()));
    world.api.fail_next([http::StatusCode::CONFLICT]);
    world.mirrors.apply(mirror);
    world.settle().await;
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    world.settle().await;
    let there = world.mirror("st-node").unwrap()["metadata"]["uid"].as_str().map(str::to_owned);
    assert_ne!(there, first, "the old one stays for ever");
}

#[tokio::test(start_paused = true)]
async fn a_changed_manifest_gets_a_new_mirror_when_the_old_pod_has_ended() {
    let world = World::new();
    world.listed();
    let (old, new) = (static_one("i"), static_one("other"));
    world.set(&old);
    world.running.0.lock().push(old.clone());
    world.settle().await;
    world.tap.apply(PodChange::Remove(old.uid.clone()));
    world.set(&new);
    world.settle().await;
    let hash = |value: Value| value["metadata"]["annotations"][CONFIG_MIRROR].as_str().unwrap().to_owned();
    assert_eq!(hash(world.mirror("st-node").unwrap()), old.uid.as_str());
    *world.running.0.lock() = vec![new.clone()];
    world.settle().await;
    assert_eq!(hash(world.mirror("st-node").unwrap()), new.uid.as_str());
}

#[tokio::test(start_paused = true)]
async fn strangers_mirrors_go_only_after_every_source_has_spoken_and_their_pod_has_ended() {
    let world = World::new();
    let mut stray = pod("st-node", "m1", "i", "1");
    stray.metadata.annotations = Some([(CONFIG_MIRROR.to_owned(), "h".to_owned())].into());
    world.api.put(&format!("{PODS}/st-node"), serde_json::to_value(&stray).unwrap());
    world.listed();
    world.settle().await;
    assert!(world.mirror("st-node").is_some());
    world.running.0.lock().push(static_one("i"));
    world.tap.apply(PodChange::AllSourcesReady);
    world.settle().await;
    assert!(world.mirror("st-node").is_some());
    world.running.0.lock().clear();
    world.settle().await;
    assert_eq!(world.mirror("st-node"), None);
    let deletion = world.api.asked().into_iter().find(|asked| asked.method == Method::DELETE).unwrap();
    assert_eq!(
        (&deletion.body["gracePeriodSeconds"], &deletion.body["preconditions"]["uid"]),
        (&json!(0), &json!("m1"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_apiserver_that_comes_later_or_a_node_that_is_not_there_yet_only_delays() {
    let world = World::new();
    world.api.remove(NODE);
    world.listed();
    world.set(&static_one("i"));
    world.settle().await;
    assert_eq!(world.asked(&Method::POST), 0);
    world.api.put(NODE, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node", "uid": "nu"}}));
    world.api.fail_next([StatusCode::SERVICE_UNAVAILABLE; 3]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(world.mirror("st-node").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_mirror_left_by_an_earlier_run_is_kept() {
    let world = World::new();
    let desired = static_one("i");
    let node = serde_json::from_value(json!({"metadata": {"name": "node", "uid": "nu"}})).unwrap();
    let mut left = mirror_of(&desired, &node);
    left.metadata.uid = Some("m1".into());
    world.api.put(&format!("{PODS}/st-node"), serde_json::to_value(&left).unwrap());
    world.listed();
    world.set(&desired);
    world.tap.apply(PodChange::AllSourcesReady);
    world.settle().await;
    assert_eq!((world.asked(&Method::POST), world.asked(&Method::DELETE)), (0, 0));
    assert_eq!(world.notes.0.lock().as_slice(), [(desired.uid.to_string(), Some("m1".to_owned()))]);
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_changes_under_its_uid_gets_a_new_mirror_and_one_that_stays_keeps_its_own() {
    let world = World::new();
    world.listed();
    let made = |image: &str| {
        let mut manifest = crate::source::fixture::manifest("st", image);
        manifest["metadata"]["uid"] = json!("fixed");
        let object = static_pod(manifest, "node", "file:/m/st.yaml").unwrap();
        DesiredPod { uid: "fixed".into(), pod: Arc::new(object), ..static_one("i") }
    };
    world.set(&made("i"));
    world.settle().await;
    let first = world.mirror("st-node").unwrap();
    world.tap.apply(PodChange::Remove("fixed".into()));
    world.set(&made("i"));
    world.settle().await;
    assert_eq!(world.mirror("st-node").unwrap()["metadata"]["uid"], first["metadata"]["uid"]);
    world.tap.apply(PodChange::Remove("fixed".into()));
    world.set(&made("other"));
    world.settle().await;
    let second = world.mirror("st-node").unwrap();
    assert_ne!(second["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(second["spec"]["containers"][0]["image"], "other");
    assert_eq!(second["metadata"]["annotations"][CONFIG_HASH], "fixed");
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_the_api_that_has_the_name_is_never_touched() {
    let world = World::new();
    world.api.put(&format!("{PODS}/st-node"), serde_json::to_value(pod("st-node", "api", "i", "1")).unwrap());
    // The API source keeps it to itself: it is no mirror.
    world.mirrors.replace(Vec::new());
    world.set(&static_one("i"));
    world.tap.apply(PodChange::AllSourcesReady);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.mirror("st-node").unwrap()["metadata"]["uid"], "api");
    assert_eq!(world.asked(&Method::DELETE), 0);
    world.api.remove(&format!("{PODS}/st-node"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(world.mirror("st-node").unwrap()["metadata"]["annotations"][CONFIG_MIRROR].is_string());
}

#[tokio::test(start_paused = true)]
async fn the_mirror_of_a_removed_pod_goes_also_while_another_source_is_silent() {
    let world = World::new();
    world.listed();
    let pod = static_one("i");
    world.set(&pod);
    world.running.0.lock().push(pod.clone());
    world.settle().await;
    world.tap.apply(PodChange::Remove(pod.uid.clone()));
    world.settle().await;
    assert!(world.mirror("st-node").is_some(), "its pod is still ending");
    world.running.0.lock().clear();
    world.settle().await;
    assert_eq!(world.mirror("st-node"), None);
}
