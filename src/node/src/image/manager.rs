//! Decides whether to pull, and says what comes of it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use longshore_api::image_name;
use longshore_api::restart::go_duration;
use longshore_api::security::ImageUser;
use longshore_cri::{CriError, SharedImages, v1};
use longshore_util::backoff::Backoff;
use longshore_util::clock::SharedClock;
use longshore_util::{Tasks, spawn};
use tokio::time::Instant;

use super::backoff::Backoffs;
use super::login::{self, Keyring, Login, NodeFiles, Source};
use super::metrics::ImageMetrics;
use super::provider::Providers;
use super::pulls::{Order, PullError, PullLimits, Pulled, Pulls};
use super::records::{Proof, Records};
use crate::event::{EventRecorder, EventTarget};
use crate::model::DesiredPod;

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
    /// How many pulls, and how often.
    pub limits: PullLimits,
    /// Where the node's own logins stand.
    pub files: NodeFiles,
    /// Programs that give logins.
    pub providers: Option<Arc<Providers>>,
    /// Who may use what was pulled; `None` = everybody.
    pub records: Option<Records>,
    /// Figures.
    pub metrics: ImageMetrics,
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
    /// The pod's pull secrets.
    pub secrets: Vec<Arc<Secret>>,
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
    pulls: Pulls,
    backoffs: Backoffs,
}

impl ImageManager {
    /// Returns a manager without any pull in flight; what an earlier agent left open is looked after beside.
    pub fn new(options: ImageOptions, tasks: &Tasks) -> Self {
        let images = Arc::clone(&options.images);
        if let Some(records) = options.records.clone() {
            options.metrics.records(records.counts());
            drop(spawn(tasks, "pull-records", reconcile(records, images.clone(), tasks.clone())));
        }
        let (records, metrics) = (options.records.clone(), options.metrics.clone());
        let pulls = Pulls::new(images, options.limits, records, metrics, tasks.clone());
        Self { options, pulls, backoffs: Backoffs::default() }
    }

    /// Figures of images.
    pub fn metrics(&self) -> &ImageMetrics {
        &self.options.metrics
    }

