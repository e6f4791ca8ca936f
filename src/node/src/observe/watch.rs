//! The loop: events, relists, reconnects. A call that hangs is only ever awaited beside everything else.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use longshore_cri::{CriError, EventStream, SharedRuntime, v1};
use longshore_util::backoff::Backoff;
use tokio::time::Instant;

use super::pace::Pace;
use super::table::{News, Snapshot, Table};
use super::{Observer, ObserverOptions};
use crate::model::{PodControl, PodUid};

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// An event may be on its way while a relist already shows its change; one that comes within this time was not lost.
const LATE_EVENT: Duration = Duration::from_secs(2);

type Pending<T> = Option<Pin<Box<dyn Future<Output = Result<T, CriError>> + Send>>>;

/// Where the event stream stands.
enum Stream {
    /// Not tried, or to be tried again then.
    Down(Instant),
    Opening(Instant, Pin<Box<dyn Future<Output = Result<EventStream, CriError>> + Send>>),
    Up(EventStream),
    /// This runtime has none; tried again when it has been away, as it may come back as another.
    Unsupported,
}

pub(super) struct Watch {
    runtime: SharedRuntime,
    pods: Arc<dyn PodControl>,
    options: ObserverOptions,
    handle: Observer,
    table: Table,
    pace: Pace,
    stream: Stream,
    stream_retry: Backoff,
    relist: Pending<Snapshot>,
    relist_began: Instant,
    relist_due: Instant,
    relist_retry: Backoff,
    /// The failure told last, so that a lasting one is told once.
    failing: Option<CriError>,
    looked: bool,
    /// Pods of which a relist found an end while the stream was up, until then to be confirmed by an event.
    unconfirmed: Option<(Instant, BTreeSet<PodUid>)>,
}

enum Happened {
    /// Boxed: it holds a whole pod, unlike the others.
    Event(Option<Box<Result<v1::ContainerEventResponse, CriError>>>),
    Opened(Result<EventStream, CriError>),
    TryStream,
    Relisted(Result<Snapshot, CriError>),
    RelistDue,
    Expected,
    Overdue,
}

