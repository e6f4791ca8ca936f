//! Addresses of services where several apiservers give them away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use longshore_util::clock::{SharedClock, SystemClock};
use serde_json::{Value, json};

use crate::apiserver::object;
use crate::apiserver::registry::{ClusterFacts, Registry, WriteOptions};
use crate::apiserver::resources::{NAMESPACES, SERVICES};
use crate::store::{Draft, Entry, Limits, ListRequest, Listing, MemoryStore, Revision, Store, StoreError, Watch};

/// A store in which another apiserver writes a service with the same address right before the first one of ours.
#[derive(Debug)]
struct Rival(MemoryStore, AtomicBool);

#[async_trait]
impl Store for Rival {
    fn get(&self, key: &str) -> Option<Entry> {
        self.0.get(key)
    }

    fn list(&self, request: &ListRequest<'_>) -> Result<Listing, StoreError> {
        self.0.list(request)
    }

    fn revision(&self) -> Revision {
        self.0.revision()
    }

    fn count(&self, prefix: &str) -> usize {
        self.0.count(prefix)
    }

    async fn create(&self, key: &str, draft: Draft) -> Result<Entry, StoreError> {
        if key == "services/a/mine" && !self.1.swap(true, Ordering::Relaxed) {
            let mut theirs: Value = serde_json::from_slice(&draft.render("1")).unwrap();
            theirs["metadata"]["name"] = json!("theirs");
            theirs["metadata"]["uid"] = json!("another");
            self.0.create("services/a/theirs", object::draft(&SERVICES, &theirs)).await?;
        }
        self.0.create(key, draft).await
    }

    async fn update(&self, key: &str, expected: Revision, draft: Draft) -> Result<Entry, StoreError> {
        self.0.update(key, expected, draft).await
    }

    async fn delete(&self, key: &str, expected: Revision, last: Draft) -> Result<Entry, StoreError> {
        self.0.delete(key, expected, last).await
    }

    fn watch(&self, prefix: &str, from: Revision) -> Result<Watch, StoreError> {
        self.0.watch(prefix, from)
    }

    fn watch_node(&self, prefix: &str, node: &str, from: Revision) -> Result<Watch, StoreError> {
        self.0.watch_node(prefix, node, from)
    }

    async fn settle(&self) -> Result<(), StoreError> {
        self.0.settle().await
    }

    fn engine(&self) -> &'static str {
        self.0.engine()
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.0.check().await
    }

    fn unreadable(&self, key: &str) -> Option<Arc<str>> {
        self.0.unreadable(key)
    }
}

#[tokio::test]
async fn an_address_that_another_apiserver_gives_away_at_once_is_given_up() {
    for asked in [None, Some("10.96.0.77")] {
        let clock: SharedClock = Arc::new(SystemClock);
        let store = MemoryStore::new(Limits::default(), Arc::clone(&clock));
        let store: Arc<dyn Store> = Arc::new(Rival(store, AtomicBool::new(false)));
        let registry = Registry::new(store, clock, ClusterFacts::default());
        let own = WriteOptions::default();
        registry.create(&NAMESPACES, "", json!({"metadata": {"name": "a"}}), &own).await.unwrap();
        let mut service = json!({"metadata": {"name": "mine"}, "spec": {"ports": [{"port": 80}]}});
        if let Some(asked) = asked {
            service["spec"]["clusterIP"] = json!(asked);
        }
        let made = registry.create(&SERVICES, "a", service, &own).await;
        let (all, _) = registry.list_values(&SERVICES, "a").unwrap();
        let addresses: BTreeSet<&str> =
            all.iter().filter_map(|service| service["spec"]["clusterIP"].as_str()).collect();
        match asked {
            None => {
                made.unwrap();
                assert_eq!((all.len(), addresses.len()), (2, 2), "{all:?}");
            }
            Some(_) => {
                let refused = made.unwrap_err().to_string();
                assert!(refused.contains("provided IP is already allocated"), "{refused}");
                assert_eq!(all.len(), 1);
            }
        }
    }
}
