//! Containers and sandboxes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use futures_util::{StreamExt as _, stream};
use longshore_api::qos::Qos;
use longshore_cri::{CriError, SharedRuntime, labels, v1};

use super::{Cleaning, Collector};
use crate::model::PodUid;
use crate::pod::remembered;

/// Grace of a pod that only the runtime knows.
const ORPHAN_GRACE_SECONDS: i64 = 2;
/// Removals at once: they must not slow the starts of pods.
const PARALLEL: usize = 2;

/// All that the runtime shows.
pub(super) async fn listed(runtime: &SharedRuntime) -> Result<(Vec<v1::PodSandbox>, Vec<v1::Container>), CriError> {
    let (sandboxes, containers) = tokio::try_join!(
        runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None }),
        runtime.list_containers(v1::ListContainersRequest { filter: None }),
    )?;
    Ok((sandboxes.items, containers.containers))
}

#[derive(Debug, Default)]
struct Found {
    sandboxes: Vec<v1::PodSandbox>,
    containers: Vec<v1::Container>,
}

impl Found {
    fn lives(&self) -> bool {
        self.sandboxes.iter().any(|sandbox| sandbox.state() == v1::PodSandboxState::SandboxReady)
            || self.containers.iter().any(|container| container.state() != v1::ContainerState::ContainerExited)
    }
}

impl Collector {
    /// Returns the pods of which something that has to go is still there.
    pub(super) async fn collect_runtime(&self, own: &mut BTreeSet<PodUid>) -> Result<BTreeSet<PodUid>, CriError> {
        let (sandboxes, containers) = listed(&self.runtime).await?;
        let mut pods: BTreeMap<PodUid, Found> = BTreeMap::new();
        for sandbox in sandboxes {
            if let Some(uid) = owner(&sandbox.labels) {
                pods.entry(uid).or_default().sandboxes.push(sandbox);
            }
        }
        for container in containers {
            if let Some(uid) = owner(&container.labels) {
                pods.entry(uid).or_default().containers.push(container);
            }
        }
        if self.cleaning == Cleaning::OwnPods {
            pods.retain(|uid, _| own.contains(uid) || self.table.knows(uid));
        } else {
            own.extend(pods.keys().cloned());
        }
        let stuck = stream::iter(pods)
            .map(|(uid, found)| async move {
                // Asked now, not before: a pod that came in since the lists were made is not a stranger.
                let result = if self.table.knows(&uid) { self.prune(found).await } else { self.end(&uid, found).await };
                let error = result.err()?;
                tracing::warn!(%uid, %error, "pod cannot be cleaned in the runtime");
                Some(uid)
            })
            .buffer_unordered(PARALLEL)
            .filter_map(std::future::ready)
            .collect()
            .await;
        Ok(stuck)
    }

    /// Removes dead containers but the newest of each name, and empty dead sandboxes but the newest.
    async fn prune(&self, found: Found) -> Result<(), CriError> {
        for container in &found.containers {
            let dead = container.state() == v1::ContainerState::ContainerExited;
            // One dead instance stays: it is what the state or `lastState` shows.
            let kept = kept_ids(&found.containers, name(container));
            if dead && !kept.contains(&container.id.as_str()) {
                let files = self.files_of(&container.id).await;
                self.remove_container(&container.id).await?;
                files.remove();
            }
        }
        let last = found.sandboxes.iter().map(|s| (s.metadata.as_ref().map_or(0, |m| m.attempt), s.created_at)).max();
        for sandbox in &found.sandboxes {
            let rank = (sandbox.metadata.as_ref().map_or(0, |m| m.attempt), sandbox.created_at);
            let empty = !found.containers.iter().any(|c| c.pod_sandbox_id == sandbox.id);
            if sandbox.state() == v1::PodSandboxState::SandboxNotready && empty && Some(rank) != last {
                self.remove_sandbox(&sandbox.id).await?;
            }
        }
        Ok(())
    }

