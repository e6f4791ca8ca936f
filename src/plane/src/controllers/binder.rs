//! Gives pods without a node to the node that can take them. A pod that none can take waits for a change of the nodes,
//! and is told so once: by its condition and an event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use longshore_util::{Tasks, spawn};
use serde_json::{Value, json};

use super::events::{Events, PodEvent};
use super::feed::{Feed, Key};
use super::fit;
use crate::apiserver::error::ApiError;
use crate::apiserver::object::{child, list, meta, text};
use crate::apiserver::registry::{Part, Registry, WriteOptions};
use crate::apiserver::resources::{NODES, PODS};

/// Pods of other schedulers are left alone.
const SCHEDULER: &str = "default-scheduler";

#[derive(Debug)]
pub(super) struct Binder {
    registry: Registry,
    events: Arc<Events>,
    tasks: Tasks,
}

impl Binder {
    pub(super) fn new(registry: Registry, events: Arc<Events>, tasks: Tasks) -> Self {
        Self { registry, events, tasks }
    }

    pub(super) async fn run(self) {
        let token = self.tasks.token().clone();
        let mut pods = Feed::new(&self.registry, &PODS);
        let mut nodes = Feed::new(&self.registry, &NODES);
        let mut waiting = BTreeSet::new();
        loop {
            let keys = tokio::select! {
                biased;
                () = token.cancelled() => return,
                keys = pods.next() => keys,
                _ = nodes.next() => std::mem::take(&mut waiting),
            };
            self.pass(&keys, &mut waiting).await;
        }
    }

    /// Looks at pods; those that must wait are put into `waiting`.
    async fn pass(&self, keys: &BTreeSet<Key>, waiting: &mut BTreeSet<Key>) {
        let mut open = Vec::new();
        for key in keys {
            waiting.remove(key);
            match self.registry.find(&PODS, &key.0, &key.1) {
                Ok(Some(pod)) if wants_node(&pod) => open.push((key.clone(), pod)),
                Ok(_) => {}
                Err(error) => tracing::warn!(pod = %format!("{}/{}", key.0, key.1), %error, "pod cannot be read"),
            }
        }
        if open.is_empty() {
            return;
        }
        let nodes = match self.registry.list_values(&NODES, "") {
            Ok((nodes, _)) => nodes,
            Err(error) => {
                tracing::warn!(%error, "nodes cannot be read");
                waiting.extend(open.into_iter().map(|(key, _)| key));
                return;
            }
        };
        let mut load = if nodes.len() > 1 { self.load() } else { BTreeMap::new() };
        let mut bindings = Vec::new();
        for (key, pod) in open {
            match fit::choose(&pod, &nodes, |name| load.get(name).copied().unwrap_or(0)) {
                Ok(node) => {
                    *load.entry(node.clone()).or_default() += 1;
                    bindings.push(self.bind(key, pod, node));
                }
                Err(message) => {
                    if let Err(error) = self.tell(&pod, message).await {
                        tracing::debug!(pod = %format!("{}/{}", key.0, key.1), %error, "pod not told that it waits");
                    }
                    waiting.insert(key);
                }
            }
        }
        // All at once: the store syncs them together.
        let done = join_all(bindings).await;
        let mut told = Vec::new();
        for (key, result) in done {
            match result {
                Ok(event) => told.push(event),
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(pod = %format!("{}/{}", key.0, key.1), %error, "binding failed, trying again later");
                    waiting.insert(key);
                }
            }
        }
        let events = Arc::clone(&self.events);
        // Not waited for: the next pods need not wait for the events of these.
        drop(spawn(&self.tasks, "binder-events", async move {
            join_all(told.into_iter().map(|event| events.write(event))).await;
        }));
    }

    async fn bind(&self, key: Key, pod: Value, node: String) -> (Key, Result<PodEvent, ApiError>) {
        let own = WriteOptions::default();
        let bound = self.registry.bind(&key.0, &key.1, &node, meta(&pod, "uid"), &own).await;
        let message = format!("Successfully assigned {}/{} to {node}", key.0, key.1);
        let event = PodEvent { pod, kind: "Normal", reason: "Scheduled", action: "Binding", message };
        (key, bound.map(|()| event))
    }

    /// Says why a pod waits, unless that has been said.
    async fn tell(&self, pod: &Value, message: String) -> Result<(), ApiError> {
        let known = list(pod, "/status/conditions").iter().find(|condition| text(condition, "/type") == "PodScheduled");
        if known.is_some_and(|known| text(known, "/message") == message) {
            return Ok(());
        }
        let now = self.events.now();
        let (uid, told) = (meta(pod, "uid").to_owned(), message.clone());
        let change = move |mut pod: Value| {
            if meta(&pod, "uid") != uid || !wants_node(&pod) {
                return Ok(None);
            }
            let conditions = child(&mut pod, "status").entry("conditions").or_insert_with(|| json!([]));
            if let Some(conditions) = conditions.as_array_mut() {
                conditions.retain(|condition| text(condition, "/type") != "PodScheduled");
                conditions.push(json!({"type": "PodScheduled", "status": "False", "lastProbeTime": null,
                    "lastTransitionTime": now, "reason": "Unschedulable", "message": told}));
            }
            Ok(Some(pod))
        };
        let own = WriteOptions::default();
        self.registry.modify(&PODS, meta(pod, "namespace"), meta(pod, "name"), Part::Status, &own, change).await?;
        let pod = pod.clone();
        let event = PodEvent { pod, kind: "Warning", reason: "FailedScheduling", action: "Scheduling", message };
        self.events.write(event).await;
        Ok(())
    }

    /// Counts the pods of each node.
    fn load(&self) -> BTreeMap<String, usize> {
        let mut load = BTreeMap::new();
        for pod in self.registry.list_values(&PODS, "").map(|(pods, _)| pods).unwrap_or_default() {
            *load.entry(text(&pod, "/spec/nodeName").to_owned()).or_default() += 1;
        }
        load
    }
}

fn wants_node(pod: &Value) -> bool {
    text(pod, "/spec/nodeName").is_empty()
        && text(pod, "/metadata/deletionTimestamp").is_empty()
        && matches!(text(pod, "/spec/schedulerName"), "" | SCHEDULER)
        && list(pod, "/spec/schedulingGates").is_empty()
}
