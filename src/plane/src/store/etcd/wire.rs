//! etcd's calls with a deadline each: ranges, guarded writes, the watch. No state but the connection, which goes to the
//! next endpoint whenever it has to be made anew.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use super::EtcdOptions;
use crate::store::{OpenError, StoreError};

/// Messages and clients of the part of etcd's API that is needed here, generated from `proto/etcd-v3.proto`.
#[expect(clippy::all, unreachable_pub, reason = "generated code")]
pub(super) mod pb {
    tonic::include_proto!("etcdserverpb");
}

// Values may be Secrets: their size is all that a log may show.
impl fmt::Debug for pb::KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyValue({} at {}, {} bytes)", self.key.escape_ascii(), self.mod_revision, self.value.len())
    }
}

impl fmt::Debug for pb::PutRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PutRequest({}, {} bytes)", self.key.escape_ascii(), self.value.len())
    }
}

use pb::kv_client::KvClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;

/// One call takes no longer than this.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(3);
/// Keys of one page of a list.
const PAGE: i64 = 500;
/// A page of the largest objects that etcd takes by default (1.5 MiB).
const MAX_ANSWER: usize = 1 << 30;

/// Where one member listens.
#[derive(Debug, Clone)]
struct Target {
    url: String,
    host: String,
    port: u16,
    tls: bool,
}

impl Target {
    fn parse(url: &str) -> Result<Self, String> {
        let wanted = || format!("etcd server {url:?}: wanted http://HOST:PORT or https://HOST:PORT");
        let uri: http::Uri = url.trim_end_matches('/').parse().map_err(|_| wanted())?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wanted()),
        };
        let host = uri.host().ok_or_else(wanted)?.trim_start_matches('[').trim_end_matches(']').to_owned();
        if !matches!(uri.path(), "" | "/") {
            return Err(wanted());
        }
        Ok(Self { url: url.to_owned(), host, port: uri.port_u16().unwrap_or(2379), tls })
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// etcd's calls; clones share the connection.
#[derive(Clone)]
pub(super) struct Wire {
    kv: KvClient<Channel>,
    watch: WatchClient<Channel>,
    maintenance: MaintenanceClient<Channel>,
    /// All endpoints, as errors name them.
    pub(super) name: Arc<str>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.name)
    }
}

impl Wire {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, OpenError> {
        let name: Arc<str> = options.servers.join(",").into();
        let bad = |detail: String| OpenError::Etcd { servers: Arc::clone(&name), detail };
        let targets: Vec<Target> =
            options.servers.iter().map(|url| Target::parse(url)).collect::<Result<_, _>>().map_err(bad)?;
        if targets.is_empty() {
            return Err(bad("no server is named".to_owned()));
        }
        let tls = match &options.tls {
            Some(config) => {
                let mut config = rustls::ClientConfig::clone(config);
                config.alpn_protocols = vec![b"h2".to_vec()];
                Some(TlsConnector::from(Arc::new(config)))
            }
            None => None,
        };
        if let (Some(target), None) = (targets.iter().find(|target| target.tls), &tls) {
            return Err(bad(format!("{} wants TLS, but no authority is given (--etcd-cafile)", target.url)));
        }
        let (targets, next) = (Arc::<[Target]>::from(targets), Arc::new(AtomicUsize::new(0)));
        let connector = tower::service_fn(move |_| {
            let (targets, next, tls) = (Arc::clone(&targets), Arc::clone(&next), tls.clone());
            async move { connect(&targets, &next, tls.as_ref()).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://etcd")
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true)
            .connect_with_connector_lazy(connector);
        Ok(Self {
            kv: KvClient::new(channel.clone()).max_decoding_message_size(MAX_ANSWER),
            watch: WatchClient::new(channel.clone()).max_decoding_message_size(MAX_ANSWER),
            maintenance: MaintenanceClient::new(channel),
            name,
        })
    }

    /// Returns the server's version.
    pub(super) async fn version(&self) -> Result<String, Status> {
        let mut client = self.maintenance.clone();
        let call = client.status(pb::StatusRequest {});
        Ok(within(call).await?.version)
    }

    /// Returns which etcd it is and at which revision, as the majority agrees on now.
    pub(super) async fn now(&self, key: Vec<u8>) -> Result<pb::ResponseHeader, Status> {
        let mut client = self.kv.clone();
        let request = pb::RangeRequest { key, keys_only: true, limit: 1, ..pb::RangeRequest::default() };
        Ok(within(client.range(request)).await?.header.unwrap_or_default())
    }

    /// Writes a key, whatever is there.
    pub(super) async fn put(&self, key: Vec<u8>, value: Vec<u8>) -> Result<(), Status> {
        let mut client = self.kv.clone();
        let put = pb::request_op::Request::RequestPut(pb::PutRequest { key, value });
        let request =
            pb::TxnRequest { success: vec![pb::RequestOp { request: Some(put) }], ..pb::TxnRequest::default() };
        within(client.txn(request)).await.map(drop)
    }

    /// Returns one page of a range as it was at a revision (0: now).
    pub(super) async fn page(&self, from: Vec<u8>, end: Vec<u8>, revision: i64) -> Result<pb::RangeResponse, Status> {
        let mut client = self.kv.clone();
        let request =
            pb::RangeRequest { key: from, range_end: end, limit: PAGE, revision, ..pb::RangeRequest::default() };
        within(client.range(request)).await
    }

    /// Makes one write if a key is as wanted; otherwise reads the key.
    pub(super) async fn guarded(
        &self,
        key: Vec<u8>,
        wanted: pb::compare::TargetUnion,
        write: pb::request_op::Request,
    ) -> Result<pb::TxnResponse, Status> {
        let mut client = self.kv.clone();
        let target = match wanted {
            pb::compare::TargetUnion::Version(_) => pb::compare::CompareTarget::Version,
            pb::compare::TargetUnion::CreateRevision(_) => pb::compare::CompareTarget::Create,
            pb::compare::TargetUnion::ModRevision(_) => pb::compare::CompareTarget::Mod,
        };
        let read = pb::RangeRequest { key: key.clone(), keys_only: true, ..pb::RangeRequest::default() };
        let compare = pb::Compare {
            result: pb::compare::CompareResult::Equal.into(),
            target: target.into(),
            key,
            target_union: Some(wanted),
        };
        let request = pb::TxnRequest {
            compare: vec![compare],
            success: vec![pb::RequestOp { request: Some(write) }],
            failure: vec![pb::RequestOp { request: Some(pb::request_op::Request::RequestRange(read)) }],
        };
        within(client.txn(request)).await
    }

    /// Drops the history before a revision.
    pub(super) async fn compact(&self, revision: i64) -> Result<(), Status> {
        let mut client = self.kv.clone();
        within(client.compact(pb::CompactionRequest { revision })).await.map(drop)
    }

    /// Watches a range from a revision on. The stream ends when it is dropped.
    pub(super) async fn watch(
        &self,
        key: Vec<u8>,
        range_end: Vec<u8>,
        start_revision: i64,
    ) -> Result<Streaming<pb::WatchResponse>, Status> {
        let create = pb::WatchCreateRequest { key, range_end, start_revision };
        let request = pb::WatchRequest { request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)) };
        // The asking side stays open as long as the answers are wanted.
        let requests = futures_util::stream::iter([request]).chain(futures_util::stream::pending());
        let mut client = self.watch.clone();
        within(client.watch(requests)).await
    }

