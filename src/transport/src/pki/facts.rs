//! What a certificate says: whose it is, who signed it, how long it is good.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::PkiError;

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Subject in one line, e.g. `O=system:nodes, CN=system:node:n1`.
    pub subject: String,
    /// Subject's common name, empty if none.
    pub common_name: String,
    /// Subject's organizations.
    pub organizations: Vec<String>,
    /// Issuer in one line.
    pub issuer: String,
    /// Good from.
    pub not_before: Timestamp,
    /// Good until.
    pub not_after: Timestamp,
    /// Host names it serves.
    pub dns_names: Vec<String>,
    /// Addresses it serves.
    pub addresses: Vec<IpAddr>,
    /// Whether it may sign others.
    pub is_authority: bool,
    public_key: Vec<u8>,
}

impl CertificateFacts {
    /// Reads a DER certificate.
    pub fn from_der(der: &[u8]) -> Result<Self, PkiError> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| PkiError::Certificate(error.to_string()))?;
        let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().unwrap_or_default().to_owned();
        let subject = parsed.subject();
        let mut dns_names = Vec::new();
        let mut addresses = Vec::new();
        if let Ok(Some(names)) = parsed.subject_alternative_name() {
            for name in &names.value.general_names {
                match name {
                    GeneralName::DNSName(name) => dns_names.push((*name).to_owned()),
                    GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
                    _ => {}
                }
            }
        }
        Ok(Self {
            subject: subject.to_string(),
            common_name: subject.iter_common_name().next().map(text).unwrap_or_default(),
            organizations: subject.iter_organization().map(text).collect(),
            issuer: parsed.issuer().to_string(),
            not_before: moment(parsed.validity().not_before.timestamp())?,
            not_after: moment(parsed.validity().not_after.timestamp())?,
            dns_names,
            addresses,
            is_authority: parsed.is_ca(),
            public_key: parsed.public_key().raw.to_vec(),
        })
    }

    /// Whether the time of `now` lies in its validity.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// Whether it ends within `margin` of `now` or has ended.
    pub fn ends_within(&self, margin: Duration, now: Timestamp) -> bool {
        now.checked_add(margin).is_ok_and(|then| then >= self.not_after)
    }

    /// Whether `spki` (DER) is its public key.
    pub fn is_key_of(&self, spki: &[u8]) -> bool {
        self.public_key == spki
    }

    /// Returns its public key as DER (SubjectPublicKeyInfo).
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    /// Whether it serves all of `names`.
    pub fn serves(&self, names: &[super::SubjectAltName]) -> bool {
        names.iter().all(|name| match name {
            super::SubjectAltName::Dns(name) => self.dns_names.contains(name),
            super::SubjectAltName::Ip(address) => self.addresses.contains(address),
        })
    }
}

fn moment(seconds: i64) -> Result<Timestamp, PkiError> {
    Timestamp::from_second(seconds).map_err(|error| PkiError::Certificate(error.to_string()))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(bytes));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}
