//! What the hands need of the volume room.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Container;

use crate::model::{DesiredPod, PodUid};
use crate::pod::Failure;
use crate::pod::config::{SubPathKey, VolumeFact};

/// Volumes that stand.
#[derive(Debug, Default)]
pub struct Mounted {
    /// By name.
    pub volumes: BTreeMap<String, VolumeFact>,
}

/// Volumes of pods.
#[async_trait]
pub trait PodVolumes: Send + Sync + Debug + 'static {
    /// Makes all volumes of a pod that its containers mount.
    async fn prepare(&self, pod: &DesiredPod) -> Result<Mounted, Failure>;

    /// Binds the sub-paths of one container, each where nothing can be swapped under it.
    async fn sub_paths(
        &self,
        pod: &DesiredPod,
        container: &Container,
        env: &[(String, String)],
        mounted: &Mounted,
    ) -> Result<BTreeMap<SubPathKey, PathBuf>, Failure>;

    /// The pod's volumes in memory and how many bytes each of them holds.
    fn in_memory(&self, pod: &DesiredPod) -> Vec<(String, u64)>;

    /// The pod's labels or annotations have changed.
    fn relabelled(&self, uid: &PodUid);

    /// Undoes everything; safe to call again and for pods it does not know.
    async fn teardown(&self, uid: &PodUid) -> Result<(), Failure>;
}
