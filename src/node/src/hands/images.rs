//! Images of containers and of volumes, with the pod's pull secrets.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ImageVolumeSource, Secret};
use longshore_cri::v1;

use super::{Hands, find, target};
use crate::event::EventTarget;
use crate::image::ImageRequest;
use crate::model::DesiredPod;
use crate::object;
use crate::pod::config::{self, VolumeImage};
use crate::pod::{Failure, PulledImage};

impl Hands {
    /// Makes the image of a container present, and those of the volumes that it mounts.
    pub(super) async fn make_image(&self, pod: &DesiredPod, container: &str) -> Result<PulledImage, Failure> {
        let (kind, found) = find(pod, container)?;
        let sandbox = self.sandbox(pod, 0, false)?;
        let secrets = self.pull_secrets(pod).await;
        let request = ImageRequest {
            pod,
            target: &target(pod, kind, container),
            image: found.image.as_deref().unwrap_or_default(),
            policy: found.image_pull_policy.as_deref(),
            sandbox: sandbox.clone(),
            secrets: secrets.clone(),
        };
        let present = self.images.ensure(request).await.map_err(failure)?;
        let volumes = self.volume_images(pod, &found, &sandbox, &secrets).await?;
        Ok(PulledImage { reference: present.reference, user: present.user, volumes })
    }

    async fn volume_images(
        &self,
        pod: &DesiredPod,
        container: &Container,
        sandbox: &v1::PodSandboxConfig,
        secrets: &[Arc<Secret>],
    ) -> Result<BTreeMap<String, VolumeImage>, Failure> {
        let mut out = BTreeMap::new();
        let Some(spec) = pod.pod.spec.as_ref() else { return Ok(out) };
        for volume in config::image_volumes(spec, container) {
            let Some(ImageVolumeSource { reference, pull_policy }) = &volume.image else { continue };
            let written = reference.clone().unwrap_or_default();
            let request = ImageRequest {
                pod,
                target: &EventTarget::pod(pod),
                image: &written,
                policy: pull_policy.as_deref(),
                sandbox: sandbox.clone(),
                secrets: secrets.to_vec(),
            };
            let present = self.images.ensure(request).await;
            self.images.metrics().volume(present.is_ok());
            let image = VolumeImage { reference: present.map_err(failure)?.reference, written };
            out.insert(volume.name.clone(), image);
        }
        Ok(out)
    }

    /// The runtime's name and version; empty while it has not told.
    pub(super) fn runtime_version(&self) -> (String, String) {
        let runtime = self.runtime.borrow();
        runtime.version.as_ref().map_or_else(Default::default, |known| (known.name.clone(), known.version.clone()))
    }

    /// The pod's pull secrets, as far as they can be had.
    async fn pull_secrets(&self, pod: &DesiredPod) -> Vec<Arc<Secret>> {
        let names = pod.pod.spec.iter().flat_map(|s| s.image_pull_secrets.iter().flatten());
        let mut secrets = Vec::new();
        let mut missing = Vec::new();
        for name in names.map(|reference| reference.name.as_str()).filter(|name| !name.is_empty()) {
            match self.objects.secret(&pod.key.namespace, name, object::FRESH).await {
                object::Lookup::Found(secret) => secrets.push(secret),
                object::Lookup::Missing | object::Lookup::Failed(_) => missing.push(name.to_owned()),
            }
        }
        if !missing.is_empty() {
            let message = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.events.warning(&EventTarget::pod(pod), "FailedToRetrieveImagePullSecret", message);
        }
        secrets
    }
}

fn failure(error: crate::image::ImageError) -> Failure {
    Failure { retry_after: error.retry_after, ..Failure::new(error.reason, error.message) }
}