async fn settled<T>(pending: &mut Pending<T>) -> Result<T, CriError> {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

async fn list(runtime: SharedRuntime, full: bool) -> Result<Snapshot, CriError> {
    let sandboxes = async {
        if !full {
            return Ok(None);
        }
        let request = v1::ListPodSandboxRequest { filter: None };
        runtime.list_pod_sandbox(request).await.map(|answer| Some(answer.items))
    };
    let containers = runtime.list_containers(v1::ListContainersRequest { filter: None });
    let (sandboxes, containers) = futures_util::try_join!(sandboxes, containers)?;
    Ok(Snapshot { sandboxes, containers: containers.containers })
}

impl Stream {
    async fn next(&mut self) -> Happened {
        match self {
            Self::Down(until) => {
                tokio::time::sleep_until(*until).await;
                Happened::TryStream
            }
            Self::Opening(_, opening) => Happened::Opened(opening.await),
            Self::Up(events) => Happened::Event(events.next().await.map(Box::new)),
            Self::Unsupported => std::future::pending().await,
        }
    }
}

impl Watch {
    pub(super) fn new(
        runtime: SharedRuntime,
        pods: Arc<dyn PodControl>,
        options: ObserverOptions,
        handle: Observer,
    ) -> Self {
        let now = Instant::now();
        // Differs from node to node and from start to start, and not at all where a test holds the clock.
        let seed = options.clock.now().as_nanosecond().to_le_bytes()[..8].try_into().map_or(1, u64::from_le_bytes);
        Self {
            runtime,
            pods,
            options,
            handle,
            table: Table::default(),
            pace: Pace::new(),
            stream: Stream::Down(now),
            stream_retry: Backoff::new(FIRST_RETRY, LONGEST_RETRY, seed),
            relist: None,
            relist_began: now,
            relist_due: now,
            relist_retry: Backoff::new(FIRST_RETRY, LONGEST_RETRY, seed),
            failing: None,
            looked: false,
            unconfirmed: None,
        }
    }

    pub(super) async fn run(mut self) {
        let expected = self.handle.expected.clone();
        loop {
            let idle = self.relist.is_none();
            let overdue = self.unconfirmed.as_ref().map(|(until, _)| *until);
            let happened = tokio::select! {
                biased;
                happened = self.stream.next() => happened,
                listed = settled(&mut self.relist) => Happened::Relisted(listed),
                () = expected.notified() => Happened::Expected,
                () = tokio::time::sleep_until(self.relist_due), if idle => Happened::RelistDue,
                () = tokio::time::sleep_until(overdue.unwrap_or(self.relist_due)), if overdue.is_some() => Happened::Overdue,
            };
            match happened {
                Happened::Event(event) => match event.map(|event| *event) {
                    Some(Ok(event)) => self.told(&event),
                    Some(Err(error)) => self.stream_ended(Some(error)),
                    None => self.stream_ended(None),
                },
                Happened::TryStream => self.open_stream(),
                Happened::Opened(opened) => self.stream_opened(opened),
                Happened::Relisted(listed) => self.relisted(listed),
                Happened::RelistDue => self.begin_relist(),
                Happened::Expected => self.expect(),
                Happened::Overdue => self.lost_events(),
            }
        }
    }

    fn has_events(&self) -> bool {
        matches!(self.stream, Stream::Up(_))
    }

    fn begin_relist(&mut self) {
        let now = Instant::now();
        self.options.metrics.relist_interval.observe((now - self.relist_began).as_secs_f64());
        self.relist_began = now;
        let full = self.pace.is_full(now, self.has_events());
        self.relist = Some(Box::pin(list(self.runtime.clone(), full)));
    }

    fn schedule(&mut self) {
        self.relist_due = self.pace.next(Instant::now(), self.has_events());
    }

    fn relisted(&mut self, listed: Result<Snapshot, CriError>) {
        self.relist = None;
        let now = Instant::now();
        self.options.metrics.relist_duration.observe((now - self.relist_began).as_secs_f64());
        let snapshot = match listed {
            Ok(snapshot) => snapshot,
            Err(error) => {
                if self.failing.as_ref().is_none_or(|told| told.kind != error.kind) {
                    tracing::warn!(%error, "listing the runtime's pods");
                }
                self.failing = Some(error);
                self.pace.want_full();
                self.relist_due = now + self.relist_retry.next_delay();
                return;
            }
        };
        self.relist_retry.reset();
        self.handle.health.relisted();
        #[expect(clippy::cast_precision_loss, reason = "seconds since the epoch fit a double exactly")]
        self.options.metrics.last_seen.set(self.options.clock.now().as_second() as f64);

        let first = !std::mem::replace(&mut self.looked, true);
        let found = self.table.relisted(snapshot);
        let mut wake = found.ended;
        if let Some(error) = self.failing.take() {
            tracing::info!(after = %error, "the runtime's pods can be listed again");
            // Workers may have failed on the same outage: let all of them try again now.
            wake.extend(self.table.pods());
            if matches!(self.stream, Stream::Unsupported) {
                self.stream = Stream::Down(now);
            }
        } else if first {
            wake.extend(self.table.pods());
        } else if self.has_events() && !wake.is_empty() && self.unconfirmed.is_none() {
            self.unconfirmed = Some((now + LATE_EVENT, wake.clone()));
        }
        if found.any {
            self.pace.stir(now);
        }
        self.schedule();
        for uid in &wake {
            self.pods.wake(uid);
        }
    }

    /// A relist has found changes that no event has told.
    fn lost_events(&mut self) {
        let Some((_, pods)) = self.unconfirmed.take() else { return };
        tracing::warn!(pods = pods.len(), "the runtime's event stream lost changes; listing more often for a while");
        self.options.metrics.lost_events.inc_by(pods.len() as u64);
        self.pace.distrust(Instant::now());
        self.schedule();
    }

    fn expect(&mut self) {
        let now = Instant::now();
        self.pace.stir(now);
        let sooner = self.pace.next(now, self.has_events());
        self.relist_due = self.relist_due.min(sooner);
    }

    fn told(&mut self, event: &v1::ContainerEventResponse) {
        self.options.metrics.events.inc();
        self.stream_retry.reset();
        match self.table.told(event) {
            News::Ended(uid) => {
                self.confirmed(&uid);
                self.pods.wake(&uid);
            }
            News::Known => {
                let owner = event.pod_sandbox_status.as_ref().and_then(|sandbox| super::table::owner(&sandbox.labels));
                if let Some(uid) = owner {
                    self.confirmed(&uid);
                }
            }
            News::Unclear => {
                self.pace.want_full();
                self.relist_due = Instant::now();
            }
        }
    }

    fn confirmed(&mut self, uid: &PodUid) {
        if let Some((_, pods)) = &mut self.unconfirmed {
            pods.remove(uid);
            if pods.is_empty() {
                self.unconfirmed = None;
            }
        }
    }

    fn open_stream(&mut self) {
        let runtime = self.runtime.clone();
        let opening = Box::pin(async move { runtime.container_events().await });
        self.stream = Stream::Opening(Instant::now(), opening);
    }

    fn stream_opened(&mut self, opened: Result<EventStream, CriError>) {
        let now = Instant::now();
        if let Stream::Opening(began, _) = &self.stream {
            self.options.metrics.stream_latency.observe((now - *began).as_secs_f64());
        }
        match opened {
            Ok(events) => {
                tracing::debug!("the runtime's event stream is open");
                self.options.metrics.streams.inc();
                self.stream = Stream::Up(events);
                // What happened before the subscription stood is found by a look after it.
                self.relist_due = now;
            }
            Err(error) if error.is_unimplemented() => {
                tracing::info!("the runtime has no event stream; its pods are listed instead");
                self.stream = Stream::Unsupported;
            }
            Err(error) => self.stream_ended(Some(error)),
        }
    }

    fn stream_ended(&mut self, error: Option<CriError>) {
        self.options.metrics.stream_errors.inc();
        self.unconfirmed = None;
        let now = Instant::now();
        // A runtime without the call says so only when asked, which may be after the subscription was taken to stand.
        if error.as_ref().is_some_and(CriError::is_unimplemented) {
            self.stream = Stream::Unsupported;
        } else {
            let delay = self.stream_retry.next_delay();
            tracing::debug!(error = error.map(tracing::field::display), ?delay, "the runtime's event stream ended");
            self.stream = Stream::Down(now + delay);
        }
        // From here on the relist is the source, beginning now: events may have been lost.
        self.pace.want_full();
        self.relist_due = now;
    }
}
