//! Objects under the common rules: what the REST paths and the plane's own loops share. Every object passes through
//! here on its way to the store, so the rules hold for all writers alike.

mod apply;
mod create;
mod delete;
mod list;
mod owners;
mod update;

use std::hash::{Hash as _, Hasher as _};
use std::net::Ipv4Addr;
use std::sync::Arc;

use longshore_api::schema::check::Findings;
use longshore_util::clock::SharedClock;
use serde_json::Value;

use super::custom::Kinds;
use super::error::ApiError;
use super::identity::UserInfo;
use super::object::Object;
use super::rbac;
use super::resources::{Resource, built_in, find, find_kind};
use crate::store::{Entry, ListRequest, Revision, SharedStore, StoreError, Watch};

pub use apply::Apply;
pub(crate) use create::{bad_types, suffix};
pub use delete::{CUSTOM_CLEANUP, DeleteOptions, Deletion, FOREGROUND, ORPHAN, Propagation};
pub use list::{ListOptions, ObjectList, Selection};
pub(crate) use owners::of_review;
pub use update::Part;

/// Tries of a write that lost a race, before the loser is told. From the second on, those who lost come one after the other.
const TRIES: usize = 50;

/// Where those wait for their turn who lost a race for an object; objects share places.
const PLACES: usize = 64;

/// Turns of those who lost a race.
#[derive(Debug)]
struct Turns([tokio::sync::Mutex<()>; PLACES]);

impl Default for Turns {
    fn default() -> Self {
        Self(std::array::from_fn(|_| tokio::sync::Mutex::default()))
    }
}

impl Turns {
    /// Waits for the turn of who tries to write under a key for that time; the first try needs none.
    async fn wait<'t>(&'t self, key: &str, tries: usize, turn: &mut Option<tokio::sync::MutexGuard<'t, ()>>) {
        if tries == 0 || turn.is_some() {
            return;
        }
        let mut hasher = std::hash::DefaultHasher::new();
        key.hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % PLACES as u64).unwrap_or_default();
        if let Some(place) = self.0.get(place) {
            *turn = Some(place.lock().await);
        }
    }
}

/// How a write is made.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Who writes; none for the plane's own loops.
    pub user: Option<Arc<UserInfo>>,
    /// Do everything but store it.
    pub dry_run: bool,
    /// What becomes of fields that the type does not have.
    pub fields: FieldValidation,
    /// What the client is told beside the answer.
    pub warnings: Warnings,
    /// Under which name what is written is owned; without one the owners stay as they are.
    pub manager: Option<Arc<str>>,
    /// The object brings its owners with it.
    pub(crate) owners_given: bool,
}

/// What becomes of fields that the type does not have, besides that they are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing.
    #[default]
    Ignore,
    /// The client is told.
    Warn,
    /// The write is refused.
    Strict,
}

/// Sentences for the client beside the answer, each once.
#[derive(Debug, Clone, Default)]
pub struct Warnings(Arc<parking_lot::Mutex<Vec<String>>>);

impl Warnings {
    /// Adds a sentence.
    pub fn add(&self, text: &str) {
        let mut all = self.0.lock();
        if !all.iter().any(|other| other == text) {
            all.push(text.to_owned());
        }
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl WriteOptions {
    /// Acts on what was found in a body. Returns the text of the refusal, if it is one.
    pub(crate) fn judge(&self, findings: &Findings) -> Result<(), String> {
        match self.fields {
            FieldValidation::Strict if !findings.is_empty() => {
                Err(format!("strict decoding error: {}", findings.texts().join(", ")))
            }
            FieldValidation::Warn => {
                findings.texts().iter().for_each(|text| self.warnings.add(text));
                Ok(())
            }
            FieldValidation::Ignore | FieldValidation::Strict => Ok(()),
        }
    }
}

/// What the rules need to know of the cluster.
#[derive(Debug, Clone, Copy)]
pub struct ClusterFacts {
    /// First address of the service range.
    pub service_base: Ipv4Addr,
    /// Length of its prefix.
    pub service_prefix: u8,
}

impl Default for ClusterFacts {
    fn default() -> Self {
        Self { service_base: Ipv4Addr::new(10, 96, 0, 0), service_prefix: 12 }
    }
}

impl ClusterFacts {
    /// Returns how many addresses the range holds for services: all but the base and the broadcast address.
    pub(crate) fn service_size(&self) -> u32 {
        let bits = 32u32.saturating_sub(u32::from(self.service_prefix)).min(20);
        (1u32 << bits).saturating_sub(2)
    }

    /// Returns the address at an index; the first is the API's own.
    pub(crate) fn service_address(&self, index: u32) -> Option<Ipv4Addr> {
        let base = u32::from(self.service_base);
        (index < self.service_size()).then(|| Ipv4Addr::from(base.saturating_add(index).saturating_add(1)))
    }

    pub(crate) fn holds(&self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).wrapping_sub(u32::from(self.service_base));
        (1..=self.service_size()).contains(&offset)
    }
}

/// The objects.
#[derive(Debug, Clone)]
pub struct Registry {
    store: SharedStore,
    clock: SharedClock,
    facts: ClusterFacts,
    /// What roles let users do.
    rbac: Arc<rbac::Index>,
    /// The custom kinds.
    kinds: Arc<Kinds>,
    /// Held while a new object is counted and written, where its namespace has a quota.
    quotas: Arc<tokio::sync::Mutex<()>>,
    /// Held while a service address is chosen and written.
    addresses: Arc<tokio::sync::Mutex<()>>,
    /// Shared by those who create something in a namespace; held alone by who is about to say that one is empty.
    namespaces: Arc<tokio::sync::RwLock<()>>,
    turns: Arc<Turns>,
}

impl Registry {
    /// Returns a registry over a store.
    pub fn new(store: SharedStore, clock: SharedClock, facts: ClusterFacts) -> Self {
        let rbac = Arc::new(rbac::Index::new(Arc::clone(&store)));
        let kinds = Arc::new(Kinds::new(Arc::clone(&store)));
        let (quotas, addresses, namespaces, turns) = Default::default();
        Self { store, clock, facts, rbac, kinds, quotas, addresses, namespaces, turns }
    }

