//! Objects of one kind by name.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Resource};
use longshore_transport::client::Typed;
use longshore_util::clock::SharedClock;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::follow::{Followers, Following};
use super::{FRESH, Lookup, READ_DEADLINE};

/// Entries that nobody asked for in this time are dropped.
const KEEP: Duration = Duration::from_secs(600);
/// Followed objects that nobody asked for in this time are followed no longer; a mounted one is asked for twice a minute.
const FOLLOW_FOR: Duration = Duration::from_secs(120);

/// A kind that is cached.
pub(super) trait Kind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static
{
    /// The kind as messages name it.
    const NAME: &'static str;

    /// The API of that kind in a namespace, or in the cluster where the kind has none.
    fn api(client: kube::Client, namespace: &str) -> Api<Typed<Self>>;

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

    fn api(client: kube::Client, namespace: &str) -> Api<Typed<Self>> {
        Api::namespaced(client, namespace)
    }

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl Kind for Secret {
    const NAME: &'static str = "secret";

    fn api(client: kube::Client, namespace: &str) -> Api<Typed<Self>> {
        Api::namespaced(client, namespace)
    }

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl Kind for RuntimeClass {
    const NAME: &'static str = "runtimeclass";

    fn api(client: kube::Client, _namespace: &str) -> Api<Typed<Self>> {
        Api::all(client)
    }

    fn is_immutable(&self) -> bool {
        false
    }
}

impl Kind for ServiceAccount {
    const NAME: &'static str = "serviceaccount";

    fn api(client: kube::Client, namespace: &str) -> Api<Typed<Self>> {
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
    /// Whether a watch keeps the entry as the apiserver has it.
    live: AtomicBool,
    following: Mutex<Option<Following>>,
    /// How many reads have failed, and how the last one did: shared with all who waited for it.
    failed: Mutex<(u64, String)>,
}

type Slots<T> = HashMap<(String, String), Arc<Slot<T>>>;

pub(super) struct Cache<T> {
    client: Option<kube::Client>,
    clock: SharedClock,
    slots: Arc<Mutex<Slots<T>>>,
    followers: Option<Followers>,
}

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            clock: self.clock.clone(),
            slots: Arc::clone(&self.slots),
            followers: self.followers.clone(),
        }
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("objects", &self.slots.lock().len()).finish_non_exhaustive()
    }
}

impl<T: Kind> Cache<T> {
    pub(super) fn new(client: Option<kube::Client>, clock: SharedClock) -> Self {
        Self { client, clock, slots: Arc::default(), followers: None }
    }

    /// Objects of this kind that pods have mounted are followed.
    pub(super) fn followed(self, followers: Followers) -> Self {
        Self { followers: Some(followers), ..self }
    }

    /// As [`Cache::get`], for an object that a pod has mounted: from now on it is followed, and while its watch stands a
    /// refresh costs nothing.
    pub(super) async fn mounted(&self, namespace: &str, name: &str, age: Duration) -> Lookup<T> {
        let found = self.get(namespace, name, age).await;
        let is_fixed = matches!(&found, Lookup::Found(object) if object.is_immutable());
        if let (Some(followers), Some(client), false) = (&self.followers, &self.client, is_fixed) {
            let slot = self.slot(namespace, name);
            let mut following = slot.following.lock();
            if following.is_none() {
                *following = followers.begin(self, client, namespace, name);
            }
        }
        found
    }

    /// Takes what a watch says of an object, `None` = there is none; returns whether that is news.
    pub(super) async fn learn(&self, namespace: &str, name: &str, news: Option<T>) -> bool {
        let Some(slot) = self.slots.lock().get(&(namespace.to_owned(), name.to_owned())).cloned() else { return false };
        let mut entry = slot.entry.lock().await;
        let known = entry.as_ref().map(|known| known.object.meta().clone());
        let is_news = match (&known, &news) {
            (None, None) => false,
            (Some(known), Some(news)) => is_newer(known, news.meta()),
            (None, Some(_)) | (Some(_), None) => true,
        };
        let now = self.clock.now();
        match news {
            Some(mut object) if is_news => {
                object.trim();
                *entry = Some(Entry { object: Arc::new(object), read: now });
            }
            Some(_) => {}
            None => *entry = None,
        }
        slot.live.store(true, Ordering::Relaxed);
        is_news
    }

