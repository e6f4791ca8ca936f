//! Pulls: one per image and rights at a time, shared by all who wait for it, bounded in number.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use longshore_api::image_name;
use longshore_cri::{CriError, ErrorKind, SharedImages, v1};
use longshore_util::Tasks;
use longshore_util::clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::Keyring;

/// A pull that worked.
#[derive(Debug, Clone)]
pub(super) struct Pulled {
    /// What the runtime resolved the name to.
    pub(super) reference: String,
    /// When it was asked for.
    pub(super) asked: Timestamp,
    /// How long the registry and the runtime took.
    pub(super) took: Duration,
}

type Outcome = Option<Result<Pulled, CriError>>;
/// Rights are part of the key: what one pod may fetch, another may not see by waiting beside it.
type Key = (String, Keyring);

#[derive(Clone)]
pub(super) struct Pulls {
    images: SharedImages,
    clock: SharedClock,
    running: Arc<Mutex<HashMap<Key, watch::Receiver<Outcome>>>>,
    slots: Option<Arc<Semaphore>>,
    tasks: Tasks,
}

impl Pulls {
    pub(super) fn new(images: SharedImages, parallel: Option<usize>, clock: SharedClock, tasks: Tasks) -> Self {
        let slots = parallel.map(|count| Arc::new(Semaphore::new(count.max(1))));
        Self { images, clock, running: Arc::default(), slots, tasks }
    }

    /// Pulls, or waits for the same pull that already runs. Dropping the future leaves the pull running: the next asker
    /// finds it, and a registry's work is not thrown away.
    pub(super) async fn pull(
        &self,
        image: &str,
        keyring: &Keyring,
        sandbox: Option<v1::PodSandboxConfig>,
    ) -> Result<Pulled, CriError> {
        let mut outcome = self.join(image, keyring, sandbox);
        let answer = outcome.wait_for(Option::is_some).await;
        match answer.as_deref() {
            Ok(Some(answer)) => answer.clone(),
            Ok(None) | Err(_) => Err(CriError::new("PullImage", ErrorKind::Cancelled, "the agent is shutting down")),
        }
    }

    fn join(&self, image: &str, keyring: &Keyring, sandbox: Option<v1::PodSandboxConfig>) -> watch::Receiver<Outcome> {
        let key = (image.to_owned(), keyring.clone());
        let mut running = self.running.lock();
        if let Some(outcome) = running.get(&key) {
            return outcome.clone();
        }
        let (sender, receiver) = watch::channel(None);
        running.insert(key.clone(), receiver.clone());
        drop(running);
        let this = self.clone();
        let work = async move {
            let answer = this.run(&key, sandbox).await;
            this.running.lock().remove(&key);
            sender.send_replace(Some(answer));
        };
        drop(longshore_util::spawn(&self.tasks, "image-pull", Box::pin(work)));
        receiver
    }

    async fn run(&self, key: &Key, sandbox: Option<v1::PodSandboxConfig>) -> Result<Pulled, CriError> {
        let (image, keyring) = key;
        let asked = self.clock.now();
        let _slot = match &self.slots {
            Some(slots) => slots.acquire().await.ok(),
            None => None,
        };
        let begun = self.clock.now();
        let name = image_name::parse(image).ok();
        let mut logins: Vec<Option<v1::AuthConfig>> =
            name.iter().flat_map(|name| keyring.matching(name)).map(|credential| Some(credential.message())).collect();
        if logins.is_empty() {
            logins.push(None);
        }
        let mut last = None;
        for auth in logins {
            let request = v1::PullImageRequest {
                image: Some(v1::ImageSpec { image: image.clone(), ..v1::ImageSpec::default() }),
                auth,
                sandbox_config: sandbox.clone(),
            };
            match self.images.pull_image(request).await {
                Ok(answer) => {
                    let took = self.clock.now().duration_since(begun).unsigned_abs();
                    return Ok(Pulled { reference: answer.image_ref, asked, took });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| CriError::new("PullImage", ErrorKind::Cancelled, "nothing was tried")))
    }
}
