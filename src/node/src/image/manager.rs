//! Decides whether to pull, and pulls.

use std::sync::Arc;
use std::time::Duration;

use longshore_api::image_name;
use longshore_api::restart::go_duration;
use longshore_api::security::ImageUser;
use longshore_cri::{CriError, SharedImages, v1};
use longshore_util::clock::SharedClock;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::backoff::Backoffs;
use crate::event::{EventRecorder, EventTarget};
use crate::model::DesiredPod;

/// Pulls at once where the configuration sets no bound; each has its own connections and unpacking.
const UNBOUNDED: usize = 64;
/// After a failed pull the next look is soon, so that the status tells of the back-off.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What the manager works with.
#[derive(Debug, Clone)]
pub struct ImageOptions {
    /// The image service.
    pub images: SharedImages,
    /// Events.
    pub events: EventRecorder,
    /// Wall-clock time.
    pub clock: SharedClock,
    /// `serializeImagePulls`.
    pub serial: bool,
    /// `maxParallelImagePulls`.
    pub parallel: Option<usize>,
}

/// What is asked for.
#[derive(Debug)]
pub struct ImageRequest<'a> {
    /// The pod.
    pub pod: &'a DesiredPod,
    /// Whom events are about.
    pub target: &'a EventTarget,
    /// The image as the user wrote it.
    pub image: &'a str,
    /// `imagePullPolicy`; none = by the image's tag.
    pub policy: Option<&'a str>,
    /// The pod's sandbox, which tells the runtime about the handler.
    pub sandbox: v1::PodSandboxConfig,
    /// Logins to try in order; none = anonymous.
    pub logins: Vec<v1::AuthConfig>,
}

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentImage {
    /// What the runtime resolved the name to.
    pub reference: String,
    /// The user that the image names.
    pub user: ImageUser,
}

/// Why a container waits for its image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ImageError {
    /// Waiting reason, e.g. `ErrImagePull`.
    pub reason: &'static str,
    /// Message for the status.
    pub message: String,
    /// When the next try makes sense; none = as with any failure.
    pub retry_after: Option<Duration>,
}

impl ImageError {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after: None }
    }
}

/// Makes images present.
#[derive(Debug)]
pub struct ImageManager {
    options: ImageOptions,
    pulls: Arc<Semaphore>,
    backoffs: Backoffs,
}

impl ImageManager {
    /// Returns a manager without any pull in flight.
    pub fn new(options: ImageOptions) -> Self {
        let permits = if options.serial { 1 } else { options.parallel.unwrap_or(UNBOUNDED).max(1) };
        Self { options, pulls: Arc::new(Semaphore::new(permits)), backoffs: Backoffs::default() }
    }

    /// Makes the image present, or says why the container has to wait. Dropping the call gives up the pull.
    pub async fn ensure(&self, request: ImageRequest<'_>) -> Result<PresentImage, ImageError> {
        let name = image_name::with_default_tag(request.image).map_err(|message| {
            self.options.events.warning(request.target, "InspectFailed", message.clone());
            ImageError::new("InvalidImageName", message)
        })?;
        let spec = v1::ImageSpec {
            image: name,
            annotations: request.pod.pod.metadata.annotations.clone().unwrap_or_default(),
            ..v1::ImageSpec::default()
        };
        let present = self.look(&spec).await.map_err(|error| {
            let message = format!("Failed to inspect image {:?}: {}", request.image, error.message);
            self.options.events.warning(request.target, "InspectFailed", message.clone());
            ImageError::new("ImageInspectError", message)
        })?;
        let policy = request.policy.unwrap_or_else(|| image_name::default_pull_policy(request.image));
        match (present, policy) {
            (Some(image), "IfNotPresent" | "Never") => {
                let text = format!(
                    "Container image {:?} already present on machine and can be accessed by the pod",
                    request.image
                );
                self.options.events.normal(request.target, "Pulled", text);
                Ok(present_image(&image))
            }
            (None, "Never") => {
                let message = format!("Container image {:?} is not present with pull policy of Never", request.image);
                self.options.events.warning(request.target, "ErrImageNeverPull", message.clone());
                Err(ImageError::new("ErrImageNeverPull", message))
            }
            (_, _) => self.pull(&request, spec).await,
        }
    }

