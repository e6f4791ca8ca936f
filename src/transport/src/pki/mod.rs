//! Keys and certificates with kubeadm's names and shapes: made by [`Authority`], kept as PEM files, read as
//! [`CertificateFacts`]. Nothing here speaks TLS; see [`crate::tls`].

use std::path::PathBuf;

mod authority;
mod facts;
mod files;
pub mod kubeadm;
mod request;

pub use authority::{
    Authority, KeyedCertificate, LeafRequest, SubjectAltName, Usage, public_key_pem, self_signed_server,
    signing_key_pair,
};
pub use facts::CertificateFacts;
pub use files::{
    certificates_from_pem, private_key_from_pem, public_key_from_pem, read_certificates, read_private_key, write_file,
};

pub use request::CertificateRequest;

#[cfg(test)]
mod tests;

/// What can go wrong with keys and certificates. None of these heals by trying again.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read.
    #[error("reading {path}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] longshore_util::atomic::AtomicWriteError),
    /// The text is not PEM, or holds nothing of the wanted kind.
    #[error("{what}: {detail}")]
    Pem {
        /// File or field.
        what: String,
        /// What is wrong in it.
        detail: String,
    },
    /// The bytes are not a certificate.
    #[error("not a certificate: {0}")]
    Certificate(String),
    /// Key and certificate are no pair.
    #[error("{key} is not the key of {certificate}")]
    Mismatch {
        /// File or field of the certificate.
        certificate: String,
        /// File or field of the key.
        key: String,
    },
    /// Making a key or certificate did not work.
    #[error("making {what}: {source}")]
    Make {
        /// What was being made.
        what: String,
        /// Why.
        source: rcgen::Error,
    },
}
