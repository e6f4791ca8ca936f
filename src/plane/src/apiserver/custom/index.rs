//! The custom kinds that there are: read from the definitions in the store, whoever wrote them, when somebody asks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use longshore_api::custom::Definition;
use longshore_api::custom::definition::Names;
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::strategy::CustomKind;
use super::{Custom, Served, order};
use crate::apiserver::object::parse;
use crate::apiserver::resources::{CUSTOMRESOURCEDEFINITIONS, Resource, SCALE, Subresource};
use crate::store::{Event, EventKind, ListRequest, SharedStore, StoreError, Watch};

/// The custom kinds.
#[derive(Debug)]
pub(crate) struct Kinds {
    store: SharedStore,
    prefix: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    watch: Option<Watch>,
    /// Rows by what kinds call themselves; never taken out, for rows live as long as the process.
    rows: HashMap<Key, &'static Resource>,
    /// By the definition's key in the store.
    held: BTreeMap<String, Held>,
}

/// What makes a row another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    group: String,
    version: String,
    names: Names,
    namespaced: bool,
    has_status: bool,
    has_scale: bool,
}

#[derive(Debug)]
struct Held {
    definition: Arc<Definition>,
    /// Of its specification: whole ones can be large.
    fingerprint: u64,
    /// One for each version, in the definition's order.
    rows: Vec<&'static Resource>,
    gone: CancellationToken,
}

impl Held {
    /// Takes over what changed without a change of how the kind is served: its watches go on.
    fn take_over(&mut self, definition: Arc<Definition>, bytes: &Bytes) {
        for (at, custom) in self.rows.iter().filter_map(|row| row.custom).enumerate() {
            let schema = custom.served().map(|served| served.schema.clone()).unwrap_or_default();
            let gone = self.gone.clone();
            let definition = Arc::clone(&definition);
            custom.set(Some(Arc::new(Served { definition, at, source: bytes.clone(), schema, gone })));
        }
        self.definition = definition;
    }

    fn end(&self) {
        self.gone.cancel();
        for custom in self.rows.iter().filter_map(|row| row.custom) {
            custom.set(None);
        }
    }
}

impl Kinds {
    pub(crate) fn new(store: SharedStore) -> Self {
        Self { store, prefix: CUSTOMRESOURCEDEFINITIONS.prefix(""), state: Mutex::default() }
    }

    fn with<T>(&self, ask: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        state.refresh(&self.store, &self.prefix);
        ask(&mut state)
    }

    /// Takes up what was written since; ends the watches of kinds that changed.
    pub(crate) fn refresh(&self) {
        self.with(|_| ());
    }

    /// Returns the row of a resource that is served.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
        self.with(|state| {
            state.served().find(|row| row.group == group && row.version == version && row.plural == plural)
        })
    }

    /// Returns the row of a kind, served or not.
    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<&'static Resource> {
        let (group, version) = api_version.split_once('/')?;
        self.with(|state| {
            let rows = state
                .held
                .values()
                .filter(|held| held.definition.established)
                .flat_map(|held| held.rows.iter().copied());
            rows.into_iter().find(|row| row.group == group && row.version == version && row.kind == kind)
        })
    }

    /// Returns all rows that are served, by group, the preferred version first, and name.
    pub(crate) fn served(&self) -> Vec<&'static Resource> {
        let mut rows: Vec<&'static Resource> = self.with(|state| state.served().collect());
        rows.sort_by(|a, b| {
            a.group.cmp(b.group).then_with(|| order(a.version, b.version)).then_with(|| a.plural.cmp(b.plural))
        });
        rows
    }

    /// Returns the rows as which objects are stored, one for each kind that is or was served.
    pub(crate) fn stored(&self) -> Vec<&'static Resource> {
        self.with(|state| {
            state.held.values().filter(|held| held.definition.established).filter_map(Held::storage).collect()
        })
    }

    /// Returns the row as which objects of a definition are stored.
    pub(crate) fn of_definition(&self, name: &str) -> Option<&'static Resource> {
        let key = format!("{}{name}", self.prefix);
        self.with(|state| state.held.get(&key).and_then(Held::storage))
    }

    /// Returns the names that other definitions of a group have.
    pub(crate) fn names(&self, group: &str, except: &str) -> Vec<Names> {
        self.with(|state| {
            let others = state.held.values().map(|held| &held.definition);
            others.filter(|own| own.group == group && own.name != except).map(|own| own.accepted.clone()).collect()
        })
    }

    /// Returns the definitions of a group that do not have all names that they want.
    pub(crate) fn wanting(&self, group: &str) -> Vec<String> {
        self.with(|state| {
            let all = state.held.values().map(|held| &held.definition);
            all.filter(|own| own.group == group && !own.names_accepted).map(|own| own.name.clone()).collect()
        })
    }
}

