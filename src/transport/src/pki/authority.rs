//! Makes authorities and the certificates they sign.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType, date_time_ymd,
};
use rustls_pki_types::CertificateDer;

use super::{CertificateFacts, PkiError, certificates_from_pem};

/// Certificates begin a little in the past, so that a client with a slow clock takes them.
const BACKDATE: Duration = Duration::from_secs(5 * 60);

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// To log in with.
    Client,
    /// To serve with.
    Server,
    /// Both, as etcd's members need.
    Peer,
}

/// A name that a server certificate is good for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubjectAltName {
    /// Host name.
    Dns(String),
    /// Address.
    Ip(IpAddr),
}

impl From<&str> for SubjectAltName {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Dns(text.to_owned()), Self::Ip)
    }
}

/// What is asked of an authority.
#[derive(Debug, Clone)]
pub struct LeafRequest {
    /// Subject's common name: the user name of a client.
    pub common_name: String,
    /// Subject's organization: the group of a client.
    pub organization: Option<String>,
    /// What it is for.
    pub usage: Usage,
    /// Names of a server.
    pub names: Vec<SubjectAltName>,
    /// How long it is good.
    pub validity: Duration,
}

impl LeafRequest {
    /// Returns a request for a client certificate that is good for a year.
    pub fn client(common_name: impl Into<String>, organization: Option<&str>) -> Self {
        Self {
            common_name: common_name.into(),
            organization: organization.map(str::to_owned),
            usage: Usage::Client,
            names: Vec::new(),
            validity: super::kubeadm::LEAF_VALIDITY,
        }
    }

    /// Returns a request for a server certificate that is good for a year.
    pub fn server(common_name: impl Into<String>, names: Vec<SubjectAltName>) -> Self {
        Self {
            common_name: common_name.into(),
            organization: None,
            usage: Usage::Server,
            names,
            validity: super::kubeadm::LEAF_VALIDITY,
        }
    }
}

/// A certificate with its key, both PEM.
#[derive(Clone)]
pub struct KeyedCertificate {
    /// The certificate.
    pub certificate_pem: String,
    /// Its private key (PKCS#8).
    pub key_pem: String,
}

impl std::fmt::Debug for KeyedCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyedCertificate").field("key_pem", &"<redacted>").finish_non_exhaustive()
    }
}

/// A certificate authority with its key in memory.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    keyed: KeyedCertificate,
    not_before: Timestamp,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("not_before", &self.not_before).finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes a new self-signed authority with an ECDSA P-256 key.
    pub fn generate(common_name: &str, validity: Duration, now: Timestamp) -> Result<Self, PkiError> {
        let make = |source| PkiError::Make { what: format!("authority {common_name}"), source };
        let key = KeyPair::generate().map_err(make)?;
        let not_before = before(now);
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(common_name, None);
        params.subject_alt_names = vec![SanType::DnsName(common_name.try_into().map_err(make)?)];
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::KeyCertSign];
        params.not_before = date_time_ymd(1970, 1, 1) + since_1970(not_before);
        params.not_after = date_time_ymd(1970, 1, 1) + since_1970(after(now, validity));
        let certificate = params.self_signed(&key).map_err(make)?;
        Self::from_pem(&certificate.pem(), &key.serialize_pem())
    }

    /// Takes up an authority from its PEM files.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, PkiError> {
        let certificate = certificates_from_pem(certificate_pem.as_bytes(), "authority certificate")?.swap_remove(0);
        let key = KeyPair::from_pem(key_pem)
            .map_err(|error| PkiError::Pem { what: "authority key".to_owned(), detail: error.to_string() })?;
        let facts = CertificateFacts::from_der(&certificate)?;
        if !facts.is_key_of(&key.subject_public_key_info()) {
            return Err(PkiError::Mismatch {
                certificate: "authority certificate".to_owned(),
                key: "authority key".to_owned(),
            });
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key)
            .map_err(|source| PkiError::Make { what: "issuer".to_owned(), source })?;
        Ok(Self {
            issuer,
            certificate,
            keyed: KeyedCertificate { certificate_pem: certificate_pem.to_owned(), key_pem: key_pem.to_owned() },
            not_before: facts.not_before,
        })
    }

    /// Returns the authority's certificate as DER.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Returns the authority's certificate and key as PEM.
    pub fn keyed(&self) -> &KeyedCertificate {
        &self.keyed
    }

    /// Returns from when on the authority is good: nothing that it signs may be good before.
    pub(super) fn not_before(&self) -> Timestamp {
        self.not_before
    }

    pub(super) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    /// Makes a key and signs a certificate for it.
    pub fn issue(&self, request: &LeafRequest, now: Timestamp) -> Result<KeyedCertificate, PkiError> {
        let make = |source| PkiError::Make { what: format!("certificate {}", request.common_name), source };
        let key = KeyPair::generate().map_err(make)?;
        let params = leaf_params(request, before(now).max(self.not_before), now).map_err(make)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(make)?;
        Ok(KeyedCertificate { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

/// Makes a server certificate that signs itself, as a node does that was given none.
pub fn self_signed_server(request: &LeafRequest, now: Timestamp) -> Result<KeyedCertificate, PkiError> {
    let make = |source| PkiError::Make { what: format!("certificate {}", request.common_name), source };
    let key = KeyPair::generate().map_err(make)?;
    let certificate = leaf_params(request, before(now), now).map_err(make)?.self_signed(&key).map_err(make)?;
    Ok(KeyedCertificate { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
}

fn leaf_params(
    request: &LeafRequest,
    not_before: Timestamp,
    now: Timestamp,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&request.common_name, request.organization.as_deref());
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = match request.usage {
        Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
        Usage::Peer => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
    };
    let mut names = request.names.clone();
    names.sort();
    names.dedup();
    for name in names {
        params.subject_alt_names.push(match name {
            SubjectAltName::Dns(name) => SanType::DnsName(name.try_into()?),
            SubjectAltName::Ip(address) => SanType::IpAddress(address),
        });
    }
    set_time(&mut params, not_before, request.validity, now);
    Ok(params)
}

/// Sets how long a certificate is good: from a little before now, but not from before `earliest`.
pub(super) fn set_time(params: &mut CertificateParams, earliest: Timestamp, validity: Duration, now: Timestamp) {
    params.not_before = date_time_ymd(1970, 1, 1) + since_1970(before(now).max(earliest));
    params.not_after = date_time_ymd(1970, 1, 1) + since_1970(after(now, validity));
}

fn subject(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}

fn before(now: Timestamp) -> Timestamp {
    now.checked_sub(BACKDATE).unwrap_or(now)
}

fn after(now: Timestamp, validity: Duration) -> Timestamp {
    now.checked_add(validity).unwrap_or(now)
}

/// rcgen speaks another time crate's type; counting from 1970 spares us naming it.
fn since_1970(at: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0))
}

/// Makes a key pair for signing tokens; returns private (PKCS#8) and public (SubjectPublicKeyInfo) key as PEM.
pub fn signing_key_pair() -> Result<(String, String), PkiError> {
    let key = KeyPair::generate().map_err(|source| PkiError::Make { what: "signing key".to_owned(), source })?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

/// Returns the public half (PEM) of a private key (PEM).
pub fn public_key_pem(private_pem: &str) -> Result<String, PkiError> {
    let key = KeyPair::from_pem(private_pem)
        .map_err(|error| PkiError::Pem { what: "private key".to_owned(), detail: error.to_string() })?;
    Ok(key.public_key_pem())
}
