//! What login and rights read of the stored objects.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use longshore_api::selector::Outline;
use parking_lot::Mutex;
use serde_json::Value;

use crate::apiserver::object::{list, text};
use crate::apiserver::registry::{ListOptions, Registry};
use crate::apiserver::resources::{NODES, PERSISTENTVOLUMES, PODS, SECRETS, SERVICEACCOUNTS, VOLUMEATTACHMENTS};
use crate::store::Text;

/// Reads stored objects. All answers are of this moment and cost no IO.
pub trait ReadObjects: Send + Sync + std::fmt::Debug + 'static {
    /// Returns a pod.
    fn pod(&self, namespace: &str, name: &str) -> Option<Value>;
    /// Returns the node of a pod, empty if it has none.
    fn node_of_pod(&self, namespace: &str, name: &str) -> Option<String> {
        self.pod(namespace, name).map(|pod| text(&pod, "/spec/nodeName").to_owned())
    }
    /// Returns the revisions and JSON texts of a namespace's pods.
    fn pods(&self, namespace: &str) -> Vec<(u64, Text)>;
    /// Returns a service account.
    fn service_account(&self, namespace: &str, name: &str) -> Option<Value>;
    /// Returns a secret.
    fn secret(&self, namespace: &str, name: &str) -> Option<Value>;
    /// Returns a node.
    fn node(&self, name: &str) -> Option<Value>;
    /// Returns a volume.
    fn volume(&self, _name: &str) -> Option<Value> {
        None
    }
    /// Returns what is attached to a node under a name.
    fn attachment(&self, _name: &str) -> Option<Value> {
        None
    }
}

impl ReadObjects for Registry {
    fn pod(&self, namespace: &str, name: &str) -> Option<Value> {
        self.find(&PODS, namespace, name).ok().flatten()
    }

    fn node_of_pod(&self, namespace: &str, name: &str) -> Option<String> {
        // Asked for each status that a node writes.
        static OUTLINE: LazyLock<Outline> = LazyLock::new(|| Outline::of(["spec.nodeName"]));
        let pod = OUTLINE.read(&self.get(&PODS, namespace, name).ok()?.bytes()).ok()?;
        Some(text(&pod, "/spec/nodeName").to_owned())
    }

    fn pods(&self, namespace: &str) -> Vec<(u64, Text)> {
        let list = self.list(&PODS, namespace, &ListOptions::default()).unwrap_or_default();
        list.items.into_iter().map(|object| (object.revision.0, object.text)).collect()
    }

    fn service_account(&self, namespace: &str, name: &str) -> Option<Value> {
        self.find(&SERVICEACCOUNTS, namespace, name).ok().flatten()
    }

    fn secret(&self, namespace: &str, name: &str) -> Option<Value> {
        self.find(&SECRETS, namespace, name).ok().flatten()
    }

    fn node(&self, name: &str) -> Option<Value> {
        self.find(&NODES, "", name).ok().flatten()
    }

    fn volume(&self, name: &str) -> Option<Value> {
        self.find(&PERSISTENTVOLUMES, "", name).ok().flatten()
    }

    fn attachment(&self, name: &str) -> Option<Value> {
        self.find(&VOLUMEATTACHMENTS, "", name).ok().flatten()
    }
}

/// A few names: kept for every pod of a cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names(Box<[Box<str>]>);

impl Names {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|own| **own == *name)
    }
}

impl From<BTreeSet<String>> for Names {
    fn from(names: BTreeSet<String>) -> Self {
        Self(names.into_iter().map(String::into_boxed_str).collect())
    }
}

#[derive(Debug, Default)]
struct Collected {
    secrets: BTreeSet<String>,
    configmaps: BTreeSet<String>,
    claims: BTreeSet<String>,
}

/// What a pod lets its node read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PodFacts {
    pub(super) node: String,
    pub(super) service_account: String,
    pub(super) is_mirror: bool,
    pub(super) secrets: Names,
    pub(super) configmaps: Names,
    pub(super) claims: Names,
}

/// Annotation of pods that stand for a node's own static pods.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

impl PodFacts {
    pub(super) fn of(pod: &Value) -> Self {
        let is_mirror = pod.get("metadata").and_then(|meta| meta.get("annotations")?.get(MIRROR)).is_some();
        let mut facts = Self { node: text(pod, "/spec/nodeName").to_owned(), is_mirror, ..Self::default() };
        if facts.node.is_empty() || is_mirror {
            // A mirror pod is written by the node itself: what it names gives the node no rights.
            return facts;
        }
        facts.service_account = text(pod, "/spec/serviceAccountName").to_owned();
        let mut named = Collected::default();
        if let Some(spec) = pod.get("spec") {
            named.collect(spec);
        }
        for volume in list(pod, "/spec/volumes") {
            if volume.get("ephemeral").is_some() {
                // The claim of such a volume is made under this name.
                named.claims.insert(format!("{}-{}", text(pod, "/metadata/name"), text(volume, "/name")));
            } else if volume.get("persistentVolumeClaim").is_some() {
                named.claims.insert(text(volume, "/persistentVolumeClaim/claimName").to_owned());
            }
        }
        facts.secrets = named.secrets.into();
        facts.configmaps = named.configmaps.into();
        facts.claims = named.claims.into();
        facts
    }
}

impl Collected {
    /// Walks the spec for the fields that name secrets and configmaps, wherever they stand.
    fn collect(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Value::Object(fields) => {
                for (key, field) in fields {
                    let name = |key: &str| field.get(key).and_then(Value::as_str).map(str::to_owned);
                    match key.as_str() {
                        // Environment and projected volumes; volumes of their own.
                        "secretKeyRef" | "secretRef" => self.secrets.extend(name("name")),
                        "secret" => self.secrets.extend(name("secretName").or_else(|| name("name"))),
                        "configMapKeyRef" | "configMapRef" | "configMap" => self.configmaps.extend(name("name")),
                        "imagePullSecrets" => {
                            let list = field.as_array().into_iter().flatten();
                            self.secrets.extend(list.map(|item| text(item, "/name").to_owned()));
                        }
                        "nodePublishSecretRef" => self.secrets.extend(name("name")),
                        _ => self.collect(field),
                    }
                    if matches!(key.as_str(), "secret" | "configMap") {
                        self.collect(field);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Facts of pods by the revision they were written at: a pod is read again only after it was written again.
#[derive(Debug, Default)]
pub(super) struct PodIndex(Mutex<HashMap<String, HashMap<u64, Arc<PodFacts>>>>);

impl PodIndex {
    /// Returns the facts of a namespace's pods.
    pub(super) fn of(&self, objects: &dyn ReadObjects, namespace: &str) -> Vec<Arc<PodFacts>> {
        let pods = objects.pods(namespace);
        let mut index = self.0.lock();
        if pods.is_empty() {
            index.remove(namespace);
            return Vec::new();
        }
        let known = index.remove(namespace).unwrap_or_default();
        let mut current = HashMap::with_capacity(pods.len());
        for (revision, text) in pods {
            let facts = known.get(&revision).cloned().unwrap_or_else(|| {
                let pod = serde_json::from_slice::<Value>(&text.bytes()).unwrap_or_default();
                Arc::new(PodFacts::of(&pod))
            });
            current.insert(revision, facts);
        }
        let facts = current.values().cloned().collect();
        index.insert(namespace.to_owned(), current);
        facts
    }
}
