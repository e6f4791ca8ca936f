//! The fake's images.

use async_trait::async_trait;

use super::world::{State, World};
use crate::service::Streaming;
use crate::{CriError, ErrorKind, ImageService, v1};

impl State {
    pub(super) fn add_image(&mut self, name: &str) -> String {
        if let Some(image) = self.image(name) {
            return image.id.clone();
        }
        let id = format!("sha256:{}", self.new_id());
        let repository = name.split('@').next().unwrap_or(name);
        let repository = match repository.rsplit_once(':') {
            Some((repository, tag)) if !tag.contains('/') => repository,
            _ => repository,
        };
        let image = v1::Image {
            id: id.clone(),
            repo_tags: vec![name.to_owned()],
            repo_digests: vec![format!("{repository}@{id}")],
            size: 1 << 20,
            ..Default::default()
        };
        self.images.insert(id.clone(), image);
        id
    }

    /// The image of that name, tag, digest or id.
    pub(super) fn image(&self, name: &str) -> Option<&v1::Image> {
        self.images.get(name).or_else(|| {
            let named = |names: &[String]| names.iter().any(|other| other == name);
            self.images.values().find(|image| named(&image.repo_tags) || named(&image.repo_digests))
        })
    }
}

fn name(image: Option<&v1::ImageSpec>) -> &str {
    image.map_or("", |image| &image.image)
}

#[async_trait]
impl ImageService for World {
    async fn list_images(&self, request: v1::ListImagesRequest) -> Result<v1::ListImagesResponse, CriError> {
        let state = self.state.lock();
        let wanted = request.filter.as_ref().map_or("", |filter| name(filter.image.as_ref()));
        let images = match wanted {
            "" => state.images.values().cloned().collect(),
            wanted => state.image(wanted).cloned().into_iter().collect(),
        };
        Ok(v1::ListImagesResponse { images })
    }

    async fn stream_images(&self, _: v1::StreamImagesRequest) -> Result<Streaming<v1::StreamImagesResponse>, CriError> {
        Err(super::make::unimplemented("StreamImages"))
    }

    async fn image_status(&self, request: v1::ImageStatusRequest) -> Result<v1::ImageStatusResponse, CriError> {
        let image = self.state.lock().image(name(request.image.as_ref())).cloned();
        Ok(v1::ImageStatusResponse { image, info: Default::default() })
    }

    async fn pull_image(&self, request: v1::PullImageRequest) -> Result<v1::PullImageResponse, CriError> {
        let name = name(request.image.as_ref());
        let mut state = self.state.lock();
        let there = !state.denied.contains(name) && (self.options.any_image || state.published.contains(name));
        if !there {
            let message = format!(
                "failed to pull and unpack image \"{name}\": failed to resolve reference \"{name}\": {name}: not found"
            );
            return Err(CriError::new("PullImage", ErrorKind::NotFound, message));
        }
        Ok(v1::PullImageResponse { image_ref: state.add_image(name) })
    }

    async fn remove_image(&self, request: v1::RemoveImageRequest) -> Result<v1::RemoveImageResponse, CriError> {
        let mut state = self.state.lock();
        if let Some(id) = state.image(name(request.image.as_ref())).map(|image| image.id.clone()) {
            state.images.remove(&id);
        }
        Ok(v1::RemoveImageResponse {})
    }

    async fn image_fs_info(&self, _: v1::ImageFsInfoRequest) -> Result<v1::ImageFsInfoResponse, CriError> {
        let mut state = self.state.lock();
        let used = state.images.values().map(|image| image.size).sum();
        let filesystem = v1::FilesystemUsage {
            timestamp: state.now(&self.options.clock),
            fs_id: Some(v1::FilesystemIdentifier { mountpoint: "/".to_owned() }),
            used_bytes: Some(v1::UInt64Value { value: used }),
            inodes_used: Some(v1::UInt64Value { value: 1 }),
        };
        Ok(v1::ImageFsInfoResponse {
            image_filesystems: vec![filesystem.clone()],
            container_filesystems: vec![filesystem],
        })
    }
}
