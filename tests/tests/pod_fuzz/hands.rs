//! Volumes, images, control groups and the node as the workers meet them: they remember what they made, and fail or hang
//! when told to.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longshore_api::resize::Bound;
use longshore_cri::{labels, v1};
use longshore_node::admit::{self, Grounds};
use longshore_node::model::{ContainerId, DesiredPod, PodUid};
use longshore_node::pod::{ContainerRequest, Failure, PodBounds, PodCgroups, Prepare, PulledImage};

use super::scene::{Clocks, SharedBook};

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Volumes,
    Release,
    Image,
    Config,
    Group,
    Ungroup,
    Forget,
}

/// How.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    Fails,
    Hangs,
}

#[derive(Debug, Default)]
struct State {
    volumes: BTreeSet<String>,
    groups: BTreeSet<String>,
    folders: BTreeSet<String>,
    trouble: Vec<(Work, Trouble)>,
}

/// The hands; clones share what was made, as the machine does.
#[derive(Debug, Clone)]
pub(crate) struct Hands {
    state: Arc<Mutex<State>>,
    book: SharedBook,
    clocks: Clocks,
    pods_folder: PathBuf,
    /// How long an image takes.
    image_pause: Duration,
    /// How many pods the node takes.
    room: u64,
}

impl Hands {
    pub(crate) fn new(
        book: SharedBook,
        clocks: Clocks,
        pods_folder: PathBuf,
        image_pause: Duration,
        room: u64,
    ) -> Self {
        Self { state: Arc::default(), book, clocks, pods_folder, image_pause, room }
    }

    pub(crate) fn pods_folder(&self) -> PathBuf {
        self.pods_folder.clone()
    }

    pub(crate) fn trouble(&self, work: Work, trouble: Trouble) {
        self.state.lock().unwrap().trouble.push((work, trouble));
    }

    pub(crate) fn heal(&self) {
        self.state.lock().unwrap().trouble.clear();
    }

    /// What is still there of a pod.
    pub(crate) fn holds(&self, uid: &str) -> Option<&'static str> {
        let state = self.state.lock().unwrap();
        if state.volumes.contains(uid) {
            return Some("volumes");
        }
        state.groups.contains(uid).then_some("control group")
    }

    /// Everything that is still there.
    pub(crate) fn left(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let named = |what: &str, set: &BTreeSet<String>| set.iter().map(|uid| format!("{what} of {uid}")).collect();
        let mut left: Vec<String> = named("volumes", &state.volumes);
        let groups: Vec<String> = named("group", &state.groups);
        let folders: Vec<String> = named("folder", &state.folders);
        left.extend(groups.into_iter().chain(folders));
        left
    }

    async fn work(&self, work: Work, uid: &str, reason: &str) -> Result<(), Failure> {
        let trouble = self.state.lock().unwrap().trouble.iter().find(|(own, _)| *own == work).copied();
        match trouble {
            None => Ok(()),
            Some((_, Trouble::Fails)) => Err(Failure::new(reason, format!("{work:?} of {uid} told to fail"))),
            Some((_, Trouble::Hangs)) => {
                // Until it is healed, at most as long as rooms let such work hang.
                for _ in 0..240 {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    if !self.state.lock().unwrap().trouble.iter().any(|(own, _)| *own == work) {
                        return Ok(());
                    }
                }
                Err(Failure::new(reason, format!("{work:?} of {uid} took too long")))
            }
        }
    }

    fn note(&self, text: &str) {
        self.book.lock().unwrap().note(self.clocks.at(), text);
    }

    fn drop_folder(&self, uid: &str) {
        self.book.lock().unwrap().released(uid, "the folder");
        self.state.lock().unwrap().folders.remove(uid);
        drop(std::fs::remove_dir(self.pods_folder.join(uid)));
    }
}

#[async_trait]
impl Prepare for Hands {
    async fn volumes(&self, pod: &DesiredPod) -> Result<(), Failure> {
        let uid = pod.uid.to_string();
        self.work(Work::Volumes, &uid, "FailedMount").await?;
        let mut state = self.state.lock().unwrap();
        state.folders.insert(uid.clone());
        state.volumes.insert(uid.clone());
        drop(state);
        std::fs::create_dir_all(self.pods_folder.join(&uid)).unwrap();
        Ok(())
    }

    async fn release(&self, uid: &PodUid) -> Result<(), Failure> {
        self.work(Work::Release, uid.as_str(), "FailedUnmount").await?;
        self.book.lock().unwrap().released(uid.as_str(), "volumes");
        self.state.lock().unwrap().volumes.remove(uid.as_str());
        self.note(&format!("volumes of {uid} released"));
        Ok(())
    }

    async fn image(&self, pod: &DesiredPod, container: &str) -> Result<PulledImage, Failure> {
        tokio::time::sleep(self.image_pause).await;
        if let Err(failure) = self.work(Work::Image, pod.uid.as_str(), "ErrImagePull").await {
            return Err(Failure { retry_after: Some(Duration::from_secs(10)), ..failure });
        }
        let spec = pod.pod.spec.as_ref().unwrap();
        let image = longshore_node::pod::config::find_container(spec, container).unwrap().1.image.clone().unwrap();
        Ok(PulledImage {
            reference: image,
            user: longshore_api::security::ImageUser::Id(0),
            volumes: std::collections::BTreeMap::new(),
        })
    }

