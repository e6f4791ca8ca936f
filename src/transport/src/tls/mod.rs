//! TLS configurations of both sides: servers that ask for a client certificate and judge it later, certificates that
//! are replaced while serving, clients with or without one.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

mod client;
mod client_ca;
mod server;

pub use client::{ServerTrust, client_config, connect_unverified, is_trusted_server};
pub use client_ca::{ClientCa, ClientCertificateError, PeerSubject};
pub use server::{ClientCertificates, MinVersion, ReloadableCertificate, ServerTls, TlsConfigError, server_config};

#[cfg(test)]
mod tests;

/// Installs ring as the process's TLS provider; may be called any number of times.
pub fn install_provider() {
    // An error means that one is there already.
    drop(rustls::crypto::ring::default_provider().install_default());
}

fn provider() -> Arc<CryptoProvider> {
    install_provider();
    CryptoProvider::get_default().map_or_else(|| Arc::new(rustls::crypto::ring::default_provider()), Arc::clone)
}
