//! The certificate of port 10250: the configured files, or one made here and kept.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore_transport::pki::{Authority, KeyedCertificate, LeafRequest, SubjectAltName, write_file};
use longshore_transport::tls::{ReloadableCertificate, TlsConfigError};
use longshore_util::clock::SharedClock;

use super::ServerOptions;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// Begins in the past, for callers whose clocks are behind; the rest is what the authority dates back by itself.
const BACKDATE: Duration = Duration::from_secs(55 * 60);
/// One that was made here and ends this soon is made anew at the start.
const RENEW_BEFORE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Loads or makes it. Blocking.
pub(super) fn serving(
    options: &ServerOptions,
    clock: &SharedClock,
) -> Result<Arc<ReloadableCertificate>, TlsConfigError> {
    if let Some((certificate, key)) = &options.certificate_files {
        return ReloadableCertificate::from_files(certificate, key);
    }
    let (certificate, key) = (options.cert_dir.join("kubelet.crt"), options.cert_dir.join("kubelet.key"));
    if certificate.exists() && key.exists() {
        match ReloadableCertificate::from_files(&certificate, &key) {
            Ok(loaded) if is_good(&loaded, clock) => return Ok(loaded),
            Ok(_) => {
                tracing::info!(path = %certificate.display(), "self-signed serving certificate ends; making a new one");
            }
            Err(error) => tracing::warn!(%error, "self-signed serving certificate cannot be used; making a new one"),
        }
    }
    make(options, clock, &certificate, &key)?;
    ReloadableCertificate::from_files(&certificate, &key)
}

fn is_good(loaded: &ReloadableCertificate, clock: &SharedClock) -> bool {
    loaded.facts().is_ok_and(|facts| !facts.ends_within(RENEW_BEFORE, clock.now()))
}

/// A leaf signed by an authority that is thrown away; both stand in the file.
fn make(options: &ServerOptions, clock: &SharedClock, certificate: &Path, key: &Path) -> Result<(), TlsConfigError> {
    let now = clock.now();
    let begin = now.checked_sub(BACKDATE).unwrap_or(now);
    let authority = Authority::generate(&format!("{}-ca@{}", options.node, now.as_second()), YEAR, begin)?;
    let mut names = vec![SubjectAltName::from(options.node.as_str())];
    names.extend(options.addresses.iter().copied().map(SubjectAltName::Ip));
    let mut request = LeafRequest::server(format!("{}@{}", options.node, now.as_second()), names);
    request.validity = YEAR;
    let KeyedCertificate { certificate_pem, key_pem } = authority.issue(&request, begin)?;
    let chain = format!("{certificate_pem}{}", authority.keyed().certificate_pem);
    std::fs::create_dir_all(&options.cert_dir)
        .map_err(|source| longshore_transport::pki::PkiError::Read { path: options.cert_dir.clone(), source })?;
    // The key first: a certificate without its key would be taken for a pair at the next start.
    write_file(key, key_pem.as_bytes(), 0o600)?;
    write_file(certificate, chain.as_bytes(), 0o644)?;
    tracing::info!(path = %certificate.display(), "self-signed serving certificate made");
    Ok(())
}
