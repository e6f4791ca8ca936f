//! Gives pods without a node to the node that can take them. A pod that none can take waits for a change of the nodes,
//! and is told so once: by its condition and an event.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::future::{FutureExt as _, join_all};
use longshore_api::selector::Outline;
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
    /// What is looked at of each pod that changes.
    brief: Outline,
    /// What is known of the nodes, by name.
    nodes: BTreeMap<String, fit::Node>,
    node: Outline,
    load: Load,
}

/// How many pods each node has.
#[derive(Debug, Default)]
struct Load {
    places: HashMap<Key, Arc<str>>,
    counts: HashMap<Arc<str>, usize>,
}

impl Load {
    fn of(&self, node: &str) -> usize {
        self.counts.get(node).copied().unwrap_or(0)
    }

    /// Takes note of where a pod is now; nowhere if it is gone or waits.
    fn put(&mut self, pod: &Key, node: &str) {
        if self.places.get(pod).is_some_and(|old| **old == *node) {
            return;
        }
        if let Some(old) = self.places.remove(pod)
            && let Some(count) = self.counts.get_mut(&old)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&old);
            }
        }
        if !node.is_empty() {
            let node = self.counts.get_key_value(node).map_or_else(|| node.into(), |(name, _)| Arc::clone(name));
            *self.counts.entry(Arc::clone(&node)).or_default() += 1;
            self.places.insert(pod.clone(), node);
        }
    }
}

impl Binder {
    pub(super) fn new(registry: Registry, events: Arc<Events>, tasks: Tasks) -> Self {
        let brief = Outline::of(WANTS);
        let (nodes, node) = (BTreeMap::new(), Outline::of(fit::Node::READ));
        Self { registry, events, tasks, brief, nodes, node, load: Load::default() }
    }

    pub(super) async fn run(mut self) {
        let token = self.tasks.token().clone();
        let mut pods = Feed::new(&self.registry, &PODS);
        let mut nodes = Feed::new(&self.registry, &NODES);
        let mut waiting = BTreeSet::new();
        loop {
            let mut keys = tokio::select! {
                biased;
                () = token.cancelled() => return,
                keys = nodes.next() => {
                    self.note(&keys);
                    std::mem::take(&mut waiting)
                }
                keys = pods.next() => keys,
            };
            // What happened to nodes before these pods came counts for them.
            while let Some(changed) = nodes.next().now_or_never() {
                self.note(&changed);
                keys.append(&mut waiting);
            }
            self.pass(&keys, &mut waiting).await;
        }
    }

    /// Takes note of how nodes are now.
    fn note(&mut self, keys: &BTreeSet<Key>) {
        for (_, name) in keys {
            let found = self.registry.get(&NODES, "", name).ok();
            match found.and_then(|node| self.node.read(&node.bytes()).ok()) {
                Some(node) => drop(self.nodes.insert(name.clone(), fit::Node::of(&node))),
                None => drop(self.nodes.remove(name)),
            }
        }
    }

    /// Looks at pods; those that must wait are put into `waiting`.
    async fn pass(&mut self, keys: &BTreeSet<Key>, waiting: &mut BTreeSet<Key>) {
        let mut open = Vec::new();
        for key in keys {
            waiting.remove(key);
            let found = self.registry.get(&PODS, &key.0, &key.1);
            let brief = found.as_ref().ok().and_then(|pod| self.brief.read(&pod.bytes()).ok()).unwrap_or_default();
            self.load.put(key, text(&brief, "/spec/nodeName"));
            match found.and_then(|pod| if wants_node(&brief) { pod.value().map(Some) } else { Ok(None) }) {
                Ok(Some(pod)) => open.push((key.clone(), pod)),
                Ok(None) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => tracing::warn!(pod = %format!("{}/{}", key.0, key.1), %error, "pod cannot be read"),
            }
        }
        let mut bindings = Vec::new();
        for (key, pod) in open {
            match fit::choose(&pod, self.nodes.values(), |name| self.load.of(name)) {
                Ok(node) => {
                    self.load.put(&key, &node);
                    bindings.push((key, pod, node));
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
        let done = join_all(bindings.into_iter().map(|(key, pod, node)| self.bind(key, pod, node))).await;
        let mut told = Vec::new();
        for (key, result) in done {
            if result.is_err() {
                // Another one may have bound it: its event says so.
                self.load.put(&key, "");
            }
            match result {
                Ok(event) => told.push(event),
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(pod = %format!("{}/{}", key.0, key.1), %error, "binding failed, trying again later");
                    waiting.insert(key);
                }
            }
        }
        if told.is_empty() {
            return;
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
}

/// What of a pod tells whether it wants a node, and which it has.
const WANTS: [&str; 4] = ["metadata.deletionTimestamp", "spec.nodeName", "spec.schedulerName", "spec.schedulingGates"];

fn wants_node(pod: &Value) -> bool {
    text(pod, "/spec/nodeName").is_empty()
        && text(pod, "/metadata/deletionTimestamp").is_empty()
        && matches!(text(pod, "/spec/schedulerName"), "" | SCHEDULER)
        && list(pod, "/spec/schedulingGates").is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_follows_pods_from_node_to_node_and_away() {
        let (mut load, key) = (Load::default(), |name: &str| ("a".to_owned(), name.to_owned()));
        for (pod, node) in [("p", "x"), ("q", "x"), ("p", "x"), ("r", ""), ("q", "y"), ("s", "x")] {
            load.put(&key(pod), node);
        }
        assert_eq!((load.of("x"), load.of("y"), load.of("z")), (2, 1, 0));
        for pod in ["p", "q", "q", "s"] {
            load.put(&key(pod), "");
        }
        assert!(load.places.is_empty() && load.counts.is_empty());
    }
}
