//! The task that writes events, one after the other so that a count never overtakes its event.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use longshore_transport::client::brief;
use longshore_util::backoff::Backoff;
use longshore_util::clock::SharedClock;
use tokio_util::sync::CancellationToken;

use super::TokenBucket;
use super::correlate::{Correlator, Entry};
use super::record::{EventOptions, Occurrence, Queue};
use crate::telemetry::EventMetrics;

const COMPONENT: &str = "kubelet";
/// One write; the next try comes after it.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// An event that could not be written for as long as the API would have kept it is of no use any more.
const GIVE_UP_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// For what is still queued when the agent stops.
const FLUSH_DEADLINE: Duration = Duration::from_secs(2);

/// Writes what the queue holds.
pub(super) struct Sink {
    client: kube::Client,
    node: String,
    limit: Option<TokenBucket>,
    clock: SharedClock,
    metrics: EventMetrics,
    queue: Arc<Queue>,
    correlator: Correlator,
}

impl Sink {
    pub(super) fn new(
        client: kube::Client,
        options: EventOptions,
        clock: SharedClock,
        metrics: EventMetrics,
        queue: Arc<Queue>,
    ) -> Self {
        let limit = (options.qps > 0)
            .then(|| TokenBucket::new(options.burst.max(1), Duration::from_secs(1) / options.qps, clock.now()));
        Self { client, node: options.node, limit, clock, metrics, queue, correlator: Correlator::new() }
    }

    pub(super) async fn run(mut self, token: CancellationToken) {
        let queue = Arc::clone(&self.queue);
        loop {
            let event = tokio::select! {
                biased;
                () = token.cancelled() => break,
                event = queue.pop() => event,
            };
            tokio::select! {
                biased;
                // The one in hand is lost only if the API did not take it within the time of the flush.
                () = grace(&token) => break,
                () = self.handle(&event) => {}
            }
        }
        let flush = async {
            while let Some(event) = queue.try_pop() {
                self.handle(&event).await;
            }
        };
        if tokio::time::timeout(FLUSH_DEADLINE, flush).await.is_err() {
            tracing::debug!("events were still waiting when the agent stopped");
        }
    }

    async fn handle(&mut self, event: &Occurrence) {
        let Some(mut entry) = self.correlator.correlate(event, self.clock.now()) else {
            self.metrics.filtered.inc();
            return;
        };
        let seed = event.at.as_millisecond().unsigned_abs();
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10), seed);
        loop {
            self.wait_for_turn().await;
            match tokio::time::timeout(WRITE_DEADLINE, self.write(event, &mut entry)).await {
                Ok(Ok(())) => {
                    self.correlator.written(&entry);
                    self.metrics.written.inc();
                    return;
                }
                Ok(Err(error)) if is_final(&error) => {
                    tracing::warn!(error = brief(&error), reason = %event.reason, "the API refused an event");
                    self.metrics.refused.inc();
                    return;
                }
                Ok(Err(error)) => tracing::debug!(error = brief(&error), "event not written yet"),
                Err(_) => tracing::debug!("event not written yet: no answer"),
            }
            if self.clock.now().duration_since(event.at) > GIVE_UP_AFTER {
                self.metrics.dropped.inc();
                return;
            }
            tokio::time::sleep(backoff.next_delay()).await;
        }
    }

    async fn wait_for_turn(&mut self) {
        let Some(limit) = &mut self.limit else { return };
        while let Err(wait) = limit.take(self.clock.now()) {
            tokio::time::sleep(wait).await;
        }
    }

    async fn write(&self, event: &Occurrence, entry: &mut Entry) -> Result<(), kube::Error> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &entry.namespace);
        if entry.count > 1 {
            let patch = serde_json::json!({
                "count": entry.count,
                "lastTimestamp": Time(entry.last),
                "message": entry.message,
            });
            match api.patch(&entry.name, &PatchParams::default(), &Patch::Strategic(patch)).await {
                Ok(_) => return Ok(()),
                // It outlived its keeping time: it is written anew with its count.
                Err(error) if status_of(&error) == Some(404) => {}
                Err(error) => return Err(error),
            }
        }
        match api.create(&PostParams::default(), &self.body(event, entry)).await {
            // An earlier try did arrive, only its answer was lost.
            Err(error) if status_of(&error) == Some(409) => Ok(()),
            other => other.map(drop),
        }
    }

    fn body(&self, event: &Occurrence, entry: &Entry) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(entry.name.clone()),
                namespace: Some(entry.namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: event.target.reference().clone(),
            reason: Some(event.reason.to_string()),
            message: Some(entry.message.clone()),
            source: Some(EventSource { component: Some(COMPONENT.into()), host: Some(self.node.clone()) }),
            first_timestamp: Some(Time(entry.first)),
            last_timestamp: Some(Time(entry.last)),
            count: Some(entry.count),
            type_: Some(event.kind.as_str().into()),
            reporting_component: Some(COMPONENT.into()),
            reporting_instance: Some(self.node.clone()),
            ..Event::default()
        }
    }
}

async fn grace(token: &CancellationToken) {
    token.cancelled().await;
    tokio::time::sleep(FLUSH_DEADLINE).await;
}

fn status_of(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Whether another try would be answered the same: the server understood and refused. Too many requests, server errors
/// and an expired login are waited out.
fn is_final(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => (400..500).contains(&status.code) && ![401, 408, 429].contains(&status.code),
        kube::Error::BuildRequest(_) | kube::Error::SerdeError(_) => true,
        _ => false,
    }
}
