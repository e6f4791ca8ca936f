//! Roles and bindings by subject.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::rules::Rule;
use crate::apiserver::identity::{Attributes, UserInfo};
use crate::apiserver::object::{list, meta, parse, text};
use crate::store::{Entry, Event, EventKind, ListRequest, SharedStore, StoreError, Watch};

/// Where roles and bindings are stored.
const PREFIX: &str = "rbac.authorization.k8s.io/";

/// A binding as rights need it.
#[derive(Debug)]
struct Binding {
    /// Empty for the whole cluster.
    namespace: String,
    name: String,
    role_kind: String,
    role_name: String,
    /// The key by which the subject is found, and how answers name it.
    subjects: Vec<(String, String)>,
}

#[derive(Debug, Default)]
struct State {
    watch: Option<Watch>,
    /// Rules by the role's key.
    roles: HashMap<String, Arc<[Rule]>>,
    bindings: HashMap<String, Arc<Binding>>,
    by_subject: HashMap<String, BTreeSet<String>>,
}

/// What roles let users do.
#[derive(Debug)]
pub struct Index {
    store: SharedStore,
    state: Mutex<State>,
}

impl Index {
    /// Returns an index over a store.
    pub fn new(store: SharedStore) -> Self {
        Self { store, state: Mutex::default() }
    }

    /// Returns by which binding a user may do something, in the words of a review.
    pub fn allows(&self, user: &UserInfo, asked: &Attributes) -> Option<String> {
        let mut state = self.state.lock();
        state.refresh(&self.store);
        let found = state.bindings_of(user).find(|(binding, _)| {
            (binding.namespace.is_empty() || (asked.is_resource && binding.namespace == asked.namespace))
                && state.rules_of(binding).iter().any(|rule| rule.allows(asked))
        });
        found.map(|(binding, subject)| binding.words(subject))
    }

    /// Returns all rules that a user has in a namespace.
    pub fn rules(&self, user: &UserInfo, namespace: &str) -> Vec<Rule> {
        let mut state = self.state.lock();
        state.refresh(&self.store);
        let bindings = state.bindings_of(user).map(|(binding, _)| binding);
        let own = bindings.filter(|binding| binding.namespace.is_empty() || binding.namespace == namespace);
        let mut rules: Vec<Rule> = Vec::new();
        for rule in own.flat_map(|binding| state.rules_of(binding).iter()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
        rules
    }

    /// Returns the rules of a role; the namespace counts for roles of a namespace.
    pub fn role(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<[Rule]>> {
        let mut state = self.state.lock();
        state.refresh(&self.store);
        state.roles.get(&role_key(kind, namespace, name)).cloned()
    }
}

impl State {
    /// Takes up what was written since the last time.
    fn refresh(&mut self, store: &SharedStore) {
        // Without a watch, or when too much has happened since, all is read again.
        let news = self.watch.as_mut().and_then(|watch| watch.drain().ok());
        let Some(events) = news else {
            if let Err(error) = self.load(store) {
                tracing::warn!(%error, "roles could not be read; nobody but administrators has rights");
                *self = Self::default();
            }
            return;
        };
        events.iter().for_each(|event| self.see(event));
    }

    fn load(&mut self, store: &SharedStore) -> Result<(), StoreError> {
        *self = Self::default();
        let listing = store.list(&ListRequest { prefix: PREFIX, ..ListRequest::default() })?;
        self.watch = Some(store.watch(PREFIX, listing.revision)?);
        for Entry { key, value, .. } in &listing.entries {
            self.put(key, &value.bytes());
        }
        Ok(())
    }

    fn see(&mut self, event: &Event) {
        self.remove(&event.key);
        if event.kind != EventKind::Deleted {
            self.put(&event.key, &event.object());
        }
    }

    fn remove(&mut self, key: &str) {
        self.roles.remove(key);
        let Some(binding) = self.bindings.remove(key) else { return };
        for (subject, _) in &binding.subjects {
            if let Some(keys) = self.by_subject.get_mut(subject) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_subject.remove(subject);
                }
            }
        }
    }

    fn put(&mut self, key: &str, bytes: &[u8]) {
        let Ok(object) = parse(bytes) else { return };
        if text(&object, "/kind").ends_with("Role") {
            self.roles.insert(key.to_owned(), Rule::all(&object).into());
            return;
        }
        let binding = Binding::read(&object);
        for (subject, _) in &binding.subjects {
            self.by_subject.entry(subject.clone()).or_default().insert(key.to_owned());
        }
        self.bindings.insert(key.to_owned(), Arc::new(binding));
    }

    /// Returns a user's bindings, those of the whole cluster first, each with the subject's name.
    fn bindings_of(&self, user: &UserInfo) -> impl Iterator<Item = (&Binding, &str)> {
        let subjects =
            std::iter::once(format!("u:{}", user.name)).chain(user.groups.iter().map(|group| format!("g:{group}")));
        let mut found: Vec<(&Binding, &str)> = Vec::new();
        for subject in subjects {
            let keys = self.by_subject.get(&subject).into_iter().flatten();
            for binding in keys.filter_map(|key| self.bindings.get(key)) {
                let shown = binding.subjects.iter().find(|(own, _)| *own == subject);
                found.push((binding, shown.map_or("", |(_, shown)| shown.as_str())));
            }
        }
        found.sort_by_key(|(binding, _)| !binding.namespace.is_empty());
        found.into_iter()
    }

    fn rules_of(&self, binding: &Binding) -> &[Rule] {
        let key = role_key(&binding.role_kind, &binding.namespace, &binding.role_name);
        self.roles.get(&key).map_or(&[], |rules| rules)
    }
}

fn role_key(kind: &str, namespace: &str, name: &str) -> String {
    match kind {
        "ClusterRole" => format!("{PREFIX}clusterroles/{name}"),
        _ => format!("{PREFIX}roles/{namespace}/{name}"),
    }
}

impl Binding {
    fn read(object: &Value) -> Self {
        let subjects = list(object, "/subjects").iter().map(|subject| {
            let name = text(subject, "/name");
            match text(subject, "/kind") {
                "Group" => (format!("g:{name}"), format!("Group {name:?}")),
                "ServiceAccount" => {
                    let namespace = text(subject, "/namespace");
                    let shown = format!("ServiceAccount \"{name}/{namespace}\"");
                    (format!("u:system:serviceaccount:{namespace}:{name}"), shown)
                }
                _ => (format!("u:{name}"), format!("User {name:?}")),
            }
        });
        Self {
            namespace: meta(object, "namespace").to_owned(),
            name: meta(object, "name").to_owned(),
            role_kind: text(object, "/roleRef/kind").to_owned(),
            role_name: text(object, "/roleRef/name").to_owned(),
            subjects: subjects.collect(),
        }
    }

    fn words(&self, subject: &str) -> String {
        let Self { namespace, name, role_kind, role_name, .. } = self;
        let binding = if namespace.is_empty() {
            format!("ClusterRoleBinding {name:?}")
        } else {
            format!("RoleBinding \"{name}/{namespace}\"")
        };
        format!("RBAC: allowed by {binding} of {role_kind} {role_name:?} to {subject}")
    }
}
