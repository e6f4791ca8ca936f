//! The states of sandboxes and containers as last heard, and what differs from them. Pure.

use std::collections::{BTreeSet, HashMap};

use longshore_cri::v1;

use super::read::owner;
use crate::model::PodUid;

/// One sandbox or container. The kind is part of the state, as ids of both live in one space.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    uid: PodUid,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Sandbox(i32),
    Container(i32),
}

impl State {
    /// Whether it can change without anybody asking for it.
    fn is_alive(self) -> bool {
        match self {
            Self::Sandbox(state) => state == i32::from(v1::PodSandboxState::SandboxReady),
            Self::Container(state) => state != i32::from(v1::ContainerState::ContainerExited),
        }
    }
}

/// Both lists of one look at the runtime.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) sandboxes: Vec<v1::PodSandbox>,
    pub(super) containers: Vec<v1::Container>,
}

/// What an event tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// This pod changed.
    Changed(PodUid),
    /// Nothing that was not known.
    Known,
    /// Something of a pod that is not known: only a relist can tell which.
    Unclear,
}

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: HashMap<String, Row>,
}

impl Table {
    /// Whether anything lives that may change by itself.
    pub(super) fn has_life(&self) -> bool {
        self.rows.values().any(|row| row.state.is_alive())
    }

    /// All pods of which something is known.
    pub(super) fn pods(&self) -> BTreeSet<PodUid> {
        self.rows.values().map(|row| row.uid.clone()).collect()
    }

    /// Takes a full look; returns the pods that differ from what was known.
    pub(super) fn relisted(&mut self, snapshot: Snapshot) -> BTreeSet<PodUid> {
        let mut changed = BTreeSet::new();
        let mut rows = HashMap::with_capacity(snapshot.sandboxes.len() + snapshot.containers.len());
        let sandboxes = snapshot.sandboxes.into_iter().map(|row| (row.id, row.labels, State::Sandbox(row.state)));
        let containers = snapshot.containers.into_iter().map(|row| (row.id, row.labels, State::Container(row.state)));
        for (id, labels, state) in sandboxes.chain(containers) {
            let row = match self.rows.remove(&id) {
                Some(row) if row.state == state => row,
                old => {
                    // What has no pod is not ours.
                    let Some(uid) = old.map(|row| row.uid).or_else(|| owner(&labels)) else { continue };
                    changed.insert(uid.clone());
                    Row { uid, state }
                }
            };
            rows.insert(id, row);
        }
        // What is left over is gone from the runtime.
        changed.extend(self.rows.drain().map(|(_, row)| row.uid));
        self.rows = rows;
        changed
    }

    /// Takes an event. Its pod counts as changed even where the state is known, if the event is about an end or a
    /// removal: the worker may be waiting for it.
    pub(super) fn told(&mut self, event: &v1::ContainerEventResponse) -> News {
        let deleted = event.container_event_type() == v1::ContainerEventType::ContainerDeletedEvent;
        let sandbox = event.pod_sandbox_status.as_ref();
        let known = self.rows.get(&event.container_id).map(|row| row.uid.clone());
        let Some(uid) = sandbox.and_then(|sandbox| owner(&sandbox.labels)).or(known) else {
            // An end without an owner that is known: perhaps of one that is not ours, perhaps of one not listed yet.
            let ours_unknown = sandbox.is_none() && !deleted;
            return if ours_unknown { News::Unclear } else { News::Known };
        };
        let mut changed = false;
        if let Some(sandbox) = sandbox {
            changed |= self.set(&sandbox.id, &uid, State::Sandbox(sandbox.state));
        }
        for container in &event.containers_statuses {
            changed |= self.set(&container.id, &uid, State::Container(container.state));
        }
        if deleted {
            changed |= self.rows.remove(&event.container_id).is_some();
        }
        let ended = event.container_event_type() == v1::ContainerEventType::ContainerStoppedEvent;
        if changed || deleted || ended { News::Changed(uid) } else { News::Known }
    }

