//! Makes, refreshes and undoes the volumes of pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{Container, PodSpec, Volume, VolumeMount};
use longshore_api::resources::Amounts;
use longshore_host::path::{GroupMask, own_tree, remove_tree};
use longshore_util::Tasks;
use longshore_util::clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedRwLockReadGuard, RwLock};
use tokio::time::Instant;

use super::atomic::{self, Payload};
use super::empty_dir::{self, Medium, chain};
use super::projected::{Reader, group, holds_data, names};
use super::{Mounter, host_path, sub_path};
use crate::model::{DesiredPod, PodUid, ReadPods};
use crate::object::{Changed, FRESH, Objects, REFRESH};
use crate::pod::config::{self, ConfigError, SubPathKey, VolumeFact};

/// How often mounted data are brought up to date that nobody tells of: tokens, and objects that are not followed. With the age
/// that answers may have, those show within a minute; what is followed shows within two seconds.
const PERIOD: Duration = Duration::from_secs(30);
/// Changes that come together are written together.
const GATHER: Duration = Duration::from_millis(200);
/// One pod's volumes are made in this time or tried again.
const DEADLINE: Duration = Duration::from_secs(123);

/// A volume that does not stand. Retryable: what is missing may come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", shown(volume, message))]
pub struct VolumeError {
    /// The volume's name; empty when all of a pod's volumes are being undone.
    pub volume: String,
    /// Why.
    pub message: String,
}

impl VolumeError {
    /// Reason of the event.
    pub const REASON: &'static str = "FailedMount";
}

fn shown(volume: &str, message: &str) -> String {
    if volume.is_empty() {
        return format!("UnmountVolume.TearDown failed : {message}");
    }
    format!("MountVolume.SetUp failed for volume {volume:?} : {message}")
}

/// What the manager works with.
#[derive(Debug, Clone)]
pub struct VolumeOptions {
    /// The agent's root.
    pub root: PathBuf,
    /// Objects of the API.
    pub objects: Objects,
    /// Mounts.
    pub mounter: Arc<dyn Mounter>,
    /// What the node gives to pods; bounds memory volumes.
    pub allocatable: Amounts,
    /// Time, for names of folders.
    pub clock: SharedClock,
}

/// Work on a pod's volumes holds this shared, also after its caller went away; teardown takes it alone and sets it, and
/// from then on nothing is made any more.
type Gate = Arc<RwLock<bool>>;

#[derive(Debug, Default)]
struct Known {
    pod: Option<DesiredPod>,
    gate: Gate,
    /// What was written last, so that an unchanged volume costs no look at the disk.
    written: HashMap<String, Payload>,
}

/// Makes, refreshes and undoes volumes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct VolumeManager {
    options: Arc<VolumeOptions>,
    pods: Arc<Mutex<HashMap<PodUid, Known>>>,
    news: Arc<News>,
}

/// What has changed that pods may have mounted.
#[derive(Debug, Default)]
struct News {
    open: Mutex<Open>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct Open {
    pods: BTreeSet<PodUid>,
    objects: BTreeSet<Changed>,
}

impl VolumeManager {
    /// Returns a manager that knows no pod yet.
    pub fn new(options: VolumeOptions) -> Self {
        Self { options: Arc::new(options), pods: Arc::default(), news: Arc::default() }
    }

    /// Keeps mounted data up to date until the tasks end; `pods` knows labels and annotations as they are now.
    pub fn keep_fresh(&self, pods: Arc<dyn ReadPods>, tasks: &Tasks) {
        let (this, token) = (self.clone(), tasks.token().clone());
        tasks.essential("volume-refresh", async move {
            let mut due = Instant::now() + PERIOD;
            loop {
                tokio::select! {
                    biased;
                    () = token.cancelled() => return,
                    () = tokio::time::sleep_until(due) => {
                        this.refresh(&*pods).await;
                        due = Instant::now() + PERIOD;
                    }
                    () = this.news() => this.catch_up(&*pods).await,
                }
            }
        });
    }

    /// A pod's emptyDirs in memory and how many bytes each of them holds.
    pub fn in_memory(&self, pod: &DesiredPod) -> Vec<(String, u64)> {
        let volumes = pod.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let in_memory = volumes.filter(|volume| empty_dir::is_in_memory(volume));
        in_memory
            .filter_map(|volume| {
                let held = self.options.mounter.held(&self.volume_dir(&pod.uid, "empty-dir", &volume.name))?;
                Some((volume.name.clone(), held))
            })
            .collect()
    }

