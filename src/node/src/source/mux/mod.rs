//! Joins the sources: passes on what changed, stamps where and when a pod was seen, and says when every source has
//! delivered its first full set. Owns the desired set as the sources see it; never waits.
//!
//! A source replaces its set ([`Mux::replace`]) or changes single pods ([`Mux::apply`], [`Mux::remove`]). What fails in a
//! source never reaches the mux: no news is not an empty set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_util::clock::SharedClock;
use parking_lot::Mutex;

use crate::event::{EventRecorder, EventTarget};
use crate::model::annotations::{CONFIG_SEEN, CONFIG_SOURCE, revision};
use crate::model::{DesiredPod, PodChange, PodKey, PodSink, PodUid, SourceKind};

/// The join of all sources.
#[derive(Debug)]
pub(crate) struct Mux {
    sink: Arc<dyn PodSink>,
    clock: SharedClock,
    events: EventRecorder,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Sources that have not delivered a first full set.
    silent: BTreeSet<SourceKind>,
    announced: bool,
    pods: BTreeMap<PodUid, DesiredPod>,
    /// Which pod has a full name.
    names: BTreeMap<PodKey, PodUid>,
    /// Pods that wait because another has their name or uid, with what they are.
    shadowed: Vec<DesiredPod>,
}

/// What a new version of a pod changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    None,
    Status,
    Spec,
}

impl Mux {
    /// Returns a mux for the sources that are configured. Without any, everything has been said at once.
    pub(crate) fn new(
        sources: impl IntoIterator<Item = SourceKind>,
        sink: Arc<dyn PodSink>,
        clock: SharedClock,
        events: EventRecorder,
    ) -> Self {
        let state = State {
            silent: sources.into_iter().collect(),
            announced: false,
            pods: BTreeMap::new(),
            names: BTreeMap::new(),
            shadowed: Vec::new(),
        };
        let mux = Self { sink, clock, events, state: Mutex::new(state) };
        mux.announce(&mut mux.state.lock());
        mux
    }

    /// Takes the full set of a source, in its order; its first one counts as its word.
    pub(crate) fn replace(&self, source: SourceKind, pods: Vec<Pod>) {
        let mut state = self.state.lock();
        let named: BTreeSet<(&str, PodKey)> =
            pods.iter().filter_map(|pod| Some((pod.metadata.uid.as_deref()?, PodKey::of(pod)?))).collect();
        // A uid that came back under another name is another pod.
        let is_gone =
            |held: &DesiredPod| held.source == source && !named.contains(&(held.uid.as_str(), held.key.clone()));
        let gone: Vec<PodUid> = state.pods.values().filter(|held| is_gone(held)).map(|held| held.uid.clone()).collect();
        state.shadowed.retain(|held| !is_gone(held));
        for uid in gone {
            self.take_out(&mut state, source, &uid);
        }
        // In the order of the source, so that the first of a name has it; those that waited come after that.
        for pod in pods {
            self.put_in(&mut state, source, pod);
        }
        self.let_in(&mut state);
        state.silent.remove(&source);
        self.announce(&mut state);
    }

    /// Whether a source has delivered a first full set.
    pub(crate) fn has_spoken(&self, source: SourceKind) -> bool {
        !self.state.lock().silent.contains(&source)
    }

    /// Takes pods as a silent source last had them; its first full set replaces them. Returns whether it was still silent.
    pub(crate) fn recall(&self, source: SourceKind, pods: Vec<Pod>) -> bool {
        let mut state = self.state.lock();
        let is_silent = state.silent.contains(&source);
        if is_silent {
            pods.into_iter().for_each(|pod| self.put_in(&mut state, source, pod));
        }
        is_silent
    }

    /// Takes one new or changed pod of a source.
    pub(crate) fn apply(&self, source: SourceKind, pod: Pod) {
        self.put_in(&mut self.state.lock(), source, pod);
    }

    /// Takes one pod of a source away.
    pub(crate) fn remove(&self, source: SourceKind, uid: &PodUid) {
        let mut state = self.state.lock();
        state.shadowed.retain(|held| held.source != source || held.uid != *uid);
        self.take_out(&mut state, source, uid);
        self.let_in(&mut state);
    }

    fn announce(&self, state: &mut State) {
        if state.silent.is_empty() && !state.announced {
            state.announced = true;
            tracing::info!(pods = state.pods.len(), "every source has delivered its pods");
            self.sink.apply(PodChange::AllSourcesReady);
        }
    }

