//! The hands of the workers: joins volumes, images, objects and the pure configuration into the steps that a pod needs
//! before its sandbox and its containers can be made. Owns the pod's own files: hosts file, termination messages, folders.

mod files;
mod images;
mod resolver;
mod users;
mod volumes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, PodSpec, VolumeMount};
use longshore_api::{dns, qos};
use longshore_cri::v1;
use parking_lot::Mutex;

use resolver::ResolverFile;
use users::Users;
pub use volumes::{Mounted, PodVolumes};

use crate::event::{ContainerGroup, EventRecorder, EventTarget};
use crate::image::ImageManager;
use crate::model::{ContainerId, DesiredPod, PodUid};
use crate::node::RuntimeState;
use crate::object::{self, Objects};
use crate::pod::config::{self, ConfigError, ContainerKind, NodeFacts};
use crate::pod::{ContainerRequest, Failure, Prepare, PulledImage};
use crate::resource::CgroupNames;
use crate::userns::UserRanges;

/// How long the first container of an agent waits for the list of services.
const SERVICES_WITHIN: Duration = Duration::from_secs(5);

/// What the hands work with.
#[derive(Debug)]
pub struct HandsOptions {
    /// The node, as configurations see it.
    pub facts: NodeFacts,
    /// The node's name.
    pub node_name: String,
    /// The host's resolver file; empty when pods get nothing of it.
    pub resolv_conf: String,
    /// Names of pod cgroups.
    pub names: CgroupNames,
    /// Configmaps, secrets, services.
    pub objects: Objects,
    /// Volumes.
    pub volumes: Arc<dyn PodVolumes>,
    /// Images.
    pub images: ImageManager,
    /// Events.
    pub events: EventRecorder,
    /// User ids of pods with users of their own.
    pub users: UserRanges,
    /// What the runtime can do.
    pub runtime: tokio::sync::watch::Receiver<RuntimeState>,
}

/// The hands.
#[derive(Debug)]
pub struct Hands {
    facts: ArcSwap<NodeFacts>,
    node_name: String,
    resolver: ResolverFile,
    names: CgroupNames,
    objects: Objects,
    volumes: Arc<dyn PodVolumes>,
    images: ImageManager,
    events: EventRecorder,
    users: Users,
    runtime: tokio::sync::watch::Receiver<RuntimeState>,
    host_ips: Arc<ArcSwap<Vec<String>>>,
    /// Volumes of pods that are prepared.
    prepared: Mutex<BTreeMap<PodUid, Arc<volumes::Mounted>>>,
}

impl Hands {
    /// Puts the hands together.
    pub fn new(options: HandsOptions) -> Self {
        let host_ips = Arc::new(ArcSwap::from_pointee(options.facts.host_ips.clone()));
        Self {
            facts: ArcSwap::from_pointee(options.facts),
            node_name: options.node_name,
            resolver: ResolverFile::new(&options.resolv_conf),
            names: options.names,
            objects: options.objects,
            volumes: options.volumes,
            images: options.images,
            events: options.events,
            users: Users::new(options.users, options.runtime.clone()),
            runtime: options.runtime,
            host_ips,
            prepared: Mutex::default(),
        }
    }

    /// The node's addresses as pods show them.
    pub fn host_ips(&self) -> Arc<ArcSwap<Vec<String>>> {
        Arc::clone(&self.host_ips)
    }

    /// Takes new addresses of the node.
    pub fn set_host_ips(&self, ips: Vec<String>) {
        if **self.host_ips.load() == ips {
            return;
        }
        let mut facts = NodeFacts::clone(&self.facts.load());
        facts.host_ips.clone_from(&ips);
        self.facts.store(Arc::new(facts));
        self.host_ips.store(Arc::new(ips));
    }

    fn sandbox(&self, pod: &DesiredPod, attempt: u32, tell: bool) -> Result<v1::PodSandboxConfig, Failure> {
        self.follow_resolver();
        let parent = self.names.pod(pod.uid.as_str(), qos::of(&pod.pod));
        let mut made = config::sandbox_config(pod, attempt, &parent, &self.facts.load()).map_err(failure)?;
        self.users.put_into_sandbox(pod, &mut made.config)?;
        if tell && self.resolver.is_news(&pod.uid, &made.warnings) {
            for (reason, message) in made.warnings {
                self.events.warning(&EventTarget::pod(pod), reason, message);
            }
        }
        Ok(made.config)
    }

