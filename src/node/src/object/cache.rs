//! Objects of one kind by name.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Api, Resource};
use longshore_util::clock::SharedClock;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::{Lookup, READ_DEADLINE};

/// Entries that nobody asked for in this time are dropped.
const KEEP: Duration = Duration::from_secs(600);

/// A kind that is cached.
pub(super) trait Kind: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug {
    /// The kind as messages name it.
    const NAME: &'static str;

    /// The API of that kind in a namespace, or in the cluster where the kind has none.
    fn api(client: kube::Client, namespace: &str) -> Api<Self>;

    /// Says that its content never changes.
    fn is_immutable(&self) -> bool;

    /// Drops what nobody reads.
    fn trim(&mut self) {
        self.meta_mut().managed_fields = None;
        if let Some(annotations) = self.meta_mut().annotations.as_mut() {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
}

impl Kind for ConfigMap {
    const NAME: &'static str = "configmap";

    fn api(client: kube::Client, namespace: &str) -> Api<Self> {
        Api::namespaced(client, namespace)
    }

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl Kind for Secret {
    const NAME: &'static str = "secret";

    fn api(client: kube::Client, namespace: &str) -> Api<Self> {
        Api::namespaced(client, namespace)
    }

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl Kind for RuntimeClass {
    const NAME: &'static str = "runtimeclass";

    fn api(client: kube::Client, _namespace: &str) -> Api<Self> {
        Api::all(client)
    }

    fn is_immutable(&self) -> bool {
        false
    }
}

impl Kind for ServiceAccount {
    const NAME: &'static str = "serviceaccount";

    fn api(client: kube::Client, namespace: &str) -> Api<Self> {
        Api::namespaced(client, namespace)
    }

    fn is_immutable(&self) -> bool {
        false
    }
}

struct Entry<T> {
    object: Arc<T>,
    read: Timestamp,
}

/// One object's place. The lock is held while it is read, so that all who ask meanwhile share the answer.
struct Slot<T> {
    entry: tokio::sync::Mutex<Option<Entry<T>>>,
    used: Mutex<Timestamp>,
}

type Slots<T> = HashMap<(String, String), Arc<Slot<T>>>;

pub(super) struct Cache<T> {
    client: Option<kube::Client>,
    clock: SharedClock,
    slots: Arc<Mutex<Slots<T>>>,
}

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), clock: self.clock.clone(), slots: Arc::clone(&self.slots) }
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("objects", &self.slots.lock().len()).finish_non_exhaustive()
    }
}

impl<T: Kind> Cache<T> {
    pub(super) fn new(client: Option<kube::Client>, clock: SharedClock) -> Self {
        Self { client, clock, slots: Arc::default() }
    }

    pub(super) async fn get(&self, namespace: &str, name: &str, age: Duration) -> Lookup<T> {
        let Some(client) = &self.client else {
            return Lookup::Failed(format!("{} {name:?} cannot be read: this node has no apiserver", T::NAME));
        };
        let slot = self.slot(namespace, name);
        let mut entry = slot.entry.lock().await;
        let now = self.clock.now();
        if let Some(known) = entry.as_ref()
            && (known.object.is_immutable() || is_younger(known.read, now, age))
        {
            return Lookup::Found(Arc::clone(&known.object));
        }
        let api = T::api(client.clone(), namespace);
        let answer = tokio::time::timeout(READ_DEADLINE, api.get_opt(name)).await;
        let failure = match answer {
            Ok(Ok(Some(mut object))) => {
                object.trim();
                let object = Arc::new(object);
                *entry = Some(Entry { object: Arc::clone(&object), read: now });
                return Lookup::Found(object);
            }
            Ok(Ok(None)) => {
                *entry = None;
                return Lookup::Missing;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", READ_DEADLINE.as_secs()),
        };
        match entry.as_ref() {
            // An apiserver that is away must not hurt pods that have what they need.
            Some(known) => {
                tracing::debug!(
                    kind = T::NAME,
                    namespace,
                    name,
                    error = failure,
                    "read failed, the older answer serves"
                );
                Lookup::Found(Arc::clone(&known.object))
            }
            None => Lookup::Failed(format!("{} {name:?} cannot be read: {failure}", T::NAME)),
        }
    }

    fn slot(&self, namespace: &str, name: &str) -> Arc<Slot<T>> {
        let now = self.clock.now();
        let mut slots = self.slots.lock();
        let slot = slots
            .entry((namespace.to_owned(), name.to_owned()))
            .or_insert_with(|| Arc::new(Slot { entry: tokio::sync::Mutex::new(None), used: Mutex::new(now) }));
        *slot.used.lock() = now;
        Arc::clone(slot)
    }

    pub(super) fn tidy(&self) {
        let now = self.clock.now();
        self.slots.lock().retain(|_, slot| is_younger(*slot.used.lock(), now, KEEP));
    }
}

/// A clock that stepped back makes an answer old rather than young for ever.
fn is_younger(then: Timestamp, now: Timestamp, age: Duration) -> bool {
    let passed = now.duration_since(then);
    !passed.is_negative() && passed.unsigned_abs() < age
}
