//! A pod as far as the runtime remembers it: names, hooks and grace stand in the annotations of its containers. Enough to
//! end a pod in the ordinary way whose manifest went while no agent ran.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Lifecycle, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use longshore_cri::{labels, v1};

use super::config::annotations::{POD_TERMINATION_GRACE, PRE_STOP, TERMINATION_PATH, TERMINATION_POLICY};
use crate::model::annotations::CONFIG_SOURCE;
use crate::model::{DesiredPod, PodKey, PodUid, SourceKind};

/// The static pod to which these sandboxes and containers belong; `None` for a pod of the API.
pub(crate) fn static_pod(
    uid: &PodUid,
    sandboxes: &[v1::PodSandbox],
    containers: &[v1::Container],
) -> Option<DesiredPod> {
    let sandbox = sandboxes.iter().max_by_key(|sandbox| sandbox.created_at)?;
    let source = match sandbox.annotations.get(CONFIG_SOURCE).map(String::as_str) {
        Some("file") => SourceKind::File,
        Some("http") => SourceKind::Http,
        _ => return None,
    };
    let metadata = sandbox.metadata.as_ref()?;
    let mut newest: BTreeMap<&str, &v1::Container> = BTreeMap::new();
    for container in containers {
        let Some(name) = container.labels.get(labels::CONTAINER_NAME) else { continue };
        let entry = newest.entry(name).or_insert(container);
        if container.created_at > entry.created_at {
            *entry = container;
        }
    }
    let grace = containers.iter().find_map(|c| c.annotations.get(POD_TERMINATION_GRACE)?.parse::<i64>().ok());
    let spec = PodSpec {
        containers: newest.into_iter().map(|(name, container)| remembered(name, container)).collect(),
        termination_grace_period_seconds: grace,
        ..PodSpec::default()
    };
    let pod = Pod {
        metadata: ObjectMeta {
            name: Some(metadata.name.clone()),
            namespace: Some(metadata.namespace.clone()),
            uid: Some(uid.to_string()),
            annotations: Some(sandbox.annotations.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    };
    Some(DesiredPod {
        uid: uid.clone(),
        key: PodKey::new(metadata.namespace.as_str(), metadata.name.as_str()),
        pod: Arc::new(pod),
        source,
        seen: Timestamp::UNIX_EPOCH,
    })
}

fn remembered(name: &str, container: &v1::Container) -> Container {
    let note = |key: &str| container.annotations.get(key).cloned();
    let pre_stop = note(PRE_STOP).and_then(|text| serde_json::from_str(&text).ok());
    Container {
        name: name.to_owned(),
        image: container.image.as_ref().map(|image| image.user_specified_image.clone()),
        lifecycle: pre_stop.map(|pre_stop| Lifecycle { pre_stop: Some(pre_stop), ..Lifecycle::default() }),
        termination_message_path: note(TERMINATION_PATH),
        termination_message_policy: note(TERMINATION_POLICY),
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn names_hooks_and_grace_are_remembered_of_static_pods_alone() {
        let sandbox = |source: &str| v1::PodSandbox {
            metadata: Some(v1::PodSandboxMetadata {
                name: "a-n1".into(),
                namespace: "ns".into(),
                ..Default::default()
            }),
            annotations: notes(&[(CONFIG_SOURCE, source)]),
            ..Default::default()
        };
        let hook = r#"{"exec":{"command":["sh","-c","x"]}}"#;
        let container = v1::Container {
            labels: notes(&[(labels::CONTAINER_NAME, "c")]),
            annotations: notes(&[(PRE_STOP, hook), (POD_TERMINATION_GRACE, "7")]),
            ..Default::default()
        };
        let uid = PodUid::from("u1");
        let pod = static_pod(&uid, &[sandbox("file")], std::slice::from_ref(&container)).unwrap();
        assert_eq!((pod.source, &*pod.key.name, &*pod.key.namespace), (SourceKind::File, "a-n1", "ns"));
        let spec = pod.pod.spec.as_ref().unwrap();
        assert_eq!(spec.termination_grace_period_seconds, Some(7));
        let hook = spec.containers[0].lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref()).unwrap();
        assert_eq!(hook.exec.as_ref().unwrap().command.as_deref(), Some(&["sh".into(), "-c".into(), "x".into()][..]));
        assert!(static_pod(&uid, &[sandbox("api")], std::slice::from_ref(&container)).is_none());
        assert!(static_pod(&uid, &[], &[container]).is_none());
    }
}