    /// The host's resolver file may have changed since the last sandbox was made.
    fn follow_resolver(&self) {
        let Some(read) = self.resolver.changed() else { return };
        let mut facts = NodeFacts::clone(&self.facts.load());
        facts.dns.host = Some(read.resolver);
        self.facts.store(Arc::new(facts));
        for warning in read.warnings {
            self.events.warning(&EventTarget::node(&self.node_name), "CheckLimitsForResolvConf", warning);
        }
    }

    /// Variables of a container, with everything they refer to.
    async fn environment(
        &self,
        pod: &DesiredPod,
        container: &Container,
        pod_ips: &[String],
    ) -> Result<Vec<(String, String)>, Failure> {
        let wanted = config::references(container);
        let namespace = &*pod.key.namespace;
        let mut objects = config::Objects::default();
        for name in wanted.config_maps {
            let found = self.objects.config_map(namespace, &name, object::FRESH).await;
            objects.config_maps.insert(name, found);
        }
        for name in wanted.secrets {
            let found = self.objects.secret(namespace, &name, object::FRESH).await;
            objects.secrets.insert(name, found);
        }
        let mounted = self.prepared.lock().get(&pod.uid).cloned().unwrap_or_default();
        let empty = PodSpec::default();
        let spec = pod.pod.spec.as_ref().unwrap_or(&empty);
        for (volume, path) in wanted.files {
            let read =
                files::variables(spec, &volume, mounted.volumes.get(&volume).map(|fact| fact.path.as_path()), &path);
            objects.files.insert((volume, path), read);
        }
        // Static pods never wait: they are how an apiserver starts.
        let patience = if pod.source.is_static() { Duration::ZERO } else { SERVICES_WITHIN };
        let services = self.objects.services().within(patience).await;
        config::environment(&config::EnvInput {
            pod,
            container,
            objects: &objects,
            services: services.as_ref().map(|services| services.as_slice()),
            pod_ips,
            facts: &self.facts.load(),
        })
        .map_err(failure)
    }

    /// Writes the pod's hosts file, unless a container brings its own.
    fn hosts(&self, pod: &DesiredPod, pod_ips: &[String]) -> Result<Option<PathBuf>, Failure> {
        let facts = self.facts.load();
        let Some(spec) = pod.pod.spec.as_ref() else { return Ok(None) };
        let names = dns::hostname(spec, &pod.key.name, &pod.key.namespace, &facts.dns.domain)
            .map_err(|error| Failure::new(config::CONFIG_ERROR, error.to_string()))?;
        let folder = facts.pod_dir(pod.uid.as_str());
        files::hosts(&folder, spec, &names, pod_ips).map(Some).map_err(|error| {
            Failure::new(config::CONFIG_ERROR, format!("write the hosts file in {}: {error}", folder.display()))
        })
    }
}

fn failure(error: ConfigError) -> Failure {
    Failure::new(error.reason, error.message)
}

fn find<'a>(pod: &'a DesiredPod, name: &str) -> Result<(ContainerKind, std::borrow::Cow<'a, Container>), Failure> {
    let found = pod.pod.spec.as_ref().and_then(|spec| config::find_container(spec, name));
    found.ok_or_else(|| Failure::new(config::CONFIG_ERROR, format!("container {name:?} is not in the pod's spec")))
}

fn target(pod: &DesiredPod, kind: ContainerKind, name: &str) -> EventTarget {
    let group = match kind {
        ContainerKind::Init => ContainerGroup::Init,
        ContainerKind::App => ContainerGroup::Main,
        ContainerKind::Ephemeral => ContainerGroup::Ephemeral,
    };
    EventTarget::container(pod, group, name)
}

#[async_trait]
impl Prepare for Hands {
    async fn volumes(&self, pod: &DesiredPod) -> Result<(), Failure> {
        let folder = self.facts.load().pod_dir(pod.uid.as_str());
        if let Err(error) = files::folders(&folder) {
            return Err(Failure::new("Failed", format!("error making pod data directories: {error}")));
        }
        let mounted = self.volumes.prepare(pod).await?;
        self.prepared.lock().insert(pod.uid.clone(), Arc::new(mounted));
        Ok(())
    }

    fn forget_delays(&self, uid: &PodUid) {
        self.images.forget_delays(uid.as_str());
    }

    fn memory_volumes(&self, pod: &DesiredPod) -> Vec<(String, u64)> {
        self.volumes.in_memory(pod)
    }

    fn relabelled(&self, uid: &PodUid) {
        self.volumes.relabelled(uid);
    }

    async fn release(&self, uid: &PodUid) -> Result<(), Failure> {
        self.prepared.lock().remove(uid);
        self.volumes.teardown(uid).await
    }