    /// A pod's labels or annotations have changed, which it may have mounted.
    pub fn relabelled(&self, uid: &PodUid) {
        let mut news = self.news.open.lock();
        news.pods.insert(uid.clone());
        drop(news);
        self.news.bell.notify_one();
    }

    /// Waits until something that pods have mounted has changed.
    async fn news(&self) {
        tokio::select! {
            objects = self.options.objects.changed() => self.news.open.lock().objects.extend(objects),
            () = self.news.bell.notified() => {}
        }
        tokio::time::sleep(GATHER).await;
    }

    /// Brings those pods up to date that have mounted what changed.
    async fn catch_up(&self, pods: &dyn ReadPods) {
        let open = std::mem::take(&mut *self.news.open.lock());
        for pod in self.known() {
            let concerned = |spec: &PodSpec| {
                spec.volumes.iter().flatten().any(|volume| {
                    open.objects
                        .iter()
                        .any(|changed| *changed.namespace == *pod.key.namespace && names(volume, changed))
                })
            };
            if open.pods.contains(&pod.uid) || pod.pod.spec.as_ref().is_some_and(concerned) {
                self.refresh_one(pod, pods).await;
            }
        }
    }

    fn known(&self) -> Vec<DesiredPod> {
        self.pods.lock().values().filter_map(|known| known.pod.clone()).collect()
    }

    /// Makes all volumes of a pod that its containers mount; called again it mends what is missing.
    pub async fn prepare(&self, pod: &DesiredPod) -> Result<BTreeMap<String, VolumeFact>, VolumeError> {
        let Some(spec) = pod.pod.spec.as_ref() else { return Ok(BTreeMap::new()) };
        self.pods.lock().entry(pod.uid.clone()).or_default().pod = Some(pod.clone());
        let used = mounted_names(spec);
        // All at once, but paths of the host in their order: one may lie inside another that is made first.
        // Images are mounted by the runtime.
        let ours = |volume: &&Volume| used.contains(volume.name.as_str()) && volume.image.is_none();
        let wanted = spec.volumes.iter().flatten().filter(ours);
        let (paths, others): (Vec<&Volume>, Vec<&Volume>) = wanted.partition(|volume| volume.host_path.is_some());
        let groups = std::iter::once(paths).chain(others.into_iter().map(|volume| vec![volume]));
        let works: FuturesUnordered<_> = groups
            .map(|group| async move {
                let mut done = Vec::with_capacity(group.len());
                for volume in group {
                    let made = tokio::time::timeout(DEADLINE, self.set_up(pod, spec, volume, FRESH)).await;
                    let made = made.unwrap_or_else(|_| Err(format!("not done within {} s", DEADLINE.as_secs())));
                    done.push((volume, made));
                }
                futures_util::stream::iter(done)
            })
            .collect();
        let (mut out, mut failed) = (BTreeMap::new(), BTreeMap::new());
        let mut works = works.flatten();
        while let Some((volume, made)) = works.next().await {
            match made {
                Ok(fact) => {
                    out.insert(volume.name.clone(), fact);
                }
                Err(message) => {
                    failed.insert(volume.name.clone(), message);
                }
            }
        }
        match failed.pop_first() {
            None => Ok(out),
            Some((volume, message)) => {
                for (volume, message) in &failed {
                    tracing::warn!(pod = %pod.key, volume, error = message, "volume cannot be made either");
                }
                Err(VolumeError { volume, message })
            }
        }
    }

    async fn set_up(
        &self,
        pod: &DesiredPod,
        spec: &PodSpec,
        volume: &Volume,
        age: Duration,
    ) -> Result<VolumeFact, String> {
        if holds_data(volume) {
            return self.set_up_data(pod, spec, volume, age).await;
        }
        if let Some(source) = &volume.host_path {
            let (path, kind) = (PathBuf::from(&source.path), source.type_.clone().unwrap_or_default());
            let fact = VolumeFact { path: path.clone(), read_only: false };
            let open = self.enter(&pod.uid).await?;
            return blocking(open, move || host_path::set_up(&path, &kind)).await.map(|()| fact);
        }
        if let Some(source) = &volume.empty_dir {
            let medium = empty_dir::medium(source, spec, &self.options.allocatable)?;
            let path = self.volume_dir(&pod.uid, "empty-dir", &volume.name);
            let (mounter, ready) = (Arc::clone(&self.options.mounter), self.marker(&pod.uid, &volume.name));
            let (folder, owner) = (path.clone(), group(spec));
            let open = self.enter(&pod.uid).await?;
            blocking(open, move || empty_dir::set_up(&*mounter, &folder, &ready, &medium, owner)).await?;
            return Ok(VolumeFact { path, read_only: false });
        }
        Err("this kind of volume is not supported by this node".to_owned())
    }

