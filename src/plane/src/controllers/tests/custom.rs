//! Custom kinds and the loops around them.

use super::*;
use crate::apiserver::resources::CUSTOMRESOURCEDEFINITIONS;

fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": plural, "kind": kind, "shortNames": short},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

impl World {
    async fn define(&self, definition: Value) -> String {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        self.create(&CUSTOMRESOURCEDEFINITIONS, "", definition).await;
        name
    }

    async fn condition(&self, name: &str, kind: &str, value: &str, reason: &str) {
        self.until(&CUSTOMRESOURCEDEFINITIONS, "", name, |found| {
            let conditions = found.map(|found| list(found, "/status/conditions").to_vec()).unwrap_or_default();
            conditions.iter().any(|own| own["type"] == kind && own["status"] == value && own["reason"] == reason)
        })
        .await;
    }

    async fn row(&self, plural: &str) -> &'static Resource {
        self.condition(&format!("{plural}.example.com"), "Established", "True", "InitialNamesAccepted").await;
        self.registry.resource("example.com", "v1", plural).unwrap()
    }
}

#[tokio::test]
async fn a_definition_is_established_and_takes_its_objects_with_it() {
    let world = World::new().await;
    world.start();
    let name = world.define(definition("things", "Thing", &[])).await;
    let things = world.row("things").await;
    world.create(things, "default", json!({"metadata": {"name": "x"}})).await;
    world.create(things, "default", json!({"metadata": {"name": "held", "finalizers": ["example.com/x"]}})).await;
    world.delete(&CUSTOMRESOURCEDEFINITIONS, "", &name).await;
    world.condition(&name, "Terminating", "True", "InstanceDeletionInProgress").await;
    world.until(things, "default", "x", |found| found.is_none()).await;
    let own = WriteOptions::default();
    let free = |mut object: Value| {
        object["metadata"]["finalizers"] = json!([]);
        Ok(Some(object))
    };
    world.registry.modify(things, "default", "held", Part::Main, &own, free).await.unwrap();
    world.until(&CUSTOMRESOURCEDEFINITIONS, "", &name, |found| found.is_none()).await;
    assert!(world.registry.resource("example.com", "v1", "things").is_none());
    world.define(definition("things", "Thing", &[])).await;
    assert!(std::ptr::eq(world.row("things").await, things), "the row comes again");
    assert_eq!(world.registry.count(things, ""), 0);
}

#[tokio::test]
async fn a_name_that_is_taken_is_had_when_it_is_free() {
    let world = World::new().await;
    world.start();
    let first = world.define(definition("things", "Thing", &["th"])).await;
    world.row("things").await;
    let second = world.define(definition("thoughts", "Thought", &["th"])).await;
    world.condition(&second, "NamesAccepted", "False", "ShortNamesConflict").await;
    assert!(world.registry.resource("example.com", "v1", "thoughts").is_none());
    world.delete(&CUSTOMRESOURCEDEFINITIONS, "", &first).await;
    world.condition(&second, "NamesAccepted", "True", "NoConflicts").await;
    world.row("thoughts").await;
}

#[tokio::test]
async fn namespaces_and_owners_know_custom_kinds() {
    let world = World::new().await;
    world.start();
    world.define(definition("things", "Thing", &[])).await;
    let things = world.row("things").await;
    world.create(&NAMESPACES, "", json!({"metadata": {"name": "short"}})).await;
    world.create(things, "short", json!({"metadata": {"name": "x"}})).await;
    world.delete(&NAMESPACES, "", "short").await;
    world.until(&NAMESPACES, "", "short", |found| found.is_none()).await;
    assert_eq!(world.registry.count(things, ""), 0);
    world.create(things, "default", json!({"metadata": {"name": "owner"}})).await;
    let uid = world.find(things, "default", "owner").unwrap()["metadata"]["uid"].clone();
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "owner", "uid": uid});
    world.create(&CONFIGMAPS, "default", json!({"metadata": {"name": "child", "ownerReferences": [owner]}})).await;
    world.delete(things, "default", "owner").await;
    world.until(&CONFIGMAPS, "default", "child", |found| found.is_none()).await;
}
