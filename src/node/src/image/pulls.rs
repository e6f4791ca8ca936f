//! The pulls under way. One image is pulled once at a time, however many pods want it; all of them share its end.
//! How many different ones run side by side, and how often one may begin, the configuration says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_cri::{CriError, SharedImages, v1};
use longshore_util::{Tasks, spawn};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::flight::Flights;
use super::login::{Login, Source};
use super::metrics::ImageMetrics;
use super::rate::Bucket;
use super::records::Records;

/// Pulls at once where the configuration sets no bound; each has its own connections and unpacking.
const UNBOUNDED: usize = 64;
/// Where pulls go one by one, one that lasts longer lets the next begin beside it: a registry that hangs must not keep the
/// node from all others.
const STEP_ASIDE: Duration = Duration::from_secs(10);

/// How many pulls, and how often.
#[derive(Debug, Clone, Copy)]
pub struct PullLimits {
    /// `serializeImagePulls`.
    pub serial: bool,
    /// `maxParallelImagePulls`.
    pub parallel: Option<usize>,
    /// `registryPullQPS`; 0 = no bound.
    pub per_second: i32,
    /// `registryBurst`.
    pub burst: i32,
}

/// One pull.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// What.
    pub(super) spec: v1::ImageSpec,
    /// For whom: the first pod that asked.
    pub(super) sandbox: v1::PodSandboxConfig,
    /// Logins in the order in which they are tried; none = without one.
    pub(super) logins: Vec<Login>,
}

/// What makes two pulls the same. Pods with other logins pull for themselves: one's right is not the other's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    image: String,
    handler: String,
    logins: Vec<(Source, String)>,
}

/// An image that has been pulled.
#[derive(Debug, Clone)]
pub(super) struct Pulled {
    /// What the runtime calls it.
    pub(super) reference: String,
    /// What the runtime says of it.
    pub(super) image: Option<v1::Image>,
    /// The time of the pull itself.
    pub(super) took: Duration,
}

/// Why a pull failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum PullError {
    /// More pulls than `registryPullQPS` allows; a later try may pass.
    #[error("pull QPS exceeded")]
    TooMany,
    /// The runtime's words, one error per login that was tried.
    #[error("{0}")]
    Runtime(String),
    /// What must be noted before cannot be.
    #[error("{0}")]
    NotNoted(String),
}

type Outcome = Result<Pulled, PullError>;

/// What a pull needs, shared with those under way.
#[derive(Debug)]
struct Line {
    images: SharedImages,
    places: Semaphore,
    serial: bool,
    rate: Option<Bucket>,
    records: Option<Records>,
    metrics: ImageMetrics,
    tasks: Tasks,
    /// Pulls that came to a good end, ever.
    done: AtomicU64,
}

/// All pulls of the node.
#[derive(Debug)]
pub(super) struct Pulls {
    line: Arc<Line>,
    flights: Flights<Key, Arc<Outcome>>,
}

impl Pulls {
    pub(super) fn new(
        images: SharedImages,
        limits: PullLimits,
        records: Option<Records>,
        metrics: ImageMetrics,
        tasks: Tasks,
    ) -> Self {
        let places = if limits.serial { 1 } else { limits.parallel.unwrap_or(UNBOUNDED).max(1) };
        let line = Line {
            images,
            places: Semaphore::new(places),
            serial: limits.serial,
            rate: Bucket::new(limits.per_second, limits.burst),
            records,
            metrics,
            tasks,
            done: AtomicU64::new(0),
        };
        Self { line: Arc::new(line), flights: Flights::default() }
    }

    /// A number that grows with each good pull: who saw an image missing looks again if it has grown.
    pub(super) fn done(&self) -> u64 {
        self.line.done.load(Ordering::Acquire)
    }

    /// Pulls, or waits for the same pull of another pod. Given up when nobody waits for it any more.
    pub(super) async fn pull(&self, order: Order) -> Outcome {
        let key = Key {
            image: order.spec.image.clone(),
            handler: order.spec.runtime_handler.clone(),
            logins: order.logins.iter().map(|login| (login.source.clone(), login.hash())).collect(),
        };
        let line = Arc::clone(&self.line);
        let work = self.flights.join(key, || Box::pin(async move { Arc::new(Line::pull(&line, order).await) }));
        Outcome::clone(&*work.await)
    }
}