    fn set(&mut self, id: &str, uid: &PodUid, state: State) -> bool {
        match self.rows.get_mut(id) {
            Some(row) if row.state == state => false,
            Some(row) => {
                row.state = state;
                true
            }
            None => {
                self.rows.insert(id.to_owned(), Row { uid: uid.clone(), state });
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use longshore_cri::labels::POD_UID;

    use super::*;

    const RUNNING: v1::ContainerState = v1::ContainerState::ContainerRunning;
    const EXITED: v1::ContainerState = v1::ContainerState::ContainerExited;

    fn of(uid: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(POD_UID.to_owned(), uid.to_owned())])
    }

    fn sandbox(id: &str, uid: &str) -> v1::PodSandbox {
        v1::PodSandbox { id: id.to_owned(), labels: of(uid), ..Default::default() }
    }

    fn container(id: &str, uid: &str, state: v1::ContainerState) -> v1::Container {
        v1::Container { id: id.to_owned(), labels: of(uid), state: state.into(), ..Default::default() }
    }

    fn look(sandboxes: Vec<v1::PodSandbox>, containers: Vec<v1::Container>) -> Snapshot {
        Snapshot { sandboxes, containers }
    }

    fn uids(list: &[&str]) -> BTreeSet<PodUid> {
        list.iter().map(|uid| PodUid::from(*uid)).collect()
    }

    #[test]
    fn what_is_new_other_or_gone_is_a_change_and_nothing_else() {
        let mut table = Table::default();
        let first = || look(vec![sandbox("s1", "a"), sandbox("s2", "b")], vec![container("c1", "a", RUNNING)]);
        assert_eq!(table.relisted(first()), uids(&["a", "b"]));
        assert_eq!(table.relisted(first()), uids(&[]));
        let exited = look(vec![sandbox("s1", "a"), sandbox("s2", "b")], vec![container("c1", "a", EXITED)]);
        assert_eq!(table.relisted(exited), uids(&["a"]));
        let gone = look(vec![sandbox("s1", "a")], vec![container("c1", "a", EXITED)]);
        assert_eq!(table.relisted(gone), uids(&["b"]));
    }

    #[test]
    fn what_has_no_pod_is_not_ours() {
        let mut table = Table::default();
        let stranger = v1::PodSandbox { id: "x".to_owned(), ..Default::default() };
        assert_eq!(table.relisted(look(vec![stranger], Vec::new())), uids(&[]));
        assert!(!table.has_life());
    }

    #[test]
    fn an_event_spares_the_relist_its_change() {
        let mut table = Table::default();
        table.relisted(look(vec![sandbox("s1", "a")], vec![container("c1", "a", RUNNING)]));
        let event = v1::ContainerEventResponse {
            container_id: "c1".to_owned(),
            container_event_type: v1::ContainerEventType::ContainerStoppedEvent.into(),
            pod_sandbox_status: Some(v1::PodSandboxStatus {
                id: "s1".to_owned(),
                labels: of("a"),
                ..Default::default()
            }),
            containers_statuses: vec![v1::ContainerStatus {
                id: "c1".to_owned(),
                state: EXITED.into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        assert_eq!(table.told(&event), News::Changed("a".into()));
        assert_eq!(table.relisted(look(vec![sandbox("s1", "a")], vec![container("c1", "a", EXITED)])), uids(&[]));
        assert!(table.has_life(), "the sandbox is still ready");
    }

    #[test]
    fn an_event_without_the_pods_state_is_traced_by_the_id_or_by_a_relist() {
        let mut table = Table::default();
        table.relisted(look(Vec::new(), vec![container("c1", "a", RUNNING)]));
        let bare = |id: &str| v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: v1::ContainerEventType::ContainerStoppedEvent.into(),
            ..Default::default()
        };
        assert_eq!(table.told(&bare("c1")), News::Changed("a".into()));
        assert_eq!(table.told(&bare("c2")), News::Unclear);
    }
}
