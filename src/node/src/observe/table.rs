//! The states of sandboxes and containers as last heard, and what differs from them. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longshore_cri::{labels, v1};

use crate::model::PodUid;

/// One sandbox or container.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    uid: PodUid,
    state: i32,
}

type Rows = HashMap<String, Row>;
type Labels = BTreeMap<String, String>;

/// The pod to which a row belongs.
pub(super) fn owner(labels: &Labels) -> Option<PodUid> {
    labels.get(labels::POD_UID).filter(|uid| !uid.is_empty()).map(|uid| PodUid::from(uid.as_str()))
}

/// One look at the runtime.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// `None` where only containers were looked at.
    pub(super) sandboxes: Option<Vec<v1::PodSandbox>>,
    pub(super) containers: Vec<v1::Container>,
}

/// What a look found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Diff {
    /// Pods of which something ended or is gone. What came to life was brought to life by the pod's own worker, which
    /// knows it from the runtime's answers: waking it for that would only make it look twice.
    pub(super) ended: BTreeSet<PodUid>,
    /// Whether anything at all differs.
    pub(super) any: bool,
}

/// What an event tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Something of this pod ended or is gone.
    Ended(PodUid),
    /// Nothing that its worker does not know.
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

/// Which states are ends: those that nobody need have asked for.
type IsEnd = fn(i32) -> bool;

fn sandbox_ended(state: i32) -> bool {
    state != i32::from(v1::PodSandboxState::SandboxReady)
}

fn container_ended(state: i32) -> bool {
    state != i32::from(v1::ContainerState::ContainerCreated) && state != i32::from(v1::ContainerState::ContainerRunning)
}

/// Replaces what is known by what was listed.
fn replace(rows: &mut Rows, listed: impl Iterator<Item = (String, Labels, i32)>, is_end: IsEnd, diff: &mut Diff) {
    let mut old = std::mem::take(rows);
    for (id, labels, state) in listed {
        let row = match old.remove(&id) {
            Some(row) if row.state == state => row,
            other => {
                // What has no pod is not ours.
                let Some(uid) = other.map(|row| row.uid).or_else(|| owner(&labels)) else { continue };
                diff.any = true;
                if is_end(state) {
                    diff.ended.insert(uid.clone());
                }
                Row { uid, state }
            }
        };
        rows.insert(id, row);
    }
    // What is left over is gone from the runtime.
    diff.any |= !old.is_empty();
    diff.ended.extend(old.into_values().map(|row| row.uid));
}

/// Notes one state; says whether it is an end that was not known.
fn set(rows: &mut Rows, id: &str, uid: &PodUid, state: i32, is_end: IsEnd) -> bool {
    let old = rows.insert(id.to_owned(), Row { uid: uid.clone(), state });
    is_end(state) && old.is_none_or(|row| row.state != state)
}

impl Table {
    /// All pods of which something is known.
    pub(super) fn pods(&self) -> BTreeSet<PodUid> {
        self.sandboxes.values().chain(self.containers.values()).map(|row| row.uid.clone()).collect()
    }

    /// Takes a look; returns what differs from what was known.
    pub(super) fn relisted(&mut self, snapshot: Snapshot) -> Diff {
        let mut diff = Diff::default();
        if let Some(sandboxes) = snapshot.sandboxes {
            let listed = sandboxes.into_iter().map(|row| (row.id, row.labels, row.state));
            replace(&mut self.sandboxes, listed, sandbox_ended, &mut diff);
        }
        let listed = snapshot.containers.into_iter().map(|row| (row.id, row.labels, row.state));
        replace(&mut self.containers, listed, container_ended, &mut diff);
        diff
    }

    /// Takes an event. An end or a removal counts even where it is known already: the worker may be waiting for it.
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
        let mut ended = deleted || event.container_event_type() == v1::ContainerEventType::ContainerStoppedEvent;
        if let Some(sandbox) = sandbox {
            ended |= set(&mut self.sandboxes, &sandbox.id, &uid, sandbox.state, sandbox_ended);
        }
        for container in &event.containers_statuses {
            ended |= set(&mut self.containers, &container.id, &uid, container.state, container_ended);
        }
        if deleted {
            self.containers.remove(&event.container_id);
            self.sandboxes.remove(&event.container_id);
        }
        if ended { News::Ended(uid) } else { News::Known }
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

