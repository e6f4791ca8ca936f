//! Pods that the API binds to this node: list, then watch from that version, bookmarks, list again after 410. When the
//! connection is lost the last state stands; an error is never an empty set. Mirror pods go to the mirror room instead.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher::{self, Event};
use longshore_transport::client::{Typed, brief};
use longshore_util::Tasks;
use longshore_util::backoff::Backoff;
use tokio::time::{Instant, sleep};

use super::mux::Mux;
use crate::mirror::Mirrors;
use crate::model::annotations::CONFIG_MIRROR;
use crate::model::{PodUid, SourceKind};

/// A watch is renewed this often: a connection that died without a word is noticed at the latest then.
const WATCH_SECONDS: u32 = 60;
/// Pods are listed in pages of this size, which bounds the memory of a start with many pods.
const PAGE: u32 = 250;

/// After so long without an error it is a new one: twice the longest pause and a watch's start.
const WELL_AFTER: Duration = Duration::from_secs(45);

/// Starts the source.
pub(super) fn start(client: kube::Client, node: &str, mux: Arc<Mux>, mirrors: Option<Arc<Mirrors>>, tasks: &Tasks) {
    let config =
        watcher::Config::default().fields(&format!("spec.nodeName={node}")).timeout(WATCH_SECONDS).page_size(PAGE);
    let follower = Follower { mux, mirrors, listing: None };
    let token = tasks.token().clone();
    let seed =
        node.bytes().fold(u64::from(std::process::id()), |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    tasks.essential("api-source", async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = follow(client, config, follower, seed) => {}
        }
    });
}

async fn follow(client: kube::Client, config: watcher::Config, mut follower: Follower, seed: u64) {
    let api: Api<Typed<Pod>> = Api::all(client);
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(15), seed);
    let mut told = String::new();
    let mut last = Instant::now();
    // The stream never ends; made anew it lists anew, which is right in any case.
    loop {
        let mut stream = Box::pin(watcher::watcher(api.clone(), config.clone()));
        while let Some(next) = stream.next().await {
            match next {
                Ok(event) => {
                    // Init only says that a list is about to be asked for.
                    if !matches!(event, Event::Init) {
                        if !told.is_empty() {
                            tracing::info!("pods of the API are followed again");
                            told.clear();
                        }
                        backoff.reset();
                    }
                    follower.take(event);
                }
                Err(error) => {
                    follower.failed();
                    // A watch that nothing comes on is well, too, and says so to nobody.
                    if last.elapsed() > WELL_AFTER {
                        backoff.reset();
                        told.clear();
                    }
                    last = Instant::now();
                    let text = brief(&error);
                    if text == told {
                        tracing::debug!(error = text, "cannot follow the pods of the API");
                    } else {
                        tracing::warn!(error = text, "cannot follow the pods of the API, the last state stands");
                        told = text;
                    }
                    // The stream goes on from the last version when it is polled again.
                    sleep(backoff.next_delay()).await;
                }
            }
        }
    }
}

/// Puts events where they belong.
#[derive(Debug)]
struct Follower {
    mux: Arc<Mux>,
    mirrors: Option<Arc<Mirrors>>,
    /// What a list has brought so far.
    listing: Option<Vec<Pod>>,
}

impl Follower {
    fn take(&mut self, event: Event<Typed<Pod>>) {
        match event {
            Event::Init => self.listing = Some(Vec::new()),
            Event::InitApply(pod) => {
                if let Some(listing) = &mut self.listing {
                    listing.push(frugal(pod.0));
                }
            }
            Event::InitDone => {
                let Some(listing) = self.listing.take() else { return };
                let (mirrored, own): (Vec<Pod>, Vec<Pod>) = listing.into_iter().partition(is_mirror);
                if let Some(mirrors) = &self.mirrors {
                    mirrors.replace(mirrored);
                }
                self.mux.replace(SourceKind::Api, own);
            }
            Event::Apply(pod) => {
                let pod = frugal(pod.0);
                if !is_mirror(&pod) {
                    self.mux.apply(SourceKind::Api, pod);
                } else if let Some(mirrors) = &self.mirrors {
                    mirrors.apply(pod);
                }
            }
            Event::Delete(pod) => {
                if is_mirror(&pod) {
                    if let Some(mirrors) = &self.mirrors {
                        mirrors.remove(&pod);
                    }
                } else if let Some(uid) = pod.metadata.uid.as_deref() {
                    self.mux.remove(SourceKind::Api, &PodUid::from(uid));
                }
            }
        }
    }

    /// A list that broke half-way says nothing.
    fn failed(&mut self) {
        self.listing = None;
    }
}

/// Says whether a pod stands for a static pod.
pub(crate) fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|notes| notes.contains_key(CONFIG_MIRROR))
}

/// Drops what no room reads.
fn frugal(mut pod: Pod) -> Pod {
    pod.metadata.managed_fields = None;
    pod
}

#[cfg(test)]
mod tests;
