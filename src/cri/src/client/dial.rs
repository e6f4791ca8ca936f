//! Opens the connection. After a failure further tries wait for a back-off, and calls meanwhile fail at once with the
//! last reason: a runtime that is away must not make its callers queue up.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use longshore_util::backoff::Backoff;
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::transport::Uri;
use tower::Service;

use crate::Endpoint;

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(3);
/// A socket whose queue is full makes a caller wait.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// Why the last try failed, in the shape in which Go's gRPC says it.
#[derive(Debug, Clone)]
pub(super) struct DialError {
    endpoint: Endpoint,
    why: Arc<str>,
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, why) = (self.endpoint.path().display(), &self.why);
        write!(f, "connection error: desc = \"transport: Error while dialing: dial unix {path}: {why}\"")
    }
}

impl std::error::Error for DialError {}

#[derive(Debug)]
struct State {
    backoff: Backoff,
    /// No try before this moment, and the reason why.
    closed: Option<(Instant, DialError)>,
}

/// Makes connections to one endpoint.
#[derive(Debug, Clone)]
pub(super) struct Dialer {
    endpoint: Endpoint,
    state: Arc<Mutex<State>>,
}

impl Dialer {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        let backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY, u64::from(std::process::id()));
        Self { endpoint, state: Arc::new(Mutex::new(State { backoff, closed: None })) }
    }

    /// Lets the next call try at once.
    pub(super) fn forget_failures(&self) {
        let mut state = self.state.lock();
        state.backoff.reset();
        state.closed = None;
    }

    async fn dial(self) -> Result<TokioIo<UnixStream>, DialError> {
        if let Some((until, error)) = &self.state.lock().closed
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let connected = match tokio::time::timeout(CONNECT_DEADLINE, UnixStream::connect(self.endpoint.path())).await {
            Ok(connected) => connected.map_err(|error| reason(&error)),
            Err(_) => Err("connect: no answer".into()),
        };
        let mut state = self.state.lock();
        match connected {
            Ok(stream) => {
                state.backoff.reset();
                state.closed = None;
                Ok(TokioIo::new(stream))
            }
            Err(why) => {
                let error = DialError { endpoint: self.endpoint.clone(), why };
                let until = Instant::now() + state.backoff.next_delay();
                state.closed = Some((until, error.clone()));
                Err(error)
            }
        }
    }
}

/// The words that users know for the usual reasons.
fn reason(error: &io::Error) -> Arc<str> {
    match error.kind() {
        io::ErrorKind::NotFound => "connect: no such file or directory".into(),
        io::ErrorKind::ConnectionRefused => "connect: connection refused".into(),
        io::ErrorKind::PermissionDenied => "connect: permission denied".into(),
        _ => format!("connect: {error}").into(),
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<UnixStream>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().dial())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failed_try_closes_the_door_for_a_growing_while() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.sock");
        let dialer = Dialer::new(Endpoint::parse(path.to_str().unwrap()).unwrap());
        let error = dialer.clone().dial().await.unwrap_err().to_string();
        assert!(error.ends_with("c.sock: connect: no such file or directory\""), "{error}");

        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        assert!(dialer.clone().dial().await.is_err(), "within the back-off nothing is tried");
        tokio::time::advance(FIRST_DELAY * 12 / 10).await;
        assert!(dialer.clone().dial().await.is_ok());
        drop(listener);
        assert!(dialer.clone().dial().await.unwrap_err().to_string().contains("connection refused"));
        dialer.forget_failures();
        let _listener = {
            std::fs::remove_file(&path).unwrap();
            tokio::net::UnixListener::bind(&path).unwrap()
        };
        assert!(dialer.dial().await.is_ok());
    }
}