    fn recursive_read_only(&self, _pod: &DesiredPod) -> Option<bool> {
        Some(false)
    }

    fn container_size(&self, _pod: &DesiredPod, _container: &str) -> Option<v1::LinuxContainerResources> {
        None
    }

    async fn runtime_handler(&self, _pod: &DesiredPod) -> Result<String, Failure> {
        Ok(String::new())
    }

    async fn sandbox_config(
        &self,
        pod: &DesiredPod,
        attempt: u32,
        tell: bool,
    ) -> Result<v1::PodSandboxConfig, Failure> {
        if tell {
            self.work(Work::Config, pod.uid.as_str(), "FailedCreatePodSandBox").await?;
        }
        let host = pod.pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
        let network = if host { v1::NamespaceMode::Node } else { v1::NamespaceMode::Pod };
        let options = v1::NamespaceOption { network: network.into(), ..Default::default() };
        let context = v1::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
        Ok(v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: pod.key.name.to_string(),
                namespace: pod.key.namespace.to_string(),
                uid: pod.uid.to_string(),
                attempt,
            }),
            labels: [(labels::POD_UID.to_owned(), pod.uid.to_string())].into(),
            linux: Some(v1::LinuxPodSandboxConfig { security_context: Some(context), ..Default::default() }),
            ..Default::default()
        })
    }

    async fn container_config(&self, request: ContainerRequest<'_>) -> Result<v1::ContainerConfig, Failure> {
        self.work(Work::Config, request.pod.uid.as_str(), "CreateContainerConfigError").await?;
        let spec = request.pod.pod.spec.as_ref().unwrap();
        let (_, container) = longshore_node::pod::config::find_container(spec, request.container).unwrap();
        let image = container.image.clone().unwrap_or_default();
        let hash = longshore_api::hash::container(&container.name, &image);
        Ok(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: request.container.into(), attempt: request.attempt }),
            image: Some(v1::ImageSpec { image: request.image.reference.clone(), ..Default::default() }),
            labels: [
                (labels::POD_UID.to_owned(), request.pod.uid.to_string()),
                (labels::CONTAINER_NAME.to_owned(), request.container.to_owned()),
            ]
            .into(),
            annotations: [
                ("io.kubernetes.container.hash".to_owned(), hash),
                ("io.kubernetes.container.restartCount".to_owned(), request.attempt.to_string()),
            ]
            .into(),
            ..Default::default()
        })
    }

    async fn forget(&self, pod: &DesiredPod) -> Result<(), Failure> {
        self.work(Work::Forget, pod.uid.as_str(), "FailedRemove").await?;
        self.drop_folder(pod.uid.as_str());
        Ok(())
    }

    async fn forget_uid(&self, uid: &PodUid) -> Result<(), Failure> {
        self.work(Work::Forget, uid.as_str(), "FailedRemove").await?;
        // What the rooms of volumes and control groups do for a pod that only its folder tells of.
        self.drop_folder(uid.as_str());
        let mut state = self.state.lock().unwrap();
        state.volumes.remove(uid.as_str());
        state.groups.remove(uid.as_str());
        Ok(())
    }
}

#[async_trait]
impl PodCgroups for Hands {
    async fn ensure(&self, pod: &DesiredPod, _moving: bool) -> Result<(), Failure> {
        self.work(Work::Group, pod.uid.as_str(), "FailedCreatePodContainer").await?;
        self.state.lock().unwrap().groups.insert(pod.uid.to_string());
        Ok(())
    }

    fn bounds(&self, _pod: &DesiredPod) -> Result<Option<PodBounds>, Failure> {
        Ok(None)
    }

    fn bind(&self, _pod: &DesiredPod, _bound: Bound) -> Result<(), Failure> {
        Ok(())
    }

    fn memory_usage(&self, _pod: &DesiredPod) -> Option<i64> {
        None
    }

    async fn clear(&self, _pod: &DesiredPod, _container: &ContainerId) {}

    async fn remove(&self, pod: &DesiredPod) -> Result<(), Failure> {
        self.work(Work::Ungroup, pod.uid.as_str(), "FailedKillPod").await?;
        self.book.lock().unwrap().released(pod.uid.as_str(), "the control group");
        self.state.lock().unwrap().groups.remove(pod.uid.as_str());
        Ok(())
    }
}

#[async_trait]
impl Grounds for Hands {
    fn node(&self) -> admit::Node {
        let amount = |name: &str, count: u64| {
            (name.to_owned(), longshore_api::quantity::Quantity::parse(&count.to_string()).unwrap())
        };
        admit::Node {
            name: "n1".into(),
            allocatable: [amount("cpu", 64), amount("memory", 1 << 36), amount("pods", self.room)].into(),
            ..admit::Node::default()
        }
    }

    async fn runtime_known(&self) {}

    async fn look_again(&self) -> admit::Node {
        self.node()
    }
}
