//! The images that the node tells of, so that schedulers prefer nodes that have them.

use std::cmp::Reverse;
use std::time::Duration;

use k8s_openapi::api::core::v1::ContainerImage;
use longshore_cri::{SharedImages, v1};
use tokio::time::Instant;

/// Names told per image.
const NAMES: usize = 5;
/// The list is asked for no more often than this.
const REFRESH: Duration = Duration::from_secs(30);
/// A runtime that hangs must not hold up the node's status.
const DEADLINE: Duration = Duration::from_secs(2);

/// The list with its age.
#[derive(Debug)]
pub(super) struct ImageList {
    images: SharedImages,
    limit: Option<usize>,
    last: Vec<ContainerImage>,
    asked: Option<Instant>,
}

impl ImageList {
    pub(super) const fn new(images: SharedImages, limit: Option<usize>) -> Self {
        Self { images, limit, last: Vec::new(), asked: None }
    }

    /// The newest list there is; a runtime that does not answer leaves the old one.
    pub(super) async fn get(&mut self) -> Vec<ContainerImage> {
        if self.limit == Some(0) || self.asked.is_some_and(|asked| asked.elapsed() < REFRESH) {
            return self.last.clone();
        }
        let call = self.images.list_images(v1::ListImagesRequest::default());
        match tokio::time::timeout(DEADLINE, call).await {
            Ok(Ok(answer)) => {
                self.last = select(answer.images, self.limit);
                self.asked = Some(Instant::now());
            }
            Ok(Err(error)) => tracing::debug!(%error, "images not listed"),
            Err(_) => {
                tracing::debug!("images not listed: no answer");
                self.asked = Some(Instant::now());
            }
        }
        self.last.clone()
    }
}

/// The largest first, five names each: digests before tags.
fn select(mut images: Vec<v1::Image>, limit: Option<usize>) -> Vec<ContainerImage> {
    images.sort_by(|a, b| (Reverse(a.size), &a.id).cmp(&(Reverse(b.size), &b.id)));
    images
        .into_iter()
        .map(|image| ContainerImage {
            names: Some(image.repo_digests.into_iter().chain(image.repo_tags).take(NAMES).collect()),
            size_bytes: Some(i64::try_from(image.size).unwrap_or(i64::MAX)),
        })
        .take(limit.unwrap_or(usize::MAX))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_first_and_few_names() {
        let image = |size, digests: &[&str], tags: &[&str]| v1::Image {
            id: format!("sha256:{size}"),
            size,
            repo_digests: digests.iter().map(ToString::to_string).collect(),
            repo_tags: tags.iter().map(ToString::to_string).collect(),
            ..v1::Image::default()
        };
        let list =
            vec![image(1, &[], &["a:1"]), image(9, &["d@1", "d@2"], &["t:1", "t:2", "t:3", "t:4"]), image(5, &[], &[])];
        let selected = select(list, Some(2));
        assert_eq!(selected.iter().map(|image| image.size_bytes).collect::<Vec<_>>(), [Some(9), Some(5)]);
        assert_eq!(selected[0].names.as_deref().unwrap(), ["d@1", "d@2", "t:1", "t:2", "t:3"]);
    }
}
