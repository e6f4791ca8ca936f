//! Volumes, images, control groups and the node as the workers meet them: they remember what they made, and fail or hang
//! when told to.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longshore_api::resize::{Bound, Group};
use longshore_cri::v1;
use longshore_node::admit::{self, Grounds};
use longshore_node::model::{ContainerId, DesiredPod, PodUid};
use longshore_node::pod::fakes::{self, Groups};
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
    Bind,
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
    folders: BTreeSet<String>,
    trouble: Vec<(Work, Trouble)>,
}

/// The hands; clones share what was made, as the machine does.
#[derive(Debug, Clone)]
pub(crate) struct Hands {
    state: Arc<Mutex<State>>,
    groups: Groups,
    book: SharedBook,
    clocks: Clocks,
    pods_folder: PathBuf,
    /// How long an image takes.
    image_pause: Duration,
    /// How many pods the node takes.
    room: u64,
    /// Its processors, in thousandths.
    cpu: u64,
}

impl Hands {
    pub(crate) fn new(
        book: SharedBook,
        clocks: Clocks,
        pods_folder: PathBuf,
        image_pause: Duration,
        (room, cpu): (u64, u64),
    ) -> Self {
        Self { state: Arc::default(), groups: Groups::default(), book, clocks, pods_folder, image_pause, room, cpu }
    }

    pub(crate) fn pods_folder(&self) -> PathBuf {
        self.pods_folder.clone()
    }

    /// The node's processors, in thousandths.
    pub(crate) fn cpu(&self) -> u64 {
        self.cpu
    }

    /// The bounds of a pod's control group.
    pub(crate) fn group(&self, uid: &str) -> Option<Group> {
        self.groups.of(uid)
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
        self.groups.of(uid).map(|_| "control group")
    }

    /// Everything that is still there.
    pub(crate) fn left(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let named = |what: &str, set: &BTreeSet<String>| set.iter().map(|uid| format!("{what} of {uid}")).collect();
        let mut left: Vec<String> = named("volumes", &state.volumes);
        let groups = self.groups.uids().into_iter().map(|uid| format!("group of {uid}"));
        let folders: Vec<String> = named("folder", &state.folders);
        left.extend(groups.chain(folders));
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
        self.book.lock().unwrap().note(self.clocks.millis(), text);
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
        Ok(fakes::pulled(&image))
    }

    fn recursive_read_only(&self, _pod: &DesiredPod) -> Option<bool> {
        Some(false)
    }

    fn container_size(&self, pod: &DesiredPod, container: &str) -> Option<v1::LinuxContainerResources> {
        fakes::container_size(pod, container)
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
        Ok(fakes::sandbox_config(pod, attempt))
    }

    async fn container_config(&self, request: ContainerRequest<'_>) -> Result<v1::ContainerConfig, Failure> {
        self.work(Work::Config, request.pod.uid.as_str(), "CreateContainerConfigError").await?;
        Ok(fakes::container_config(&request))
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
        drop(state);
        self.groups.remove(uid.as_str());
        Ok(())
    }
}

#[async_trait]
impl PodCgroups for Hands {
    async fn ensure(&self, pod: &DesiredPod, moving: bool) -> Result<(), Failure> {
        self.work(Work::Group, pod.uid.as_str(), "FailedCreatePodContainer").await?;
        self.groups.ensure(pod, moving);
        Ok(())
    }

    fn bounds(&self, pod: &DesiredPod) -> Result<Option<PodBounds>, Failure> {
        Ok(self.groups.bounds(pod))
    }

    fn bind(&self, pod: &DesiredPod, bound: Bound) -> Result<(), Failure> {
        if self.state.lock().unwrap().trouble.iter().any(|(own, _)| *own == Work::Bind) {
            return Err(Failure::new("FailedResize", format!("{bound:?} of {} told to fail", pod.uid)));
        }
        self.note(&format!("group of {}: {bound:?}", pod.uid));
        self.groups.bind(&pod.uid, bound);
        Ok(())
    }

    fn memory_usage(&self, _pod: &DesiredPod) -> Option<i64> {
        None
    }

    async fn clear(&self, _pod: &DesiredPod, _container: &ContainerId) {}

    async fn remove(&self, pod: &DesiredPod) -> Result<(), Failure> {
        self.work(Work::Ungroup, pod.uid.as_str(), "FailedKillPod").await?;
        self.book.lock().unwrap().released(pod.uid.as_str(), "the control group");
        self.groups.remove(pod.uid.as_str());
        Ok(())
    }
}

#[async_trait]
impl Grounds for Hands {
    fn node(&self) -> admit::Node {
        let (cpu, room) = (format!("{}m", self.cpu), self.room.to_string());
        fakes::node(&[("cpu", &cpu), ("memory", "64Gi"), ("pods", &room)])
    }

    async fn runtime_known(&self) {}

    async fn look_again(&self) -> admit::Node {
        self.node()
    }
}
