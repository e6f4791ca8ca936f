//! What is answered at the agent's socket.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::model::{ContainerNotes, EndView, LocalPods, PodKey, PodView};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    ask: Ask,
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ask {
    /// What holds up a pod.
    Why,
    /// Try at once what waits.
    Retry,
}

/// Answers a line.
pub(super) fn to(line: &str, pods: &dyn LocalPods, now: Timestamp) -> Value {
    let question: Question = match serde_json::from_str(line) {
        Ok(question) => question,
        Err(error) => return json!({ "error": format!("not understood: {error}") }),
    };
    let key = PodKey::new(question.namespace, question.name);
    let Some(view) = pods.by_key(&key) else {
        return json!({ "error": format!("the node knows no pod {key}") });
    };
    if question.ask == Ask::Retry {
        pods.retry(&view.desired.uid);
    }
    json!({ "pod": pod(&view, pods, now) })
}

fn pod(view: &PodView, pods: &dyn LocalPods, now: Timestamp) -> Value {
    let notes = pods.notes(&view.desired.uid);
    let status = view.status.as_deref();
    let lists = status.map(|s| [&s.init_container_statuses, &s.container_statuses, &s.ephemeral_container_statuses]);
    let shown = lists.into_iter().flatten().flat_map(|list| list.iter().flatten());
    let containers: Vec<Value> =
        shown.map(|status| container(status, notes.get(&status.name).cloned().unwrap_or_default(), now)).collect();
    json!({
        "namespace": &*view.desired.key.namespace,
        "name": &*view.desired.key.name,
        "uid": view.desired.uid.as_str(),
        "phase": status.and_then(|s| s.phase.clone()),
        "reason": status.and_then(|s| s.reason.clone()),
        "message": status.and_then(|s| s.message.clone()),
        "containers": containers,
    })
}

fn container(status: &ContainerStatus, notes: ContainerNotes, now: Timestamp) -> Value {
    let (state, reason, message) = state(status.state.as_ref());
    let ended = |state: Option<&ContainerState>| state.and_then(|state| state.terminated.clone());
    let last = ended(status.state.as_ref()).or_else(|| ended(status.last_state.as_ref()));
    let seconds = notes.next_try.map(|at| at.duration_since(now).as_secs().max(0));
    json!({
        "name": status.name,
        "state": state,
        "reason": reason,
        "message": message,
        "restarts": status.restart_count,
        "nextTrySeconds": seconds,
        "firstFailure": notes.first_failure.map(|first| end(&first)),
        "lastEnd": last.map(|last| terminated(&last)),
    })
}

fn state(state: Option<&ContainerState>) -> (&'static str, Option<String>, Option<String>) {
    let Some(state) = state else { return ("unknown", None, None) };
    if state.running.is_some() {
        return ("running", None, None);
    }
    if let Some(end) = &state.terminated {
        return ("ended", end.reason.clone(), end.message.clone());
    }
    let waiting = state.waiting.clone().unwrap_or_default();
    ("waiting", waiting.reason, waiting.message)
}

fn end(end: &EndView) -> Value {
    json!({
        "restarts": end.restarts, "exitCode": end.code, "reason": end.reason, "message": end.message,
        "finishedAt": end.finished_at.map(|at| at.to_string()),
    })
}

fn terminated(end: &ContainerStateTerminated) -> Value {
    json!({
        "exitCode": end.exit_code, "reason": end.reason, "message": end.message,
        "finishedAt": end.finished_at.as_ref().map(|at| at.0.to_string()),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::model::{DesiredPod, PodUid, ReadPods, SourceKind};

    /// One pod, `ns/p`, with a container that has crashed often.
    #[derive(Debug, Default)]
    pub(in crate::control) struct Pods {
        pub(in crate::control) retried: Mutex<Vec<String>>,
    }

    impl ReadPods for Pods {
        fn pods(&self) -> Vec<PodView> {
            let status = json!({"phase": "Running", "containerStatuses": [{
                "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 9,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
                "lastState": {"terminated": {"exitCode": 9, "reason": "Error"}}}]});
            vec![PodView {
                desired: DesiredPod {
                    uid: PodUid::from("u"),
                    key: PodKey::new("ns", "p"),
                    pod: Arc::default(),
                    source: SourceKind::Api,
                    seen: Timestamp::UNIX_EPOCH,
                },
                status: Some(Arc::new(serde_json::from_value(status).unwrap())),
                mirror: None,
            }]
        }

        fn by_key(&self, key: &PodKey) -> Option<PodView> {
            self.pods().into_iter().find(|view| view.desired.key == *key)
        }

        fn by_uid(&self, _uid: &str) -> Option<PodView> {
            None
        }
    }

    impl LocalPods for Pods {
        fn notes(&self, _uid: &PodUid) -> BTreeMap<String, ContainerNotes> {
            let first = EndView {
                restarts: 0,
                code: 3,
                reason: "Error".into(),
                message: "no such file".into(),
                finished_at: None,
            };
            let notes = ContainerNotes { first_failure: Some(first), next_try: Timestamp::from_second(90).ok() };
            BTreeMap::from([("c".to_owned(), notes)])
        }

        fn retry(&self, uid: &PodUid) {
            self.retried.lock().push(uid.to_string());
        }
    }

    #[test]
    fn first_and_last_end_and_the_next_try_are_told() {
        let pods = Pods::default();
        let now = Timestamp::from_second(30).unwrap();
        let told = to(r#"{"ask":"why","namespace":"ns","name":"p"}"#, &pods, now);
        let container = &told["pod"]["containers"][0];
        assert_eq!((&container["state"], &container["reason"]), (&json!("waiting"), &json!("CrashLoopBackOff")));
        assert_eq!((&container["firstFailure"]["exitCode"], &container["lastEnd"]["exitCode"]), (&json!(3), &json!(9)));
        assert_eq!(container["nextTrySeconds"], 60);
        assert!(pods.retried.lock().is_empty());
        let unknown = to(r#"{"ask":"why","namespace":"ns","name":"q"}"#, &pods, now);
        assert_eq!(unknown["error"], "the node knows no pod ns/q");
    }
}
