//! Puts the volume room behind the hands.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Container;
use longshore_util::clock::SharedClock;

use crate::hands::{Mounted, PodVolumes};
use crate::model::{DesiredPod, PodUid};
use crate::object::Objects;
use crate::pod::Failure;
use crate::pod::config::{NodeFacts, SubPathKey};
use crate::volume::{HostMounter, VolumeError, VolumeManager, VolumeOptions};

fn failure(error: &VolumeError) -> Failure {
    Failure::new(VolumeError::REASON, error.to_string())
}

#[async_trait]
impl PodVolumes for VolumeManager {
    async fn prepare(&self, pod: &DesiredPod) -> Result<Mounted, Failure> {
        let volumes = Self::prepare(self, pod).await.map_err(|error| failure(&error))?;
        Ok(Mounted { volumes })
    }

    async fn sub_paths(
        &self,
        pod: &DesiredPod,
        container: &Container,
        env: &[(String, String)],
        mounted: &Mounted,
    ) -> Result<BTreeMap<SubPathKey, PathBuf>, Failure> {
        Self::sub_paths(self, pod, container, env, &mounted.volumes)
            .await
            .map_err(|error| Failure::new(error.reason, error.message))
    }

    fn in_memory(&self, pod: &DesiredPod) -> Vec<(String, u64)> {
        Self::in_memory(self, pod)
    }

    fn relabelled(&self, uid: &PodUid) {
        Self::relabelled(self, uid);
    }

    async fn teardown(&self, uid: &PodUid) -> Result<(), Failure> {
        Self::teardown(self, uid).await.map_err(|error| failure(&error))
    }
}

pub(super) fn start(facts: &NodeFacts, objects: &Objects, clock: &SharedClock) -> VolumeManager {
    VolumeManager::new(VolumeOptions {
        root: facts.root.clone(),
        objects: objects.clone(),
        mounter: Arc::new(HostMounter),
        allocatable: facts.allocatable.clone(),
        clock: Arc::clone(clock),
    })
}
