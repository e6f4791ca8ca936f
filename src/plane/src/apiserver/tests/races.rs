//! Many who write the same object at once.

use std::sync::Arc;

use futures_util::future::join_all;
use longshore_util::clock::{SharedClock, SystemClock};
use serde_json::json;

use super::config_map;
use crate::apiserver::patch::Patch;
use crate::apiserver::registry::{ClusterFacts, Part, Registry, WriteOptions};
use crate::apiserver::resources::{CONFIGMAPS, NAMESPACES};
use crate::store::{DurableOptions, DurableStore};

#[tokio::test]
async fn patches_without_a_version_all_get_in_however_many_come_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let clock: SharedClock = Arc::new(SystemClock);
    let store = DurableStore::open(&DurableOptions::new(dir.path().join("store.redb"), Arc::clone(&clock))).unwrap();
    let registry = Registry::new(Arc::new(store), clock, ClusterFacts::default());
    let own = WriteOptions::default();
    registry.create(&NAMESPACES, "", json!({"metadata": {"name": "a"}}), &own).await.unwrap();
    registry.create(&CONFIGMAPS, "a", config_map("m"), &own).await.unwrap();
    let writers = (0..60).map(|writer| {
        let (registry, own) = (&registry, &own);
        async move {
            for turn in 0..3 {
                let patch = Patch::merge(json!({"data": {format!("w{writer}-{turn}"): "1"}}));
                registry.patch(&CONFIGMAPS, "a", "m", Part::Main, &patch, own).await.unwrap();
            }
        }
    });
    join_all(writers).await;
    let map = registry.find(&CONFIGMAPS, "a", "m").unwrap().unwrap();
    assert_eq!(map["data"].as_object().unwrap().len(), 60 * 3 + 1);
}
