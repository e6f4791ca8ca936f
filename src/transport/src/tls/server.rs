//! The serving side.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::provider;
use crate::pki::{
    CertificateFacts, KeyedCertificate, PkiError, certificates_from_pem, private_key_from_pem, read_certificates,
    read_private_key,
};

/// What can be wrong with TLS settings. None of these heals by trying again.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// A key or certificate cannot be used.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// A cipher suite that this TLS stack does not have.
    #[error("cipher suite {name} is not supported; supported are {supported}")]
    CipherSuite {
        /// The name given.
        name: String,
        /// What may be named.
        supported: String,
    },
    /// Version and cipher suites leave nothing, or a key cannot sign.
    #[error("TLS settings: {0}")]
    Rustls(#[from] rustls::Error),
}

/// A serving certificate that can be replaced while connections are served; new handshakes take the new one.
#[derive(Debug)]
pub struct ReloadableCertificate {
    current: ArcSwap<CertifiedKey>,
    files: Option<(PathBuf, PathBuf)>,
}

impl ReloadableCertificate {
    /// Reads certificate chain and key from PEM files; [`Self::reload`] reads them again.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Arc<Self>, TlsConfigError> {
        let current = ArcSwap::from_pointee(load_files(certificate, key)?);
        Ok(Arc::new(Self { current, files: Some((certificate.to_owned(), key.to_owned())) }))
    }

    /// Takes a certificate from memory; [`Self::replace`] puts another in its place.
    pub fn from_pem(keyed: &KeyedCertificate) -> Result<Arc<Self>, TlsConfigError> {
        Ok(Arc::new(Self { current: ArcSwap::from_pointee(certified(keyed)?), files: None }))
    }

    /// Reads the files again; on an error the old certificate stays. Returns whether it changed.
    pub fn reload(&self) -> Result<bool, TlsConfigError> {
        let Some((certificate, key)) = &self.files else { return Ok(false) };
        let fresh = load_files(certificate, key)?;
        let changed = fresh.cert != self.current.load().cert;
        if changed {
            self.current.store(Arc::new(fresh));
        }
        Ok(changed)
    }

    /// Serves with another certificate from now on.
    pub fn replace(&self, keyed: &KeyedCertificate) -> Result<(), TlsConfigError> {
        self.current.store(Arc::new(certified(keyed)?));
        Ok(())
    }

    /// Returns what the present certificate says.
    pub fn facts(&self) -> Result<CertificateFacts, PkiError> {
        let current = self.current.load();
        current
            .cert
            .first()
            .ok_or_else(|| PkiError::Certificate("empty chain".to_owned()))
            .and_then(|certificate| CertificateFacts::from_der(certificate))
    }
}

impl ResolvesServerCert for ReloadableCertificate {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

fn load_files(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsConfigError> {
    let pair = CertifiedKey::from_der(read_certificates(certificate)?, read_private_key(key)?, &provider());
    pair.map_err(|error| mismatch(error, &certificate.display().to_string(), &key.display().to_string()))
}

fn certified(keyed: &KeyedCertificate) -> Result<CertifiedKey, TlsConfigError> {
    let chain = certificates_from_pem(keyed.certificate_pem.as_bytes(), "certificate")?;
    let key = private_key_from_pem(keyed.key_pem.as_bytes(), "key")?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| mismatch(error, "the certificate", "the key"))
}

pub(crate) fn mismatch(error: rustls::Error, certificate: &str, key: &str) -> TlsConfigError {
    if matches!(error, rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) {
        return PkiError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned() }.into();
    }
    error.into()
}

/// Whether clients are asked for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Asked for, taken whatever signed it: login judges it, so that a bad one gets a 401 that says why.
    Requested,
    /// Not asked for.
    None,
}

/// Lowest TLS version spoken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// 1.2 and 1.3.
    #[default]
    Tls12,
    /// 1.3 only.
    Tls13,
}

/// Settings of a TLS server.
#[derive(Debug, Clone)]
pub struct ServerTls {
    /// Whether clients are asked for a certificate.
    pub client_certificates: ClientCertificates,
    /// Lowest version.
    pub min_version: MinVersion,
    /// Names of TLS 1.2 suites to allow (IANA names); empty allows all. TLS 1.3 suites are not configurable, as in Go.
    pub cipher_suites: Vec<String>,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
}

impl Default for ServerTls {
    fn default() -> Self {
        Self {
            client_certificates: ClientCertificates::Requested,
            min_version: MinVersion::default(),
            cipher_suites: Vec::new(),
            http2: true,
        }
    }
}

/// Builds a server's configuration.
pub fn server_config(
    certificate: Arc<ReloadableCertificate>,
    settings: &ServerTls,
) -> Result<Arc<ServerConfig>, TlsConfigError> {
    let mut provider = provider();
    if !settings.cipher_suites.is_empty() {
        provider = Arc::new(restrict(&provider, &settings.cipher_suites)?);
    }
    let versions: &[&rustls::SupportedProtocolVersion] = match settings.min_version {
        MinVersion::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        MinVersion::Tls13 => &[&rustls::version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions)?;
    let builder = match settings.client_certificates {
        ClientCertificates::Requested => builder.with_client_cert_verifier(Arc::new(JudgedLater { provider })),
        ClientCertificates::None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(certificate);
    config.alpn_protocols =
        if settings.http2 { vec![b"h2".to_vec(), b"http/1.1".to_vec()] } else { vec![b"http/1.1".to_vec()] };
    Ok(Arc::new(config))
}

fn restrict(provider: &CryptoProvider, names: &[String]) -> Result<CryptoProvider, TlsConfigError> {
    // rustls prints TLS13_AES_128_GCM_SHA256 where IANA and Kubernetes write TLS_AES_128_GCM_SHA256.
    let iana = |suite: &rustls::SupportedCipherSuite| format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1);
    // Go's old names of the two suites that lack the hash.
    let known = |name: &str| match name {
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => format!("{name}_SHA256"),
        _ => name.to_owned(),
    };
    let names: Vec<String> = names.iter().map(|name| known(name)).collect();
    for name in &names {
        if !provider.cipher_suites.iter().any(|suite| iana(suite) == *name) {
            let supported: Vec<String> = provider.cipher_suites.iter().map(iana).collect();
            return Err(TlsConfigError::CipherSuite { name: name.clone(), supported: supported.join(", ") });
        }
    }
    let mut restricted = provider.clone();
    restricted.cipher_suites.retain(|suite| suite.tls13().is_some() || names.contains(&iana(suite)));
    Ok(restricted)
}

/// Takes any client certificate whose key the client really holds.
#[derive(Debug)]
struct JudgedLater {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for JudgedLater {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
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
