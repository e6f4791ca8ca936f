//! The gRPC client of a runtime on a unix socket: one HTTP/2 connection, opened by the first call and again after a
//! loss, a deadline per kind of call, figures per operation. It never repeats a call: only the caller knows whether
//! that is safe.

mod check;
pub(crate) mod deadline;
mod dial;
mod leftover;
mod metrics;

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint as HttpEndpoint};
use tonic::{Code, Request, Response, Status};

use self::dial::Dialer;
use crate::rpcs::{image_rpcs, runtime_rpcs};
use crate::service::Streaming;
use crate::v1::image_service_client::ImageServiceClient;
use crate::v1::runtime_service_client::RuntimeServiceClient;
use crate::{CriError, Endpoint, EndpointError, ErrorKind, EventStream, ImageService, RuntimeService, v1};

pub use self::check::CheckError;
pub use self::metrics::RuntimeMetrics;

/// Lists of a busy node are large; the limit is upstream's.
const MESSAGE_LIMIT: usize = 16 * 1024 * 1024;
/// Credit for one call's answer, so that a long list needs few round trips.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Credit for all calls together: a subscriber that does not read must not stop the answers to others.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// A runtime answers a subscription only with the first event, but a refusal at once. So after this time without one the
/// subscription stands.
const REFUSAL_WAIT: Duration = Duration::from_millis(250);

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Deadline of most calls (`runtimeRequestTimeout`).
    pub request_timeout: Duration,
    /// Where calls are counted.
    pub metrics: RuntimeMetrics,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { request_timeout: Duration::from_secs(120), metrics: RuntimeMetrics::default() }
    }
}

/// A runtime reached over its socket. Clones share the connection.
#[derive(Clone)]
pub struct CriClient {
    endpoint: Endpoint,
    options: Arc<ClientOptions>,
    dialer: Dialer,
    channel: Channel,
}

impl fmt::Debug for CriClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CriClient").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl CriClient {
    /// Returns a client for an endpoint. The connection is made by the first call; use [`CriClient::check`] to learn
    /// early what is wrong with it. Must be called within a tokio runtime.
    pub fn connect(endpoint: &str, options: ClientOptions) -> Result<Self, EndpointError> {
        Ok(Self::new(Endpoint::parse(endpoint)?, options))
    }

    /// Returns clients for runtime and images, which share one connection where the socket is the same.
    pub fn connect_both(
        runtime: &str,
        images: Option<&str>,
        options: ClientOptions,
    ) -> Result<(Self, Self), EndpointError> {
        let first = Self::connect(runtime, options.clone())?;
        let second = match images.map(Endpoint::parse).transpose()? {
            Some(other) if other != first.endpoint => Self::new(other, options),
            _ => first.clone(),
        };
        Ok((first, second))
    }

    fn new(endpoint: Endpoint, options: ClientOptions) -> Self {
        let dialer = Dialer::new(endpoint.clone());
        // The authority is what Go's gRPC sends for a unix socket; the address itself is the dialer's business.
        let channel = HttpEndpoint::from_static("http://localhost")
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .connect_with_connector_lazy(dialer.clone());
        Self { endpoint, options: Arc::new(options), dialer, channel }
    }

    /// Where the runtime listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The connection, for what a runtime offers beside CRI.
    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT)
    }

    fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT)
    }

    /// Makes one call, bounded and counted.
    async fn call<Q, A, F>(
        &self,
        rpc: &'static str,
        operation: &'static str,
        deadline: Option<Duration>,
        request: Q,
        send: impl FnOnce(Request<Q>) -> F,
    ) -> Result<A, CriError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let metrics = &self.options.metrics;
        metrics.begin(operation);
        let started = Instant::now();
        let mut request = Request::new(request);
        let answer = match deadline {
            Some(deadline) => {
                // Told to the runtime too, so that it gives up with us.
                request.set_timeout(deadline);
                tokio::time::timeout(deadline, send(request)).await
            }
            None => Ok(send(request).await),
        };
        let elapsed = started.elapsed();
        let late = deadline.is_some_and(|deadline| elapsed >= deadline);
        let result = match answer {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) if late && status.code() == Code::Cancelled => Err(too_late(rpc)),
            Ok(Err(status)) => Err(failure(rpc, &status)),
            Err(_) => Err(too_late(rpc)),
        };
        metrics.end(operation, elapsed, result.is_err());
        result
    }

    /// Opens a stream of bounded length; the deadline covers all of it.
    async fn pieces<Q, A, F>(
        &self,
        rpc: &'static str,
        operation: &'static str,
        request: Q,
        send: impl FnOnce(Request<Q>) -> F,
    ) -> Result<Streaming<A>, CriError>
    where
        A: Send + 'static,
        F: Future<Output = Result<Response<tonic::Streaming<A>>, Status>>,
    {
        let limit = self.options.request_timeout;
        let end = Instant::now() + limit;
        let messages = self.call(rpc, operation, Some(limit), request, send).await?;
        Ok(stream::unfold(Some(messages), move |messages| async move {
            let mut messages = messages?;
            match tokio::time::timeout_at(end, messages.message()).await {
                Ok(Ok(message)) => Some((Ok(message?), Some(messages))),
                Ok(Err(status)) => Some((Err(failure(rpc, &status)), None)),
                Err(_) => Some((Err(too_late(rpc)), None)),
            }
        })
        .boxed())
    }
}

