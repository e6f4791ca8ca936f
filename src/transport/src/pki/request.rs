//! Requests for certificates, as clients send them: read with their signature checked, and signed for what they may have.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    CertificateSigningRequestParams, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType,
};

use super::PkiError;
use super::authority::{Authority, SubjectAltName, Usage, set_time};

/// A request whose key its sender holds.
#[derive(Debug, Clone)]
pub struct CertificateRequest {
    inner: CertificateSigningRequestParams,
}

impl CertificateRequest {
    /// Reads a request and checks its signature.
    pub fn from_pem(pem: &str) -> Result<Self, PkiError> {
        let read = CertificateSigningRequestParams::from_pem(pem);
        let bad =
            |error: rcgen::Error| PkiError::Pem { what: "certificate request".to_owned(), detail: error.to_string() };
        Ok(Self { inner: read.map_err(bad)? })
    }

    /// Returns the subject's common name, or an empty text.
    pub fn common_name(&self) -> &str {
        self.part(&DnType::CommonName)
    }

    /// Returns the subject's organization, or an empty text.
    pub fn organization(&self) -> &str {
        self.part(&DnType::OrganizationName)
    }

    fn part(&self, kind: &DnType) -> &str {
        match self.inner.params.distinguished_name.get(kind) {
            Some(DnValue::Utf8String(text)) => text,
            Some(DnValue::PrintableString(text)) => text.as_str(),
            Some(DnValue::Ia5String(text)) => text.as_str(),
            _ => "",
        }
    }

    /// Returns the names and addresses asked for.
    pub fn names(&self) -> Vec<SubjectAltName> {
        let names = self.inner.params.subject_alt_names.iter();
        names
            .filter_map(|name| match name {
                SanType::DnsName(name) => Some(SubjectAltName::Dns(name.as_str().to_owned())),
                SanType::IpAddress(address) => Some(SubjectAltName::Ip(*address)),
                _ => None,
            })
            .collect()
    }

    /// Whether names of other kinds (mail, URIs) are asked for.
    pub fn has_other_names(&self) -> bool {
        self.names().len() != self.inner.params.subject_alt_names.len()
    }
}

impl Authority {
    /// Signs a request: subject and names are its own, all else is decided here. Returns the certificate as PEM.
    pub fn sign(
        &self,
        request: &CertificateRequest,
        usage: Usage,
        validity: Duration,
        now: Timestamp,
    ) -> Result<String, PkiError> {
        let mut request = request.inner.clone();
        let params = &mut request.params;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = match usage {
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Usage::Peer => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        set_time(params, self.not_before(), validity, now);
        let make = |source| PkiError::Make { what: "certificate of a request".to_owned(), source };
        request.signed_by(self.issuer()).map(|certificate| certificate.pem()).map_err(make)
    }
}
