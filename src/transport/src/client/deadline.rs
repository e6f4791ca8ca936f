//! Deadlines of requests: the head of each answer, and each piece of a body that is not a watch's.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tower::{BoxError, Layer, Service};

/// A request or a body took too long. May be tried again.
#[derive(Debug, thiserror::Error)]
#[error("no answer from the apiserver within {0:?}")]
pub(super) struct TooSlow(Duration);

#[derive(Debug, Clone, Copy)]
pub(super) struct DeadlineLayer(Duration);

impl DeadlineLayer {
    pub(super) fn new(limit: Duration) -> Self {
        Self(limit)
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = WithDeadline<S>;

    fn layer(&self, inner: S) -> Self::Service {
        WithDeadline { inner, limit: self.0 }
    }
}

#[derive(Debug, Clone)]
pub(super) struct WithDeadline<S> {
    inner: S,
    limit: Duration,
}

impl<S, A, B> Service<Request<A>> for WithDeadline<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<TimedBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let limit = self.limit;
        let endless = is_endless(&request);
        // A log that is followed begins when the container first says something.
        let log = request.uri().path().ends_with("/log") && endless;
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = if log {
                answer.await.map_err(Into::into)?
            } else {
                tokio::time::timeout(limit, answer).await.map_err(|_| TooSlow(limit))?.map_err(Into::into)?
            };
            Ok(answer.map(|body| TimedBody::new(body, (!endless).then_some(limit))))
        })
    }
}

fn is_endless<A>(request: &Request<A>) -> bool {
    if request.headers().contains_key(http::header::UPGRADE) {
        return true;
    }
    let query = request.uri().query().unwrap_or_default();
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .any(|(name, value)| matches!(name, "watch" | "follow") && !matches!(value, "" | "0" | "false"))
}

/// A body that fails when it is silent for too long.
#[derive(Debug)]
pub(super) struct TimedBody<B> {
    inner: B,
    timer: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl<B> TimedBody<B> {
    fn new(inner: B, limit: Option<Duration>) -> Self {
        Self { inner, timer: limit.map(|limit| (limit, Box::pin(tokio::time::sleep(limit)))) }
    }
}

impl<B> Body for TimedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            if let Some((limit, timer)) = &mut self.timer {
                timer.as_mut().reset(Instant::now() + *limit);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some((limit, timer)) = &mut self.timer else { return Poll::Pending };
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Some(Err(TooSlow(*limit).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
