//! PEM in and out: files with the right mode, errors that name the file.

use std::io::Read as _;
use std::path::Path;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};

use super::PkiError;

/// More than any sane bundle; keeps a wrong path (a device, a log) from filling memory.
const MAX_FILE: u64 = 4 << 20;

/// Returns all certificates in `pem`, at least one; `what` names file or field in errors.
pub fn certificates_from_pem(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let wrong = |detail: String| PkiError::Pem { what: what.to_owned(), detail };
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(format!("not valid PEM: {error}")))?;
    if certificates.is_empty() {
        return Err(wrong("no certificate in it (want -----BEGIN CERTIFICATE-----)".to_owned()));
    }
    for certificate in &certificates {
        super::CertificateFacts::from_der(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(certificates)
}

/// Returns the first private key in `pem`; `what` names file or field in errors.
pub fn private_key_from_pem(pem: &[u8], what: &str) -> Result<PrivateKeyDer<'static>, PkiError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| PkiError::Pem {
        what: what.to_owned(),
        detail: match error {
            rustls_pki_types::pem::Error::NoItemsFound => {
                "no private key in it (want -----BEGIN PRIVATE KEY----- or its RSA or EC form)".to_owned()
            }
            error => format!("not valid PEM: {error}"),
        },
    })
}

/// Returns the first public key (SubjectPublicKeyInfo) in `pem`.
pub fn public_key_from_pem(pem: &[u8], what: &str) -> Result<SubjectPublicKeyInfoDer<'static>, PkiError> {
    SubjectPublicKeyInfoDer::from_pem_slice(pem)
        .map_err(|error| PkiError::Pem { what: what.to_owned(), detail: format!("no public key in it: {error}") })
}

/// Reads the certificates of a PEM file.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    certificates_from_pem(&read_file(path)?, &path.display().to_string())
}

/// Reads the private key of a PEM file.
pub fn read_private_key(path: &Path) -> Result<PrivateKeyDer<'static>, PkiError> {
    private_key_from_pem(&read_file(path)?, &path.display().to_string())
}

pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, PkiError> {
    let read = || {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|source| PkiError::Read { path: path.to_owned(), source })
}

/// Writes a file whole or not at all.
pub fn write_file(path: &Path, contents: &[u8], mode: u32) -> Result<(), PkiError> {
    Ok(longshore_util::atomic::write(path, contents, mode)?)
}