    /// Ends and removes a pod that no source wants. A static pod whose manifest went while no agent ran ends as one whose
    /// manifest goes now: with its grace and its hooks.
    async fn end(&self, uid: &PodUid, found: Found) -> Result<(), CriError> {
        if found.lives()
            && let Some(pod) = remembered::static_pod(uid, &found.sandboxes, &found.containers)
        {
            tracing::info!(pod = %pod.key, %uid, "ending a static pod whose manifest is gone");
            self.table.end_unwanted(pod);
            return Ok(());
        }
        tracing::info!(%uid, containers = found.containers.len(), "removing a pod that no source wants");
        for container in &found.containers {
            if container.state() != v1::ContainerState::ContainerExited {
                let request =
                    v1::StopContainerRequest { container_id: container.id.clone(), timeout: ORPHAN_GRACE_SECONDS };
                gone(self.runtime.stop_container(request).await.map(drop))?;
            }
        }
        for sandbox in &found.sandboxes {
            let request = v1::StopPodSandboxRequest { pod_sandbox_id: sandbox.id.clone() };
            gone(self.runtime.stop_pod_sandbox(request).await.map(drop))?;
        }
        // A start that was cut off can leave a process that the runtime does not know of and then refuses to remove.
        if let Some(cgroups) = &self.cgroups {
            for class in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
                if let Err(error) = cgroups.remove_orphan(uid, class)
                    && self.told.is_news(&format!("group {uid}"), &error.to_string())
                {
                    tracing::warn!(%uid, %error, "control group of a pod that no source wants cannot be removed");
                }
            }
        }
        // As long as the runtime has something of the pod, its folder is known to be this agent's.
        self.remove_folder(uid).await;
        for container in &found.containers {
            self.remove_container(&container.id).await?;
        }
        for sandbox in &found.sandboxes {
            self.remove_sandbox(&sandbox.id).await?;
        }
        Ok(())
    }

    /// What a container has on disk; asked before it is removed.
    async fn files_of(&self, id: &str) -> ContainerFiles {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let answer = self.runtime.container_status(request).await.ok().and_then(|answer| answer.status);
        let Some(status) = answer else { return ContainerFiles::default() };
        let log = PathBuf::from(&status.log_path);
        // Only what the agent made: a path out of the runtime's mouth is not trusted.
        let ours =
            |path: &Path, root: &Path| path.starts_with(root) && path.components().all(|c| c != Component::ParentDir);
        let is_message = |path: &Path| {
            let below = path.strip_prefix(&self.pods_folder).ok();
            below.is_some_and(|below| below.components().nth(1) == Some(Component::Normal("containers".as_ref())))
        };
        let mounts = status.mounts.iter().map(|mount| PathBuf::from(&mount.host_path));
        ContainerFiles {
            log: Some(log).filter(|log| ours(log, &self.pod_logs)),
            messages: mounts.filter(|path| ours(path, &self.pods_folder) && is_message(path)).collect(),
        }
    }

    async fn remove_container(&self, id: &str) -> Result<(), CriError> {
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        gone(self.runtime.remove_container(request).await.map(drop))
    }

    async fn remove_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        gone(self.runtime.remove_pod_sandbox(request).await.map(drop))
    }
}

/// Files that go with a container: its log and its termination message.
#[derive(Debug, Default)]
struct ContainerFiles {
    log: Option<PathBuf>,
    messages: Vec<PathBuf>,
}

impl ContainerFiles {
    fn remove(self) {
        if let Some(log) = &self.log
            && let Err(error) = crate::logs::forget(log)
        {
            tracing::warn!(path = %log.display(), %error, "log of a removed container cannot be removed");
        }
        for message in &self.messages {
            if let Err(error) = std::fs::remove_file(message)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %message.display(), %error, "termination message cannot be removed");
            }
        }
    }
}

/// The newest dead instance of a name, and whatever lives.
fn kept_ids<'a>(containers: &'a [v1::Container], wanted: &str) -> Vec<&'a str> {
    let mut dead: Vec<&v1::Container> =
        containers.iter().filter(|c| name(c) == wanted && c.state() == v1::ContainerState::ContainerExited).collect();
    dead.sort_by_key(|c| std::cmp::Reverse((c.metadata.as_ref().map_or(0, |m| m.attempt), c.created_at)));
    dead.first().map(|c| c.id.as_str()).into_iter().collect()
}

fn name(container: &v1::Container) -> &str {
    container.metadata.as_ref().map_or("", |m| m.name.as_str())
}

fn owner(labels: &BTreeMap<String, String>) -> Option<PodUid> {
    labels.get(labels::POD_UID).filter(|uid| !uid.is_empty()).map(|uid| uid.as_str().into())
}

fn gone(result: Result<(), CriError>) -> Result<(), CriError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}
