//! Where a node listens.

use std::net::IpAddr;

use http::StatusCode;
use serde_json::Value;

use crate::apiserver::error::ApiError;
use crate::apiserver::object::{list, meta, text};

/// Kinds of addresses, best first, as kubeadm tells the apiserver.
const PREFERRED: [&str; 3] = ["InternalIP", "ExternalIP", "Hostname"];

/// Port of nodes that do not say theirs.
const DEFAULT_PORT: u16 = 10250;

/// Returns `host:port` of a node's own port.
pub(super) fn authority(node: &Value) -> Result<String, ApiError> {
    let addresses = list(node, "/status/addresses");
    let of_kind = |kind: &&str| addresses.iter().find(|address| text(address, "/type") == *kind);
    let Some(address) = PREFERRED.iter().find_map(of_kind).map(|address| text(address, "/address")) else {
        let known: Vec<&str> = addresses.iter().map(|address| text(address, "/type")).collect();
        let message = format!("no preferred addresses found; known addresses: {known:?}");
        return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message));
    };
    // The node says this of itself: it must stay a host and not become a path.
    if address.parse::<IpAddr>().is_err()
        && !address.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    {
        let message =
            format!("address {address:?} of node {:?} is neither an IP address nor a host name", meta(node, "name"));
        return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message));
    }
    let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0).unwrap_or(DEFAULT_PORT);
    Ok(if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") })
}
