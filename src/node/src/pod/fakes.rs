//! What tests put in the place of volumes, images, control groups and the node. What each test suite wants to see or to
//! have go wrong it adds itself; what is the same for all stands here, once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use longshore_api::resize::{Bound, Group};
use longshore_api::security::ImageUser;
use longshore_api::{hash, qos, quantity, resources};
use longshore_cri::{labels, v1};
use longshore_util::clock::Clock;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ContainerRequest, PodBounds, PulledImage, config};
use crate::admit;
use crate::model::{DesiredPod, PodUid};

/// A wall clock that goes with tokio's, which tests pause.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    epoch: Timestamp,
    begin: Instant,
}

impl TokioClock {
    /// Starts at a fixed time.
    pub fn start() -> Self {
        Self { epoch: Timestamp::from_second(1_800_000_000).unwrap_or_default(), begin: Instant::now() }
    }

    /// Milliseconds since then.
    pub fn millis(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let since = SignedDuration::try_from(self.begin.elapsed()).unwrap_or_default();
        self.epoch.checked_add(since).unwrap_or(Timestamp::MAX)
    }
}

/// Bounds of pod cgroups; clones share them, as the kernel keeps them when an agent ends.
#[derive(Debug, Clone, Default)]
pub struct Groups(Arc<Mutex<HashMap<PodUid, Group>>>);

impl Groups {
    /// The bounds that a pod's cgroup should have.
    pub fn wanted(pod: &DesiredPod) -> Group {
        let class = qos::of(&pod.pod);
        let spec = pod.pod.spec.clone().unwrap_or_default();
        let own = resources::pod_cgroup(&spec, class, Default::default());
        Group { shares: own.cpu_shares, quota: own.cpu_quota, period: own.cpu_period, memory: own.memory_limit }
    }

    /// Makes a pod's cgroup; the bounds of one that is there stay while they move step by step.
    pub fn ensure(&self, pod: &DesiredPod, moving: bool) {
        let mut groups = self.0.lock();
        if !moving || !groups.contains_key(&pod.uid) {
            groups.insert(pod.uid.clone(), Self::wanted(pod));
        }
    }

    /// As they are and as they should be.
    pub fn bounds(&self, pod: &DesiredPod) -> Option<PodBounds> {
        let now = self.of(pod.uid.as_str())?;
        Some(PodBounds { now, wanted: Self::wanted(pod) })
    }

    /// Those of a pod.
    pub fn of(&self, uid: &str) -> Option<Group> {
        self.0.lock().get(&PodUid::from(uid)).copied()
    }

    /// Sets one bound.
    pub fn bind(&self, uid: &PodUid, bound: Bound) {
        if let Some(group) = self.0.lock().get_mut(uid) {
            *group = group.with(bound);
        }
    }

    /// Removes a pod's cgroup.
    pub fn remove(&self, uid: &str) {
        self.0.lock().remove(&PodUid::from(uid));
    }

    /// Whose there are.
    pub fn uids(&self) -> Vec<String> {
        let mut uids: Vec<String> = self.0.lock().keys().map(ToString::to_string).collect();
        uids.sort();
        uids
    }
}

/// An image that is there, with root as its user.
pub fn pulled(reference: &str) -> PulledImage {
    PulledImage { reference: reference.to_owned(), user: ImageUser::Id(0), volumes: BTreeMap::new() }
}

/// A sandbox's configuration: its names, and whose network it has.
pub fn sandbox_config(pod: &DesiredPod, attempt: u32) -> v1::PodSandboxConfig {
    let host = pod.pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
    let network = if host { v1::NamespaceMode::Node } else { v1::NamespaceMode::Pod };
    let options = v1::NamespaceOption { network: network.into(), ..Default::default() };
    let context = v1::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: pod.key.name.to_string(),
            namespace: pod.key.namespace.to_string(),
            uid: pod.uid.to_string(),
            attempt,
        }),
        labels: [(labels::POD_UID.to_owned(), pod.uid.to_string())].into(),
        linux: Some(v1::LinuxPodSandboxConfig { security_context: Some(context), ..Default::default() }),
        ..Default::default()
    }
}

/// A container's configuration: its names, its image, its hash and its size.
pub fn container_config(request: &ContainerRequest<'_>) -> v1::ContainerConfig {
    let spec = request.pod.pod.spec.clone().unwrap_or_default();
    let image = config::find_container(&spec, request.container).and_then(|(_, container)| container.image.clone());
    let hash = hash::container(request.container, &image.unwrap_or_default());
    let size = container_size(request.pod, request.container);
    v1::ContainerConfig {
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
        linux: Some(v1::LinuxContainerConfig { resources: size, ..Default::default() }),
        ..Default::default()
    }
}

/// What the runtime is told of a container's size.
pub fn container_size(pod: &DesiredPod, container: &str) -> Option<v1::LinuxContainerResources> {
    let spec = pod.pod.spec.as_ref()?;
    let (_, container) = config::find_container(spec, container)?;
    let size = resources::container_linux(spec, &container, Default::default());
    Some(v1::LinuxContainerResources {
        cpu_shares: size.cpu_shares,
        cpu_quota: size.cpu_quota,
        cpu_period: size.cpu_period,
        memory_limit_in_bytes: size.memory_limit,
        ..Default::default()
    })
}

/// A node of that size; amounts are written as in the API.
pub fn node(amounts: &[(&str, &str)]) -> admit::Node {
    let parsed = amounts.iter().filter_map(|(name, text)| {
        let amount = quantity::Quantity::parse(text).ok()?;
        Some(((*name).to_owned(), amount))
    });
    admit::Node { name: "n1".into(), allocatable: parsed.collect(), ..admit::Node::default() }
}
