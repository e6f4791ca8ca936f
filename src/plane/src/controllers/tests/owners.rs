//! What belongs to others goes, stays or holds them up, as the deletion asks.

use super::*;
use crate::apiserver::registry::Propagation;
use crate::apiserver::resources::{
    CLUSTERROLES, DEPLOYMENTS, JOBS, PERSISTENTVOLUMECLAIMS, REPLICASETS, RESOURCEQUOTAS,
};

fn owned(name: &str, owners: &[&Value], blocks: bool) -> Value {
    let references: Vec<Value> = owners
        .iter()
        .map(|owner| {
            json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks})
        })
        .collect();
    json!({"metadata": {"name": name, "ownerReferences": references}})
}

fn gone(found: Option<&Value>) -> bool {
    found.is_none()
}

async fn world() -> World {
    let world = World::new().await;
    world.start();
    world.namespace("a").await;
    world
}

async fn made(world: &World, resource: &'static Resource, object: Value) -> Value {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    world.create(resource, "a", object).await;
    world.find(resource, "a", &name).unwrap()
}

fn workload(mut object: Value) -> Value {
    object["spec"] = json!({"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}}});
    object
}

async fn delete(world: &World, resource: &'static Resource, name: &str, propagation: Propagation) {
    let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
    world.registry.delete(resource, "a", name, &options).await.unwrap();
}

#[tokio::test]
async fn what_belongs_to_what_is_gone_goes_too() {
    let world = world().await;
    let deployment = made(&world, &DEPLOYMENTS, workload(json!({"metadata": {"name": "d"}}))).await;
    let set = made(&world, &REPLICASETS, workload(owned("r", &[&deployment], true))).await;
    made(&world, &CONFIGMAPS, owned("c", &[&set], true)).await;
    made(&world, &CONFIGMAPS, json!({"metadata": {"name": "free"}})).await;
    delete(&world, &DEPLOYMENTS, "d", Propagation::Background).await;
    assert!(world.find(&DEPLOYMENTS, "a", "d").is_none());
    world.until(&REPLICASETS, "a", "r", gone).await;
    world.until(&CONFIGMAPS, "a", "c", gone).await;
    assert!(world.find(&CONFIGMAPS, "a", "free").is_some());
}

#[tokio::test]
async fn in_the_foreground_the_owner_goes_last() {
    let world = world().await;
    let deployment = made(&world, &DEPLOYMENTS, workload(json!({"metadata": {"name": "d"}}))).await;
    let mut child = owned("c", &[&deployment], true);
    child["metadata"]["finalizers"] = json!(["example.com/wait"]);
    made(&world, &CONFIGMAPS, child).await;
    delete(&world, &DEPLOYMENTS, "d", Propagation::Foreground).await;
    let going = |found: Option<&Value>| found.is_some_and(|found| found["metadata"].get("deletionTimestamp").is_some());
    world.until(&CONFIGMAPS, "a", "c", going).await;
    let waiting = world.find(&DEPLOYMENTS, "a", "d").unwrap();
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let release = |mut object: Value| {
        object["metadata"].as_object_mut().unwrap().remove("finalizers");
        Ok(Some(object))
    };
    let own = WriteOptions::default();
    world.registry.modify(&CONFIGMAPS, "a", "c", Part::Main, &own, release).await.unwrap();
    world.until(&CONFIGMAPS, "a", "c", gone).await;
    world.until(&DEPLOYMENTS, "a", "d", gone).await;
}

#[tokio::test]
async fn orphans_are_set_free() {
    let world = world().await;
    let deployment = made(&world, &DEPLOYMENTS, workload(json!({"metadata": {"name": "d"}}))).await;
    made(&world, &CONFIGMAPS, owned("c", &[&deployment], true)).await;
    delete(&world, &DEPLOYMENTS, "d", Propagation::Orphan).await;
    world.until(&DEPLOYMENTS, "a", "d", gone).await;
    let free = world.find(&CONFIGMAPS, "a", "c").unwrap();
    assert_eq!(free["metadata"].get("ownerReferences"), None);
    // A job leaves its pods behind when nothing is said.
    let mut job = workload(json!({"metadata": {"name": "j"}}));
    job["spec"].as_object_mut().unwrap().remove("selector");
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let job = made(&world, &JOBS, job).await;
    made(&world, &CONFIGMAPS, owned("of-job", &[&job], true)).await;
    world.delete(&JOBS, "a", "j").await;
    world.until(&JOBS, "a", "j", gone).await;
    assert!(world.find(&CONFIGMAPS, "a", "of-job").is_some());
}

#[tokio::test]
async fn one_owner_that_is_there_keeps_an_object() {
    let world = world().await;
    let one = made(&world, &CONFIGMAPS, json!({"metadata": {"name": "one"}})).await;
    let two = made(&world, &CONFIGMAPS, json!({"metadata": {"name": "two"}})).await;
    made(&world, &CONFIGMAPS, owned("c", &[&one, &two], false)).await;
    world.delete(&CONFIGMAPS, "a", "one").await;
    let released =
        |found: Option<&Value>| found.is_some_and(|found| list(found, "/metadata/ownerReferences").len() == 1);
    world.until(&CONFIGMAPS, "a", "c", released).await;
    world.delete(&CONFIGMAPS, "a", "two").await;
    world.until(&CONFIGMAPS, "a", "c", gone).await;
}

#[tokio::test]
async fn owners_that_went_while_nobody_looked_are_missed_at_the_start() {
    let world = World::new().await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "never", "uid": "u"}});
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "never", "uid": "v"}});
    world.create(&CONFIGMAPS, "default", owned("c", &[&owner], false)).await;
    world.create(&CONFIGMAPS, "default", owned("kept", &[&unknown], false)).await;
    world.start();
    world.until(&CONFIGMAPS, "default", "c", gone).await;
    assert!(world.find(&CONFIGMAPS, "default", "kept").is_some(), "nobody here knows whether its owner is there");
}

