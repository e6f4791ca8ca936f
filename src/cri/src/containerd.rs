//! What containerd offers beyond CRI, on the same socket. Other runtimes answer that they do not know the call.

use std::time::Duration;

use tonic::Request;
use tonic::metadata::MetadataValue;

use self::proto::ListStatusesRequest;
use self::proto::content_client::ContentClient;
use crate::CriClient;

/// Messages and client of package `containerd.services.content.v1`, generated from `proto/containerd-content-v1.proto`.
pub mod proto {
    tonic::include_proto!("containerd.services.content.v1");
}

/// Where containerd keeps what its CRI side makes.
const NAMESPACE: &str = "k8s.io";
/// Which namespace a call means.
const NAMESPACE_KEY: &str = "containerd-namespace";
const WITHIN: Duration = Duration::from_secs(3);

/// A request about what the CRI side made.
pub(crate) fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(NAMESPACE_KEY, MetadataValue::from_static(NAMESPACE));
    request
}

/// Downloads under way, taken together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Downloads {
    /// Bytes that are here.
    pub here: u64,
    /// Bytes of the whole, as far as the registry told.
    pub total: u64,
}

impl CriClient {
    /// Asks how far the downloads are, for people who wait, never for decisions; `None` when this is no containerd or
    /// nothing is being downloaded.
    pub async fn downloads(&self) -> Option<Downloads> {
        let mut client = ContentClient::new(self.channel().clone());
        let ask = client.list_statuses(request(ListStatusesRequest::default()));
        let answer = tokio::time::timeout(WITHIN, ask).await.ok()?.ok()?.into_inner();
        sum(answer.statuses.iter().map(|status| (status.r#ref.as_str(), status.offset, status.total)))
    }
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
