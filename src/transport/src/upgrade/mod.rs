//! Passes a request on to another server and its answer back; when both sides agree to upgrade, copies bytes both ways.
//!
//! SPDY/3.1 and WebSocket look alike from here: nothing of the upgraded protocol is understood, but that a command's session
//! which broke is given a last word, so that no client takes it for one that ended well. A side that stops
//! sending may go on receiving (half close); a silent connection ends after the idle time.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Either;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use longshore_util::{Tasks, spawn};
use nix::sys::socket::{setsockopt, sockopt};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

mod copy;
mod last_word;

pub use copy::{CopyLimits, copy};

#[cfg(test)]
mod tests;

/// Where a request goes.
#[derive(Debug, Clone)]
pub struct Target {
    /// Full address: scheme, host, port, path and query.
    pub uri: Uri,
    /// How to speak TLS there; needed when the scheme is https.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The name its certificate must bear, if not the host's.
    pub server_name: Option<String>,
}

impl Target {
    /// Returns a target for a full URL.
    pub fn new(uri: Uri, tls: Option<Arc<rustls::ClientConfig>>) -> Self {
        Self { uri, tls, server_name: None }
    }
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct ForwardLimits {
    /// Until the connection (TLS included) stands.
    pub connect: Duration,
    /// Until the head of the answer is there; none for answers that begin when there is something to say (logs).
    pub response: Option<Duration>,
    /// After the upgrade.
    pub copy: CopyLimits,
}

impl Default for ForwardLimits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), response: Some(Duration::from_secs(60)), copy: CopyLimits::default() }
    }
}

/// Why a request could not be passed on. The caller makes its own error answer of it.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The target's address cannot be used.
    #[error("bad target {uri}: {detail}")]
    Target {
        /// The address.
        uri: Uri,
        /// What is wrong with it.
        detail: String,
    },
    /// Nobody answers there. May be tried again.
    #[error("dial tcp {authority}: {source}")]
    Connect {
        /// Host and port.
        authority: String,
        /// Why.
        source: io::Error,
    },
    /// The connection broke before there was an answer.
    #[error("request to {authority}: {source}")]
    Request {
        /// Host and port.
        authority: String,
        /// Why.
        source: hyper::Error,
    },
    /// The target took too long. May be tried again.
    #[error("{authority} did not answer within {limit:?}")]
    TooSlow {
        /// Host and port.
        authority: String,
        /// What was allowed.
        limit: Duration,
    },
    /// The target switched protocols unasked.
    #[error("{authority} switched protocols unasked")]
    UnaskedUpgrade {
        /// Host and port.
        authority: String,
    },
}

impl ForwardError {
    /// Returns the status that fits: 504 when the target was slow, 502 otherwise.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooSlow { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Target { .. } | Self::Connect { .. } | Self::Request { .. } | Self::UnaskedUpgrade { .. } => {
                StatusCode::BAD_GATEWAY
            }
        }
    }
}

/// Returns the protocol a request asks to switch to, if it does.
pub fn wanted_upgrade(headers: &HeaderMap) -> Option<&HeaderValue> {
    let asked = headers.get_all(header::CONNECTION).iter().any(|value| {
        value.to_str().is_ok_and(|value| value.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade")))
    });
    if asked { headers.get(header::UPGRADE) } else { None }
}

/// Passes `request` on to `target` and returns its answer; the body of either is streamed.
///
/// Credentials of the client stay here. After an upgrade the two connections are joined by a task on `tasks`.
pub async fn forward<B>(
    mut request: Request<B>,
    target: &Target,
    limits: &ForwardLimits,
    tasks: &Tasks,
) -> Result<Response<Body>, ForwardError>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let upgrade = wanted_upgrade(request.headers()).cloned();
    let client_side = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    let authority = target.uri.authority().map(ToString::to_string).unwrap_or_default();
    let too_slow = |limit| ForwardError::TooSlow { authority: authority.clone(), limit };

    let mut sender = tokio::time::timeout(limits.connect, connect(target, &authority, tasks))
        .await
        .map_err(|_| too_slow(limits.connect))??;
    let sent = sender.send_request(outgoing(request, target, &authority, upgrade.as_ref())?);
    let answer = match limits.response {
        Some(limit) => tokio::time::timeout(limit, sent).await.map_err(|_| too_slow(limit))?,
        None => sent.await,
    };
    let mut answer = answer.map_err(|source| ForwardError::Request { authority: authority.clone(), source })?;

    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (mut head, body) = answer.into_parts();
        strip_hop_by_hop(&mut head.headers);
        return Ok(Response::from_parts(head, Body::new(body)));
    }
    let Some(client_side) = client_side else { return Err(ForwardError::UnaskedUpgrade { authority }) };
    let target_side = hyper::upgrade::on(&mut answer);
    let limits = limits.copy;
    let is_command = upgrade.is_some_and(|wanted| last_word::is_told_of_the_end(wanted.as_bytes(), answer.headers()));
    let token = tasks.token().clone();
    drop(spawn(tasks, "upgraded", async move {
        let joined = async {
            let (client, target) = tokio::try_join!(client_side, target_side)?;
            let (client, target) = (TokioIo::new(client), TokioIo::new(target));
            let ended = if is_command {
                copy::copy_command(client, target, limits, token.cancelled()).await
            } else {
                copy(client, target, limits).await
            };
            ended.map_err(JoinError::Copy)
        };
        if is_command {
            if let Err(error) = joined.await {
                tracing::debug!(%error, "session of a command ended");
            }
            return;
        }
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            ended = joined => if let Err(error) = ended {
                tracing::debug!(%error, "upgraded connection ended");
            },
        }
    }));
    let (head, _) = answer.into_parts();
    Ok(Response::from_parts(head, Body::empty()))
}