    async fn image(&self, pod: &DesiredPod, container: &str) -> Result<PulledImage, Failure> {
        self.make_image(pod, container).await
    }

    async fn runtime_handler(&self, pod: &DesiredPod) -> Result<String, Failure> {
        let Some(class) = pod.runtime_class() else {
            return self.users.check(pod, "").map(|()| String::new());
        };
        match self.objects.runtime_class(class, object::FRESH).await {
            object::Lookup::Found(found) => {
                self.users.check(pod, &found.handler)?;
                self.users.learn(class, &found.handler);
                Ok(found.handler.clone())
            }
            object::Lookup::Missing => {
                Err(Failure::new("FailedCreatePodSandBox", format!("runtimeclass.node.k8s.io {class:?} not found")))
            }
            object::Lookup::Failed(message) => {
                Err(Failure::new("FailedCreatePodSandBox", format!("failed to lookup RuntimeClass {class}: {message}")))
            }
        }
    }

    fn recursive_read_only(&self, pod: &DesiredPod) -> Option<bool> {
        match pod.runtime_class() {
            None => Some(self.users.recursive_read_only("")),
            Some(class) => Some(self.users.recursive_read_only(&self.users.handler(class)?)),
        }
    }

    async fn sandbox_config(
        &self,
        pod: &DesiredPod,
        attempt: u32,
        tell: bool,
    ) -> Result<v1::PodSandboxConfig, Failure> {
        self.sandbox(pod, attempt, tell)
    }

    async fn container_config(&self, request: ContainerRequest<'_>) -> Result<v1::ContainerConfig, Failure> {
        let pod = request.pod;
        let (_, container) = find(pod, request.container)?;
        let facts = self.facts.load_full();
        let env = self.environment(pod, &container, request.pod_ips).await?;
        let mounted = self.prepared.lock().get(&pod.uid).cloned().unwrap_or_default();
        let sub_paths = self.volumes.sub_paths(pod, &container, &env, &mounted).await?;
        let (name, version) = self.runtime_version();
        let images =
            config::image_mounts(&container, &request.image.volumes, &env, &name, &version).map_err(failure)?;
        let hosts = self.hosts(pod, request.pod_ips)?;
        let termination = files::termination(&facts.pod_dir(pod.uid.as_str()), &container)
            .map_err(|error| Failure::new(config::CONFIG_ERROR, format!("termination message file: {error}")))?;
        // Not asked for by most: their class need not be known.
        let asked = |mount: &VolumeMount| mount.recursive_read_only.as_deref().is_some_and(|mode| mode != "Disabled");
        let recursive_read_only = if container.volume_mounts.iter().flatten().any(asked) {
            self.users.recursive_read_only(&self.runtime_handler(pod).await?)
        } else {
            false
        };
        let mounts = config::mounts(&config::MountInput {
            container: &container,
            volumes: &mounted.volumes,
            sub_paths: &sub_paths,
            images: &images,
            hosts: hosts.as_deref(),
            termination: termination.as_deref(),
            recursive_read_only,
        })
        .map_err(failure)?;
        let mut made = config::container_config(&config::ContainerInput {
            pod,
            name: request.container,
            attempt: request.attempt,
            image: &request.image.reference,
            image_user: &request.image.user,
            env: &env,
            mounts: &mounts,
            target: request.target.map(ContainerId::as_str),
            facts: &facts,
        })
        .map_err(failure)?;
        self.users.put_into_container(pod, &mut made)?;
        Ok(made)
    }

    fn container_size(&self, pod: &DesiredPod, container: &str) -> Option<v1::LinuxContainerResources> {
        let (_, container) = find(pod, container).ok()?;
        Some(config::container_size(pod, &container, &self.facts.load()))
    }

    async fn forget(&self, pod: &DesiredPod) -> Result<(), Failure> {
        let facts = self.facts.load_full();
        let logs = facts.pod_logs.join(format!("{}_{}_{}", pod.key.namespace, pod.key.name, pod.uid));
        files::remove(&logs).map_err(|error| Failure::new("FailedCleanup", error))?;
        self.forget_uid(&pod.uid).await
    }

    async fn forget_uid(&self, uid: &PodUid) -> Result<(), Failure> {
        self.release(uid).await?;
        let folder = self.facts.load().pod_dir(uid.as_str());
        files::remove_pod(&folder).map_err(|error| Failure::new("FailedCleanup", error))?;
        self.users.release(uid);
        self.resolver.forget(uid);
        Ok(())
    }
}
