//! Keeps the service `kubernetes`, by which pods find the apiserver.

use std::net::SocketAddr;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use crate::apiserver::error::ApiError;
use crate::apiserver::registry::{Registry, WriteOptions};
use crate::apiserver::resources::SERVICES;

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";

pub(super) async fn run(registry: Registry, apiserver: SocketAddr, token: CancellationToken) {
    let mut services = Feed::new(&registry, &SERVICES);
    let ours = (NAMESPACE.to_owned(), NAME.to_owned());
    let mut first = true;
    loop {
        let keys = tokio::select! {
            biased;
            () = token.cancelled() => return,
            keys = services.next() => keys,
        };
        if !std::mem::take(&mut first) && !keys.contains(&ours) {
            continue;
        }
        if let Err(error) = ensure(&registry, apiserver).await {
            tracing::warn!(%error, "the service of the apiserver could not be made");
        }
    }
}

pub(super) async fn ensure(registry: &Registry, apiserver: SocketAddr) -> Result<(), ApiError> {
    if registry.find(&SERVICES, NAMESPACE, NAME)?.is_some() {
        return Ok(());
    }
    let Some(address) = registry.facts().service_address(0) else { return Ok(()) };
    let service = json!({
        "metadata": {"name": NAME, "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": address.to_string(),
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": apiserver.port()}],
            "type": "ClusterIP",
        },
    });
    match registry.create(&SERVICES, NAMESPACE, service, &WriteOptions::default()).await {
        Err(error) if !error.is_already_exists() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}
