//! Volumes until the volume room is there: pods without volumes run, others are told why they wait.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Container;

use crate::hands::{Mounted, PodVolumes};
use crate::model::{DesiredPod, PodUid};
use crate::pod::Failure;
use crate::pod::config::SubPathKey;

#[derive(Debug)]
struct NoVolumes;

#[async_trait]
impl PodVolumes for NoVolumes {
    async fn prepare(&self, pod: &DesiredPod) -> Result<Mounted, Failure> {
        let first = pod.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).next();
        match first {
            None => Ok(Mounted::default()),
            Some(volume) => Err(Failure::new(
                "FailedMount",
                format!("MountVolume.SetUp failed for volume {:?} : volumes are not supported yet", volume.name),
            )),
        }
    }

    async fn sub_paths(
        &self,
        _pod: &DesiredPod,
        _container: &Container,
        _env: &[(String, String)],
        _mounted: &Mounted,
    ) -> Result<BTreeMap<SubPathKey, PathBuf>, Failure> {
        Ok(BTreeMap::new())
    }

    async fn teardown(&self, _uid: &PodUid) -> Result<(), Failure> {
        Ok(())
    }
}

pub(super) fn start() -> Arc<dyn PodVolumes> {
    Arc::new(NoVolumes)
}
