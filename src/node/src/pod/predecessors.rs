//! Pods of an earlier agent that nobody wants any more, ended by ordinary workers: in the place of a static pod whose manifest
//! changed while no agent ran, or because their manifest is gone.

use std::sync::Arc;

use super::table::{Entry, PodTable, State};
use crate::journal::PodFacts;
use crate::model::{DesiredPod, PodUid};

impl PodTable {
    /// Ends pods of an earlier agent that have this static pod's name and come from the same source: it named its whole set
    /// just now, and they are not in it.
    pub(super) fn end_predecessors(&self, state: &mut State, desired: &DesiredPod) {
        let is_one = |uid: &PodUid, facts: &PodFacts| {
            *uid != desired.uid
                && facts.source == Some(desired.source)
                && !facts.ended
                && (&*facts.namespace, &*facts.name) == (&*desired.key.namespace, &*desired.key.name)
        };
        let old: Vec<PodUid> =
            state.found.iter().filter(|(uid, found)| is_one(uid, &found.facts)).map(|(uid, _)| uid.clone()).collect();
        for uid in old {
            // Its own manifest is gone; hooks and grace of the new one are the best guess.
            let mut pod = (*desired.pod).clone();
            pod.metadata.uid = Some(uid.to_string());
            tracing::info!(pod = %desired.key, %uid, "the manifest changed while no agent ran, the old pod ends first");
            self.leave(state, DesiredPod { uid, pod: Arc::new(pod), ..desired.clone() });
        }
    }

    /// Starts a worker that ends a pod of which only the journal and the runtime know.
    pub(super) fn leave(&self, state: &mut State, desired: DesiredPod) {
        let found = state.found.remove(&desired.uid).unwrap_or_default();
        let mut entry = Entry::new(&desired, state.mirrors.get(&desired.uid).cloned());
        entry.leaving = true;
        entry.inbox.remove();
        let uid = desired.uid.clone();
        // Of what it may have asked for it gets nothing any more.
        self.run(&mut entry, desired, found);
        state.pods.insert(uid, entry);
    }
}