#[tokio::test]
async fn a_claim_goes_when_its_last_pod_has_gone() {
    let world = world().await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    world.create(&PERSISTENTVOLUMECLAIMS, "a", claim).await;
    let mut user = pod("p");
    user["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    world.create(&PODS, "a", user).await;
    world.delete(&PERSISTENTVOLUMECLAIMS, "a", "data").await;
    assert!(world.find(&PERSISTENTVOLUMECLAIMS, "a", "data").is_some());
    world.delete(&PODS, "a", "p").await;
    world.until(&PERSISTENTVOLUMECLAIMS, "a", "data", gone).await;
}

#[tokio::test]
async fn a_quota_is_counted_and_kept() {
    let world = world().await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "3", "count/secrets": "1"}}});
    world.create(&RESOURCEQUOTAS, "a", quota).await;
    let configmap = |name: &str| json!({"metadata": {"name": name}});
    // The namespace's own authority is one of them.
    world.create(&CONFIGMAPS, "a", configmap("one")).await;
    world.create(&CONFIGMAPS, "a", configmap("two")).await;
    let own = WriteOptions::default();
    let refused = world.registry.create(&CONFIGMAPS, "a", configmap("three"), &own).await.unwrap_err();
    let words = "configmaps \"three\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=3, \
                 limited: configmaps=3";
    assert_eq!(refused.message, words);
    let used = |amount: &'static str| {
        move |found: Option<&Value>| found.is_some_and(|found| found["status"]["used"]["configmaps"] == amount)
    };
    world.until(&RESOURCEQUOTAS, "a", "q", used("3")).await;
    world.delete(&CONFIGMAPS, "a", "one").await;
    let counted = world.until(&RESOURCEQUOTAS, "a", "q", used("2")).await.unwrap();
    assert_eq!(counted["status"]["hard"], json!({"configmaps": "3", "count/secrets": "1"}));
    world.create(&CONFIGMAPS, "a", configmap("three")).await;
}

#[tokio::test]
async fn a_gathering_role_follows_those_it_gathers() {
    let world = world().await;
    let gathering = json!({"metadata": {"name": "x"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to-x": "true"}}]}});
    world.create(&CLUSTERROLES, "", gathering).await;
    let part = json!({"metadata": {"name": "part", "labels": {"to-x": "true"}},
        "rules": [{"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get"]}]});
    world.create(&CLUSTERROLES, "", part).await;
    let has = |found: Option<&Value>| found.is_some_and(|found| list(found, "/rules").len() == 1);
    world.until(&CLUSTERROLES, "", "x", has).await;
    world.delete(&CLUSTERROLES, "", "part").await;
    let empty = |found: Option<&Value>| found.is_some_and(|found| list(found, "/rules").is_empty());
    world.until(&CLUSTERROLES, "", "x", empty).await;
}
