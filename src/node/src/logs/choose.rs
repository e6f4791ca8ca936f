//! Which instance of a container a reader means. Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

use crate::model::ContainerId;

/// Why there is nothing to read; the texts are upstream's and stand in the answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    /// No status of that container yet.
    #[error("container \"{container}\" in pod \"{pod}\" is not available")]
    NotAvailable {
        /// The container.
        container: String,
        /// Its pod.
        pod: String,
    },
    /// There is no instance before this one.
    #[error("previous terminated container \"{container}\" in pod \"{pod}\" not found")]
    NoPrevious {
        /// The container.
        container: String,
        /// Its pod.
        pod: String,
    },
    /// It ended without ever having had an id.
    #[error("container \"{container}\" in pod \"{pod}\" is terminated")]
    Terminated {
        /// The container.
        container: String,
        /// Its pod.
        pod: String,
    },
    /// It has not started.
    #[error("container \"{container}\" in pod \"{pod}\" is waiting to start{why}")]
    Waiting {
        /// The container.
        container: String,
        /// Its pod.
        pod: String,
        /// The waiting reason in upstream's words.
        why: String,
    },
}

/// Finds the id of the instance to read.
pub fn instance(status: &PodStatus, pod: &str, container: &str, previous: bool) -> Result<ContainerId, ChooseError> {
    let names = || (container.to_owned(), pod.to_owned());
    let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let found = lists.into_iter().flatten().flatten().find(|status| status.name == container);
    let Some(found) = found else {
        let (container, pod) = names();
        return Err(ChooseError::NotAvailable { container, pod });
    };
    let last = last_id(found);
    if previous {
        let (container, pod) = names();
        return last.ok_or(ChooseError::NoPrevious { container, pod });
    }
    let state = found.state.as_ref();
    if state.is_some_and(|state| state.running.is_some()) {
        let running = found.container_id.as_deref().and_then(bare_id);
        let (container, pod) = names();
        return running.ok_or(ChooseError::NotAvailable { container, pod });
    }
    let has_ended = state.and_then(|state| state.terminated.as_ref());
    let had_ended = found.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    if has_ended.is_some() || had_ended.is_some() {
        // An end without an id is one that never began: the one before it has the log.
        let id = has_ended.and_then(|ended| ended.container_id.as_deref()).and_then(bare_id).or(last);
        let (container, pod) = names();
        return id.ok_or(ChooseError::Terminated { container, pod });
    }
    let why = match state.and_then(|state| state.waiting.as_ref()) {
        Some(waiting) => match waiting.reason.as_deref().unwrap_or_default() {
            "ErrImagePull" => ": image can't be pulled".to_owned(),
            "ImagePullBackOff" => ": trying and failing to pull image".to_owned(),
            reason => format!(": {reason}"),
        },
        None => " - no logs available yet".to_owned(),
    };
    let (container, pod) = names();
    Err(ChooseError::Waiting { container, pod, why })
}

fn last_id(status: &ContainerStatus) -> Option<ContainerId> {
    let last = status.last_state.as_ref()?.terminated.as_ref()?;
    bare_id(last.container_id.as_deref()?)
}

/// `containerd://abc` → `abc`.
fn bare_id(id: &str) -> Option<ContainerId> {
    let bare = id.rsplit_once("://").map_or(id, |(_, bare)| bare);
    (!bare.is_empty()).then(|| ContainerId::from(bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(state: &serde_json::Value, last: &serde_json::Value, previous: bool) -> Result<String, String> {
        let status = serde_json::from_value(serde_json::json!({"containerStatuses": [{
            "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 1, "containerID": "containerd://now",
            "state": state, "lastState": last,
        }]}))
        .unwrap();
        instance(&status, "p", "c", previous).map(|id| id.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_instance_follows_upstreams_order() {
        use serde_json::json;
        let ended = |id: &str| json!({"terminated": {"exitCode": 1, "containerID": id}});
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        let running = json!({"running": {}});
        let none = json!({});
        let ok = |id: &str| Ok(id.to_owned());
        let error = |text: &str| Err(text.to_owned());
        for (state, last, previous, want) in [
            (&running, &none, false, ok("now")),
            (&running, &ended("containerd://old"), true, ok("old")),
            (&running, &none, true, error("previous terminated container \"c\" in pod \"p\" not found")),
            (&ended("containerd://x"), &ended("containerd://old"), false, ok("x")),
            (&ended(""), &ended("containerd://old"), false, ok("old")),
            (&ended(""), &none, false, error("container \"c\" in pod \"p\" is terminated")),
            (&waiting("CrashLoopBackOff"), &ended("containerd://old"), false, ok("old")),
            (&waiting("CrashLoopBackOff"), &ended(""), false, error("container \"c\" in pod \"p\" is terminated")),
            (
                &waiting("ErrImagePull"),
                &none,
                false,
                error("container \"c\" in pod \"p\" is waiting to start: image can't be pulled"),
            ),
            (
                &waiting("ImagePullBackOff"),
                &none,
                false,
                error("container \"c\" in pod \"p\" is waiting to start: trying and failing to pull image"),
            ),
            (
                &waiting("PodInitializing"),
                &none,
                false,
                error("container \"c\" in pod \"p\" is waiting to start: PodInitializing"),
            ),
            (&none, &none, false, error("container \"c\" in pod \"p\" is waiting to start - no logs available yet")),
        ] {
            assert_eq!(choose(state, last, previous), want, "{state} {last} {previous}");
        }
        let absent = instance(&PodStatus::default(), "p", "c", false).unwrap_err();
        assert_eq!(absent.to_string(), "container \"c\" in pod \"p\" is not available");
    }
}
