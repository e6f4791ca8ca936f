//! The calling side, for connections that are not the API client's: the apiserver to a node, the agent to a runtime.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::{TlsConfigError, provider};
use crate::pki::{KeyedCertificate, certificates_from_pem, private_key_from_pem};

/// Which servers are trusted.
#[derive(Debug, Clone)]
pub enum ServerTrust {
    /// Those with a certificate signed by one of these authorities (PEM bundle) for the name they are called by.
    Authorities(String),
    /// All of them. Only where upstream does the same.
    Any,
}

/// Builds a client's configuration, with a certificate to log in with if there is one. Speaks HTTP/1.1 only, as
/// upgrades need it.
pub fn client_config(
    trust: &ServerTrust,
    identity: Option<&KeyedCertificate>,
) -> Result<Arc<ClientConfig>, TlsConfigError> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match trust {
        ServerTrust::Authorities(pem) => builder.with_root_certificates(roots(pem)?),
        ServerTrust::Any => builder.dangerous().with_custom_certificate_verifier(Arc::new(TakesAny { provider })),
    };
    let mut config = match identity {
        Some(keyed) => builder
            .with_client_auth_cert(
                certificates_from_pem(keyed.certificate_pem.as_bytes(), "client certificate")?,
                private_key_from_pem(keyed.key_pem.as_bytes(), "client key")?,
            )
            .map_err(|error| super::server::mismatch(error, "client certificate", "client key"))?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn roots(pem: &str) -> Result<RootCertStore, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates_from_pem(pem.as_bytes(), "certificate authority")? {
        roots.add(authority)?;
    }
    Ok(roots)
}

/// Takes any server that holds its certificate's key.
#[derive(Debug)]
struct TakesAny {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for TakesAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether a client that trusts `authority` would take `leaf` from a server that it calls `name`.
pub fn is_trusted_server(
    authority: &CertificateDer<'static>,
    leaf: &CertificateDer<'_>,
    name: &str,
    now: jiff::Timestamp,
) -> bool {
    let mut roots = RootCertStore::empty();
    let Ok(()) = roots.add(authority.clone()) else { return false };
    let Ok(name) = ServerName::try_from(name) else { return false };
    let at = std::time::Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build().is_ok_and(|verifier| {
        verifier.verify_server_cert(leaf, &[], &name, &[], UnixTime::since_unix_epoch(at)).is_ok()
    })
}

/// Speaks TLS over a connection and takes whatever certificate the other side shows. Only where upstream does the same:
/// probes and hooks, which ask the pods of this node.
pub async fn connect_unverified(
    stream: tokio::net::TcpStream,
    host: &str,
) -> std::io::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    let config = match UNVERIFIED.get() {
        Some(config) => Arc::clone(config),
        None => {
            let config = client_config(&ServerTrust::Any, None).map_err(std::io::Error::other)?;
            Arc::clone(UNVERIFIED.get_or_init(|| config))
        }
    };
    let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
    tokio_rustls::TlsConnector::from(config).connect(name, stream).await
}

/// The same for all: it holds no state but session tickets.
static UNVERIFIED: std::sync::OnceLock<Arc<ClientConfig>> = std::sync::OnceLock::new();
