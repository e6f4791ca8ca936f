//! The states of sandboxes and containers as last heard, and what differs from them. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longshore_cri::v1;

use super::read::owner;
use crate::model::PodUid;

/// One sandbox or container.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    uid: PodUid,
    state: i32,
}

type Rows = HashMap<String, Row>;
type Labels = BTreeMap<String, String>;

/// One look at the runtime.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// `None` where only containers were looked at.
    pub(super) sandboxes: Option<Vec<v1::PodSandbox>>,
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
    sandboxes: Rows,
    containers: Rows,
}

/// Replaces what is known by what was listed; adds the pods that differ.
fn replace(rows: &mut Rows, listed: impl Iterator<Item = (String, Labels, i32)>, changed: &mut BTreeSet<PodUid>) {
    let mut old = std::mem::take(rows);
    for (id, labels, state) in listed {
        let row = match old.remove(&id) {
            Some(row) if row.state == state => row,
            other => {
                // What has no pod is not ours.
                let Some(uid) = other.map(|row| row.uid).or_else(|| owner(&labels)) else { continue };
                changed.insert(uid.clone());
                Row { uid, state }
            }
        };
        rows.insert(id, row);
    }
    // What is left over is gone from the runtime.
    changed.extend(old.into_values().map(|row| row.uid));
}

/// Notes one state; says whether it is news.
fn set(rows: &mut Rows, id: &str, uid: &PodUid, state: i32) -> bool {
    match rows.get_mut(id) {
        Some(row) if row.state == state => false,
        Some(row) => {
            row.state = state;
            true
        }
        None => {
            rows.insert(id.to_owned(), Row { uid: uid.clone(), state });
            true
        }
    }
}

impl Table {
    /// Whether anything lives that may change by itself.
    pub(super) fn has_life(&self) -> bool {
        let ready = i32::from(v1::PodSandboxState::SandboxReady);
        let exited = i32::from(v1::ContainerState::ContainerExited);
        self.sandboxes.values().any(|row| row.state == ready) || self.containers.values().any(|row| row.state != exited)
    }

    /// All pods of which something is known.
    pub(super) fn pods(&self) -> BTreeSet<PodUid> {
        self.sandboxes.values().chain(self.containers.values()).map(|row| row.uid.clone()).collect()
    }

    /// Takes a look; returns the pods that differ from what was known.
    pub(super) fn relisted(&mut self, snapshot: Snapshot) -> BTreeSet<PodUid> {
        let mut changed = BTreeSet::new();
        if let Some(sandboxes) = snapshot.sandboxes {
            let listed = sandboxes.into_iter().map(|row| (row.id, row.labels, row.state));
            replace(&mut self.sandboxes, listed, &mut changed);
        }
        let listed = snapshot.containers.into_iter().map(|row| (row.id, row.labels, row.state));
        replace(&mut self.containers, listed, &mut changed);
        changed
    }

    /// Takes an event. Its pod counts as changed even where the state is known, if the event is about an end or a
    /// removal: the worker may be waiting for it.
    pub(super) fn told(&mut self, event: &v1::ContainerEventResponse) -> News {
        let deleted = event.container_event_type() == v1::ContainerEventType::ContainerDeletedEvent;
        let sandbox = event.pod_sandbox_status.as_ref();
        let known = self.containers.get(&event.container_id).or_else(|| self.sandboxes.get(&event.container_id));
        let known = known.map(|row| row.uid.clone());
        let Some(uid) = sandbox.and_then(|sandbox| owner(&sandbox.labels)).or(known) else {
            // An end without an owner that is known: perhaps of one that is not ours, perhaps of one not listed yet.
            let ours_unknown = sandbox.is_none() && !deleted;
            return if ours_unknown { News::Unclear } else { News::Known };
        };
        let mut changed = false;
        if let Some(sandbox) = sandbox {
            changed |= set(&mut self.sandboxes, &sandbox.id, &uid, sandbox.state);
        }
        for container in &event.containers_statuses {
            changed |= set(&mut self.containers, &container.id, &uid, container.state);
        }
        if deleted {
            changed |= self.containers.remove(&event.container_id).is_some();
            changed |= self.sandboxes.remove(&event.container_id).is_some();
        }
        let ended = event.container_event_type() == v1::ContainerEventType::ContainerStoppedEvent;
        if changed || deleted || ended { News::Changed(uid) } else { News::Known }
    }
}

#[cfg(test)]
mod tests {
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
        Snapshot { sandboxes: Some(sandboxes), containers }
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
    fn a_look_at_containers_alone_leaves_sandboxes_as_they_were() {
        let mut table = Table::default();
        table.relisted(look(vec![sandbox("s1", "a")], vec![container("c1", "a", RUNNING)]));
        let containers = Snapshot { sandboxes: None, containers: vec![container("c1", "a", RUNNING)] };
        assert_eq!(table.relisted(containers), uids(&[]));
        assert!(table.has_life());
        assert_eq!(table.relisted(Snapshot::default()), uids(&["a"]), "the container is gone");
        assert_eq!(table.pods(), uids(&["a"]), "its sandbox is still known");
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
