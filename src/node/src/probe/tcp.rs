//! Connections to containers, with errors in the words that users know from events.
//!
//! The stock agent closes with a lingering of one second. Here it is left out: on Linux such a close may hold the thread,
//! and with it the probes of others, while the other side says nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;

use super::address;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct DialError(pub(super) String);

/// The address of a host; names are looked up.
pub(super) async fn resolve(host: &str, port: u16) -> Result<SocketAddr, DialError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let authority = address::join(host, port);
    match tokio::net::lookup_host((host, port)).await {
        Ok(mut found) => found.next().ok_or_else(|| DialError(format!("dial tcp: lookup {host}: no such host"))),
        Err(error) => Err(DialError(format!("dial tcp {authority}: lookup {host}: {error}"))),
    }
}

/// Connects.
pub(super) async fn dial(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let address = resolve(host, port).await?;
    let connected = TcpStream::connect(address).await;
    connected.map_err(|error| DialError(format!("dial tcp {address}: connect: {}", reason(&error))))
}

/// The kernel's reason without Rust's additions: `connection refused`.
pub(super) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refusal_reads_as_users_know_it() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(dial("127.0.0.1", port).await.is_ok());
        drop(listener);
        let error = dial("127.0.0.1", port).await.unwrap_err();
        assert_eq!(error.to_string(), format!("dial tcp 127.0.0.1:{port}: connect: connection refused"));
    }
}
