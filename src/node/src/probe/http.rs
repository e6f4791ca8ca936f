//! One GET for a probe or a hook: no proxy, no keep-alive, no compression, TLS without verification, redirects on the same
//! host only, and never more than a small part of the body.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPHeader;
use tokio::io::{AsyncRead, AsyncWrite};

pub use super::address::Url;
use super::tcp;

/// So much of a body is read.
const BODY_BYTES: usize = 10 * 1024;
/// So many redirects are followed.
const REDIRECTS: usize = 10;
/// Small: an answer's head is.
const READ_BUFFER: usize = 16 * 1024;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// The first part of its body.
    pub body: String,
}

impl Answer {
    /// Whether it counts as success.
    pub fn is_good(&self) -> bool {
        (200..400).contains(&self.status)
    }

    /// Whether it is a redirect that was not followed.
    pub fn is_redirect(&self) -> bool {
        (300..400).contains(&self.status)
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The server could not be asked or did not answer: a failure.
    #[error("{0}")]
    Failure(String),
    /// It speaks plain HTTP where TLS was wanted.
    #[error("{0}")]
    NotSecure(String),
    /// The head came, but the body could not be read: not an answer at all.
    #[error("{0}")]
    Body(String),
}

/// Why one exchange failed, before the URL is put in front.
enum Fault {
    Plain(String),
    NotSecure,
    Body(String),
}

impl From<tcp::DialError> for Fault {
    fn from(error: tcp::DialError) -> Self {
        Self::Plain(error.0)
    }
}

/// Builds the headers of a request: the user's, then what is missing. An empty value leaves a header out.
pub fn headers(wanted: Option<&[HTTPHeader]>, agent: &'static str) -> HeaderMap {
    let mut map = HeaderMap::new();
    for HTTPHeader { name, value } in wanted.into_iter().flatten() {
        let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(value.as_bytes())) else {
            continue;
        };
        map.append(name, value);
    }
    for (name, usual) in [(header::USER_AGENT, agent), (header::ACCEPT, "*/*")] {
        match map.get(&name) {
            None => drop(map.insert(name, HeaderValue::from_static(usual))),
            Some(value) if value.is_empty() => drop(map.remove(name)),
            Some(_) => {}
        }
    }
    map
}

