//! Termination messages of a pod share one bound, so that a pod of many containers does not make a status of any size.

use k8s_openapi::api::core::v1::{ContainerState, Pod, PodStatus};

/// Bytes of all termination messages of a pod together.
const ALL: usize = 12 * 1024;

/// Cuts each termination message to its container's share; the beginning stays.
pub fn bound_messages(pod: &Pod, status: &mut PodStatus) {
    let Some(spec) = &pod.spec else { return };
    let init = spec.init_containers.as_ref().map_or(0, Vec::len);
    let ephemeral = spec.ephemeral_containers.as_ref().map_or(0, Vec::len);
    let share = ALL / (spec.containers.len() + init + ephemeral).max(1);
    let lists =
        [&mut status.container_statuses, &mut status.init_container_statuses, &mut status.ephemeral_container_statuses];
    for container in lists.into_iter().flatten().flatten() {
        for state in [&mut container.state, &mut container.last_state].into_iter().flatten() {
            bound(state, share);
        }
    }
}

fn bound(state: &mut ContainerState, share: usize) {
    if let Some(message) = state.terminated.as_mut().and_then(|ended| ended.message.as_mut())
        && message.len() > share
    {
        let mut end = share;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_container_gets_its_share_and_no_character_is_cut() {
        let containers: Vec<_> = (0..4).map(|number| json!({"name": format!("c{number}")})).collect();
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": containers}})).unwrap();
        let ended = |text: &str| json!({"terminated": {"exitCode": 1, "message": text}});
        let statuses: Vec<_> = ["x".repeat(5000), "\u{20ac}".repeat(2000), "short".to_owned()]
            .into_iter()
            .map(|text| {
                json!({
                    "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": ended(&text), "lastState": ended(&text),
                })
            })
            .collect();
        let mut status: PodStatus = serde_json::from_value(json!({ "containerStatuses": statuses })).unwrap();
        bound_messages(&pod, &mut status);
        let length = |state: &Option<ContainerState>| {
            state.as_ref().unwrap().terminated.as_ref().unwrap().message.as_ref().unwrap().len()
        };
        let lengths: Vec<usize> =
            status.container_statuses.unwrap().iter().flat_map(|c| [length(&c.state), length(&c.last_state)]).collect();
        assert_eq!(lengths, [3072, 3072, 3072, 3072, 5, 5]);
    }

    #[test]
    fn one_container_may_say_all_it_can() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [{"name": "c"}]}})).unwrap();
        let text = "x".repeat(4096);
        let mut status: PodStatus = serde_json::from_value(json!({"containerStatuses": [{
            "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 1, "message": text}},
        }]}))
        .unwrap();
        let before = status.clone();
        bound_messages(&pod, &mut status);
        assert_eq!(status, before);
    }
}
