//! What tests of the sources share: a sink that records, pods and manifests.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use longshore_util::clock::{ManualClock, SharedClock};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::model::{PodChange, PodSink};

/// Writes down every change as text: `set a`, `status a`, `remove UID`, `ready`.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) changes: Mutex<Vec<PodChange>>,
    news: Notify,
}

impl PodSink for Recorder {
    fn apply(&self, change: PodChange) {
        self.changes.lock().push(change);
        self.news.notify_one();
    }
}

impl Recorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// What was recorded, and forgets it.
    pub(crate) fn take(&self) -> Vec<String> {
        self.changes.lock().drain(..).map(|change| text(&change)).collect()
    }

    /// Waits until a change like this was recorded; fails after ten seconds.
    pub(crate) async fn wait_for(&self, wanted: &str) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if self.changes.lock().iter().any(|change| text(change) == wanted) {
                return;
            }
            let got = timeout_at(deadline, self.news.notified()).await;
            assert!(got.is_ok(), "{wanted:?} did not come, but {:?}", self.take());
        }
    }
}

pub(crate) fn text(change: &PodChange) -> String {
    match change {
        PodChange::Set(pod) => format!("set {}", pod.key.name),
        PodChange::Status(pod) => format!("status {}", pod.key.name),
        PodChange::Remove(uid) => format!("remove {uid}"),
        PodChange::AllSourcesReady => "ready".to_owned(),
    }
}

pub(crate) fn clock() -> SharedClock {
    Arc::new(ManualClock::new("2026-01-02T03:04:05Z".parse().unwrap()))
}

/// A manifest with a container of that image.
pub(crate) fn manifest(name: &str, image: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// A pod as the API would give it.
pub(crate) fn pod(name: &str, uid: &str, image: &str, version: &str) -> Pod {
    let mut value = manifest(name, image);
    value["metadata"]["uid"] = json!(uid);
    value["metadata"]["namespace"] = json!("default");
    value["metadata"]["resourceVersion"] = json!(version);
    serde_json::from_value(value).unwrap()
}
