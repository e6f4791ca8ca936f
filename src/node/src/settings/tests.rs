use std::fs;

use longshore_api::flags;

use super::*;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn with_file(text: &str, more: &[&str]) -> Result<Settings, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    fs::write(&path, text).unwrap();
    let mut arguments = vec![format!("--config={}", path.display())];
    arguments.extend(more.iter().map(|&argument| argument.to_owned()));
    let result = load(&flags::parse(arguments).unwrap());
    result.map_err(|errors| errors.to_string().replace(&dir.path().display().to_string(), "DIR"))
}

#[test]
fn the_file_that_kubeadm_writes_is_understood() {
    let text = include_str!("../../../api/tests/data/kubeadm-kubelet-config.yaml");
    let settings = with_file(text, &["--hostname-override=cp-1", "--kubeconfig=/etc/kubernetes/kubelet.conf"]).unwrap();
    assert_eq!(settings.config.static_pod_path, "/etc/kubernetes/manifests");
    assert_eq!(settings.config.sync_frequency.to_string(), "1m0s");
    assert_eq!((settings.config.cgroup_driver.as_str(), settings.config.rotate_certificates), ("systemd", true));
    assert!(!settings.config.authentication.anonymous.enabled && settings.config.authentication.webhook.enabled);
    assert_eq!(settings.process.hostname_override, "cp-1");
    assert_eq!(settings.warnings, ["set, but not acted on by this version: rotateCertificates"]);
}

#[test]
fn faults_have_file_line_and_column() {
    let error =
        with_file(&format!("{HEAD}maxPods: 5\nauthentication:\n  x509:\n    clientCaFile: x\nport: \"1\"\n"), &[])
            .unwrap_err();
    assert_eq!(
        error,
        "[DIR/config.yaml: line 6, column 5: authentication.x509.clientCaFile: unknown field; did you mean clientCAFile?, \
         DIR/config.yaml: line 7, column 1: port: found the text \"1\", wanted a whole number]"
    );
    let twice = with_file(&format!("{HEAD}maxPods: 5\nmaxPods: 6\n"), &[]).unwrap_err();
    assert!(twice.starts_with("DIR/config.yaml: line 4, column 1: duplicate"), "{twice}");
    assert!(with_file("", &[]).unwrap_err().contains("empty"));
    assert!(
        with_file(&format!("{HEAD}maxPods: -1\n"), &[])
            .unwrap_err()
            .contains("invalid configuration: maxPods: -1 must be at least 0")
    );
    let absent = load(&flags::parse(["--config=/no/such/file"]).unwrap()).unwrap_err().to_string();
    assert_eq!(absent, "cannot read /no/such/file: No such file or directory (os error 2)");
}

#[test]
fn relative_paths_start_at_the_file() {
    let settings = with_file(&format!("{HEAD}staticPodPath: manifests\n"), &[]).unwrap();
    assert!(
        settings.config.static_pod_path.ends_with("/manifests") && settings.config.static_pod_path.starts_with('/')
    );
}

#[test]
fn drop_ins_come_sorted_and_flags_last() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("20-more")).unwrap();
    for (name, fields) in [
        ("10-a.conf", "maxPods: 1\nclusterDNS: [1.1.1.1]\nsyncFrequency: 5s"),
        ("20-more/x.conf", "maxPods: 2\nlogging: {verbosity: 3}"),
        (
            "30-b.conf",
            "{\"apiVersion\": \"kubelet.config.k8s.io/v1beta1\", \"kind\": \"KubeletConfiguration\", \"clusterDNS\": [\"2.2.2.2\"]}",
        ),
        ("ignored.yaml", "broken: ["),
        ("ignored.CONF", "broken: ["),
    ] {
        let text = if fields.starts_with('{') { fields.to_owned() } else { format!("{HEAD}{fields}\n") };
        fs::write(dir.path().join(name), text).unwrap();
    }
    let flag = format!("--config-dir={}", dir.path().display());
    let settings = with_file(&format!("{HEAD}maxPods: 9\n"), &[&flag, "--sync-frequency=7s"]).unwrap();
    let config = &settings.config;
    assert_eq!((config.max_pods, config.logging.verbosity, config.sync_frequency.to_string().as_str()), (2, 3, "7s"));
    assert_eq!(config.cluster_dns, ["2.2.2.2"]);
    fs::write(dir.path().join("40.conf"), "maxPods: 1\n").unwrap();
    assert!(with_file(HEAD, &[&flag]).unwrap_err().contains("40.conf: line 1, column 1: apiVersion: missing"));
    assert!(with_file(HEAD, &["--config-dir=/no/such"]).is_err());
}

#[test]
fn everything_acted_on_exists() {
    let config = KubeletConfiguration::default().to_value();
    for flag in ACTED_FLAGS {
        assert!(
            matches!(*flag, "help")
                || flags::help().contains(&format!("--{flag} "))
                || flags::help().contains(&format!("--{flag}\n")),
            "{flag}"
        );
    }
    let known = include_str!("../../../api/tests/data/kubelet-config.tsv");
    for field in ACTED_FIELDS {
        assert!(
            known.lines().any(|line| line
                .split('\t')
                .next()
                .is_some_and(|path| path == *field || path.starts_with(&format!("{field}.")))),
            "{field}"
        );
    }
    drop(config);
}

#[test]
fn the_reference_in_the_docs_is_that_of_the_tables() {
    let is_acted =
        |path: &str| ACTED_FIELDS.iter().any(|known| path == *known || path.starts_with(&format!("{known}.")));
    let word = |acted: bool| if acted { "yes" } else { "no" };
    let cell = |text: &str| text.replace('|', "or");
    let mut rows = Vec::new();
    let fields = include_str!("../../../api/tests/data/kubelet-config.tsv");
    for row in fields.lines().take_while(|line| !line.starts_with("# ---- CredentialProviderConfig")) {
        if row.is_empty() || row.starts_with('#') || row.starts_with("field\t") {
            continue;
        }
        let columns: Vec<&str> = row.split('\t').collect();
        let [path, kind, default, ..] = columns.as_slice() else { panic!("{row}") };
        rows.push(format!("| {path} | {} | {} | {} |", cell(kind), cell(default), word(is_acted(path))));
    }
    for (name, field, default) in flags::table() {
        let acted = if field.is_empty() { ACTED_FLAGS.contains(&name) } else { is_acted(field) };
        rows.push(format!("| --{name} | {field} | {} | {} |", cell(default), word(acted)));
    }
    let docs = include_str!("../../../../docs/configuration.md");
    let present: Vec<&str> =
        docs.lines().filter(|line| line.starts_with("| ") && !line.ends_with("acted on |")).collect();
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(present.get(index).copied(), Some(row.as_str()), "docs/configuration.md, row {index}");
    }
    assert_eq!(present.len(), rows.len());
}