    /// Makes the image present, or says why the container has to wait. Dropping the call gives up the pull, unless another
    /// pod waits for it.
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
        let policy = request.policy.unwrap_or_else(|| image_name::default_pull_policy(request.image));
        let done = self.pulls.done();
        let mut present = self.inspect(&request, &spec).await?;
        if present.is_none() && policy != "Always" && self.pulls.done() != done {
            // A pull ended between the question and its answer, maybe this image's.
            present = self.inspect(&request, &spec).await?;
        }
        let metrics = &self.options.metrics;
        if policy == "Always" {
            metrics.ensured(policy, None, Some(true));
            return self.pull(&request, spec).await;
        }
        let Some(image) = present else {
            metrics.ensured(policy, Some(false), Some(policy != "Never"));
            if policy == "Never" {
                return Err(self.never(&request, "is not present with pull policy of Never"));
            }
            return self.pull(&request, spec).await;
        };
        let is_accessible = self.is_accessible(&request, &spec.image, &image.id).await;
        metrics.ensured(policy, Some(true), Some(!is_accessible && policy != "Never"));
        if is_accessible {
            let text = format!(
                "Container image {:?} already present on machine and can be accessed by the pod",
                request.image
            );
            self.options.events.normal(request.target, "Pulled", text);
            return Ok(present_image(&image));
        }
        if policy == "Never" {
            let why =
                "is present with pull policy of Never but does not have the proper credentials to access the image";
            return Err(self.never(&request, why));
        }
        self.pull(&request, spec).await
    }

    fn never(&self, request: &ImageRequest<'_>, why: &str) -> ImageError {
        let message = format!("Container image {:?} {why}", request.image);
        self.options.events.warning(request.target, "ErrImageNeverPull", message.clone());
        ImageError::new("ErrImageNeverPull", message)
    }

    /// Says whether the pod may use an image that is here.
    async fn is_accessible(&self, request: &ImageRequest<'_>, image: &str, image_ref: &str) -> bool {
        let Some(records) = &self.options.records else { return true };
        let (result, accessible) = match records.proof(image, image_ref) {
            Proof::None => ("credentialPolicyAllowed", true),
            Proof::Pull => ("mustAuthenticate", false),
            Proof::Login => {
                let logins = self.logins(request, image).await;
                match records.accepts(image, image_ref, &logins).await {
                    true => ("credentialRecordFound", true),
                    false => ("mustAuthenticate", false),
                }
            }
        };
        self.options.metrics.proof(result);
        accessible
    }

    async fn inspect(&self, request: &ImageRequest<'_>, spec: &v1::ImageSpec) -> Result<Option<v1::Image>, ImageError> {
        let ask = v1::ImageStatusRequest { image: Some(spec.clone()), verbose: false };
        let answer = self.options.images.image_status(ask).await.map_err(|CriError { message, .. }| {
            let message = format!("Failed to inspect image {:?}: {message}", request.image);
            self.options.events.warning(request.target, "InspectFailed", message.clone());
            ImageError::new("ImageInspectError", message)
        })?;
        Ok(answer.image.filter(|image| !image.id.is_empty()))
    }

    /// Pulls for this pod that failed and wait may be tried at once.
    pub fn forget_delays(&self, pod_uid: &str) {
        self.backoffs.forget(&format!("{pod_uid}_"));
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
        let logins = self.logins(request, &spec.image).await;
        events.normal(request.target, "Pulling", format!("Pulling image {image:?}"));
        let asked = Instant::now();
        match self.pulls.pull(Order { spec, sandbox: request.sandbox.clone(), logins }).await {
            Ok(Pulled { reference, image: found, took }) => {
                self.backoffs.succeeded(&key);
                let waited = asked.elapsed();
                let size = found.as_ref().map_or(0, |image| image.size);
                let text = format!(
                    "Successfully pulled image {image:?} in {} ({} including waiting). Image size: {size} bytes.",
                    rounded(took.min(waited)),
                    rounded(waited),
                );
                events.normal(request.target, "Pulled", text);
                Ok(found.as_ref().map_or(PresentImage { reference, user: ImageUser::Id(0) }, present_image))
            }
            Err(error) => {
                let (reason, message) = explain(image, &error);
                events.warning(request.target, "Failed", format!("Failed to pull image {image:?}: {message}"));
                self.backoffs.failed(&key, &format!("{reason}: {message}"), self.options.clock.now());
                Err(ImageError { retry_after: Some(LOOK_AGAIN), ..ImageError::new(reason, message) })
            }
        }
    }

    /// All logins that fit the image: the pod's own first, then the node's.
    async fn logins(&self, request: &ImageRequest<'_>, image: &str) -> Vec<Login> {
        let Ok(name) = image_name::parse(image) else { return Vec::new() };
        let repository = name.repository();
        let mut own = Keyring::default();
        for secret in &request.secrets {
            match login::of_secret(secret) {
                Ok(places) => own.add(places, &Source::Secret(login::origin(secret))),
                Err(error) => {
                    let name = secret.metadata.name.as_deref().unwrap_or_default();
                    tracing::warn!(pod = %request.pod.key, secret = name, error, "pull secret is of no use");
                }
            }
        }
        let mut node = Keyring::default();
        let files = self.options.files.clone();
        let read = tokio::task::spawn_blocking(move || files.read()).await;
        node.add(read.unwrap_or_default(), &Source::Node);
        let mut logins = own.find(&repository);
        logins.extend(node.find(&repository));
        if let Some(providers) = &self.options.providers {
            logins.extend(providers.logins(request.pod, &repository).await);
        }
        logins
    }
}

/// Settles what an earlier agent left open, as soon as the runtime answers.
async fn reconcile(records: Records, images: SharedImages, tasks: Tasks) {
    let mut pauses = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), 0);
    loop {
        tokio::select! {
            biased;
            () = tasks.token().cancelled() => return,
            done = records.reconcile(&images) => if done {
                return;
            },
        }
        tokio::select! {
            biased;
            () = tasks.token().cancelled() => return,
            () = tokio::time::sleep(pauses.next_delay()) => {}
        }
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

/// Reason and message of a failed pull. Runtimes put a word in front of their error where it applies; it is the contract's
/// only sign.
fn explain(image: &str, error: &PullError) -> (&'static str, String) {
    const WORDS: [(&str, &str); 2] = [
        ("RegistryUnavailable", "the registry is unavailable"),
        ("SignatureValidationFailed", "the signature validation failed"),
    ];
    let message = error.to_string();
    for (word, meaning) in WORDS {
        if let Some(rest) = message.strip_prefix(word) {
            return (word, format!("image pull failed for {image} because {meaning}{rest}"));
        }
    }
    ("ErrImagePull", message)
}

fn rounded(duration: Duration) -> String {
    go_duration(Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
}