fn too_late(rpc: &'static str) -> CriError {
    CriError::new(rpc, ErrorKind::DeadlineExceeded, "context deadline exceeded")
}

/// A status with a source was made on our side: the connection could not be made or broke. That is one thing to callers,
/// whatever code the HTTP/2 library has for it.
fn failure(rpc: &'static str, status: &Status) -> CriError {
    let Some(source) = status.source() else {
        return CriError::from_status(rpc, status);
    };
    let mut deepest: &dyn std::error::Error = source;
    loop {
        if let Some(dial) = deepest.downcast_ref::<dial::DialError>() {
            return CriError::new(rpc, ErrorKind::Unavailable, dial.to_string());
        }
        match deepest.source() {
            Some(next) => deepest = next,
            None => break,
        }
    }
    CriError::new(rpc, ErrorKind::Unavailable, format!("error reading from server: {deepest}"))
}

/// A call as it is, or with what some runtime leaves undone in it.
macro_rules! carry {
    ($client:ident, $request:ident, remove_container, $($rest:tt)*) => {
        $client.remove_container_wholly($request).await
    };
    ($client:ident, $request:ident, remove_pod_sandbox, $($rest:tt)*) => {
        $client.remove_pod_sandbox_wholly($request).await
    };
    ($client:ident, $request:ident, $method:ident, $rpc:literal, $operation:literal, $deadline:ident) => {{
        let limit = deadline::$deadline(&$request, $client.options.request_timeout);
        let mut client = $client.runtime();
        $client.call($rpc, $operation, limit, $request, |request| client.$method(request)).await
    }};
}

macro_rules! runtime_client {
    (
        unary { $($method:ident($request:ident) -> $response:ident, $rpc:literal, $operation:literal, $deadline:ident;)* }
        streams { $($s_method:ident($s_request:ident) -> $s_response:ident, $s_rpc:literal, $s_operation:literal, $s_deadline:ident;)* }
    ) => {
        #[async_trait]
        impl RuntimeService for CriClient {
            $(async fn $method(&self, request: v1::$request) -> Result<v1::$response, CriError> {
                carry!(self, request, $method, $rpc, $operation, $deadline)
            })*

            $(async fn $s_method(&self, request: v1::$s_request) -> Result<Streaming<v1::$s_response>, CriError> {
                let mut client = self.runtime();
                self.pieces($s_rpc, $s_operation, request, |request| client.$s_method(request)).await
            })*

            async fn container_events(&self) -> Result<EventStream, CriError> {
                self.events().await
            }
        }
    };
}

macro_rules! image_client {
    (
        unary { $($method:ident($request:ident) -> $response:ident, $rpc:literal, $operation:literal, $deadline:ident;)* }
        streams { $($s_method:ident($s_request:ident) -> $s_response:ident, $s_rpc:literal, $s_operation:literal, $s_deadline:ident;)* }
    ) => {
        #[async_trait]
        impl ImageService for CriClient {
            $(async fn $method(&self, request: v1::$request) -> Result<v1::$response, CriError> {
                let limit = deadline::$deadline(&request, self.options.request_timeout);
                let mut client = self.images();
                self.call($rpc, $operation, limit, request, |request| client.$method(request)).await
            })*

            $(async fn $s_method(&self, request: v1::$s_request) -> Result<Streaming<v1::$s_response>, CriError> {
                let mut client = self.images();
                self.pieces($s_rpc, $s_operation, request, |request| client.$s_method(request)).await
            })*
        }
    };
}

runtime_rpcs!(runtime_client);
image_rpcs!(image_client);

impl CriClient {
    async fn events(&self) -> Result<EventStream, CriError> {
        const RPC: &str = "GetContainerEvents";
        const OPERATION: &str = "get_container_events";
        let metrics = self.options.metrics.clone();
        metrics.begin(OPERATION);
        let started = Instant::now();
        let mut client = self.runtime();
        let mut opening = Box::pin(async move { client.get_container_events(v1::GetEventsRequest {}).await });
        let early = tokio::time::timeout(REFUSAL_WAIT, &mut opening).await;
        metrics.end(OPERATION, started.elapsed(), matches!(early, Ok(Err(_))));
        if let Ok(Err(status)) = early {
            return Err(failure(RPC, &status));
        }
        let opened = async move {
            match early {
                Ok(opened) => opened,
                Err(_) => opening.await,
            }
        };
        let messages = stream::once(opened).flat_map(|opened| match opened {
            Ok(response) => response.into_inner().boxed(),
            Err(status) => stream::once(async { Err(status) }).boxed(),
        });
        // After the first error there is nothing to be had.
        let until_error = stream::unfold(Some(messages.boxed()), |messages| async move {
            let mut messages = messages?;
            match messages.next().await? {
                Ok(event) => Some((Ok(event), Some(messages))),
                Err(status) => Some((Err(failure(RPC, &status)), None)),
            }
        });
        Ok(until_error.boxed())
    }
}

#[cfg(test)]
mod tests;
