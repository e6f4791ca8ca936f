use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use jiff::Timestamp;

use super::*;

fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

fn facts(pem: &str) -> CertificateFacts {
    CertificateFacts::from_der(&certificates_from_pem(pem.as_bytes(), "test").unwrap()[0]).unwrap()
}

#[test]
fn certificates_have_kubeadms_names_and_days() {
    let authority = Authority::generate("kubernetes", kubeadm::AUTHORITY_VALIDITY, now()).unwrap();
    let ca = facts(&authority.keyed().certificate_pem);
    assert_eq!((ca.subject.as_str(), ca.issuer.as_str(), ca.is_authority), ("CN=kubernetes", "CN=kubernetes", true));
    assert_eq!(ca.dns_names, ["kubernetes"]);
    assert_eq!((ca.not_after.as_second() - now().as_second()) / 86400, 3650);

    let further = ["192.0.2.10".into(), "cp-1".into(), "api.example.test".into()];
    let request = kubeadm::apiserver("10.96.0.1".parse().unwrap(), "cluster.local", &further);
    let server = facts(&authority.issue(&request, now()).unwrap().certificate_pem);
    assert_eq!((server.subject.as_str(), server.is_authority), ("CN=kube-apiserver", false));
    assert_eq!(
        server.dns_names,
        [
            "api.example.test",
            "cp-1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local"
        ]
    );
    assert_eq!(server.addresses, ["10.96.0.1", "192.0.2.10"].map(|ip| ip.parse::<std::net::IpAddr>().unwrap()));
    assert_eq!((server.not_after.as_second() - now().as_second()) / 86400, 365);

    let node = facts(&authority.issue(&kubeadm::node("n1"), now()).unwrap().certificate_pem);
    assert_eq!(
        (node.common_name.as_str(), node.organizations.as_slice()),
        ("system:node:n1", &["system:nodes".to_owned()][..])
    );
    assert_eq!(node.issuer, "CN=kubernetes");
}

#[test]
fn an_authority_survives_its_files() {
    let first = Authority::generate("kubernetes", Duration::from_secs(3600), now()).unwrap();
    let again = Authority::from_pem(&first.keyed().certificate_pem, &first.keyed().key_pem).unwrap();
    let leaf = again.issue(&kubeadm::admin(), now()).unwrap();
    assert_eq!(facts(&leaf.certificate_pem).issuer, "CN=kubernetes");
    let other = Authority::generate("kubernetes", Duration::from_secs(3600), now()).unwrap();
    assert!(matches!(
        Authority::from_pem(&first.keyed().certificate_pem, &other.keyed().key_pem),
        Err(PkiError::Mismatch { .. })
    ));
}

#[test]
fn a_leaf_never_begins_before_its_authority() {
    let authority = Authority::generate("kubernetes", Duration::from_secs(3600), now()).unwrap();
    let begin = facts(&authority.keyed().certificate_pem).not_before;
    let leaf = facts(&authority.issue(&kubeadm::admin(), now()).unwrap().certificate_pem);
    assert!(leaf.not_before >= begin && leaf.is_valid_at(now()));
    assert!(!leaf.ends_within(Duration::from_secs(60), now()));
    assert!(leaf.ends_within(Duration::from_secs(400 * 86400), now()));
}

#[test]
fn errors_name_the_file_and_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.crt");
    assert!(read_certificates(&path).unwrap_err().to_string().contains("x.crt"));
    std::fs::write(&path, "no pem").unwrap();
    let error = read_certificates(&path).unwrap_err().to_string();
    assert!(error.contains("x.crt") && error.contains("BEGIN CERTIFICATE"), "{error}");
    let error = read_private_key(&path).unwrap_err().to_string();
    assert!(error.contains("BEGIN PRIVATE KEY"), "{error}");
}

#[test]
fn keys_are_for_the_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.key");
    write_file(&path, b"old", 0o644).unwrap();
    write_file(&path, b"new", kubeadm::KEY_MODE).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn secrets_do_not_show_in_debug_output() {
    let authority = Authority::generate("kubernetes", Duration::from_secs(3600), now()).unwrap();
    let text = format!("{authority:?} {:?}", authority.keyed());
    assert!(!text.contains("PRIVATE KEY"));
}

/// A request for a certificate with a key of its own.
fn request(common_name: &str, organization: &str, names: &[&str]) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, organization);
    params.distinguished_name.push(rcgen::DnType::CommonName, common_name);
    params.serialize_request(&key).unwrap().pem().unwrap()
}

#[test]
fn a_request_is_signed_with_its_names_for_what_the_authority_decides() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let authority = Authority::generate("kubernetes", Duration::from_secs(86_400 * 365), now).unwrap();
    let request =
        CertificateRequest::from_pem(&request("system:node:n1", "system:nodes", &["n1", "10.0.0.1"])).unwrap();
    assert_eq!((request.common_name(), request.organization()), ("system:node:n1", "system:nodes"));
    assert_eq!(request.names(), [SubjectAltName::from("n1"), SubjectAltName::from("10.0.0.1")]);
    let pem = authority.sign(&request, Usage::Client, Duration::from_secs(3600), now).unwrap();
    let certificate = certificates_from_pem(pem.as_bytes(), "signed").unwrap().swap_remove(0);
    let facts = CertificateFacts::from_der(&certificate).unwrap();
    assert!(facts.is_valid_at(now) && !facts.is_valid_at(now.checked_add(Duration::from_secs(3700)).unwrap()));
    let judge = crate::tls::ClientCa::from_pem(&authority.keyed().certificate_pem).unwrap();
    let subject = judge.verify(&[certificate], now).unwrap();
    assert_eq!(subject.common_name, "system:node:n1");
    assert_eq!(subject.organizations, ["system:nodes"]);
}

#[test]
fn what_is_no_request_is_refused() {
    assert!(CertificateRequest::from_pem("nonsense").is_err());
    let broken = request("a", "b", &[]).replace("MI", "MJ");
    assert!(CertificateRequest::from_pem(&broken).is_err());
}
