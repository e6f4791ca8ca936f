//! Who is connected, and who has to leave when it gets crowded.
//!
//! ```text
//! accepted ──▶ stranger ── logged in ──▶ known
//! ```
//!
//! Strangers share few places. When these are taken, the oldest stranger without a running request leaves, and if all have one,
//! the oldest of them: a new caller always gets in. The known leave only when the whole server is full, and only those
//! without a running request. A certificate alone makes nobody known: it has not been checked when it is shown.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What callers get who have not logged in.
#[derive(Debug, Clone, Copy)]
pub struct StrangerLimits {
    /// Connections at a time.
    pub most: usize,
    /// How long the first request may take to come, the TLS handshake included.
    pub first_request: Duration,
}

/// Everybody who is connected.
#[derive(Debug)]
pub(super) struct Callers {
    limits: Option<StrangerLimits>,
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    next: u64,
    /// By age.
    strangers: BTreeMap<u64, Arc<Caller>>,
    known: BTreeMap<u64, Arc<Caller>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Caller {
    id: u64,
    since: Instant,
    has_asked: AtomicBool,
    /// Requests whose answers are not sent to their end.
    running: AtomicUsize,
    leave: CancellationToken,
}

impl Caller {
    fn is_idle(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0
    }
}

impl Callers {
    /// Without limits nobody is a stranger and nobody is sent away.
    pub(super) fn new(limits: Option<StrangerLimits>) -> Arc<Self> {
        Arc::new(Self { limits, lists: Mutex::default() })
    }

    /// Lets a caller in; another may have to leave for it.
    pub(super) fn enter(self: &Arc<Self>) -> Entered {
        let mut lists = self.lists.lock();
        let id = lists.next;
        lists.next += 1;
        let caller = Arc::new(Caller {
            id,
            since: Instant::now(),
            has_asked: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            leave: CancellationToken::new(),
        });
        match self.limits {
            None => {
                lists.known.insert(id, Arc::clone(&caller));
            }
            Some(limits) => {
                if lists.strangers.len() >= limits.most
                    && let Some(oldest) =
                        oldest_idle(&lists.strangers).or_else(|| lists.strangers.keys().next().copied())
                {
                    send_away(&mut lists.strangers, oldest);
                }
                lists.strangers.insert(id, Arc::clone(&caller));
            }
        }
        Entered { callers: Arc::clone(self), caller }
    }

    /// The whole server is full: sends one away that has no request running, strangers first.
    pub(super) fn make_room(&self) {
        if self.limits.is_none() {
            return;
        }
        let lists = &mut *self.lists.lock();
        for list in [&mut lists.strangers, &mut lists.known] {
            if let Some(oldest) = oldest_idle(list) {
                return send_away(list, oldest);
            }
        }
    }
}

fn oldest_idle(list: &BTreeMap<u64, Arc<Caller>>) -> Option<u64> {
    list.values().find(|caller| caller.is_idle()).map(|caller| caller.id)
}

fn send_away(list: &mut BTreeMap<u64, Arc<Caller>>, id: u64) {
    if let Some(caller) = list.remove(&id) {
        caller.leave.cancel();
    }
}

/// A caller's place; dropping it frees it.
#[derive(Debug)]
pub(super) struct Entered {
    callers: Arc<Callers>,
    caller: Arc<Caller>,
}

impl Entered {
    /// Waits until the caller has to leave.
    pub(super) async fn sent_away(&self) {
        if let Some(limits) = self.callers.limits {
            let late = tokio::time::sleep_until(self.caller.since + limits.first_request);
            tokio::select! {
                biased;
                () = self.caller.leave.cancelled() => return,
                () = late => {}
            }
            if !self.caller.has_asked.load(Ordering::Acquire) {
                return;
            }
        }
        self.caller.leave.cancelled().await;
    }

    /// Counts a request that has come.
    pub(super) fn begin(&self) -> Running {
        self.caller.has_asked.store(true, Ordering::Release);
        self.caller.running.fetch_add(1, Ordering::AcqRel);
        Running(Arc::clone(&self.caller))
    }

    /// Returns the handle for the request's extensions.
    pub(super) fn newcomer(&self) -> Newcomer {
        Newcomer { callers: Arc::clone(&self.callers), id: self.caller.id }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut lists = self.callers.lists.lock();
        lists.strangers.remove(&self.caller.id);
        lists.known.remove(&self.caller.id);
    }
}

/// The connection of a request as far as its caller's login is concerned; an extension of each request.
#[derive(Debug, Clone)]
pub struct Newcomer {
    callers: Arc<Callers>,
    id: u64,
}

impl Newcomer {
    /// The caller has proved who it is: its connection is no stranger's any more.
    pub fn logged_in(&self) {
        let mut lists = self.callers.lists.lock();
        if let Some(caller) = lists.strangers.remove(&self.id) {
            lists.known.insert(self.id, caller);
        }
    }
}

/// A request that runs; dropped when its answer is sent.
#[derive(Debug)]
pub(super) struct Running(Arc<Caller>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Running {
    /// Lets the request run until the last of its answer is sent.
    pub(super) fn until_sent(self, answer: Response<Body>) -> Response<Body> {
        if answer.body().is_end_stream() {
            return answer;
        }
        answer.map(|body| Body::new(Sending { body, _running: self }))
    }
}

struct Sending {
    body: Body,
    _running: Running,
}

impl http_body::Body for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