    fn diff(any: bool, ended: &[&str]) -> Diff {
        Diff { ended: uids(ended), any }
    }

    #[test]
    fn what_ended_or_is_gone_is_told_and_what_came_to_life_is_noted() {
        let mut table = Table::default();
        let first = || look(vec![sandbox("s1", "a"), sandbox("s2", "b")], vec![container("c1", "a", RUNNING)]);
        assert_eq!(table.relisted(first()), diff(true, &[]));
        assert_eq!(table.relisted(first()), diff(false, &[]));
        assert_eq!(table.pods(), uids(&["a", "b"]));
        let exited = look(vec![sandbox("s1", "a"), sandbox("s2", "b")], vec![container("c1", "a", EXITED)]);
        assert_eq!(table.relisted(exited), diff(true, &["a"]));
        let gone = look(vec![sandbox("s1", "a")], vec![container("c1", "a", EXITED)]);
        assert_eq!(table.relisted(gone), diff(true, &["b"]));
        let came_and_went =
            look(vec![sandbox("s1", "a")], vec![container("c1", "a", EXITED), container("c2", "a", EXITED)]);
        assert_eq!(table.relisted(came_and_went), diff(true, &["a"]), "an end between two looks is seen");
    }

    #[test]
    fn a_look_at_containers_alone_leaves_sandboxes_as_they_were() {
        let mut table = Table::default();
        table.relisted(look(vec![sandbox("s1", "a")], vec![container("c1", "a", RUNNING)]));
        let containers = Snapshot { sandboxes: None, containers: vec![container("c1", "a", RUNNING)] };
        assert_eq!(table.relisted(containers), diff(false, &[]));
        assert_eq!(table.relisted(Snapshot::default()), diff(true, &["a"]), "the container is gone");
        assert_eq!(table.pods(), uids(&["a"]), "its sandbox is still known");
    }

    #[test]
    fn what_has_no_pod_is_not_ours() {
        let mut table = Table::default();
        let stranger = v1::PodSandbox { id: "x".to_owned(), ..Default::default() };
        assert_eq!(table.relisted(look(vec![stranger], Vec::new())), diff(false, &[]));
    }

    /// What the runtime tells of container `c1` of pod `a`.
    fn event(kind: v1::ContainerEventType, state: v1::ContainerState) -> v1::ContainerEventResponse {
        let id = |id: &str| id.to_owned();
        v1::ContainerEventResponse {
            container_id: id("c1"),
            container_event_type: kind.into(),
            pod_sandbox_status: Some(v1::PodSandboxStatus { id: id("s1"), labels: of("a"), ..Default::default() }),
            containers_statuses: vec![v1::ContainerStatus { id: id("c1"), state: state.into(), ..Default::default() }],
            ..Default::default()
        }
    }

    #[test]
    fn an_event_spares_the_relist_its_change() {
        let mut table = Table::default();
        table.relisted(look(vec![sandbox("s1", "a")], vec![container("c1", "a", RUNNING)]));
        let event = event(v1::ContainerEventType::ContainerStoppedEvent, EXITED);
        assert_eq!(table.told(&event), News::Ended("a".into()));
        let after = look(vec![sandbox("s1", "a")], vec![container("c1", "a", EXITED)]);
        assert_eq!(table.relisted(after), diff(false, &[]));
    }

    #[test]
    fn an_event_of_a_birth_wakes_nobody_unless_it_shows_an_end() {
        let mut table = Table::default();
        let mut event = event(v1::ContainerEventType::ContainerStartedEvent, RUNNING);
        assert_eq!(table.told(&event), News::Known);
        let other = v1::ContainerStatus { id: "c0".to_owned(), state: EXITED.into(), ..Default::default() };
        event.containers_statuses.push(other);
        assert_eq!(table.told(&event), News::Ended("a".into()));
        assert_eq!(table.told(&event), News::Known);
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
        assert_eq!(table.told(&bare("c1")), News::Ended("a".into()));
        assert_eq!(table.told(&bare("c2")), News::Unclear);
    }
}
