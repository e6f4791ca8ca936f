//! What containerd tells beyond CRI: how far its downloads are. For people who wait, never for decisions.

use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint as HttpEndpoint, Uri};

use self::proto::ListStatusesRequest;
use self::proto::content_client::ContentClient;
use crate::Endpoint;

/// Messages and client of package `containerd.services.content.v1`, generated from `proto/containerd-content-v1.proto`.
pub mod proto {
    tonic::include_proto!("containerd.services.content.v1");
}

/// Where the kubelet's images live.
const NAMESPACE: &str = "k8s.io";
const WITHIN: Duration = Duration::from_secs(3);

/// Downloads under way, taken together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Downloads {
    /// Bytes that are here.
    pub here: u64,
    /// Bytes of the whole, as far as the registry told.
    pub total: u64,
}

/// Asks how far the downloads are; `None` when this is no containerd or nothing is being downloaded.
pub async fn downloads(endpoint: &Endpoint) -> Option<Downloads> {
    tokio::time::timeout(WITHIN, ask(endpoint)).await.ok()?
}

async fn ask(endpoint: &Endpoint) -> Option<Downloads> {
    let path = endpoint.path().to_owned();
    let connect = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let channel: Channel = HttpEndpoint::from_static("http://containerd").connect_with_connector(connect).await.ok()?;
    let mut request = tonic::Request::new(ListStatusesRequest::default());
    request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(NAMESPACE));
    let answer = ContentClient::new(channel).list_statuses(request).await.ok()?.into_inner();
    sum(answer.statuses.iter().map(|status| (status.r#ref.as_str(), status.offset, status.total)))
}

/// Only layers count: the rest is small and comes first.
fn sum<'a>(statuses: impl Iterator<Item = (&'a str, i64, i64)>) -> Option<Downloads> {
    let layers = statuses.filter(|(name, ..)| name.starts_with("layer-"));
    layers.fold(None, |sum: Option<Downloads>, (_, here, total)| {
        let sum = sum.unwrap_or_default();
        let count = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        Some(Downloads { here: sum.here + count(here), total: sum.total + count(total) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_added_up_and_nothing_is_nothing() {
        assert_eq!(sum([("manifest-sha256:1", 5, 5)].into_iter()), None);
        let layers = [("layer-sha256:1", 5, 10), ("layer-sha256:2", 1, 0), ("config-sha256:3", 9, 9)];
        assert_eq!(sum(layers.into_iter()), Some(Downloads { here: 6, total: 10 }));
    }
}
