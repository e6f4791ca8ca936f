//! Which protocols a client may offer to a node.

use http::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

use crate::apiserver::error::ApiError;

/// WebSocket protocols of a node, from plain to with exit codes.
const SPOKEN: [&str; 8] = [
    "",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "v2.channel.k8s.io",
    "v3.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "v2.base64.channel.k8s.io",
];

/// Whether a request wants to go on as a WebSocket.
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Takes off a WebSocket client's offers what nodes do not speak; refuses it if nothing is left. A SPDY client's offers
/// are the node's to choose from.
pub(super) fn keep_what_nodes_speak(headers: &mut HeaderMap) -> Result<(), ApiError> {
    if !is_websocket(headers) || !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return Ok(());
    }
    let offered: Vec<String> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|protocol| protocol.trim().to_owned())
        .collect();
    let kept: Vec<&str> = offered.iter().map(String::as_str).filter(|protocol| SPOKEN.contains(protocol)).collect();
    if kept.is_empty() {
        return Err(ApiError::bad_request(format!(
            "unable to upgrade: nodes speak SPDY/3.1 and WebSocket up to v4.channel.k8s.io, not {}",
            offered.join(", ")
        )));
    }
    let value = HeaderValue::from_str(&kept.join(", ")).map_err(ApiError::internal)?;
    headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
    Ok(())
}
