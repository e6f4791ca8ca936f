//! Stands before a runtime, records what passes and lets go wrong what the failpoints say.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;

use super::failpoints::{Failpoints, Failure, broken};
use crate::client::deadline;
use crate::rpcs::{image_rpcs, runtime_rpcs};
use crate::service::Streaming;
use crate::{CriError, ErrorKind, EventStream, ImageService, RuntimeService, SharedImages, SharedRuntime, v1};

/// A runtime behind failpoints. `C` is what else a test may do with the runtime.
#[derive(Debug, Clone)]
pub struct Gate<C> {
    runtime: SharedRuntime,
    images: SharedImages,
    failpoints: Failpoints,
    /// The usual deadline of a client; `None` waits for ever.
    usual: Option<Duration>,
    pub(super) control: C,
}

/// A gate before a runtime over which a test has no other power.
pub type Proxy = Gate<()>;

impl Proxy {
    /// Puts a gate before a runtime, usually a [`crate::CriClient`].
    pub fn before(runtime: SharedRuntime, images: SharedImages) -> Self {
        Self::with_control(runtime, images, ())
    }
}

impl<C> Gate<C> {
    pub(super) fn with_control(runtime: SharedRuntime, images: SharedImages, control: C) -> Self {
        Self { runtime, images, failpoints: Failpoints::default(), usual: None, control }
    }

    /// Gives up calls after the time that a [`crate::CriClient`] with that usual deadline would.
    #[must_use]
    pub fn with_deadlines(mut self, usual: Duration) -> Self {
        self.usual = Some(usual);
        self
    }

    /// The failpoints and records of this gate.
    pub fn failpoints(&self) -> &Failpoints {
        &self.failpoints
    }

    async fn pass<Q, A, F>(
        &self,
        rpc: &'static str,
        deadline: impl Fn(&Q, Duration) -> Option<Duration>,
        request: Q,
        call: impl FnOnce(Q) -> F,
    ) -> Result<A, CriError>
    where
        Q: Clone + Send + Sync + 'static,
        A: 'static,
        F: Future<Output = Result<A, CriError>>,
    {
        let limit = self.usual.and_then(|usual| deadline(&request, usual));
        let over = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let mut crashed = self.failpoints.crashed();
        let work = async {
            let failure = self.failpoints.arrive(rpc, &request);
            let mut lost = None;
            match failure {
                None => {}
                Some((_, Failure::Error(kind, message))) => return Err(CriError::new(rpc, kind, message)),
                Some((number, Failure::Hang)) => self.hang(number).await,
                Some((_, Failure::Delay(time))) => tokio::time::sleep(time).await,
                Some((_, Failure::CrashConnection)) => {
                    self.failpoints.crash();
                    return Err(broken(rpc));
                }
                Some((_, reply @ (Failure::DropReply | Failure::SwallowReply))) => lost = Some(reply),
            }
            let seen = request.clone();
            let answer = call(request).await;
            if let Ok(answer) = &answer {
                self.failpoints.learn(&seen, answer);
            }
            match lost {
                None => answer,
                Some(Failure::SwallowReply) => std::future::pending().await,
                Some(_) => Err(broken(rpc)),
            }
        };
        tokio::select! {
            biased;
            answer = work => answer,
            _ = crashed.changed() => Err(broken(rpc)),
            () = over => Err(CriError::new(rpc, ErrorKind::DeadlineExceeded, "context deadline exceeded")),
        }
    }

    async fn hang(&self, number: u64) {
        let mut changed = self.failpoints.changed();
        while self.failpoints.is_set(number) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}

macro_rules! runtime_gate {
    (
        unary { $($method:ident($request:ident) -> $response:ident, $rpc:literal, $operation:literal, $deadline:ident;)* }
        streams { $($s_method:ident($s_request:ident) -> $s_response:ident, $s_rpc:literal, $s_operation:literal, $s_deadline:ident;)* }
    ) => {
        #[async_trait]
        impl<C: Debug + Send + Sync + 'static> RuntimeService for Gate<C> {
            $(async fn $method(&self, request: v1::$request) -> Result<v1::$response, CriError> {
                self.pass($rpc, deadline::$deadline, request, |request| self.runtime.$method(request)).await
            })*

            $(async fn $s_method(&self, request: v1::$s_request) -> Result<Streaming<v1::$s_response>, CriError> {
                self.pass($s_rpc, deadline::$s_deadline, request, |request| self.runtime.$s_method(request)).await
            })*

            async fn container_events(&self) -> Result<EventStream, CriError> {
                const RPC: &str = "GetContainerEvents";
                let mut crashed = self.failpoints.crashed();
                let events =
                    self.pass(RPC, deadline::none, v1::GetEventsRequest {}, |_| self.runtime.container_events()).await?;
                // A crash ends what is being read, too.
                let crash = async move { drop(crashed.changed().await) };
                let end = futures_util::stream::once(async { Err(broken(RPC)) });
                Ok(events.take_until(crash).chain(end).boxed())
            }
        }
    };
}

macro_rules! image_gate {
    (
        unary { $($method:ident($request:ident) -> $response:ident, $rpc:literal, $operation:literal, $deadline:ident;)* }
        streams { $($s_method:ident($s_request:ident) -> $s_response:ident, $s_rpc:literal, $s_operation:literal, $s_deadline:ident;)* }
    ) => {
        #[async_trait]
        impl<C: Debug + Send + Sync + 'static> ImageService for Gate<C> {
            $(async fn $method(&self, request: v1::$request) -> Result<v1::$response, CriError> {
                self.pass($rpc, deadline::$deadline, request, |request| self.images.$method(request)).await
            })*

            $(async fn $s_method(&self, request: v1::$s_request) -> Result<Streaming<v1::$s_response>, CriError> {
                self.pass($s_rpc, deadline::$s_deadline, request, |request| self.images.$s_method(request)).await
            })*
        }
    };
}

runtime_rpcs!(runtime_gate);
image_rpcs!(image_gate);
