//! Requests over HTTP/2 without a client library around them.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::ConfigExt as _;
use longshore_util::{Tasks, spawn};
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

/// What may be under way to us on one connection; less would make large lists wait for us.
const WINDOW: u32 = 8 << 20;

/// Who connects: certificate and server, as a kubeconfig has them.
#[derive(Clone)]
pub struct Identity {
    tls: TlsConnector,
    address: SocketAddr,
    agent: Arc<str>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({} at {})", self.agent, self.address)
    }
}

impl Identity {
    /// Reads a kubeconfig; `agent` is what the client calls itself.
    pub async fn of(kubeconfig: &str, agent: &str) -> Result<Self> {
        let file = kube::config::Kubeconfig::from_yaml(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?;
        let server = config.cluster_url.authority().context("a server")?.as_str().parse()?;
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { tls: TlsConnector::from(Arc::new(tls)), address: server, agent: agent.into() })
    }

    /// Opens a connection of its own.
    pub async fn connect(&self, tasks: &Tasks) -> Result<Wire> {
        let stream = tokio::net::TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let stream = self.tls.connect(name, stream).await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(2 * WINDOW)
            .handshake(TokioIo::new(stream))
            .await?;
        drop(spawn(tasks, "wire", async move { drop(connection.await) }));
        Ok(Wire { sender, base: format!("https://{}", self.address).into(), agent: Arc::clone(&self.agent) })
    }
}

/// One connection; copies share it.
#[derive(Debug, Clone)]
pub struct Wire {
    sender: http2::SendRequest<Full<Bytes>>,
    base: Arc<str>,
    agent: Arc<str>,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// The code.
    pub status: StatusCode,
    /// The whole body.
    pub body: Bytes,
}

impl Answer {
    /// Refuses answers that are no success.
    pub fn good(self) -> Result<Self> {
        ensure!(self.status.is_success(), "{}: {}", self.status, String::from_utf8_lossy(&self.body));
        Ok(self)
    }
}

impl Wire {
    /// Sends a request and returns when the answer's head is here.
    pub async fn send(&self, method: Method, path: &str, content: &str, body: Bytes) -> Result<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(header::USER_AGENT, &*self.agent)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, content)
            .body(Full::new(body))?;
        self.request(request).await
    }

    async fn request(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        let mut sender = self.sender.clone();
        sender.ready().await?;
        Ok(sender.send_request(request).await?)
    }

    /// Sends a request and reads the whole answer.
    pub async fn call(&self, method: Method, path: &str, content: &str, body: impl Into<Bytes>) -> Result<Answer> {
        let response = self.send(method, path, content, body.into()).await?;
        let status = response.status();
        Ok(Answer { status, body: response.into_body().collect().await?.to_bytes() })
    }

    /// Makes an object.
    pub async fn post(&self, path: &str, body: String) -> Result<Answer> {
        self.call(Method::POST, path, "application/json", body).await
    }

    /// Reads something small.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.call(Method::GET, path, "application/json", "").await
    }

    /// Asks for something and returns its body piece by piece.
    pub async fn open(&self, path: &str, gzip: bool) -> Result<Incoming> {
        let mut request = Request::get(format!("{}{path}", self.base))
            .header(header::USER_AGENT, &*self.agent)
            .header(header::ACCEPT, "application/json");
        if gzip {
            request = request.header(header::ACCEPT_ENCODING, "gzip");
        }
        let response = self.request(request.body(Full::default())?).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let body = response.into_body().collect().await?.to_bytes();
        anyhow::bail!("{path}: {status}: {}", String::from_utf8_lossy(&body));
    }
}

/// The revision of an object in its text, or 0: it stands near the start.
pub fn revision_of(text: &[u8]) -> u64 {
    const BEFORE: &[u8] = b"\"resourceVersion\":\"";
    let found = text.windows(BEFORE.len()).position(|window| window == BEFORE);
    let digits = found.and_then(|at| text.get(at + BEFORE.len()..)).unwrap_or_default();
    digits.iter().take_while(|byte| byte.is_ascii_digit()).fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))
}
