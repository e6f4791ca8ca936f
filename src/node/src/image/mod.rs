//! Images: makes them present as the pull policy wants it, a few pulls at a time, with a back-off per pod and image.
//! Owns the back-off state; says what it does as events of the container.

mod backoff;
mod manager;
#[cfg(test)]
mod tests;

pub use manager::{ImageError, ImageManager, ImageOptions, ImageRequest, PresentImage};
//! Images: made present according to the pull policy, one pull at a time per image, with a back-off per pod and image.
//! The room tells facts; who asked turns them into events and statuses.
//!
//! ```text
//! name --default tag--> policy --present?--> there
//!                         |  no
//!                         +--backing off?--> ImagePullBackOff
//!                         +--pull (shared by all who want it with the same rights)--> there | ErrImagePull
//! ```

mod backoff;
mod credentials;
mod pull;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longshore_api::image_name;
use longshore_api::restart::go_duration;
use longshore_api::security::ImageUser;
use longshore_cri::{CriError, SharedImages, v1};
use longshore_util::Tasks;
use longshore_util::clock::SharedClock;

pub use credentials::{Credential, Keyring};

use backoff::Backoffs;
use pull::Pulls;

/// How soon a container whose pull failed is looked at again; it is then told that it backs off.
const SETTLE: Duration = Duration::from_secs(2);

/// When an image is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    /// Each time a container is made.
    Always,
    /// When it is not there.
    IfNotPresent,
    /// Never.
    Never,
}

impl PullPolicy {
    /// Reads `imagePullPolicy`; absent or unknown texts follow the image's tag.
    pub fn of(policy: Option<&str>, image: &str) -> Self {
        match policy.unwrap_or_else(|| image_name::default_pull_policy(image)) {
            "Always" => Self::Always,
            "Never" => Self::Never,
            _ => Self::IfNotPresent,
        }
    }
}

/// What somebody wants of an image.
#[derive(Debug, Clone)]
pub struct ImageRequest {
    /// The pod's uid: back-offs are counted per pod.
    pub pod_uid: Arc<str>,
    /// The image as written.
    pub image: String,
    /// When to fetch it.
    pub policy: PullPolicy,
    /// Rights at registries, from the pod's pull secrets.
    pub keyring: Keyring,
    /// The sandbox for which it is fetched, where it is known.
    pub sandbox: Option<v1::PodSandboxConfig>,
}

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentImage {
    /// What the runtime resolved it to.
    pub reference: String,
    /// The user that it names.
    pub user: ImageUser,
    /// Text for the event `Pulled`.
    pub message: String,
}

/// Why an image is not there, in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ImageError {
    /// Waiting reason.
    pub reason: String,
    /// Message for the container's status.
    pub message: String,
    /// The event of its own that this failure deserves.
    pub event: Option<ImageEvent>,
    /// When a new try makes sense; `None` leaves it to the asker.
    pub retry_after: Option<Duration>,
}

/// One event about an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageEvent {
    /// Whether a human should look.
    pub warning: bool,
    /// Reason.
    pub reason: &'static str,
    /// Message.
    pub message: String,
}

impl ImageEvent {
    fn warning(reason: &'static str, message: impl Into<String>) -> Option<Self> {
        Some(Self { warning: true, reason, message: message.into() })
    }

    fn normal(reason: &'static str, message: impl Into<String>) -> Option<Self> {
        Some(Self { warning: false, reason, message: message.into() })
    }
}

/// How pulls are bounded.
#[derive(Debug, Clone, Copy)]
pub struct ImageOptions {
    /// How many pulls may run at once (`serializeImagePulls`: 1; `maxParallelImagePulls`; `None` is without bound).
    pub parallel: Option<usize>,
}

/// Makes images present. Cheap to clone.
#[derive(Clone)]
pub struct ImageManager {
    images: SharedImages,
    clock: SharedClock,
    backoffs: Arc<Backoffs>,
    pulls: Pulls,
}

impl fmt::Debug for ImageManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageManager").finish_non_exhaustive()
    }
}

impl ImageManager {
    /// Works with the runtime's images; pulls run as tasks of `tasks`, so that one asker's end stops no other's pull.
    pub fn new(images: SharedImages, options: ImageOptions, clock: SharedClock, tasks: &Tasks) -> Self {
        let pulls = Pulls::new(Arc::clone(&images), options.parallel, Arc::clone(&clock), tasks.child());
        Self { images, clock, backoffs: Arc::default(), pulls }
    }