    /// Notes whether a watch keeps an object as the apiserver has it.
    pub(super) fn set_live(&self, namespace: &str, name: &str, live: bool) {
        if let Some(slot) = self.slots.lock().get(&(namespace.to_owned(), name.to_owned())) {
            slot.live.store(live, Ordering::Relaxed);
        }
    }

    pub(super) async fn get(&self, namespace: &str, name: &str, age: Duration) -> Lookup<T> {
        let Some(client) = &self.client else {
            return Lookup::Failed(format!("{} {name:?} cannot be read: this node has no apiserver", T::NAME));
        };
        let slot = self.slot(namespace, name);
        let before = slot.failed.lock().0;
        let mut entry = slot.entry.lock().await;
        let now = self.clock.now();
        if age > FRESH && slot.live.load(Ordering::Relaxed) {
            return entry.as_ref().map_or(Lookup::Missing, |known| Lookup::Found(Arc::clone(&known.object)));
        }
        if let Some(known) = entry.as_ref()
            && (known.object.is_immutable() || is_younger(known.read, now, age))
        {
            return Lookup::Found(Arc::clone(&known.object));
        }
        let shared = Some(slot.failed.lock().clone()).filter(|(count, _)| *count != before);
        let failure = match shared {
            Some((_, failure)) => failure,
            None => match Self::read(client, namespace, name).await {
                Ok(Some(mut object)) => {
                    object.trim();
                    let object = Arc::new(object);
                    *entry = Some(Entry { object: Arc::clone(&object), read: now });
                    return Lookup::Found(object);
                }
                Ok(None) => {
                    *entry = None;
                    return Lookup::Missing;
                }
                Err(failure) => {
                    let mut failed = slot.failed.lock();
                    *failed = (failed.0 + 1, failure.clone());
                    failure
                }
            },
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

    async fn read(client: &kube::Client, namespace: &str, name: &str) -> Result<Option<T>, String> {
        let api = T::api(client.clone(), namespace);
        match tokio::time::timeout(READ_DEADLINE, api.get_opt(name)).await {
            Ok(answer) => answer.map(|found| found.map(|object| object.0)).map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", READ_DEADLINE.as_secs())),
        }
    }

    fn slot(&self, namespace: &str, name: &str) -> Arc<Slot<T>> {
        let now = self.clock.now();
        let mut slots = self.slots.lock();
        let slot = slots.entry((namespace.to_owned(), name.to_owned())).or_insert_with(|| {
            Arc::new(Slot {
                entry: tokio::sync::Mutex::new(None),
                used: Mutex::new(now),
                live: AtomicBool::new(false),
                following: Mutex::new(None),
                failed: Mutex::default(),
            })
        });
        *slot.used.lock() = now;
        Arc::clone(slot)
    }

    pub(super) fn tidy(&self) {
        let now = self.clock.now();
        self.slots.lock().retain(|_, slot| {
            let used = *slot.used.lock();
            if !is_younger(used, now, FOLLOW_FOR) {
                slot.live.store(false, Ordering::Relaxed);
                drop(slot.following.lock().take());
            }
            is_younger(used, now, KEEP)
        });
    }
}

/// An answer to a read may be ahead of the watch: what is older than that is no news.
fn is_newer(known: &ObjectMeta, news: &ObjectMeta) -> bool {
    let version = |meta: &ObjectMeta| meta.resource_version.as_deref().and_then(|version| version.parse::<u64>().ok());
    match (version(known), version(news)) {
        (Some(before), Some(after)) if known.uid == news.uid => after > before,
        _ => known.resource_version != news.resource_version || known.uid != news.uid,
    }
}

/// A clock that stepped back makes an answer old rather than young for ever.
fn is_younger(then: Timestamp, now: Timestamp, age: Duration) -> bool {
    let passed = now.duration_since(then);
    !passed.is_negative() && passed.unsigned_abs() < age
}
