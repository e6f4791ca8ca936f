//! The pods as people at the machine ask for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::table::{PodTable, Shown};
use crate::model::{ContainerNotes, LocalPods, PodUid};

impl Shown {
    /// What the status has no room for.
    pub(super) fn set_notes(&self, notes: BTreeMap<String, ContainerNotes>) {
        *self.notes.lock() = notes;
    }
}

impl LocalPods for PodTable {
    fn notes(&self, uid: &PodUid) -> BTreeMap<String, ContainerNotes> {
        self.state().pods.get(uid).map(|entry| entry.shown.notes.lock().clone()).unwrap_or_default()
    }

    fn retry(&self, uid: &PodUid) {
        let inbox = self.state().pods.get(uid).map(|entry| Arc::clone(&entry.inbox));
        if let Some(inbox) = inbox {
            inbox.retry();
        }
    }
}