/// Asks once, all redirects together within `timeout`.
pub async fn get(url: &Url, headers: &HeaderMap, timeout: Duration) -> Result<Answer, HttpError> {
    // Tells apart what a timeout cut off.
    let in_body = AtomicBool::new(false);
    match tokio::time::timeout(timeout, follow(url, headers, &in_body)).await {
        Ok(done) => done,
        Err(_) if in_body.load(Ordering::Relaxed) => Err(HttpError::Body(
            "context deadline exceeded (Client.Timeout or context cancellation while reading body)".to_owned(),
        )),
        Err(_) => Err(HttpError::Failure(format!(
            "Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        ))),
    }
}

async fn follow(first: &Url, headers: &HeaderMap, in_body: &AtomicBool) -> Result<Answer, HttpError> {
    let mut url = first.clone();
    let mut headers = headers.clone();
    for _ in 0..REDIRECTS {
        let (answer, location) = exchange(&url, &headers, in_body).await.map_err(|fault| match fault {
            Fault::Plain(text) => HttpError::Failure(format!("Get \"{url}\": {text}")),
            Fault::NotSecure => {
                HttpError::NotSecure(format!("Get \"{url}\": http: server gave HTTP response to HTTPS client"))
            }
            Fault::Body(text) => HttpError::Body(text),
        })?;
        let Some(location) = location else { return Ok(answer) };
        let Some(next) = url.redirected(&location) else {
            return Err(HttpError::Failure(format!("Get \"{location}\": unsupported protocol scheme")));
        };
        if next.host != first.host {
            return Ok(answer);
        }
        if location.contains("//") {
            // A full address names its own host.
            headers.remove(header::HOST);
        }
        url = next;
        in_body.store(false, Ordering::Relaxed);
    }
    Err(HttpError::Failure(format!("Get \"{url}\": stopped after {REDIRECTS} redirects")))
}

/// One request on a connection of its own; a redirect's target comes beside the answer.
async fn exchange(url: &Url, headers: &HeaderMap, in_body: &AtomicBool) -> Result<(Answer, Option<String>), Fault> {
    let stream = tcp::dial(&url.host, url.port).await?;
    if !url.secure {
        return speak(stream, url, headers, in_body).await;
    }
    // Plain requests are one write; here the request follows the handshake and must not wait for an answer to it.
    drop(stream.set_nodelay(true));
    match longshore_transport::tls::connect_unverified(stream, &url.host).await {
        Ok(stream) => speak(stream, url, headers, in_body).await,
        Err(error) => Err(tls_fault(&error)),
    }
}

fn tls_fault(error: &std::io::Error) -> Fault {
    let text = error.to_string();
    // What rustls says of bytes that are no TLS record, such as the start of an HTTP answer.
    if text.contains("InvalidContentType") || text.contains("corrupt message") {
        return Fault::NotSecure;
    }
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Fault::Plain("EOF".to_owned()),
        _ if error.raw_os_error().is_some() => Fault::Plain(tcp::reason(error)),
        _ => Fault::Plain(format!("tls: {text}")),
    }
}

async fn speak<S>(
    stream: S,
    url: &Url,
    headers: &HeaderMap,
    in_body: &AtomicBool,
) -> Result<(Answer, Option<String>), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let request = request(url, headers)?;
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .title_case_headers(true)
        .max_buf_size(READ_BUFFER)
        .handshake::<_, Empty<Bytes>>(TokioIo::new(stream))
        .await
        .map_err(|error| broken(&error))?;
    // Driven here rather than by a task of its own: it ends with this future, whatever state it is in.
    let mut connection = pin!(connection);
    let mut talk = pin!(async {
        let answer = sender.send_request(request).await.map_err(|error| broken(&error))?;
        in_body.store(true, Ordering::Relaxed);
        read(answer).await
    });
    tokio::select! {
        biased;
        done = &mut talk => done,
        // Its error is told to the talk as well.
        _ended = &mut connection => talk.await,
    }
}

fn request(url: &Url, headers: &HeaderMap) -> Result<Request<Empty<Bytes>>, Fault> {
    let bad = |what: &str| Fault::Plain(format!("net/http: invalid {what}"));
    let mut request = Request::get(&url.path).body(Empty::new()).map_err(|_| bad("request path"))?;
    let host = HeaderValue::from_str(&url.authority()).map_err(|_| bad("host"))?;
    let map = request.headers_mut();
    // Hyper keeps the order; servers of little devices have been seen to want the host first.
    map.insert(header::HOST, headers.get(header::HOST).filter(|host| !host.is_empty()).cloned().unwrap_or(host));
    for (name, value) in headers.iter().filter(|(name, _)| *name != header::HOST) {
        map.append(name, value.clone());
    }
    map.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

async fn read(answer: Response<Incoming>) -> Result<(Answer, Option<String>), Fault> {
    let (head, mut body) = answer.into_parts();
    let mut bytes: Vec<u8> = Vec::new();
    while bytes.len() < BODY_BYTES {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| Fault::Body(broken_text(&error)))?;
        if let Some(data) = frame.data_ref() {
            bytes.extend_from_slice(&data[..data.len().min(BODY_BYTES - bytes.len())]);
        }
    }
    let location = is_redirect(head.status)
        .then(|| head.headers.get(header::LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned))
        .flatten()
        .filter(|location| !location.is_empty());
    Ok((Answer { status: head.status.as_u16(), body: String::from_utf8_lossy(&bytes).into_owned() }, location))
}

/// The redirects that lead somewhere.
fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn broken(error: &hyper::Error) -> Fault {
    Fault::Plain(broken_text(error))
}

/// What Go says in such a case.
fn broken_text(error: &hyper::Error) -> String {
    if error.is_parse() {
        return format!("net/http: HTTP/1.x transport connection broken: malformed HTTP response: {error}");
    }
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(this) = cause {
        if let Some(io) = this.downcast_ref::<std::io::Error>()
            && io.raw_os_error().is_some()
        {
            return format!("read tcp: read: {}", tcp::reason(io));
        }
        cause = this.source();
    }
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return "EOF".to_owned();
    }
    error.to_string()
}