impl Line {
    async fn pull(this: &Arc<Self>, order: Order) -> Outcome {
        // Never closed; without a place the pull would go on all the same.
        let place = this.places.acquire().await.ok();
        if this.rate.as_ref().is_some_and(|rate| !rate.try_take()) {
            return Err(PullError::TooMany);
        }
        let note = Note::begin(this, &order.spec.image).await?;
        let begin = Instant::now();
        let mut work = std::pin::pin!(this.try_logins(&order));
        let outcome = tokio::select! {
            biased;
            outcome = &mut work => outcome,
            () = tokio::time::sleep(STEP_ASIDE), if this.serial => {
                drop(place);
                work.await
            }
        };
        let took = begin.elapsed();
        let (reference, login) = match outcome {
            Ok(good) => good,
            Err(error) => {
                note.failed().await;
                return Err(error);
            }
        };
        let request = v1::ImageStatusRequest { image: Some(order.spec.clone()), verbose: false };
        let image = this.images.image_status(request).await.ok().and_then(|answer| answer.image);
        let image = image.filter(|image| !image.id.is_empty());
        note.pulled(image.as_ref().map_or(&reference, |image| &image.id), login).await;
        this.metrics.pulled(image.as_ref().map_or(0, |image| image.size), took);
        this.done.fetch_add(1, Ordering::Release);
        Ok(Pulled { reference, image, took })
    }

    /// Tries one login after the other until one is good; tells which one that was.
    async fn try_logins<'a>(&self, order: &'a Order) -> Result<(String, Option<&'a Login>), PullError> {
        let mut logins: Vec<Option<&Login>> = order.logins.iter().map(Some).collect();
        if logins.is_empty() {
            logins.push(None);
        }
        let mut errors: Vec<String> = Vec::new();
        for login in logins {
            let request = v1::PullImageRequest {
                image: Some(order.spec.clone()),
                auth: login.map(|login| login.auth.clone()),
                sandbox_config: Some(order.sandbox.clone()),
            };
            match self.images.pull_image(request).await {
                Ok(answer) => return Ok((answer.image_ref, login)),
                Err(CriError { message, .. }) if errors.contains(&message) => {}
                Err(error) => errors.push(error.message),
            }
        }
        Err(PullError::Runtime(match errors.as_slice() {
            [single] => single.clone(),
            several => format!("[{}]", several.join(", ")),
        }))
    }
}

/// The note that a pull is under way. Whatever happens to the pull, the note is not left open.
struct Note {
    line: Arc<Line>,
    image: String,
    is_open: bool,
}

impl Note {
    async fn begin(line: &Arc<Line>, image: &str) -> Result<Self, PullError> {
        let mut this = Self { line: Arc::clone(line), image: image.to_owned(), is_open: false };
        if let Some(records) = &line.records {
            // Also while it is being written: the writing goes on when its caller is gone.
            this.is_open = true;
            if let Err(error) = records.begin(image).await {
                this.is_open = false;
                return Err(PullError::NotNoted(error));
            }
            line.metrics.records(records.counts());
        }
        Ok(this)
    }

    async fn pulled(mut self, image_ref: &str, login: Option<&Login>) {
        if let Some(records) = &self.line.records {
            records.pulled(&self.image, image_ref, login).await;
            self.line.metrics.records(records.counts());
        }
        self.is_open = false;
    }

    async fn failed(mut self) {
        if let Some(records) = &self.line.records {
            records.failed(&self.image).await;
            self.line.metrics.records(records.counts());
        }
        self.is_open = false;
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let Some(records) = self.line.records.clone().filter(|_| self.is_open) else { return };
        // At the end of the agent nobody can look any more; then its next start does.
        if self.line.tasks.token().is_cancelled() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (image, images) = (std::mem::take(&mut self.image), Arc::clone(&self.line.images));
        let settle = async move { records.settle(&image, &images).await };
        drop(spawn(&self.line.tasks, "settle-pull", settle));
    }
}
