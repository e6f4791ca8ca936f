use std::time::Duration;

use axum::{Extension, Router, routing::get};
use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::fixture::World;
use crate::pki::{Authority, LeafRequest, certificates_from_pem};
use crate::serve::{PeerIdentity, ServeOptions};

fn chain(pem: &str) -> Vec<rustls_pki_types::CertificateDer<'static>> {
    certificates_from_pem(pem.as_bytes(), "test").unwrap()
}

#[test]
fn client_certificates_are_judged_by_authority_time_and_purpose() {
    let world = World::new();
    let ca = ClientCa::from_pem(world.ca()).unwrap();
    let good = chain(&world.client_pair("jane").certificate_pem);
    let subject = ca.verify(&good, world.now).unwrap();
    assert_eq!((subject.common_name.as_str(), subject.organizations), ("jane", vec!["testers".to_owned()]));

    let mut short = LeafRequest::client("jane", None);
    short.validity = Duration::from_secs(60);
    let short = chain(&world.authority.issue(&short, world.now).unwrap().certificate_pem);
    let later = world.now.checked_add(Duration::from_secs(120)).unwrap();
    let error = ca.verify(&short, later).unwrap_err();
    assert!(matches!(error, ClientCertificateError::Expired { .. }), "{error}");
    assert!(error.to_string().contains("CN=jane expired at 20"), "{error}");

    let earlier = world.now.checked_sub(Duration::from_secs(86400)).unwrap();
    assert!(matches!(ca.verify(&good, earlier), Err(ClientCertificateError::NotYetValid { .. })));

    // Same name, other key: the signature gives it away.
    let stranger = Authority::generate("kubernetes", Duration::from_secs(3600), world.now).unwrap();
    let forged = chain(&stranger.issue(&LeafRequest::client("jane", None), world.now).unwrap().certificate_pem);
    let error = ca.verify(&forged, world.now).unwrap_err();
    assert!(matches!(error, ClientCertificateError::UnknownAuthority { .. }), "{error}");

    let server = chain(&world.server_pair().certificate_pem);
    assert!(matches!(ca.verify(&server, world.now), Err(ClientCertificateError::Refused { .. })));
    assert!(matches!(ca.verify(&[], world.now), Err(ClientCertificateError::Refused { .. })));
}

#[test]
fn a_chain_that_was_good_is_good_only_in_its_time_and_under_its_authority() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    std::fs::write(&file, world.ca()).unwrap();
    let ca = ClientCa::from_file(&file).unwrap();
    let mut short = LeafRequest::client("jane", None);
    short.validity = Duration::from_secs(60);
    let short = chain(&world.authority.issue(&short, world.now).unwrap().certificate_pem);
    for _ in 0..3 {
        assert_eq!(ca.verify(&short, world.now).unwrap().common_name, "jane");
    }
    let other = chain(&world.client_pair("joe").certificate_pem);
    assert_eq!(ca.verify(&other, world.now).unwrap().common_name, "joe");
    let later = world.now.checked_add(Duration::from_secs(120)).unwrap();
    assert!(matches!(ca.verify(&short, later), Err(ClientCertificateError::Expired { .. })));
    let earlier = world.now.checked_sub(Duration::from_secs(86400)).unwrap();
    assert!(matches!(ca.verify(&short, earlier), Err(ClientCertificateError::NotYetValid { .. })));

    let next = Authority::generate("kubernetes", Duration::from_secs(3600), world.now).unwrap();
    std::fs::write(&file, &next.keyed().certificate_pem).unwrap();
    assert!(ca.reload().unwrap());
    assert!(matches!(ca.verify(&other, world.now), Err(ClientCertificateError::UnknownAuthority { .. })));
}

#[test]
fn an_unknown_cipher_suite_is_refused_with_what_there_is() {
    let certificate = ReloadableCertificate::from_pem(&World::new().server_pair()).unwrap();
    let settings = |name: &str| ServerTls { cipher_suites: vec![name.to_owned()], ..ServerTls::default() };
    let error = server_config(certificate.clone(), &settings("TLS_RSA_WITH_AES_128_CBC_SHA")).unwrap_err().to_string();
    assert!(error.contains("TLS_RSA_WITH_AES_128_CBC_SHA") && error.contains("TLS_ECDHE_"), "{error}");
    server_config(certificate, &settings("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")).unwrap();
}

#[test]
fn a_key_of_another_certificate_is_named() {
    let world = World::new();
    let mut pair = world.server_pair();
    pair.key_pem = world.server_pair().key_pem;
    let error = ReloadableCertificate::from_pem(&pair).unwrap_err().to_string();
    assert!(error.contains("is not the key of"), "{error}");
}

#[tokio::test]
async fn the_peer_s_chain_rides_on_each_request_whoever_signed_it() {
    let world = World::new();
    let app = Router::new()
        .route("/", get(|Extension(peer): Extension<PeerIdentity>| async move { peer.certificates.len().to_string() }));
    let address = world.serve(app, ServeOptions::default()).await;
    let stranger = Authority::generate("kubernetes", Duration::from_secs(3600), world.now).unwrap();
    let foreign = stranger.issue(&LeafRequest::client("jane", None), world.now).unwrap();
    for (identity, want) in [(None, "0"), (Some(world.client_pair("jane")), "1"), (Some(foreign), "1")] {
        let mut stream = world.connect(address, &world.trust(), identity.as_ref()).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(want), "{answer}");
    }
}

#[tokio::test]
async fn a_replaced_certificate_is_served_to_the_next_connection() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let (crt, key) = (folder.path().join("s.crt"), folder.path().join("s.key"));
    let write = |pair: &crate::pki::KeyedCertificate| {
        std::fs::write(&crt, &pair.certificate_pem).unwrap();
        std::fs::write(&key, &pair.key_pem).unwrap();
    };
    let (first, second) = (world.server_pair(), world.server_pair());
    write(&first);
    let certificate = ReloadableCertificate::from_files(&crt, &key).unwrap();
    let address = world.serve_with(certificate.clone(), Router::new(), ServeOptions::default()).await;
    let shown = |stream: tokio_rustls::client::TlsStream<_>| stream.get_ref().1.peer_certificates().unwrap()[0].clone();
    let seen = shown(world.connect(address, &world.trust(), None).await.unwrap());
    assert_eq!(seen, chain(&first.certificate_pem)[0]);

    assert!(!certificate.reload().unwrap());
    std::fs::write(&crt, "half written").unwrap();
    assert!(certificate.reload().is_err());
    write(&second);
    assert!(certificate.reload().unwrap());
    let seen = shown(world.connect(address, &world.trust(), None).await.unwrap());
    assert_eq!(seen, chain(&second.certificate_pem)[0]);
}

#[tokio::test]
async fn a_server_of_another_authority_is_not_trusted_unless_all_are() {
    let world = World::new();
    let address = world.serve(Router::new(), ServeOptions::default()).await;
    let other = Authority::generate("other", Duration::from_secs(3600), Timestamp::now()).unwrap();
    let trust = ServerTrust::Authorities(other.keyed().certificate_pem.clone());
    assert!(world.connect(address, &trust, None).await.is_err());
    assert!(world.connect(address, &ServerTrust::Any, None).await.is_ok());
}
