//! The accept loop of every server of ours: TLS, HTTP/1.1 and HTTP/2, upgrades, limits and an orderly end.
//!
//! One task accepts, one task serves a connection. Each request carries a [`PeerIdentity`]; nothing here judges it.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use longshore_util::{Tasks, spawn};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tower::{Service, ServiceExt as _};

use crate::upgrade::keep_alive;

mod callers;
mod even;
mod files;

use callers::{Callers, Entered};
pub use callers::{Newcomer, StrangerLimits};
use even::Even;

/// How often a full server looks for somebody who may leave.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Why no port could be had.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error("{address} is in use by another process; hint: `ss -ltnp 'sport = :{port}'` shows which", port = address.port())]
    InUse {
        /// The address wanted.
        address: SocketAddr,
    },
    /// The address is not this machine's, the port needs root, and so on.
    #[error("listening on {address}: {source}")]
    Listen {
        /// The address wanted.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

/// Takes a port.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address },
        _ => BindError::Listen { address, source },
    })
}

/// The other end of a connection; an extension of each request.
#[derive(Debug, Clone)]
pub struct PeerIdentity {
    /// Where it comes from.
    pub address: SocketAddr,
    /// Its certificate chain as DER, leaf first; empty if it showed none. It holds the leaf's key; nothing else about
    /// it has been checked.
    pub certificates: Arc<[CertificateDer<'static>]>,
}

/// Limits of a server.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Connections at a time; further ones wait in the kernel's queue.
    pub max_connections: usize,
    /// What callers get before they log in, for a server whose service tells [`Newcomer`] who did; without this all
    /// connections count alike, and none has to make room.
    pub strangers: Option<StrangerLimits>,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long a client may take for a request's head; also how long an idle connection is kept.
    pub header_timeout: Duration,
    /// How long running requests may go on after the stop.
    pub drain_timeout: Duration,
    /// HTTP/2 requests at a time on one connection.
    pub max_streams: u32,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            strangers: None,
            handshake_timeout: Duration::from_secs(10),
            // Longer than the 90 s for which Go's and hyper's clients keep an idle connection, so that they let go first.
            header_timeout: Duration::from_secs(120),
            drain_timeout: Duration::from_secs(2),
            max_streams: 250,
        }
    }
}

/// Serves `service` on `listener` until `tasks` is cancelled; with `tls` over TLS, else in the clear.
///
/// Returns at once. Connections run on `tasks` and end within the drain time after the cancel.
pub fn serve<S>(
    name: &'static str,
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    service: S,
    options: ServeOptions,
    tasks: &Tasks,
) where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let connections = Arc::new(Connections {
        name,
        acceptor: tls.map(TlsAcceptor::from),
        service,
        slots: Arc::new(Semaphore::new(options.max_connections)),
        callers: Callers::new(options.strangers),
        options,
        tasks: tasks.clone(),
    });
    tasks.essential(name, accept_loop(listener, connections));
}

struct Connections<S> {
    name: &'static str,
    acceptor: Option<TlsAcceptor>,
    service: S,
    slots: Arc<Semaphore>,
    callers: Arc<Callers>,
    options: ServeOptions,
    tasks: Tasks,
}

async fn accept_loop<S>(listener: TcpListener, connections: Arc<Connections<S>>)
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let name = connections.name;
    let token = connections.tasks.token().clone();
    let mut full = false;
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            biased;
            () = token.cancelled() => return,
            accepted = next(&listener, &connections, &mut full) => accepted,
        };
        match accepted {
            Ok((stream, address, slot)) => {
                failing = false;
                full = full && connections.slots.available_permits() == 0;
                let entered = connections.callers.enter();
                let connections = Arc::clone(&connections);
                drop(spawn(&connections.tasks.clone(), "connection", async move {
                    Box::pin(connection(stream, address, &entered, &connections)).await;
                    drop((entered, slot));
                }));
            }
            Err(error) => {
                // Out of file descriptors, a client that left at once: none of it is the listener's end.
                if !failing {
                    failing = true;
                    tracing::warn!(server = name, %error, "accept failed");
                }
                connections.callers.make_room();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Waits for the next caller, then for a place for it; somebody may have to leave for it.
async fn next<S>(
    listener: &TcpListener,
    connections: &Connections<S>,
    full: &mut bool,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let (stream, address) = listener.accept().await?;
    let slots = &connections.slots;
    if let Ok(slot) = Arc::clone(slots).try_acquire_owned() {
        return Ok((stream, address, slot));
    }
    if !*full {
        *full = true;
        let limit = connections.options.max_connections;
        tracing::warn!(server = connections.name, limit, "connection limit reached");
    }
    loop {
        connections.callers.make_room();
        if let Ok(slot) = tokio::time::timeout(FULL_PAUSE, Arc::clone(slots).acquire_owned()).await {
            return Ok((stream, address, slot.map_err(io::Error::other)?));
        }
    }
}

async fn connection<S>(stream: TcpStream, address: SocketAddr, entered: &Entered, connections: &Connections<S>)
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    keep_alive(&stream);
    let stream = Even(stream);
    let Some(acceptor) = &connections.acceptor else {
        let peer = PeerIdentity { address, certificates: Arc::new([]) };
        return http(stream, peer, entered, connections).await;
    };
    let handshake = tokio::time::timeout(connections.options.handshake_timeout, acceptor.accept(stream));
    let stream = tokio::select! {
        biased;
        () = connections.tasks.token().cancelled() => return,
        () = entered.sent_away() => return,
        done = handshake => match done {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(server = connections.name, peer = %address, %error, "TLS handshake failed");
                return;
            }
            Err(_) => {
                tracing::debug!(server = connections.name, peer = %address, "TLS handshake took too long");
                return;
            }
        },
    };
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificates = certificates.iter().map(|certificate| certificate.clone().into_owned()).collect();
    http(stream, PeerIdentity { address, certificates }, entered, connections).await;
}

async fn http<S, I>(stream: I, peer: PeerIdentity, entered: &Entered, connections: &Connections<S>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let options = &connections.options;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(options.header_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_concurrent_streams(options.max_streams);
    let address = peer.address;
    let service = hyper::service::service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(entered.newcomer());
        let running = entered.begin();
        let answer = connections.service.clone().oneshot(request);
        async move { answer.await.map(|answer| running.until_sent(answer)) }
    });
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let must_end = async {
        tokio::select! {
            () = connections.tasks.token().cancelled() => {}
            () = entered.sent_away() => {}
        }
    };
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = must_end => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(options.drain_timeout, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(server = connections.name, peer = %address, %error, "connection ended");
    }
}

#[cfg(test)]
mod tests;
