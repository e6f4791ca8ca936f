//! Which container a control group belongs to. Pure.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus};
use longshore_host::kmsg::MemoryKill;

use crate::event::ContainerGroup;
use crate::model::{ContainerId, PodView};

/// The container in which something was killed.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) pod: &'a PodView,
    pub(super) group: ContainerGroup,
    pub(super) container: &'a str,
    /// Whether that instance has ended, and its status says that it was for memory.
    pub(super) ended_of_it: bool,
    id: String,
}

/// The id in a part of a group's path: plain, or as a scope of systemd (`cri-containerd-<id>.scope`).
fn id(part: &str) -> &str {
    part.strip_suffix(".scope").map_or(part, |scope| scope.rsplit_once('-').map_or(scope, |(_, id)| id))
}

/// The container of a group, as its path tells.
pub(super) fn container(group: &str) -> Option<ContainerId> {
    group.rsplit('/').map(id).find(|part| !part.is_empty()).map(ContainerId::from)
}

/// Finds the container of a group among those that pods show. Containers may have groups of their own below theirs.
pub(super) fn find<'a>(group: &str, pods: &'a [PodView]) -> Option<Place<'a>> {
    let parts: Vec<&str> = group.rsplit('/').map(id).filter(|part| !part.is_empty()).collect();
    for pod in pods {
        let Some(status) = pod.status.as_deref() else { continue };
        let lists = [
            (ContainerGroup::Init, &status.init_container_statuses),
            (ContainerGroup::Main, &status.container_statuses),
            (ContainerGroup::Ephemeral, &status.ephemeral_container_statuses),
        ];
        for (group, list) in lists {
            for shown in list.iter().flatten() {
                if let Some((id, ended)) = instance(shown, &parts) {
                    let ended_of_it =
                        ended.is_some_and(|end| end.exit_code != 0 && end.reason.as_deref() == Some("OOMKilled"));
                    return Some(Place { pod, group, container: &shown.name, ended_of_it, id: id.to_owned() });
                }
            }
        }
    }
    None
}

/// The instance of a container that is one of these, and its end.
fn instance<'a>(shown: &'a ContainerStatus, ids: &[&str]) -> Option<(&'a str, Option<&'a ContainerStateTerminated>)> {
    let bare = |id: &'a String| id.rsplit_once("//").map_or(id.as_str(), |(_, id)| id);
    let ends = [&shown.state, &shown.last_state].into_iter().filter_map(|state| state.as_ref()?.terminated.as_ref());
    let mut ended = ends.filter_map(|end| Some((bare(end.container_id.as_ref()?), Some(end))));
    if let Some(found) = ended.find(|(id, _)| ids.contains(id)) {
        return Some(found);
    }
    let id = bare(shown.container_id.as_ref()?);
    ids.contains(&id).then_some((id, None))
}

impl Place<'_> {
    /// What is told.
    pub(super) fn text(&self, kill: &MemoryKill) -> String {
        let uid = self.pod.desired.uid.as_str();
        let reached = match &kill.bound {
            None => "the node had no memory left",
            Some(bound) if bound.contains(&self.id) => "the memory limit of its container was reached",
            Some(bound) if bound.contains(uid) || bound.contains(&uid.replace('-', "_")) => {
                "the memory limit of its pod was reached"
            }
            Some(_) => "the memory limit of all pods was reached",
        };
        format!("Process {} (pid {}) was killed: {reached}", kill.process, kill.pid)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{DesiredPod, PodKey, PodUid, SourceKind};

    fn view(status: Value) -> PodView {
        PodView {
            desired: DesiredPod {
                uid: PodUid::from("u-1"),
                key: PodKey::new("ns", "p"),
                pod: Arc::default(),
                source: SourceKind::Api,
                seen: Timestamp::UNIX_EPOCH,
            },
            status: Some(Arc::new(serde_json::from_value(status).unwrap())),
            mirror: None,
        }
    }

    fn shown(name: &str, state: &Value) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state,
            "containerID": format!("containerd://0{name}")})
    }

    fn kill(group: &str, bound: Option<&str>) -> MemoryKill {
        MemoryKill { process: "tail".into(), pid: 7, group: group.into(), bound: bound.map(str::to_owned) }
    }

    #[test]
    fn the_group_of_either_driver_and_one_below_it_lead_to_the_container() {
        let pods = [view(
            json!({"containerStatuses": [shown("a", &json!({"running": {}})), shown("b", &json!({"running": {}}))]}),
        )];
        for group in
            ["/kubepods/podu-1/0b", "/k.slice/k-podu_1.slice/cri-containerd-0b.scope", "/kubepods/podu-1/0b/init.scope"]
        {
            assert_eq!(find(group, &pods).unwrap().container, "b", "{group}");
        }
        assert_eq!(id("cri-containerd-0a1b.scope"), "0a1b");
        assert!(find("/kubepods/podu-1/other", &pods).is_none());
        assert_eq!(container("/kubepods/podu-1/0b/"), Some(ContainerId::from("0b")));
    }

    #[test]
    fn whose_limit_was_reached_is_told() {
        let pods = [view(json!({"initContainerStatuses": [shown("a", &json!({"running": {}}))]}))];
        let place = find("/kubepods/podu-1/0a", &pods).unwrap();
        assert_eq!(place.group, ContainerGroup::Init);
        let text = |bound| place.text(&kill("/kubepods/podu-1/0a", bound));
        assert_eq!(
            text(Some("/kubepods/podu-1/0a")),
            "Process tail (pid 7) was killed: the memory limit of its container was reached"
        );
        assert!(text(Some("/kubepods/podu-1")).ends_with("the memory limit of its pod was reached"));
        assert!(text(Some("/kubepods")).ends_with("the memory limit of all pods was reached"));
        assert!(text(None).ends_with("the node had no memory left"));
    }

    #[test]
    fn what_ended_its_container_is_in_the_status_and_what_a_container_outlived_is_not() {
        let end = |code: i32, reason: &str| {
            let end = json!({"terminated": {"exitCode": code, "reason": reason, "containerID": "containerd://0a"}});
            let pods = [view(json!({"containerStatuses": [shown("a", &end)]}))];
            find("/kubepods/podu-1/0a", &pods).unwrap().ended_of_it
        };
        assert!(end(137, "OOMKilled"));
        assert!(!end(0, "OOMKilled"));
        assert!(!end(1, "Error"));
    }
}
