use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use super::*;

fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

fn at(now: Timestamp) -> SharedClock {
    Arc::new(longshore_util::clock::ManualClock::new(now))
}

fn later(days: u64) -> Timestamp {
    now().checked_add(Duration::from_secs(days * 86400)).unwrap()
}

fn names(further: &[&str]) -> ServerNames {
    ServerNames {
        service: "10.96.0.1".parse().unwrap(),
        domain: "cluster.local".into(),
        further: further.iter().map(|&name| name.into()).collect(),
    }
}

fn files(folder: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        (entry.file_name().into_string().unwrap(), (mode, std::fs::read(entry.path()).unwrap()))
    };
    std::fs::read_dir(folder).unwrap().map(entry).collect()
}

fn changed(before: &BTreeMap<String, (u32, Vec<u8>)>, after: &BTreeMap<String, (u32, Vec<u8>)>) -> Vec<String> {
    after.iter().filter(|(name, file)| before.get(*name) != Some(*file)).map(|(name, _)| name.clone()).collect()
}

#[test]
fn files_have_kubeadms_names_and_modes() {
    let folder = tempfile::tempdir().unwrap();
    let pki = PlanePki::prepare(folder.path(), &names(&["127.0.0.1", "localhost"]), at(now())).unwrap();
    let files: Vec<(String, u32)> = files(folder.path()).into_iter().map(|(name, (mode, _))| (name, mode)).collect();
    let want = [
        ("apiserver-kubelet-client.crt", 0o644),
        ("apiserver-kubelet-client.key", 0o600),
        ("apiserver.crt", 0o644),
        ("apiserver.key", 0o600),
        ("ca.crt", 0o644),
        ("ca.key", 0o600),
        ("sa.key", 0o600),
        ("sa.pub", 0o600),
    ];
    assert_eq!(files, want.map(|(name, mode)| (name.to_owned(), mode)));
    pki.service_account_key().unwrap();
    let client = pki.kubelet_client().unwrap();
    let chain = certificates_from_pem(client.certificate_pem.as_bytes(), "").unwrap();
    let subject = pki.client_ca().unwrap().verify(&chain, now()).unwrap();
    assert_eq!((subject.common_name.as_str(), subject.organizations.len()), ("kube-apiserver-kubelet-client", 0));
}

#[test]
fn a_second_start_changes_nothing_and_a_late_one_renews_leaves_only() {
    let folder = tempfile::tempdir().unwrap();
    let names = names(&["127.0.0.1"]);
    PlanePki::prepare(folder.path(), &names, at(now())).unwrap();
    let first = files(folder.path());
    PlanePki::prepare(folder.path(), &names, at(later(1))).unwrap();
    assert!(changed(&first, &files(folder.path())).is_empty());
    PlanePki::prepare(folder.path(), &names, at(later(300))).unwrap();
    let renewed = ["apiserver-kubelet-client.crt", "apiserver-kubelet-client.key", "apiserver.crt", "apiserver.key"];
    assert_eq!(changed(&first, &files(folder.path())), renewed);
}

#[test]
fn a_new_address_a_torn_pair_and_a_foreign_certificate_are_mended() {
    let folder = tempfile::tempdir().unwrap();
    PlanePki::prepare(folder.path(), &names(&["127.0.0.1"]), at(now())).unwrap();
    let server = ["apiserver.crt", "apiserver.key"];

    let before = files(folder.path());
    PlanePki::prepare(folder.path(), &names(&["127.0.0.1", "192.0.2.7"]), at(now())).unwrap();
    assert_eq!(changed(&before, &files(folder.path())), server);

    let before = files(folder.path());
    let (client_key, server_key) = ("apiserver-kubelet-client.key", "apiserver.key");
    std::fs::copy(folder.path().join(client_key), folder.path().join(server_key)).unwrap();
    PlanePki::prepare(folder.path(), &names(&["127.0.0.1"]), at(now())).unwrap();
    assert_eq!(changed(&before, &files(folder.path())), server);

    let before = files(folder.path());
    let other = tempfile::tempdir().unwrap();
    PlanePki::prepare(other.path(), &names(&["127.0.0.1"]), at(now())).unwrap();
    for name in server {
        std::fs::copy(other.path().join(name), folder.path().join(name)).unwrap();
    }
    PlanePki::prepare(folder.path(), &names(&["127.0.0.1"]), at(now())).unwrap();
    assert_eq!(changed(&before, &files(folder.path())), server);
    assert_ne!(files(folder.path())["apiserver.crt"], files(other.path())["apiserver.crt"]);
}

#[test]
fn what_all_hangs_on_is_never_replaced_silently() {
    let folder = tempfile::tempdir().unwrap();
    let names = names(&[]);
    assert!(matches!(PlanePki::open(folder.path(), at(now())), Err(PlanePkiError::Absent { .. })));
    PlanePki::prepare(folder.path(), &names, at(now())).unwrap();
    let error = PlanePki::prepare(folder.path(), &names, at(later(4000))).unwrap_err();
    assert!(matches!(error, PlanePkiError::Expired { .. }), "{error}");
    let before = files(folder.path());
    std::fs::remove_file(folder.path().join("sa.pub")).unwrap();
    PlanePki::prepare(folder.path(), &names, at(now())).unwrap();
    assert_eq!(before, files(folder.path()));
    std::fs::remove_file(folder.path().join("sa.key")).unwrap();
    let error = PlanePki::prepare(folder.path(), &names, at(now())).unwrap_err().to_string();
    assert!(error.contains("sa.key is missing beside") && error.contains("hint: restore it"), "{error}");
    std::fs::remove_file(folder.path().join("ca.key")).unwrap();
    let error = PlanePki::prepare(folder.path(), &names, at(now())).unwrap_err().to_string();
    assert!(error.contains("ca.key is missing beside"), "{error}");
}

#[test]
fn a_first_start_that_was_cut_short_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.key"), "half").unwrap();
    PlanePki::prepare(folder.path(), &names(&[]), at(now())).unwrap();
    assert_eq!(files(folder.path()).len(), 8);
}

#[tokio::test]
async fn kubeconfigs_log_in_as_who_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let pki = PlanePki::prepare(&folder.path().join("pki"), &names(&["127.0.0.1"]), at(now())).unwrap();
    let path = folder.path().join("x.kubeconfig");
    for (text, user, group) in [
        (pki.admin_kubeconfig("https://127.0.0.1:6443").unwrap(), "kubernetes-admin", "kubeadm:cluster-admins"),
        (pki.node_kubeconfig("n1", "https://127.0.0.1:6443").unwrap(), "system:node:n1", "system:nodes"),
    ] {
        write_kubeconfig(&path, &text).unwrap();
        let config = longshore_transport::client::Kubeconfig::load(&path, now()).await.unwrap();
        let identity = config.identity().unwrap();
        assert_eq!((identity.common_name.as_str(), identity.organizations[0].as_str()), (user, group));
        assert_eq!(config.server(), "https://127.0.0.1:6443/");
    }
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(pki.node_kubeconfig("N 1", "https://x"), Err(PlanePkiError::NodeName { .. })));
}
