//! Reads from the runtime what it has of a pod.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use longshore_cri::{CriError, RuntimeService, labels, v1};

use crate::model::PodUid;

/// Status calls in flight at once. A first look over a full node must not flood the runtime.
const PARALLEL: usize = 8;

/// All that the runtime has of one pod, newest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodRuntime {
    /// Its sandboxes, by time of creation.
    pub sandboxes: Vec<v1::PodSandboxStatus>,
    /// Containers of all its sandboxes, by time of creation.
    pub containers: Vec<v1::ContainerStatus>,
}

impl PodRuntime {
    /// Says whether the runtime has nothing of the pod.
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    fn sort(&mut self) {
        self.sandboxes.sort_by_key(|sandbox| {
            Reverse((sandbox.created_at, sandbox.metadata.as_ref().map_or(0, |metadata| metadata.attempt)))
        });
        self.containers.sort_by_key(|container| {
            Reverse((container.created_at, container.metadata.as_ref().map_or(0, |metadata| metadata.attempt)))
        });
    }
}

/// Reads one pod. What vanishes while it is read is left out.
pub async fn read_pod(runtime: &dyn RuntimeService, uid: &PodUid) -> Result<PodRuntime, CriError> {
    let label_selector = BTreeMap::from([(labels::POD_UID.to_owned(), uid.as_str().to_owned())]);
    let sandboxes = v1::PodSandboxFilter { label_selector: label_selector.clone(), ..Default::default() };
    let containers = v1::ContainerFilter { label_selector, ..Default::default() };
    let (sandboxes, containers) = futures_util::try_join!(
        runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter: Some(sandboxes) }),
        runtime.list_containers(v1::ListContainersRequest { filter: Some(containers) }),
    )?;
    let mut pods = statuses(runtime, sandboxes.items, containers.containers).await?;
    Ok(pods.remove(uid).unwrap_or_default())
}

/// Reads every pod of the node agent's kind; sandboxes and containers without the pod's labels are not ours and left out.
pub async fn read_all(runtime: &dyn RuntimeService) -> Result<BTreeMap<PodUid, PodRuntime>, CriError> {
    let (sandboxes, containers) = futures_util::try_join!(
        runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None }),
        runtime.list_containers(v1::ListContainersRequest { filter: None }),
    )?;
    statuses(runtime, sandboxes.items, containers.containers).await
}

/// The pod to which a row belongs.
pub(super) fn owner(labels: &BTreeMap<String, String>) -> Option<PodUid> {
    labels.get(labels::POD_UID).filter(|uid| !uid.is_empty()).map(|uid| PodUid::from(uid.as_str()))
}

async fn statuses(
    runtime: &dyn RuntimeService,
    sandboxes: Vec<v1::PodSandbox>,
    containers: Vec<v1::Container>,
) -> Result<BTreeMap<PodUid, PodRuntime>, CriError> {
    let sandboxes = sandboxes.into_iter().filter_map(|row| Some((owner(&row.labels)?, row.id)));
    let containers = containers.into_iter().filter_map(|row| Some((owner(&row.labels)?, row.id)));
    let sandboxes = stream::iter(sandboxes)
        .map(|(uid, id)| async { Ok((uid, sandbox_status(runtime, id).await?)) })
        .buffer_unordered(PARALLEL)
        .try_collect::<Vec<_>>();
    let containers = stream::iter(containers)
        .map(|(uid, id)| async { Ok((uid, container_status(runtime, id).await?)) })
        .buffer_unordered(PARALLEL)
        .try_collect::<Vec<_>>();
    let (sandboxes, containers) = futures_util::try_join!(sandboxes, containers)?;

    let mut pods: BTreeMap<PodUid, PodRuntime> = BTreeMap::new();
    for (uid, status) in sandboxes {
        pods.entry(uid).or_default().sandboxes.extend(status);
    }
    for (uid, status) in containers {
        pods.entry(uid).or_default().containers.extend(status);
    }
    pods.retain(|_, pod| !pod.is_empty());
    pods.values_mut().for_each(PodRuntime::sort);
    Ok(pods)
}

async fn sandbox_status(runtime: &dyn RuntimeService, id: String) -> Result<Option<v1::PodSandboxStatus>, CriError> {
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id, verbose: false };
    gone_is_none(runtime.pod_sandbox_status(request).await.map(|answer| answer.status))
}

async fn container_status(runtime: &dyn RuntimeService, id: String) -> Result<Option<v1::ContainerStatus>, CriError> {
    let request = v1::ContainerStatusRequest { container_id: id, verbose: false };
    gone_is_none(runtime.container_status(request).await.map(|answer| answer.status))
}

fn gone_is_none<T>(answer: Result<Option<T>, CriError>) -> Result<Option<T>, CriError> {
    match answer {
        Err(error) if error.is_not_found() => Ok(None),
        answer => answer,
    }
}