    /// Waits until nothing is being created in any namespace; nothing will be while the answer is held.
    pub(crate) async fn nothing_is_made(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.namespaces.write().await
    }

    /// Returns the clock by which objects are stamped.
    pub fn clock(&self) -> &SharedClock {
        &self.clock
    }

    /// Returns the last revision.
    pub fn revision(&self) -> Revision {
        self.store.revision()
    }

    /// Waits until reads show all writes that were answered before, by whichever apiserver.
    pub(crate) async fn settle(&self) -> Result<(), ApiError> {
        self.store.settle().await.map_err(ApiError::unavailable)
    }

    /// Returns where objects are kept, in a word.
    pub(crate) fn engine(&self) -> &'static str {
        self.store.engine()
    }

    /// Tells whether the store works.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        self.store.check().await
    }

    /// Refuses to call an object absent that is there and cannot be read: whoever cleans up after it would be wrong.
    pub(super) fn absent(&self, key: &str) -> Result<(), ApiError> {
        match self.store.unreadable(key) {
            Some(why) => Err(ApiError::internal(format!("what is stored under {key} cannot be read: {why}"))),
            None => Ok(()),
        }
    }

    /// Returns an object. Never blocks: objects are in memory.
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Object, ApiError> {
        let key = resource.key(namespace, name);
        match self.store.get(&key) {
            Some(entry) => Ok(entry.into()),
            None => Err(self.absent(&key).err().unwrap_or_else(|| ApiError::not_found(resource, name))),
        }
    }

    /// Returns an object parsed, or nothing.
    pub fn find(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
        let key = resource.key(namespace, name);
        match self.store.get(&key) {
            Some(entry) => resource.read(&entry.into()).map(Some),
            None => self.absent(&key).map(|()| None),
        }
    }

    /// Returns the number of objects of a kind, in one namespace or all.
    pub fn count(&self, resource: &Resource, namespace: &str) -> usize {
        self.store.count(&resource.prefix(namespace))
    }

    /// Returns all objects of a kind, parsed, and the revision that was listed.
    pub fn list_values(&self, resource: &Resource, namespace: &str) -> Result<(Vec<Value>, Revision), ApiError> {
        let list = self.list(resource, namespace, &ListOptions::default())?;
        let values = list.items.iter().map(|item| resource.read(item)).collect::<Result<_, _>>()?;
        Ok((values, list.revision))
    }

    /// Returns the keys of all objects of a kind, and the revision that was listed.
    pub(crate) fn keys(&self, resource: &Resource) -> Result<(Vec<Arc<str>>, Revision), StoreError> {
        let listing = self.store.list(&ListRequest { prefix: &resource.prefix(""), ..ListRequest::default() })?;
        Ok((listing.entries.into_iter().map(|entry| entry.key).collect(), listing.revision))
    }

    /// Watches a kind, in one namespace or all, from behind a revision. Events carry the objects' bytes; the watch fails
    /// with [`StoreError::Compacted`] when it was too slow: list and watch again.
    pub fn watch(&self, resource: &Resource, namespace: &str, from: Revision) -> Result<Watch, StoreError> {
        self.store.watch(&resource.prefix(namespace), from)
    }

    /// Watches the pods that are or were on a node.
    pub(crate) fn watch_node(
        &self,
        resource: &Resource,
        namespace: &str,
        node: &str,
        from: Revision,
    ) -> Result<Watch, StoreError> {
        self.store.watch_node(&resource.prefix(namespace), node, from)
    }

    /// Returns the custom kinds.
    pub(crate) fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// Returns the row of a resource that is served.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
        find(group, version, plural).or_else(|| self.kinds.find(group, version, plural))
    }

    /// Returns the row of a kind.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<&'static Resource> {
        find_kind(api_version, kind).or_else(|| self.kinds.kind(api_version, kind))
    }

    /// Returns the rows that are stored, each kind once.
    pub fn stored(&self) -> Vec<&'static Resource> {
        built_in().chain(self.kinds.stored()).collect()
    }

    /// Returns what roles let users do.
    pub fn rbac(&self) -> &Arc<rbac::Index> {
        &self.rbac
    }

    /// Returns all that is stored, and a watch on everything from there.
    pub(crate) fn everything(&self) -> Result<(Vec<Entry>, Watch), StoreError> {
        let listing = self.store.list(&ListRequest::default())?;
        let watch = self.store.watch("", listing.revision)?;
        Ok((listing.entries, watch))
    }

    /// Watches everything from now on.
    pub(crate) fn watch_all(&self) -> Result<Watch, StoreError> {
        self.store.watch("", self.store.revision())
    }

    /// Returns what is stored under a key, parsed.
    pub(crate) fn at_key(&self, key: &str) -> Result<Option<Value>, ApiError> {
        self.store.get(key).map(|entry| Object::from(entry).value()).transpose()
    }

    pub(crate) fn watch_key(&self, key: &str, from: Revision) -> Result<Watch, StoreError> {
        self.store.watch(key, from)
    }

    pub(crate) fn facts(&self) -> ClusterFacts {
        self.facts
    }

    pub(crate) fn now(&self) -> String {
        super::object::time(self.clock.now())
    }
}