    async fn set_up_data(
        &self,
        pod: &DesiredPod,
        spec: &PodSpec,
        volume: &Volume,
        age: Duration,
    ) -> Result<VolumeFact, String> {
        let (plugin, in_memory) = match volume {
            Volume { config_map: Some(_), .. } => ("configmap", false),
            Volume { secret: Some(_), .. } => ("secret", true),
            Volume { downward_api: Some(_), .. } => ("downward-api", true),
            _ => ("projected", true),
        };
        let reader = Reader { objects: &self.options.objects, pod, spec, allocatable: &self.options.allocatable, age };
        let path = self.volume_dir(&pod.uid, plugin, &volume.name);
        let fact = VolumeFact { path: path.clone(), read_only: true };
        // A node that stands alone asks only for what it can do without in no way: nobody answers, and that takes long.
        let alone = self.options.objects.stand_alone();
        if alone && atomic::stands(&path) {
            return Ok(fact);
        }
        let payload = match reader.without_access(volume).filter(|_| alone) {
            Some(rest) => rest?,
            None => reader.files(volume).await?,
        };
        // Only a refresh may trust its memory: a new start must mend what somebody took away.
        let unchanged = age == REFRESH
            && self.pods.lock().get(&pod.uid).is_some_and(|known| known.written.get(&volume.name) == Some(&payload));
        if unchanged {
            return Ok(fact);
        }
        let size = empty_dir::memory_bound(None, spec, &self.options.allocatable);
        let medium = if in_memory { Medium::Memory { size } } else { Medium::Disk };
        let mounter = Arc::clone(&self.options.mounter);
        let ready = self.marker(&pod.uid, &format!("wrapped_{}", volume.name));
        let (owner, now, files) = (group(spec), self.options.clock.now(), payload.clone());
        let open = self.enter(&pod.uid).await?;
        blocking(open, move || {
            empty_dir::set_up(&*mounter, &path, &ready, &medium, None)?;
            let own = || match owner {
                Some(group) => own_tree(&path, group, GroupMask::ReadOnly),
                None => Ok(()),
            };
            atomic::write(&path, &files, now, own).map(drop).map_err(|error| chain(&error))
        })
        .await?;
        if let Some(known) = self.pods.lock().get_mut(&pod.uid) {
            known.written.insert(volume.name.clone(), payload);
        }
        Ok(fact)
    }

    /// Brings the data of all pods up to date; failures are told in the log, what stands stays.
    pub async fn refresh(&self, pods: &dyn ReadPods) {
        for pod in self.known() {
            self.refresh_one(pod, pods).await;
        }
        self.options.objects.tidy();
    }

    async fn refresh_one(&self, pod: DesiredPod, pods: &dyn ReadPods) {
        let pod = pods.by_uid(pod.uid.as_str()).map_or(pod, |view| view.desired);
        let Some(spec) = pod.pod.spec.as_ref() else { return };
        let used = mounted_names(spec);
        let volumes = spec.volumes.iter().flatten();
        for volume in volumes.filter(|volume| holds_data(volume) && used.contains(volume.name.as_str())) {
            // Torn down in the meantime: nothing may be made anew.
            if !self.pods.lock().contains_key(&pod.uid) {
                return;
            }
            if let Err(error) = self.set_up_data(&pod, spec, volume, REFRESH).await {
                tracing::debug!(pod = %pod.key, volume = volume.name, error, "mounted data are not up to date");
            }
        }
    }

