//! The agent's configuration under `up`: a plain KubeletConfiguration file, so that the same agent can be run by hand
//! with it.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::paths::Paths;

/// Writes the configuration and returns the agent's arguments.
pub(crate) fn write_config(paths: &Paths, endpoint: &str, node: &str) -> Result<Vec<String>> {
    std::fs::create_dir_all(paths.manifests()).with_context(|| format!("create {}", paths.manifests().display()))?;
    let text = longshore_util::yaml::to_string(&config(paths, endpoint, Path::new("/sys/fs/cgroup")))
        .context("write the agent's configuration")?;
    let file = paths.kubelet_config();
    longshore_util::atomic::write(&file, text.as_bytes(), 0o600)
        .with_context(|| format!("write {}", file.display()))?;
    Ok(vec![
        format!("--config={}", file.display()),
        format!("--kubeconfig={}", paths.node_kubeconfig().display()),
        format!("--root-dir={}", paths.kubelet.display()),
        format!("--cert-dir={}", paths.kubelet.join("pki").display()),
        format!("--hostname-override={node}"),
    ])
}

fn config(paths: &Paths, endpoint: &str, cgroups: &Path) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": endpoint,
        "staticPodPath": paths.manifests(),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": paths.pki().join("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "clusterDomain": "cluster.local",
        // One machine on its own: it must start with what is there.
        "failSwapOn": false,
        "failCgroupV1": cgroups.join("cgroup.controllers").exists(),
    })
}

/// Returns this machine's name as a node name: lower case, only what DNS allows.
pub(crate) fn node_name(hostname: &str) -> String {
    let mut name: String = hostname
        .trim()
        .to_lowercase()
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' })
        .collect();
    while name.starts_with(['-', '.']) {
        name.remove(0);
    }
    while name.ends_with(['-', '.']) {
        name.pop();
    }
    name.truncate(253);
    if name.is_empty() { "node".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_becomes_a_node_name() {
        for (host, node) in [("Web_01.lan", "web-01.lan"), ("-x-", "x"), ("", "node"), ("localhost", "localhost")] {
            assert_eq!(node_name(host), node, "{host}");
        }
    }

    #[test]
    fn cgroup_v1_is_accepted_where_it_is_what_is_mounted() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths { data: "/d".into(), run: "/r".into(), kubelet: "/k".into() };
        assert_eq!(config(&paths, "unix:///s", directory.path())["failCgroupV1"], false);
        std::fs::write(directory.path().join("cgroup.controllers"), "cpu").unwrap();
        assert_eq!(config(&paths, "unix:///s", directory.path())["failCgroupV1"], true);
    }
}
