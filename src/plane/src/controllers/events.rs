//! Writes what happened to pods, in the form of the stock scheduler's events.

use serde_json::{Value, json};

use crate::apiserver::object::{meta, time};
use crate::apiserver::registry::{Registry, WriteOptions};
use crate::apiserver::resources::EVENTS;

const REPORTER: &str = "default-scheduler";

#[derive(Debug)]
pub(super) struct Events {
    registry: Registry,
}

/// One event about a pod.
#[derive(Debug)]
pub(super) struct PodEvent {
    pub(super) pod: Value,
    pub(super) kind: &'static str,
    pub(super) reason: &'static str,
    pub(super) action: &'static str,
    pub(super) message: String,
}

impl Events {
    pub(super) fn new(registry: Registry) -> Self {
        Self { registry }
    }

    /// Writes an event. One that cannot be written is told in the log: it must not hold up what it tells of.
    pub(super) async fn write(&self, event: PodEvent) {
        let PodEvent { pod, kind, reason, action, message } = event;
        let (namespace, name) = (meta(&pod, "namespace"), meta(&pod, "name"));
        let now = self.registry.clock().now();
        let object = json!({
            "metadata": {"name": format!("{name}.{:x}", now.as_nanosecond())},
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": name, "uid": meta(&pod, "uid"),
                "apiVersion": "v1", "resourceVersion": meta(&pod, "resourceVersion")},
            "reason": reason,
            "message": message,
            "type": kind,
            "action": action,
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
            "reportingComponent": REPORTER,
            "reportingInstance": format!("{REPORTER}-longshore"),
        });
        if let Err(error) = self.registry.create(&EVENTS, namespace, object, &WriteOptions::default()).await {
            tracing::debug!(pod = %format!("{namespace}/{name}"), reason, %error, "event not written");
        }
    }

    /// Returns the time as conditions show it.
    pub(super) fn now(&self) -> String {
        time(self.registry.clock().now())
    }
}