    /// Binds the sub-paths that a container mounts; the answer says where each of them stands.
    pub async fn sub_paths(
        &self,
        pod: &DesiredPod,
        container: &Container,
        env: &[(String, String)],
        volumes: &BTreeMap<String, VolumeFact>,
    ) -> Result<BTreeMap<SubPathKey, PathBuf>, ConfigError> {
        let mut out = BTreeMap::new();
        for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
            let Some(inside) = config::sub_path(mount, env)? else { continue };
            let Some(volume) = volumes.get(&mount.name) else { continue };
            let folder = self.pod_dir(&pod.uid).join("volume-subpaths");
            let target = folder.join(&mount.name).join(&container.name).join(index.to_string());
            let (mounter, source, place) = (Arc::clone(&self.options.mounter), volume.path.clone(), target.clone());
            let bound = match self.enter(&pod.uid).await {
                Ok(open) => blocking(open, move || sub_path::bind(&*mounter, &source, &inside, &place)).await,
                Err(error) => Err(error),
            };
            if let Err(error) = bound {
                tracing::warn!(pod = %pod.key, container = container.name, volume = mount.name, error, "sub-path cannot be bound");
                return Err(ConfigError::new(format!(
                    "failed to prepare subPath for volumeMount {:?} of container {:?}",
                    mount.name, container.name
                )));
            }
            out.insert(index, target);
        }
        Ok(out)
    }

    /// Undoes everything of a pod; called again, or for a pod that nobody knows, it finishes what is left.
    ///
    /// Its containers must be gone. Nothing is deleted while anything is mounted below the pod's folder.
    pub async fn teardown(&self, uid: &PodUid) -> Result<(), VolumeError> {
        let gate = Arc::clone(&self.pods.lock().entry(uid.clone()).or_default().gate);
        let mut gone = gate.write_owned().await;
        *gone = true;
        self.options.objects.tokens().forget_pod(uid.as_str());
        let (mounter, folder) = (Arc::clone(&self.options.mounter), self.pod_dir(uid));
        let undone = blocking(gone, move || {
            if !folder.exists() {
                return Ok(());
            }
            mounter.unmount_under(&folder).map_err(|error| chain(&error))?;
            for part in ["volumes", "volume-subpaths", "plugins"] {
                remove_tree(&folder.join(part)).map_err(|error| chain(&error))?;
            }
            Ok(())
        });
        undone.await.map_err(|message| VolumeError { volume: String::new(), message })?;
        self.pods.lock().remove(uid);
        Ok(())
    }

    /// Opens the way to make something of a pod; refused once the pod is being torn down.
    async fn enter(&self, uid: &PodUid) -> Result<OwnedRwLockReadGuard<bool>, String> {
        let gate = self.pods.lock().get(uid).map(|known| Arc::clone(&known.gate));
        let gone = || "the pod is being torn down".to_owned();
        let open = gate.ok_or_else(gone)?.read_owned().await;
        if *open { Err(gone()) } else { Ok(open) }
    }

    /// The pods of which folders are on disk; those that nobody wants are orphans.
    pub async fn found(&self) -> Vec<PodUid> {
        let folder = self.options.root.join("pods");
        let read = blocking((), move || {
            let entries = std::fs::read_dir(&folder).map_err(|error| error.to_string())?;
            let names = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            Ok(names.filter_map(|entry| entry.file_name().into_string().ok()).map(PodUid::from).collect())
        });
        read.await.unwrap_or_default()
    }

    fn pod_dir(&self, uid: &PodUid) -> PathBuf {
        self.options.root.join("pods").join(uid.as_str())
    }

    fn volume_dir(&self, uid: &PodUid, plugin: &str, name: &str) -> PathBuf {
        self.pod_dir(uid).join("volumes").join(format!("kubernetes.io~{plugin}")).join(name)
    }

    fn marker(&self, uid: &PodUid, name: &str) -> PathBuf {
        self.pod_dir(uid).join("plugins").join(Path::new("kubernetes.io~empty-dir")).join(name).join("ready")
    }
}

/// Disk and mounts are touched on threads that may block; a hung one holds up its own pod alone. `held` is let go when the
/// work is done, not when its caller stops waiting.
async fn blocking<T: Send + 'static>(
    held: impl Send + 'static,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let work = move || {
        let answer = work();
        drop(held);
        answer
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) => Err(error.to_string()),
    }
}

fn mounted_names(spec: &PodSpec) -> BTreeSet<&str> {
    fn of(mounts: Option<&Vec<VolumeMount>>) -> impl Iterator<Item = &str> {
        mounts.into_iter().flatten().map(|mount| mount.name.as_str())
    }
    let ordinary = spec.init_containers.iter().flatten().chain(&spec.containers);
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    ordinary
        .flat_map(|container| of(container.volume_mounts.as_ref()))
        .chain(ephemeral.flat_map(|container| of(container.volume_mounts.as_ref())))
        .collect()
}