impl Held {
    fn storage(&self) -> Option<&'static Resource> {
        let at = self.definition.versions.iter().position(|version| version.storage)?;
        self.rows.get(at).copied()
    }
}

impl State {
    fn served(&self) -> impl Iterator<Item = &'static Resource> {
        self.held.values().filter(|held| held.definition.established).flat_map(|held| {
            let versions = held.definition.versions.iter().zip(&held.rows);
            versions.filter(|(version, _)| version.served).map(|(_, row)| *row)
        })
    }

    fn refresh(&mut self, store: &SharedStore, prefix: &str) {
        // Without a watch, or when too much has happened since, all is read again.
        let news = self.watch.as_mut().and_then(|watch| watch.drain().ok());
        let Some(events) = news else {
            if let Err(error) = self.load(store, prefix) {
                tracing::warn!(%error, "definitions of custom kinds could not be read, trying again");
                self.watch = None;
            }
            return;
        };
        events.iter().for_each(|event| self.see(event));
    }

    fn load(&mut self, store: &SharedStore, prefix: &str) -> Result<(), StoreError> {
        let listing = store.list(&ListRequest { prefix, ..ListRequest::default() })?;
        self.watch = Some(store.watch(prefix, listing.revision)?);
        let keys: BTreeSet<&str> = listing.entries.iter().map(|entry| &*entry.key).collect();
        self.held.retain(|key, held| {
            let stays = keys.contains(key.as_str());
            if !stays {
                held.end();
            }
            stays
        });
        for entry in &listing.entries {
            self.put(&entry.key, &entry.value.bytes());
        }
        Ok(())
    }

    fn see(&mut self, event: &Event) {
        if event.kind == EventKind::Deleted {
            if let Some(held) = self.held.remove(&*event.key) {
                held.end();
            }
        } else {
            self.put(&event.key, &event.object());
        }
    }

    fn put(&mut self, key: &str, bytes: &Bytes) {
        let Ok(object) = parse(bytes) else { return };
        let definition = Arc::new(Definition::read(&object));
        let fingerprint = fingerprint(&object["spec"]);
        if let Some(held) = self.held.get_mut(key) {
            if held.fingerprint == fingerprint && held.definition.serves_like(&definition) {
                held.take_over(definition, bytes);
                return;
            }
            held.end();
        }
        let gone = CancellationToken::new();
        let rows: Vec<&'static Resource> = (0..definition.versions.len())
            .map(|at| {
                let row = self.row(&definition, at);
                if let Some(custom) = row.custom {
                    custom.set(Some(Arc::new(Served {
                        definition: Arc::clone(&definition),
                        at,
                        source: bytes.clone(),
                        schema: OnceLock::new(),
                        gone: gone.clone(),
                    })));
                }
                row
            })
            .collect();
        self.held.insert(key.to_owned(), Held { definition, fingerprint, rows, gone });
    }

    fn row(&mut self, definition: &Definition, at: usize) -> &'static Resource {
        let version = &definition.versions[at];
        let key = Key {
            group: definition.group.clone(),
            version: version.name.clone(),
            names: definition.accepted.clone(),
            namespaced: definition.namespaced,
            has_status: version.has_status,
            has_scale: version.scale.is_some(),
        };
        self.rows.entry(key.clone()).or_insert_with(|| make(key))
    }
}

fn fingerprint(spec: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    spec.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Makes a row. It stays for as long as the process lives, as those do that are compiled in: they are some hundred bytes,
/// and a kind that comes again under the same names gets the one that it had.
fn make(key: Key) -> &'static Resource {
    const NO_SUBRESOURCES: &[Subresource] = &[];
    let text = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let texts = |texts: Vec<String>| -> &'static [&'static str] {
        Box::leak(texts.into_iter().map(text).collect::<Vec<_>>().into_boxed_slice())
    };
    let custom: &'static Custom = Box::leak(Box::new(Custom::new(key.names.list_kind)));
    let strategy: &'static CustomKind = Box::leak(Box::new(CustomKind(custom)));
    Box::leak(Box::new(Resource {
        version: text(key.version),
        short_names: texts(key.names.short),
        categories: texts(key.names.categories),
        namespaced: key.namespaced,
        has_status: key.has_status,
        subresources: if key.has_scale { &[SCALE] } else { NO_SUBRESOURCES },
        has_generation: true,
        unconditional_update: false,
        custom: Some(custom),
        ..Resource::new(
            text(key.group),
            text(key.names.plural),
            text(key.names.singular),
            text(key.names.kind),
            strategy,
        )
    }))
}