    /// Turns a failed call into what the store's users are told.
    pub(super) fn error(&self, status: &Status) -> StoreError {
        let path = self.name.as_ref().into();
        let detail: Arc<str> = describe(status).into();
        let full = status.code() == Code::ResourceExhausted && status.message().contains("space exceeded");
        if full { StoreError::Full { path, detail } } else { StoreError::Io { path, detail } }
    }
}

/// Says what went wrong, with the reason below it where the connection failed.
pub(super) fn describe(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = if text.is_empty() { more } else { format!("{text}: {more}") };
        }
        source = error.source();
    }
    text
}

async fn within<T>(call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, Status> {
    match timeout(DEADLINE, call).await {
        Ok(answer) => answer.map(tonic::Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded(format!("no answer within {DEADLINE:?}"))),
    }
}

/// Connects to the first member that answers, beginning behind the one used last.
async fn connect(
    targets: &[Target],
    next: &AtomicUsize,
    tls: Option<&TlsConnector>,
) -> Result<Box<dyn Io>, std::io::Error> {
    let mut failures = Vec::new();
    for _ in targets {
        let index = next.fetch_add(1, Ordering::Relaxed) % targets.len().max(1);
        let Some(target) = targets.get(index) else { continue };
        match timeout(CONNECT, connect_one(target, tls)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failures.push(format!("{}: {error}", target.url)),
            Err(_) => failures.push(format!("{}: no answer within {CONNECT:?}", target.url)),
        }
    }
    Err(std::io::Error::other(failures.join("; ")))
}

async fn connect_one(target: &Target, tls: Option<&TlsConnector>) -> Result<Box<dyn Io>, std::io::Error> {
    let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
    stream.set_nodelay(true)?;
    match tls.filter(|_| target.tls) {
        Some(tls) => {
            let name = rustls::pki_types::ServerName::try_from(target.host.clone()).map_err(std::io::Error::other)?;
            Ok(Box::new(tls.connect(name, stream).await?))
        }
        None => Ok(Box::new(stream)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_scheme_host_and_port() {
        let target = Target::parse("https://[::1]:2380").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.tls), ("::1", 2380, true));
        assert_eq!(Target::parse("http://etcd").unwrap().port, 2379);
        for bad in ["etcd:2379", "unix:///run/etcd", "http://", "http://a:1/path"] {
            let error = Target::parse(bad).unwrap_err();
            assert!(error.contains(bad) && error.contains("http://HOST:PORT"), "{error}");
        }
    }
}
