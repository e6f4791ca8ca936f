//! The recorder: a bounded queue that drops its oldest entry rather than make anybody wait.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use longshore_util::Tasks;
use longshore_util::clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::sink::Sink;
use super::{EventTarget, EventType};
use crate::telemetry::EventMetrics;

/// Events waiting to be written; as many as the Go client keeps.
const QUEUE: usize = 1000;
/// Longest message taken over; what runtimes and registries say may be of any size.
const MESSAGE_BYTES: usize = 16 * 1024;

/// One thing that happened.
#[derive(Debug, Clone)]
pub(super) struct Occurrence {
    pub(super) target: EventTarget,
    pub(super) kind: EventType,
    pub(super) reason: Cow<'static, str>,
    pub(super) message: String,
    pub(super) at: Timestamp,
}

/// What an [`EventRecorder`] works with.
#[derive(Debug, Clone)]
pub struct EventOptions {
    /// The node's name: `source.host` and `reportingInstance`.
    pub node: String,
    /// `eventRecordQPS`; 0 = no limit.
    pub qps: u32,
    /// `eventBurst`.
    pub burst: u32,
}

/// Records events. Cheap to clone, never blocks.
#[derive(Debug, Clone)]
pub struct EventRecorder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: SharedClock,
    metrics: EventMetrics,
    /// `None` when there is no API: events are logged only.
    queue: Option<Arc<Queue>>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<VecDeque<Occurrence>>,
    ready: Notify,
}

impl Queue {
    pub(super) fn try_pop(&self) -> Option<Occurrence> {
        self.waiting.lock().pop_front()
    }

    pub(super) async fn pop(&self) -> Occurrence {
        loop {
            if let Some(event) = self.try_pop() {
                return event;
            }
            self.ready.notified().await;
        }
    }

    /// Returns whether an older one had to go.
    fn push(&self, event: Occurrence) -> bool {
        let mut waiting = self.waiting.lock();
        let full = waiting.len() >= QUEUE;
        if full {
            waiting.pop_front();
        }
        waiting.push_back(event);
        drop(waiting);
        self.ready.notify_one();
        full
    }
}

impl EventRecorder {
    /// Starts the task that writes to `client`; without one, events go to the log alone.
    pub fn start(
        client: Option<kube::Client>,
        options: EventOptions,
        clock: SharedClock,
        metrics: EventMetrics,
        tasks: &Tasks,
    ) -> Self {
        let queue = client.map(|client| {
            let queue = Arc::new(Queue::default());
            let sink = Sink::new(client, options, Arc::clone(&clock), metrics.clone(), Arc::clone(&queue));
            tasks.essential("events", sink.run(tasks.token().clone()));
            queue
        });
        Self(Arc::new(Inner { clock, metrics, queue }))
    }

    /// A recorder that only logs: for tests and for runs without an API.
    pub fn log_only(clock: SharedClock) -> Self {
        Self(Arc::new(Inner { clock, metrics: EventMetrics::default(), queue: None }))
    }

    /// Notes that something happened to `target`.
    pub fn event(
        &self,
        target: &EventTarget,
        kind: EventType,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        let (reason, mut message) = (reason.into(), message.into());
        cut(&mut message);
        let reference = target.reference();
        tracing::info!(
            kind = reference.kind.as_deref().unwrap_or_default(),
            namespace = reference.namespace.as_deref().unwrap_or_default(),
            name = reference.name.as_deref().unwrap_or_default(),
            field = reference.field_path.as_deref().unwrap_or_default(),
            r#type = kind.as_str(),
            %reason,
            message,
            "event"
        );
        let Some(queue) = &self.0.queue else { return };
        let occurrence = Occurrence { target: target.clone(), kind, reason, message, at: self.0.clock.now() };
        if queue.push(occurrence) {
            self.0.metrics.dropped.inc();
        }
    }

    /// Notes something expected.
    pub fn normal(&self, target: &EventTarget, reason: &'static str, message: impl Into<String>) {
        self.event(target, EventType::Normal, reason, message);
    }

    /// Notes something that a human should look at.
    pub fn warning(&self, target: &EventTarget, reason: &'static str, message: impl Into<String>) {
        self.event(target, EventType::Warning, reason, message);
    }
}

fn cut(message: &mut String) {
    if message.len() > MESSAGE_BYTES {
        let mut end = MESSAGE_BYTES;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
    }
}