    fn put_in(&self, state: &mut State, source: SourceKind, pod: Pod) {
        let Some(key) = PodKey::of(&pod) else { return };
        let Some(uid) = pod.metadata.uid.as_deref().map(PodUid::from) else { return };
        if let Some(held) = state.pods.get(&uid) {
            if held.source != source || held.key != key {
                self.shadow(state, self.desired(source, uid, key, pod, None));
                return;
            }
            if source.is_static() && revision(&held.pod) != revision(&pod) {
                // Under its old uid, but what the old manifest made has to end first.
                self.take_out(state, source, &uid);
                let desired = self.desired(source, uid, key, pod, None);
                self.admit(state, desired);
                return;
            }
            let difference = difference(&held.pod, &pod);
            if difference == Difference::None {
                return;
            }
            let desired = self.desired(source, uid.clone(), key, pod, Some(held.seen));
            state.pods.insert(uid, desired.clone());
            self.sink.apply(if difference == Difference::Status {
                PodChange::Status(desired)
            } else {
                PodChange::Set(desired)
            });
            return;
        }
        let owner = state.names.get(&key).cloned();
        if let Some(owner) = owner {
            let is_successor =
                source == SourceKind::Api && state.pods.get(&owner).is_some_and(|held| held.source == source);
            if !is_successor {
                self.shadow(state, self.desired(source, uid, key, pod, None));
                return;
            }
            // The API holds one pod of a name: a new uid means that the old one is gone, also when nobody said so.
            self.take_out(state, source, &owner);
        }
        let desired = self.desired(source, uid, key, pod, None);
        self.admit(state, desired);
    }

    fn admit(&self, state: &mut State, desired: DesiredPod) {
        state.shadowed.retain(|held| !is_same(held, &desired));
        state.names.insert(desired.key.clone(), desired.uid.clone());
        state.pods.insert(desired.uid.clone(), desired.clone());
        self.sink.apply(PodChange::Set(desired));
    }

    fn take_out(&self, state: &mut State, source: SourceKind, uid: &PodUid) {
        let Some(held) = state.pods.get(uid).filter(|held| held.source == source).cloned() else { return };
        state.pods.remove(uid);
        state.names.remove(&held.key);
        self.sink.apply(PodChange::Remove(uid.clone()));
    }

    /// Those that waited for a name or a uid that is free now come in.
    fn let_in(&self, state: &mut State) {
        let is_free = |state: &State, held: &DesiredPod| {
            !state.names.contains_key(&held.key) && !state.pods.contains_key(&held.uid)
        };
        while let Some(index) = state.shadowed.iter().position(|held| is_free(state, held)) {
            let desired = state.shadowed.remove(index);
            self.admit(state, desired);
        }
    }

    /// Keeps a pod aside whose full name or uid is taken; says so once.
    fn shadow(&self, state: &mut State, desired: DesiredPod) {
        let known = state.shadowed.iter().position(|held| is_same(held, &desired));
        if let Some(index) = known {
            state.shadowed[index] = desired;
            return;
        }
        let full_name = format!("{}_{}", desired.key.name, desired.key.namespace);
        let source = desired.source.as_str();
        let message =
            format!("Error validating pod {full_name} from {source} due to duplicate pod name {full_name:?}, ignoring");
        tracing::warn!(pod = %desired.key, uid = %desired.uid, source, "name or uid of another pod, ignored");
        self.events.warning(&EventTarget::pod_object(&desired.pod), "FailedValidation", message);
        state.shadowed.push(desired);
    }

    fn desired(
        &self,
        source: SourceKind,
        uid: PodUid,
        key: PodKey,
        mut pod: Pod,
        seen: Option<Timestamp>,
    ) -> DesiredPod {
        let seen = seen.unwrap_or_else(|| self.clock.now());
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_SOURCE.to_owned(), source.as_str().to_owned());
        annotations.insert(CONFIG_SEEN.to_owned(), seen.to_string());
        DesiredPod { uid, key, pod: Arc::new(pod), source, seen }
    }
}

/// Says whether both are the same pod of the same source.
fn is_same(one: &DesiredPod, other: &DesiredPod) -> bool {
    one.source == other.source && one.uid == other.uid && one.key == other.key
}

/// Compares what was passed on (with our stamps) to what came in now.
fn difference(old: &Pod, new: &Pod) -> Difference {
    let (before, after) = (&old.metadata, &new.metadata);
    let own = |key: &String| key == CONFIG_SOURCE || key == CONFIG_SEEN;
    let notes = |pod: &Pod| -> Vec<(String, String)> {
        let notes = pod.metadata.annotations.iter().flatten().filter(|(key, _)| !own(key));
        notes.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let labels = |pod: &Pod| pod.metadata.labels.clone().unwrap_or_default();
    let same = old.spec == new.spec
        && labels(old) == labels(new)
        && notes(old) == notes(new)
        && before.deletion_timestamp == after.deletion_timestamp
        && before.deletion_grace_period_seconds == after.deletion_grace_period_seconds;
    match (same, old.status == new.status) {
        (false, _) => Difference::Spec,
        (true, false) => Difference::Status,
        (true, true) => Difference::None,
    }
}

#[cfg(test)]
mod tests;
