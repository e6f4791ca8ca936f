//! Judges client certificates after the handshake: signed by the client authority, in its time, meant for clients.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, RootCertStore};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::{TlsConfigError, provider};
use crate::pki::{CertificateFacts, PkiError, certificates_from_pem, read_certificates};

/// Most chains that are remembered as good; each is one client's.
const REMEMBERED: usize = 4096;

/// Who a client certificate says its holder is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSubject {
    /// Common name: the user.
    pub common_name: String,
    /// Organizations: the groups.
    pub organizations: Vec<String>,
}

/// Why a client certificate was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientCertificateError {
    /// Its time is over.
    #[error("client certificate {subject} expired at {not_after}")]
    Expired {
        /// Whose.
        subject: String,
        /// When.
        not_after: Timestamp,
    },
    /// Its time has not come.
    #[error("client certificate {subject} is not valid before {not_before}")]
    NotYetValid {
        /// Whose.
        subject: String,
        /// When.
        not_before: Timestamp,
    },
    /// Another authority signed it.
    #[error("client certificate {subject} is signed by {issuer}, which is not the client authority")]
    UnknownAuthority {
        /// Whose.
        subject: String,
        /// By whom.
        issuer: String,
    },
    /// Anything else, such as a server's certificate used as a client's.
    #[error("client certificate {subject}: {detail}")]
    Refused {
        /// Whose.
        subject: String,
        /// Why.
        detail: String,
    },
}

/// The authority (or bundle of them) whose client certificates are taken; can be replaced while serving.
#[derive(Debug)]
pub struct ClientCa {
    verifier: ArcSwap<Verifier>,
    file: Option<PathBuf>,
}

#[derive(Debug)]
struct Verifier {
    verifier: Arc<dyn ClientCertVerifier>,
    authorities: Vec<CertificateDer<'static>>,
    /// Chains that were found good: a client shows the same one with every request, and checking signatures takes
    /// longer than many a request.
    good: Mutex<HashMap<Box<[CertificateDer<'static>]>, Good>>,
}

/// What is known of a chain that was found good.
#[derive(Debug, Clone)]
struct Good {
    subject: PeerSubject,
    from: Timestamp,
    until: Timestamp,
}

impl Verifier {
    /// Returns whose a chain is if it was found good before and is in its time now.
    fn remembered(&self, chain: &[CertificateDer<'static>], now: Timestamp) -> Option<PeerSubject> {
        let good = self.good.lock();
        good.get(chain).filter(|good| good.from <= now && now <= good.until).map(|good| good.subject.clone())
    }

    /// Remembers a good chain for as long as each of its certificates is in its time.
    fn remember(&self, chain: &[CertificateDer<'static>], leaf: &CertificateFacts, subject: &PeerSubject) {
        let (mut from, mut until) = (leaf.not_before, leaf.not_after);
        for above in chain.iter().skip(1) {
            let Ok(above) = CertificateFacts::from_der(above) else { return };
            (from, until) = (from.max(above.not_before), until.min(above.not_after));
        }
        let mut good = self.good.lock();
        if good.len() >= REMEMBERED {
            good.clear();
        }
        good.insert(chain.into(), Good { subject: subject.clone(), from, until });
    }
}

impl ClientCa {
    /// Reads a PEM bundle; [`Self::reload`] reads it again.
    pub fn from_file(path: &Path) -> Result<Self, TlsConfigError> {
        let verifier = build(read_certificates(path)?)?;
        Ok(Self { verifier: ArcSwap::from_pointee(verifier), file: Some(path.to_owned()) })
    }

    /// Takes a PEM bundle.
    pub fn from_pem(pem: &str) -> Result<Self, TlsConfigError> {
        let verifier = build(certificates_from_pem(pem.as_bytes(), "client authority")?)?;
        Ok(Self { verifier: ArcSwap::from_pointee(verifier), file: None })
    }

    /// Reads the file again; on an error the old bundle stays. Returns whether it changed.
    pub fn reload(&self) -> Result<bool, TlsConfigError> {
        let Some(path) = &self.file else { return Ok(false) };
        let authorities = read_certificates(path)?;
        if authorities == self.verifier.load().authorities {
            return Ok(false);
        }
        self.verifier.store(Arc::new(build(authorities)?));
        Ok(true)
    }

    /// Judges a client's chain (leaf first) and says whose it is.
    pub fn verify(
        &self,
        chain: &[CertificateDer<'static>],
        now: Timestamp,
    ) -> Result<PeerSubject, ClientCertificateError> {
        let refused =
            |subject: &str, detail: String| ClientCertificateError::Refused { subject: subject.to_owned(), detail };
        let Some((leaf, intermediates)) = chain.split_first() else {
            return Err(refused("", "none was presented".to_owned()));
        };
        let verifier = self.verifier.load();
        if let Some(subject) = verifier.remembered(chain, now) {
            return Ok(subject);
        }
        let facts = CertificateFacts::from_der(leaf).map_err(|error| refused("", error.to_string()))?;
        let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0)));
        match verifier.verifier.verify_client_cert(leaf, intermediates, at) {
            Ok(_) if facts.common_name.is_empty() => Err(refused(&facts.subject, "it has no common name".to_owned())),
            Ok(_) => {
                let (common_name, organizations) = (facts.common_name.clone(), facts.organizations.clone());
                let subject = PeerSubject { common_name, organizations };
                verifier.remember(chain, &facts, &subject);
                Ok(subject)
            }
            Err(error) => Err(explain(&error, facts, now)),
        }
    }
}

fn explain(error: &rustls::Error, facts: CertificateFacts, now: Timestamp) -> ClientCertificateError {
    let CertificateFacts { subject, issuer, not_before, not_after, .. } = facts;
    if now > not_after {
        return ClientCertificateError::Expired { subject, not_after };
    }
    if now < not_before {
        return ClientCertificateError::NotYetValid { subject, not_before };
    }
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            ClientCertificateError::UnknownAuthority { subject, issuer }
        }
        error => ClientCertificateError::Refused { subject, detail: error.to_string() },
    }
}

fn build(authorities: Vec<CertificateDer<'static>>) -> Result<Verifier, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    for authority in &authorities {
        roots.add(authority.clone())?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| PkiError::Certificate(error.to_string()))?;
    Ok(Verifier { verifier, authorities, good: Mutex::default() })
}