    async fn look(&self, spec: &v1::ImageSpec) -> Result<Option<v1::Image>, CriError> {
        let request = v1::ImageStatusRequest { image: Some(spec.clone()), verbose: false };
        let answer = self.options.images.image_status(request).await?;
        Ok(answer.image.filter(|image| !image.id.is_empty()))
    }

    async fn pull(&self, request: &ImageRequest<'_>, spec: v1::ImageSpec) -> Result<PresentImage, ImageError> {
        let image = request.image;
        let events = &self.options.events;
        let key = format!("{}_{image}", request.pod.uid);
        if let Some((error, left)) = self.backoffs.waiting(&key, self.options.clock.now()) {
            let text = format!("Back-off pulling image {image:?}");
            events.normal(request.target, "BackOff", text.clone());
            return Err(ImageError {
                retry_after: Some(left),
                ..ImageError::new("ImagePullBackOff", format!("{text}: {error}"))
            });
        }
        events.normal(request.target, "Pulling", format!("Pulling image {image:?}"));
        let asked = Instant::now();
        // Closed never; without a permit the pull goes on unbounded.
        let _permit = self.pulls.acquire().await.ok();
        let begin = Instant::now();
        match self.try_logins(request, &spec).await {
            Ok(reference) => {
                self.backoffs.succeeded(&key);
                let found = self.look(&spec).await.ok().flatten();
                let size = found.as_ref().map_or(0, |image| image.size);
                let text = format!(
                    "Successfully pulled image {image:?} in {} ({} including waiting). Image size: {size} bytes.",
                    rounded(begin.elapsed()),
                    rounded(asked.elapsed()),
                );
                events.normal(request.target, "Pulled", text);
                Ok(found.as_ref().map_or(PresentImage { reference, user: ImageUser::Id(0) }, present_image))
            }
            Err(error) => {
                let reason = reason_of(&error);
                events.warning(request.target, "Failed", format!("Failed to pull image {image:?}: {}", error.message));
                self.backoffs.failed(&key, &format!("{reason}: {}", error.message), self.options.clock.now());
                Err(ImageError { retry_after: Some(LOOK_AGAIN), ..ImageError::new(reason, error.message) })
            }
        }
    }

    /// Tries one login after the other; the last error counts.
    async fn try_logins(&self, request: &ImageRequest<'_>, spec: &v1::ImageSpec) -> Result<String, CriError> {
        let mut logins: Vec<Option<v1::AuthConfig>> = request.logins.iter().cloned().map(Some).collect();
        if logins.is_empty() {
            logins.push(None);
        }
        let mut last = None;
        for login in logins {
            let call = v1::PullImageRequest {
                image: Some(spec.clone()),
                auth: login,
                sandbox_config: Some(request.sandbox.clone()),
            };
            match self.options.images.pull_image(call).await {
                Ok(answer) => return Ok(answer.image_ref),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| CriError::new("PullImage", longshore_cri::ErrorKind::Cancelled, "no login to try")))
    }
}

fn present_image(image: &v1::Image) -> PresentImage {
    let user = match (&image.uid, image.username.as_str()) {
        (Some(uid), _) => ImageUser::Id(uid.value),
        (None, "") => ImageUser::Id(0),
        (None, name) => ImageUser::Name(name.to_owned()),
    };
    PresentImage { reference: image.id.clone(), user }
}

/// Runtimes put these two words in front of their error where they apply; it is the contract's only sign.
fn reason_of(error: &CriError) -> &'static str {
    ["RegistryUnavailable", "SignatureValidationFailed"]
        .into_iter()
        .find(|reason| error.message.starts_with(reason))
        .unwrap_or("ErrImagePull")
}

fn rounded(duration: Duration) -> String {
    go_duration(Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
}
