//! Login and rights over a handful of objects in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::request::Parts;
use jiff::Timestamp;
use longshore_transport::pki::{Authority, LeafRequest, certificates_from_pem, signing_key_pair};
use longshore_transport::serve::PeerIdentity;
use longshore_transport::tls::ClientCa;
use longshore_util::clock::ManualClock;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::apiserver::identity::UserInfo;
use crate::apiserver::registry::{ClusterFacts, Registry, WriteOptions};
use crate::apiserver::resources::NAMESPACES;
use crate::store::{Limits, MemoryStore, Text};

mod login;
mod review;
mod rights;

#[derive(Debug, Default)]
pub(super) struct Objects(Mutex<BTreeMap<Place, (u64, Value)>>);

/// Kind, namespace, name.
type Place = (&'static str, String, String);

impl Objects {
    pub(super) fn put(&self, kind: &'static str, object: Value) {
        let field = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        let mut all = self.0.lock();
        let revision = all.values().map(|(revision, _)| revision).max().copied().unwrap_or(0) + 1;
        all.insert((kind, field("namespace"), field("name")), (revision, object));
    }

    pub(super) fn remove(&self, kind: &'static str, namespace: &str, name: &str) {
        self.0.lock().remove(&(kind, namespace.to_owned(), name.to_owned())).unwrap();
    }

    fn get(&self, kind: &'static str, namespace: &str, name: &str) -> Option<Value> {
        self.0.lock().get(&(kind, namespace.to_owned(), name.to_owned())).map(|(_, object)| object.clone())
    }
}

impl ReadObjects for Objects {
    fn pod(&self, namespace: &str, name: &str) -> Option<Value> {
        self.get("pod", namespace, name)
    }

    fn pods(&self, namespace: &str) -> Vec<(u64, Text)> {
        let all = self.0.lock();
        let pods = all.iter().filter(|((kind, own, _), _)| *kind == "pod" && own == namespace);
        pods.map(|(_, (revision, object))| (*revision, Bytes::from(object.to_string()).into())).collect()
    }

    fn service_account(&self, namespace: &str, name: &str) -> Option<Value> {
        self.get("account", namespace, name)
    }

    fn secret(&self, namespace: &str, name: &str) -> Option<Value> {
        self.get("secret", namespace, name)
    }

    fn node(&self, name: &str) -> Option<Value> {
        self.get("node", "", name)
    }

    fn volume(&self, name: &str) -> Option<Value> {
        self.get("volume", "", name)
    }

    fn attachment(&self, name: &str) -> Option<Value> {
        self.get("attachment", "", name)
    }
}

pub(super) struct World {
    pub(super) authority: Authority,
    pub(super) clock: Arc<ManualClock>,
    pub(super) objects: Arc<Objects>,
    pub(super) auth: Auth,
    /// Holds roles and bindings only.
    pub(super) registry: Registry,
}

/// A registry with the roles that every cluster has. Made on a thread of its own: tests may or may not run on a runtime.
fn bootstrapped(clock: Arc<ManualClock>) -> Registry {
    let store = Arc::new(MemoryStore::new(Limits::default(), clock.clone()));
    let registry = Registry::new(store, clock, ClusterFacts::default());
    let made = registry.clone();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for name in ["kube-system", "kube-public", "a"] {
                let namespace = json!({"metadata": {"name": name}});
                made.create(&NAMESPACES, "", namespace, &WriteOptions::default()).await.unwrap();
            }
            rbac::bootstrap::ensure(&made).await.unwrap();
        });
    };
    std::thread::spawn(work).join().unwrap();
    registry
}

impl World {
    pub(super) fn new() -> Self {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let authority = Authority::generate("kubernetes", Duration::from_secs(86400), now).unwrap();
        let clock = Arc::new(ManualClock::new(now));
        let objects = Arc::new(Objects::default());
        let (private, public) = signing_key_pair().unwrap();
        let key = SigningKey::from_pem(&private, &public).unwrap();
        let client_ca = Arc::new(ClientCa::from_pem(&authority.keyed().certificate_pem).unwrap());
        let registry = bootstrapped(clock.clone());
        let auth = Auth::new(client_ca, key, objects.clone(), Arc::clone(registry.rbac()), clock.clone());
        objects.put("node", json!({"metadata": {"name": "n1", "uid": "node-uid"}}));
        objects.put("account", json!({"metadata": {"namespace": "a", "name": "default", "uid": "sa-uid"}}));
        objects.put("pod", pod("a", "p", "n1"));
        objects.put("pod", pod("a", "q", "n2"));
        Self { authority, clock, objects, auth, registry }
    }

    pub(super) fn certificate(&self, request: &LeafRequest) -> PeerIdentity {
        let now = longshore_util::clock::Clock::now(self.clock.as_ref());
        peer(&self.authority.issue(request, now).unwrap().certificate_pem)
    }
}

pub(super) fn peer(pem: &str) -> PeerIdentity {
    let certificates = certificates_from_pem(pem.as_bytes(), "test").unwrap();
    PeerIdentity { address: ([127, 0, 0, 1], 1).into(), certificates: certificates.into() }
}

/// A pod of account `default` that reads secrets s-NAME, s-NAME-env, s-NAME-pull and configmap c-NAME.
pub(super) fn pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name, "uid": format!("{name}-uid")},
        "spec": {
            "nodeName": node,
            "serviceAccountName": "default",
            "imagePullSecrets": [{"name": format!("s-{name}-pull")}],
            "containers": [{"name": "c", "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": format!("s-{name}-env"), "key": "k"}}},
                {"name": "B", "value": "secret"}]}],
            "volumes": [
                {"name": "v", "secret": {"secretName": format!("s-{name}")}},
                {"name": "w", "projected": {"sources": [
                    {"configMap": {"name": format!("c-{name}")}}, {"secret": {"name": format!("s-{name}-projected")}}]}}],
        },
    })
}

pub(super) fn request(peer: Option<PeerIdentity>, token: Option<&str>) -> Parts {
    let mut request = Request::builder().uri("/api/v1/pods");
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let (mut parts, ()) = request.body(()).unwrap().into_parts();
    if let Some(peer) = peer {
        parts.extensions.insert(peer);
    }
    parts
}

pub(super) fn node(name: &str) -> UserInfo {
    UserInfo::new(format!("system:node:{name}"), &["system:nodes", "system:authenticated"])
}
