//! A token bucket in front of a client, as the Go client has one.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::{Layer, Service};

/// How many requests may go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// In the long run; zero is taken as one.
    pub per_second: u32,
    /// At once after a quiet time; zero is taken as one.
    pub burst: u32,
}

/// Counts by the time at which the bucket would be full again: no refill timer is needed.
#[derive(Debug)]
pub(super) struct Bucket {
    interval: Duration,
    burst: u32,
    full_at: Mutex<Instant>,
}

impl Bucket {
    pub(super) fn new(rate: Rate) -> Self {
        Self {
            interval: Duration::from_secs(1) / rate.per_second.max(1),
            burst: rate.burst.max(1),
            full_at: Mutex::new(Instant::now()),
        }
    }

    /// Waits for a token. Tokens are given in the order asked.
    pub(super) async fn take(&self) {
        let start = {
            let mut full_at = self.full_at.lock().await;
            let now = Instant::now();
            let after = (*full_at).max(now) + self.interval;
            *full_at = after;
            // All tokens are out when it takes longer than a whole burst to fill the bucket.
            after.checked_sub(self.interval.saturating_mul(self.burst)).filter(|start| *start > now)
        };
        if let Some(start) = start {
            tokio::time::sleep_until(start).await;
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct RateLayer(Arc<Bucket>);

impl RateLayer {
    pub(super) fn new(rate: Rate) -> Self {
        Self(Arc::new(Bucket::new(rate)))
    }
}

impl<S> Layer<S> for RateLayer {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimited { inner, bucket: Arc::clone(&self.0) }
    }
}

#[derive(Debug, Clone)]
pub(super) struct RateLimited<S> {
    inner: S,
    bucket: Arc<Bucket>,
}

impl<S, R> Service<R> for RateLimited<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
    S::Response: 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The inner future does nothing before it is polled, so the request waits here, not on a connection.
        let answer = self.inner.call(request);
        let bucket = Arc::clone(&self.bucket);
        Box::pin(async move {
            bucket.take().await;
            answer.await
        })
    }
}
