//! All loops together over a store in memory.

use std::time::Duration;

use longshore_util::clock::{SharedClock, SystemClock};
use serde_json::{Value, json};

use super::*;
use crate::apiserver::object::{list, text};
use crate::apiserver::registry::{ClusterFacts, DeleteOptions, Part, WriteOptions};
use crate::apiserver::resources::{
    CONFIGMAPS, EVENTS, NAMESPACES, NODES, PODS, Resource, SECRETS, SERVICEACCOUNTS, SERVICES,
};
use crate::store::{Limits, MemoryStore};

mod custom;
mod owners;

struct World {
    registry: Registry,
    tasks: Tasks,
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl World {
    async fn new() -> Self {
        let clock: SharedClock = Arc::new(SystemClock);
        let store = Arc::new(MemoryStore::new(Limits::default(), Arc::clone(&clock)));
        let registry = Registry::new(store, clock, ClusterFacts::default());
        let world = Self { registry, tasks: Tasks::new() };
        world.create(&NAMESPACES, "", json!({"metadata": {"name": "default"}})).await;
        world
    }

    fn start(&self) {
        let options = ControllerOptions {
            authority_pem: "PEM".to_owned(),
            authority: None,
            apiserver: ([127, 0, 0, 1], 6443).into(),
        };
        start(&self.registry, &options, &self.tasks);
    }

    async fn create(&self, resource: &'static Resource, namespace: &str, object: Value) {
        self.registry.create(resource, namespace, object, &WriteOptions::default()).await.unwrap();
    }

    async fn delete(&self, resource: &'static Resource, namespace: &str, name: &str) {
        self.registry.delete(resource, namespace, name, &DeleteOptions::default()).await.unwrap();
    }

    fn find(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Value> {
        self.registry.find(resource, namespace, name).unwrap()
    }

    /// Waits until an object is as wanted; what is there is looked at after each change of its kind.
    async fn until(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        wanted: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Value> {
        let mut feed = feed::Feed::new(&self.registry, resource);
        let seen = async {
            loop {
                feed.next().await;
                let found = self.find(resource, namespace, name);
                if wanted(found.as_ref()) {
                    return found;
                }
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(20), seen).await;
        found.unwrap_or_else(|_| panic!("{} {name}: {:?}", resource.kind, self.find(resource, namespace, name)))
    }

    async fn event(&self, reason: &str) -> Value {
        let mut feed = feed::Feed::new(&self.registry, &EVENTS);
        let seen = async {
            loop {
                feed.next().await;
                let (events, _) = self.registry.list_values(&EVENTS, "").unwrap();
                if let Some(event) = events.into_iter().find(|event| text(event, "/reason") == reason) {
                    return event;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), seen).await.unwrap()
    }

    async fn ready_node(&self, name: &str) {
        self.create(&NODES, "", json!({"metadata": {"name": name}})).await;
        let change = |mut node: Value| {
            node["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
            Ok(Some(node))
        };
        self.registry.modify(&NODES, "", name, Part::Status, &WriteOptions::default(), change).await.unwrap();
    }

    async fn namespace(&self, name: &str) {
        self.create(&NAMESPACES, "", json!({"metadata": {"name": name}})).await;
        self.until(&SERVICEACCOUNTS, name, "default", |found| found.is_some()).await;
    }
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

fn is_there(found: Option<&Value>) -> bool {
    found.is_some()
}

#[tokio::test]
async fn each_namespace_has_its_account_and_authority_and_gets_them_back() {
    let world = World::new().await;
    world.start();
    world.namespace("a").await;
    for namespace in ["default", "a"] {
        world.until(&SERVICEACCOUNTS, namespace, "default", is_there).await;
        let made = world.until(&CONFIGMAPS, namespace, "kube-root-ca.crt", is_there).await.unwrap();
        assert_eq!(made["data"], json!({"ca.crt": "PEM"}));
    }
    let uid = world.find(&SERVICEACCOUNTS, "a", "default").unwrap()["metadata"]["uid"].clone();
    world.delete(&SERVICEACCOUNTS, "a", "default").await;
    let other = |found: Option<&Value>| found.is_some_and(|found| found["metadata"]["uid"] != uid);
    world.until(&SERVICEACCOUNTS, "a", "default", other).await;
    let change = |mut configmap: Value| {
        configmap["data"] = json!({"ca.crt": "forged", "x": "y"});
        Ok(Some(configmap))
    };
    let own = WriteOptions::default();
    world.registry.modify(&CONFIGMAPS, "a", "kube-root-ca.crt", Part::Main, &own, change).await.unwrap();
    let mended = |found: Option<&Value>| found.is_some_and(|found| found["data"] == json!({"ca.crt": "PEM"}));
    world.until(&CONFIGMAPS, "a", "kube-root-ca.crt", mended).await;
}

#[tokio::test]
async fn the_kubernetes_service_is_there_and_comes_back() {
    let world = World::new().await;
    world.start();
    let service = world.until(&SERVICES, "default", "kubernetes", is_there).await.unwrap();
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    assert_eq!(
        service["spec"]["ports"],
        json!([{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}])
    );
    world.delete(&SERVICES, "default", "kubernetes").await;
    world.until(&SERVICES, "default", "kubernetes", is_there).await;
}

#[tokio::test]
async fn a_pod_goes_to_the_ready_node_with_an_event() {
    let world = World::new().await;
    world.start();
    world.ready_node("n1").await;
    world.namespace("a").await;
    world.create(&PODS, "a", pod("p")).await;
    let bound = |found: Option<&Value>| found.is_some_and(|found| text(found, "/spec/nodeName") == "n1");
    let pod = world.until(&PODS, "a", "p", bound).await.unwrap();
    assert_eq!(list(&pod, "/status/conditions")[0]["status"], "True");
    let event = world.event("Scheduled").await;
    assert_eq!(event["message"], "Successfully assigned a/p to n1");
    assert_eq!(
        (event["type"].as_str(), event["reportingComponent"].as_str()),
        (Some("Normal"), Some("default-scheduler"))
    );
    assert_eq!(event["involvedObject"]["uid"], pod["metadata"]["uid"]);
}

#[tokio::test]
async fn a_pod_that_fits_nowhere_is_told_once_and_goes_when_a_node_is_ready() {
    let world = World::new().await;
    world.start();
    world.namespace("a").await;
    world.create(&PODS, "a", pod("p")).await;
    let told = |found: Option<&Value>| {
        found.is_some_and(|found| {
            list(found, "/status/conditions").iter().any(|one| text(one, "/reason") == "Unschedulable")
        })
    };
    let waiting = world.until(&PODS, "a", "p", told).await.unwrap();
    assert_eq!(list(&waiting, "/status/conditions")[0]["message"], "no nodes available to schedule pods");
    assert_eq!(world.event("FailedScheduling").await["type"], "Warning");
    world.create(&PODS, "a", pod("q")).await;
    world.until(&PODS, "a", "q", told).await;
    world.ready_node("n1").await;
    let bound = |found: Option<&Value>| found.is_some_and(|found| text(found, "/spec/nodeName") == "n1");
    let pod = world.until(&PODS, "a", "p", bound).await.unwrap();
    assert_eq!(list(&pod, "/status/conditions").len(), 1);
    world.until(&PODS, "a", "q", bound).await;
    let (events, _) = world.registry.list_values(&EVENTS, "a").unwrap();
    let about =
        |event: &&Value| text(event, "/involvedObject/name") == "p" && text(event, "/message").starts_with("no nodes");
    assert_eq!(events.iter().filter(about).count(), 1);
}

#[tokio::test]
async fn pods_that_are_not_ours_to_place_are_left_alone() {
    let world = World::new().await;
    world.start();
    world.ready_node("n1").await;
    world.namespace("a").await;
    let mut other = pod("other");
    other["spec"]["schedulerName"] = json!("mine");
    world.create(&PODS, "a", other).await;
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/x"}]);
    world.create(&PODS, "a", gated).await;
    world.create(&PODS, "a", pod("last")).await;
    world.until(&PODS, "a", "last", |found| found.is_some_and(|found| text(found, "/spec/nodeName") == "n1")).await;
    for name in ["other", "gated"] {
        assert_eq!(text(&world.find(&PODS, "a", name).unwrap(), "/spec/nodeName"), "");
    }
}

#[tokio::test]
async fn a_deleted_namespace_empties_and_waits_for_its_pods() {
    let world = World::new().await;
    world.start();
    world.ready_node("n1").await;
    world.namespace("a").await;
    world.create(&SECRETS, "a", json!({"metadata": {"name": "s"}})).await;
    world.create(&PODS, "a", pod("p")).await;
    world.until(&PODS, "a", "p", |found| found.is_some_and(|found| text(found, "/spec/nodeName") == "n1")).await;
    world.delete(&NAMESPACES, "", "a").await;
    // The pod is on a node: it gets its grace and somebody must end it.
    let going =
        |found: Option<&Value>| found.is_some_and(|found| !text(found, "/metadata/deletionTimestamp").is_empty());
    world.until(&PODS, "a", "p", going).await;
    world.until(&SECRETS, "a", "s", |found| found.is_none()).await;
    assert!(world.find(&NAMESPACES, "", "a").is_some());
    let now = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
    world.registry.delete(&PODS, "a", "p", &now).await.unwrap();
    world.until(&NAMESPACES, "", "a", |found| found.is_none()).await;
    for resource in [&CONFIGMAPS, &SERVICEACCOUNTS, &EVENTS, &PODS] {
        assert_eq!(world.registry.count(resource, "a"), 0, "{}", resource.kind);
    }
}

#[tokio::test]
async fn what_was_there_before_the_loops_started_is_seen_too() {
    let world = World::new().await;
    world.create(&NAMESPACES, "", json!({"metadata": {"name": "a"}})).await;
    world.create(&SERVICEACCOUNTS, "a", json!({"metadata": {"name": "default"}})).await;
    world.create(&NAMESPACES, "", json!({"metadata": {"name": "b"}})).await;
    world.delete(&NAMESPACES, "", "b").await;
    world.create(&PODS, "a", pod("p")).await;
    world.ready_node("n1").await;
    world.start();
    world.until(&PODS, "a", "p", |found| found.is_some_and(|found| text(found, "/spec/nodeName") == "n1")).await;
    world.until(&NAMESPACES, "", "b", |found| found.is_none()).await;
    world.until(&CONFIGMAPS, "a", "kube-root-ca.crt", is_there).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_stays_away_are_removed() {
    let world = World::new().await;
    world.start();
    world.ready_node("n1").await;
    world.until(&SERVICEACCOUNTS, "default", "default", is_there).await;
    world.create(&PODS, "default", pod("p")).await;
    world.until(&PODS, "default", "p", |found| found.is_some_and(|found| text(found, "/spec/nodeName") == "n1")).await;
    world.delete(&NODES, "", "n1").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(world.find(&PODS, "default", "p").is_some());
    world.ready_node("n1").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.find(&PODS, "default", "p").is_some());
    world.delete(&NODES, "", "n1").await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(world.find(&PODS, "default", "p").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_outlives_a_namespace_that_is_deleted_while_others_write_into_it() {
    let world = World::new().await;
    world.start();
    for round in 0..15 {
        world.create(&NAMESPACES, "", json!({"metadata": {"name": "going"}})).await;
        let writers: Vec<_> = (0..6)
            .map(|writer| {
                let registry = world.registry.clone();
                longshore_util::spawn(&world.tasks, "writer", async move {
                    for number in 0..10_000 {
                        let map = json!({"metadata": {"name": format!("m-{writer}-{number}")}});
                        if registry.create(&CONFIGMAPS, "going", map, &WriteOptions::default()).await.is_err() {
                            return;
                        }
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(5)).await;
        world.delete(&NAMESPACES, "", "going").await;
        world.until(&NAMESPACES, "", "going", |found| found.is_none()).await;
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(world.registry.count(&CONFIGMAPS, "going"), 0, "round {round}");
    }
}
