//! Serves a gate over a unix socket as a gRPC server, so that an agent in another process meets its failpoints.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use longshore_util::Tasks;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status};

use super::{Failpoints, Gate};
use crate::rpcs::{image_rpcs, runtime_rpcs};
use crate::v1::image_service_server::{ImageService as ImageServer, ImageServiceServer};
use crate::v1::runtime_service_server::{RuntimeService as RuntimeServer, RuntimeServiceServer};
use crate::{CriError, ImageService, RuntimeService, v1};

const MESSAGE_LIMIT: usize = 16 * 1024 * 1024;

/// The socket could not be made.
#[derive(Debug, thiserror::Error)]
#[error("listen on {}", path.display())]
pub struct ServeError {
    path: PathBuf,
    source: io::Error,
}

/// A server; it ends when this is dropped.
#[derive(Debug)]
pub struct Served {
    tasks: Tasks,
    path: PathBuf,
    failpoints: Failpoints,
}

impl Served {
    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.failpoints.crash();
        self.tasks.cancel();
    }
}

/// Serves both services on a socket; a left-over socket is replaced.
pub fn serve<C>(gate: Gate<C>, path: impl Into<PathBuf>) -> Result<Served, ServeError>
where
    C: Clone + Debug + Send + Sync + 'static,
{
    let path = path.into();
    let listener = match UnixListener::bind(&path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            std::fs::remove_file(&path).and_then(|()| UnixListener::bind(&path))
        }
        bound => bound,
    };
    let listener = listener.map_err(|source| ServeError { path: path.clone(), source })?;
    let failpoints = gate.failpoints().clone();
    let tasks = Tasks::new();
    let accepting = failpoints.clone();
    let incoming = stream::unfold(listener, move |listener| {
        let failpoints = accepting.clone();
        async move {
            let accepted = listener.accept().await.map(|(stream, _)| Breakable::new(stream, &failpoints));
            Some((accepted, listener))
        }
    });
    let server = Server::builder()
        .add_service(
            RuntimeServiceServer::new(Door(gate.clone()))
                .max_decoding_message_size(MESSAGE_LIMIT)
                .max_encoding_message_size(MESSAGE_LIMIT),
        )
        .add_service(
            ImageServiceServer::new(Door(gate))
                .max_decoding_message_size(MESSAGE_LIMIT)
                .max_encoding_message_size(MESSAGE_LIMIT),
        )
        .serve_with_incoming(incoming.boxed());
    let token = tasks.token().clone();
    let running = async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            ended = server => {
                if let Err(error) = ended {
                    tracing::warn!(%error, "fake runtime's server ended");
                }
            }
        }
    };
    drop(longshore_util::spawn(&tasks, "fake-cri-server", running));
    Ok(Served { tasks, path, failpoints })
}

/// A connection that ends when the failpoints crash it.
struct Breakable {
    inner: UnixStream,
    crash: BoxFuture<'static, ()>,
}

impl Breakable {
    fn new(inner: UnixStream, failpoints: &Failpoints) -> Self {
        let mut crashed = failpoints.crashed();
        Self { inner, crash: async move { drop(crashed.changed().await) }.boxed() }
    }
}

impl Connected for Breakable {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Breakable {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Polled with every read, and a server always reads; once ready the connection is over.
        if self.crash.poll_unpin(cx).is_ready() {
            self.crash = async {}.boxed();
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Breakable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// The gate as gRPC sees it.
#[derive(Debug)]
struct Door<C>(Gate<C>);

fn status(error: CriError) -> Status {
    Status::new(error.kind.code(), error.message)
}

type Answers<T> = Pin<Box<dyn futures_util::Stream<Item = Result<T, Status>> + Send>>;

macro_rules! runtime_door {
    (
        unary { $($method:ident($request:ident) -> $response:ident, $rpc:literal, $operation:literal, $deadline:ident;)* }
        streams { $($s_method:ident($s_request:ident) -> $s_response:ident, $s_rpc:literal, $s_operation:literal, $s_deadline:ident;)* }
    ) => {
        #[tonic::async_trait]
        impl<C: Debug + Send + Sync + 'static> RuntimeServer for Door<C> {
            $(async fn $method(&self, request: Request<v1::$request>) -> Result<Response<v1::$response>, Status> {
                RuntimeService::$method(&self.0, request.into_inner()).await.map(Response::new).map_err(status)
            })*

            async fn get_container_events(&self, _: Request<v1::GetEventsRequest>) -> Result<Response<Answers<v1::ContainerEventResponse>>, Status> {
                let events = self.0.container_events().await.map_err(status)?;
                Ok(Response::new(events.map(|event| event.map_err(status)).boxed()))
            }

            $(async fn $s_method(&self, request: Request<v1::$s_request>) -> Result<Response<Answers<v1::$s_response>>, Status> {
                let answers = RuntimeService::$s_method(&self.0, request.into_inner()).await.map_err(status)?;
                Ok(Response::new(answers.map(|answer| answer.map_err(status)).boxed()))
            })*
        }
    };
}

macro_rules! image_door {
    (
        unary { $($method:ident($request:ident) -> $response:ident, $rpc:literal, $operation:literal, $deadline:ident;)* }
        streams { $($s_method:ident($s_request:ident) -> $s_response:ident, $s_rpc:literal, $s_operation:literal, $s_deadline:ident;)* }
    ) => {
        #[tonic::async_trait]
        impl<C: Debug + Send + Sync + 'static> ImageServer for Door<C> {
            $(async fn $method(&self, request: Request<v1::$request>) -> Result<Response<v1::$response>, Status> {
                ImageService::$method(&self.0, request.into_inner()).await.map(Response::new).map_err(status)
            })*

            $(async fn $s_method(&self, request: Request<v1::$s_request>) -> Result<Response<Answers<v1::$s_response>>, Status> {
                let answers = ImageService::$s_method(&self.0, request.into_inner()).await.map_err(status)?;
                Ok(Response::new(answers.map(|answer| answer.map_err(status)).boxed()))
            })*
        }
    };
}

runtime_rpcs!(runtime_door);
image_rpcs!(image_door);
