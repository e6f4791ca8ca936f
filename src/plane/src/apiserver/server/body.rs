//! What becomes of a request's body that nobody read to its end.
//!
//! Over HTTP/1.1 a client may send its next request only behind the whole body of this one. A short rest is therefore read
//! and thrown away before the answer goes out; with a long one the answer says that the connection ends, and the rest is
//! still taken in for a while, because a client that cannot send on would not come to read its answer.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Sleep;

/// How long a body may bring nothing.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A rest up to this is read before the answer.
const SHORT: usize = 256 << 10;
const SHORT_TIME: Duration = Duration::from_secs(1);

/// A rest up to this is read behind the answer.
const LONG: usize = 16 << 20;
const LONG_TIME: Duration = Duration::from_secs(10);

/// The client stopped sending in the middle.
#[derive(Debug, thiserror::Error)]
#[error("no more of it came within {0:?}")]
struct Late(Duration);

/// Tells whether a request's body stopped coming; an extension of the request.
#[derive(Debug, Clone, Default)]
pub(super) struct Stalled(Arc<AtomicBool>);

impl Stalled {
    pub(super) fn is_so(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What is left of a body once the answer is known.
#[derive(Debug)]
pub(super) enum Rest {
    /// Nothing, or it is in use elsewhere: the connection can go on.
    Done,
    /// The client waits for leave to send it, or stopped sending: the connection must end.
    Never,
    /// More than is worth waiting for: the connection must end, after [`Kept::linger`].
    Much,
}

/// A body of which one half is handed on and one is kept.
#[derive(Debug, Clone)]
pub(super) struct Kept(Arc<Mutex<Reading>>);

#[derive(Debug)]
struct Reading {
    body: Body,
    patience: Option<Duration>,
    deadline: Option<Pin<Box<Sleep>>>,
    stalled: Stalled,
    is_begun: bool,
    is_ended: bool,
    is_broken: bool,
}

impl Kept {
    /// Keeps a body. With `patience` its reader gets an error when nothing comes for that long.
    pub(super) fn new(body: Body, patience: Option<Duration>) -> Self {
        let reading = Reading {
            body,
            patience,
            deadline: None,
            stalled: Stalled::default(),
            is_begun: false,
            is_ended: false,
            is_broken: false,
        };
        Self(Arc::new(Mutex::new(reading)))
    }

    /// Returns the half for the reader.
    pub(super) fn body(&self) -> Body {
        Body::new(self.clone())
    }

    /// Returns what will tell whether the body stopped coming.
    pub(super) fn stalled(&self) -> Stalled {
        self.0.lock().stalled.clone()
    }

    /// Reads a short rest away. `awaits_leave`: the client sends nothing before it is told to go on.
    pub(super) async fn drain(&self, awaits_leave: bool) -> Rest {
        if Arc::strong_count(&self.0) > 1 {
            return Rest::Done;
        }
        {
            let reading = self.0.lock();
            if reading.is_broken || (awaits_leave && !reading.is_begun) {
                return Rest::Never;
            }
            if reading.is_ended || reading.body.is_end_stream() {
                return Rest::Done;
            }
            if usize::try_from(reading.body.size_hint().lower()).map_or(true, |least| least > SHORT) {
                return Rest::Much;
            }
        }
        match tokio::time::timeout(SHORT_TIME, self.skip(SHORT)).await {
            Ok(true) => Rest::Done,
            Ok(false) if self.0.lock().is_broken => Rest::Never,
            Ok(false) | Err(_) => Rest::Much,
        }
    }

    /// Reads a long rest away, as far as that is bearable.
    pub(super) async fn linger(self) {
        let _ = tokio::time::timeout(LONG_TIME, self.skip(LONG)).await;
    }

    /// Reads up to `most` bytes; returns whether that was all.
    async fn skip(&self, most: usize) -> bool {
        let mut left = most;
        while let Some(frame) = poll_fn(|context| self.0.lock().poll(context)).await {
            let length = frame.ok().map(|frame| frame.data_ref().map_or(0, Bytes::len));
            match length.and_then(|length| left.checked_sub(length)) {
                Some(less) => left = less,
                None => return false,
            }
        }
        true
    }
}

impl Reading {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_begun = true;
        if self.is_ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.deadline = None;
            self.is_broken = matches!(frame, Some(Err(_)));
            self.is_ended = !matches!(frame, Some(Ok(_)));
            return Poll::Ready(frame);
        }
        let Some(patience) = self.patience else { return Poll::Pending };
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(deadline.as_mut().poll(context));
        (self.is_broken, self.is_ended) = (true, true);
        self.stalled.0.store(true, Ordering::Release);
        Poll::Ready(Some(Err(axum::Error::new(Late(patience)))))
    }
}

impl http_body::Body for Kept {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.0.lock().poll(context)
    }

    fn is_end_stream(&self) -> bool {
        let reading = self.0.lock();
        reading.is_ended || reading.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().body.size_hint()
    }
}
