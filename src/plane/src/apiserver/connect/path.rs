//! Turns the apiserver's queries into those of a node's port.

use crate::apiserver::request::Query;

/// Options of logs that the node understands under the same name.
const LOG_OPTIONS: [&str; 8] =
    ["follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream"];

/// Returns the query of exec and attach, with its question mark.
pub(super) fn stream_query(query: &Query, with_command: bool) -> String {
    let mut terms = Vec::new();
    for (ours, theirs) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if query.flag(ours) {
            terms.push(format!("{theirs}=1"));
        }
    }
    if with_command {
        terms.extend(query.all("command").map(|word| format!("command={}", escape(word))));
    }
    join(&terms)
}

/// Returns the query of port-forward: the ports that a WebSocket client must name at the start.
pub(super) fn port_query(query: &Query) -> String {
    let ports = query.all("ports").flat_map(|ports| ports.split(','));
    join(&ports.map(|port| format!("port={}", escape(port))).collect::<Vec<_>>())
}

/// Returns the query of logs.
pub(super) fn log_query(query: &Query) -> String {
    let terms = LOG_OPTIONS.iter().flat_map(|option| query.all(option).map(move |value| (option, value)));
    join(&terms.map(|(option, value)| format!("{option}={}", escape(value))).collect::<Vec<_>>())
}

fn join(terms: &[String]) -> String {
    if terms.is_empty() { String::new() } else { format!("?{}", terms.join("&")) }
}

/// Escapes all but what RFC 3986 calls unreserved.
fn escape(text: &str) -> String {
    escape_but(text, "")
}

/// Escapes a decoded path again, slashes apart.
pub(super) fn escape_path(path: &str) -> String {
    escape_but(path, "/:@!$&'()*+,;=")
}

fn escape_but(text: &str, kept: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let character = char::from(byte);
        if byte.is_ascii_alphanumeric() || "-._~".contains(character) || (byte.is_ascii() && kept.contains(character)) {
            out.push(character);
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            let digit = |nibble: u8| char::from(HEX[usize::from(nibble)]);
            out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    out
}