    /// Makes an image present; `tell` hears of a pull that begins.
    pub async fn ensure(
        &self,
        request: &ImageRequest,
        tell: impl Fn(ImageEvent) + Send + Sync,
    ) -> Result<PresentImage, ImageError> {
        let given = &request.image;
        let image = image_name::with_default_tag(given).map_err(|message| ImageError {
            reason: "InvalidImageName".to_owned(),
            event: ImageEvent::warning("InspectFailed", message.clone()),
            message,
            retry_after: None,
        })?;
        let present = self.status(&image).await.map_err(|error| {
            let message = format!("Failed to inspect image {image:?}: {}", error.message);
            ImageError {
                reason: "ImageInspectError".to_owned(),
                event: ImageEvent::warning("InspectFailed", message.clone()),
                message,
                retry_after: None,
            }
        })?;
        match (request.policy, present) {
            (PullPolicy::IfNotPresent | PullPolicy::Never, Some(found)) => {
                let message =
                    format!("Container image {given:?} already present on machine and can be accessed by the pod");
                return Ok(present_image(&found, message));
            }
            (PullPolicy::Never, None) => {
                let message = format!("Container image {given:?} is not present with pull policy of Never");
                return Err(ImageError {
                    reason: "ErrImageNeverPull".to_owned(),
                    event: ImageEvent::warning("ErrImageNeverPull", message.clone()),
                    message,
                    retry_after: None,
                });
            }
            (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, None) => {}
        }
        self.fetch(request, &image, tell).await
    }

    async fn fetch(
        &self,
        request: &ImageRequest,
        image: &str,
        tell: impl Fn(ImageEvent) + Send + Sync,
    ) -> Result<PresentImage, ImageError> {
        let given = &request.image;
        if let Some((left, cause)) = self.backoffs.holds(&request.pod_uid, image, self.clock.now()) {
            let text = format!("Back-off pulling image {given:?}");
            let message = if cause.is_empty() { text.clone() } else { format!("{text}: {cause}") };
            return Err(ImageError {
                reason: "ImagePullBackOff".to_owned(),
                message,
                event: ImageEvent::normal("BackOff", text),
                retry_after: Some(left),
            });
        }
        tell(ImageEvent { warning: false, reason: "Pulling", message: format!("Pulling image {given:?}") });
        let pulled = match self.pulls.pull(image, &request.keyring, request.sandbox.clone()).await {
            Ok(pulled) => pulled,
            Err(error) => return Err(self.failed(request, image, &error)),
        };
        self.backoffs.forget(&request.pod_uid, image);
        let found = match self.status(image).await {
            Ok(Some(found)) => found,
            // It was pulled a moment ago: what the pull said is good enough.
            Ok(None) | Err(_) => v1::Image { id: pulled.reference.clone(), ..v1::Image::default() },
        };
        let took = self.clock.now().duration_since(pulled.asked).unsigned_abs();
        let message = format!(
            "Successfully pulled image {given:?} in {} ({} including waiting). Image size: {} bytes.",
            go_duration(whole_millis(pulled.took)),
            go_duration(whole_millis(took)),
            found.size
        );
        let mut present = present_image(&found, message);
        if present.reference.is_empty() {
            present.reference = pulled.reference;
        }
        Ok(present)
    }

    fn failed(&self, request: &ImageRequest, image: &str, error: &CriError) -> ImageError {
        let (reason, text) = reason_of(&error.message);
        self.backoffs.failed(&request.pod_uid, image, format!("{reason}: {text}"), self.clock.now());
        ImageError {
            reason: reason.to_owned(),
            message: text.to_owned(),
            event: ImageEvent::warning("Failed", format!("Failed to pull image {:?}: {text}", request.image)),
            retry_after: Some(SETTLE),
        }
    }

    async fn status(&self, image: &str) -> Result<Option<v1::Image>, CriError> {
        let spec = v1::ImageSpec { image: image.to_owned(), ..v1::ImageSpec::default() };
        let request = v1::ImageStatusRequest { image: Some(spec), verbose: false };
        match self.images.image_status(request).await {
            Ok(answer) => Ok(answer.image.filter(|image| !image.id.is_empty())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets the back-offs of a pod that is gone.
    pub fn forget_pod(&self, pod_uid: &str) {
        self.backoffs.forget_pod(pod_uid);
    }
}

/// Runtimes put the kind of failure in front of some messages; there is no code for it.
fn reason_of(message: &str) -> (&'static str, &str) {
    for known in ["RegistryUnavailable", "SignatureValidationFailed"] {
        if let Some(rest) = message.strip_prefix(known) {
            return (known, rest.trim_start_matches(':').trim_start());
        }
    }
    ("ErrImagePull", message)
}

fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn present_image(found: &v1::Image, message: String) -> PresentImage {
    let user = match (&found.uid, found.username.as_str()) {
        (Some(uid), _) => ImageUser::Id(uid.value),
        (None, "") => ImageUser::Id(0),
        (None, name) => ImageUser::Name(name.to_owned()),
    };
    PresentImage { reference: found.id.clone(), user, message }
}