#[derive(Debug, thiserror::Error)]
enum JoinError {
    #[error(transparent)]
    Upgrade(#[from] hyper::Error),
    #[error(transparent)]
    Copy(io::Error),
}

type Outgoing<B> = Either<B, http_body_util::Empty<Bytes>>;

fn outgoing<B>(
    request: Request<B>,
    target: &Target,
    authority: &str,
    upgrade: Option<&HeaderValue>,
) -> Result<Request<Outgoing<B>>, ForwardError> {
    let bad = |detail: &str| ForwardError::Target { uri: target.uri.clone(), detail: detail.to_owned() };
    let (mut head, body) = request.into_parts();
    let path = target.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = path.parse().map_err(|_| bad("path cannot be used"))?;
    head.version = http::Version::HTTP_11;
    head.extensions = http::Extensions::new();
    strip_hop_by_hop(&mut head.headers);
    strip_credentials(&mut head.headers);
    let host = HeaderValue::from_str(authority).map_err(|_| bad("host cannot be used"))?;
    head.headers.insert(header::HOST, host);
    let Some(protocol) = upgrade else { return Ok(Request::from_parts(head, Either::Left(body))) };
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    head.headers.insert(header::UPGRADE, protocol.clone());
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(Request::from_parts(head, Either::Right(http_body_util::Empty::new())))
}

/// Headers that speak of one connection only (RFC 9110, 7.6.1), and those that the Connection header names.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        header::CONNECTION,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
    ] {
        headers.remove(name);
    }
}

/// What a client logged in with here is no business of the next server.
fn strip_credentials(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    headers.remove(header::COOKIE);
    let impersonation: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    for name in impersonation {
        headers.remove(name);
    }
}

async fn connect<B>(
    target: &Target,
    authority: &str,
    tasks: &Tasks,
) -> Result<http1::SendRequest<Outgoing<B>>, ForwardError>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let bad = |detail: &str| ForwardError::Target { uri: target.uri.clone(), detail: detail.to_owned() };
    let failed = |source| ForwardError::Connect { authority: authority.to_owned(), source };
    let host = target.uri.host().ok_or_else(|| bad("no host"))?.trim_start_matches('[').trim_end_matches(']');
    let secure = match target.uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(bad("scheme is neither http nor https")),
    };
    let port = target.uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await.map_err(failed)?;
    keep_alive(&stream);
    if !secure {
        return handshake(stream, authority, tasks).await;
    }
    let config = target.tls.clone().ok_or_else(|| bad("https without TLS settings"))?;
    let name = target.server_name.as_deref().unwrap_or(host);
    let name = ServerName::try_from(name.to_owned()).map_err(|_| bad("host is no name for TLS"))?;
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(failed)?;
    handshake(stream, authority, tasks).await
}

async fn handshake<I, B>(
    stream: I,
    authority: &str,
    tasks: &Tasks,
) -> Result<http1::SendRequest<Outgoing<B>>, ForwardError>
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|source| ForwardError::Request { authority: authority.to_owned(), source })?;
    let token = tasks.token().clone();
    let driver = async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            ended = connection.with_upgrades() => if let Err(error) = ended {
                tracing::debug!(%error, "forwarded connection ended");
            },
        }
    };
    drop(spawn(tasks, "forwarded-connection", driver));
    Ok(sender)
}

/// Lets small writes go at once and finds dead peers within about two minutes.
pub(crate) fn keep_alive(stream: &TcpStream) {
    let socket = stream.as_fd();
    let set = stream
        .set_nodelay(true)
        .and_then(|()| Ok(setsockopt(&socket, sockopt::KeepAlive, &true)?))
        .and_then(|()| Ok(setsockopt(&socket, sockopt::TcpKeepIdle, &30)?))
        .and_then(|()| Ok(setsockopt(&socket, sockopt::TcpKeepInterval, &15)?))
        .and_then(|()| Ok(setsockopt(&socket, sockopt::TcpKeepCount, &6)?));
    if let Err(error) = set {
        tracing::debug!(%error, "socket options not set");
    }
}
