//! The folders that `up` owns (design decision, see docs/decisions): all of it below two roots.

use std::path::{Path, PathBuf};

/// Where everything of one `up` lives.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// What outlives a reboot: the plane's data and keys, the container runtime's root, kubeconfigs.
    pub(crate) data: PathBuf,
    /// What does not: sockets, state, pid files, logs of this boot.
    pub(crate) run: PathBuf,
    /// The agent's root.
    pub(crate) kubelet: PathBuf,
}

impl Paths {
    /// Default of `--data-dir`.
    pub(crate) const DATA: &str = "/var/lib/longshore";
    /// Default of `--run-dir`.
    pub(crate) const RUN: &str = "/run/longshore";
    /// Default of `--root-dir`.
    pub(crate) const KUBELET: &str = "/var/lib/kubelet";

    /// The administrator's kubeconfig.
    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.data.join("admin.kubeconfig")
    }

    /// The node's kubeconfig.
    pub(crate) fn node_kubeconfig(&self) -> PathBuf {
        self.data.join("node.kubeconfig")
    }

    /// The agent's configuration file, written anew by each `up`.
    pub(crate) fn kubelet_config(&self) -> PathBuf {
        self.data.join("kubelet.yaml")
    }

    /// Manifests of static pods of this node.
    pub(crate) fn manifests(&self) -> PathBuf {
        self.data.join("manifests")
    }

    /// The control plane's keys and certificates.
    pub(crate) fn pki(&self) -> PathBuf {
        self.data.join("pki")
    }

    /// Root of our own container runtime: images, snapshots.
    pub(crate) fn containerd_root(&self) -> PathBuf {
        self.data.join("containerd")
    }

    /// State of our own container runtime.
    pub(crate) fn containerd_state(&self) -> PathBuf {
        self.run.join("containerd")
    }

    /// Socket of our own container runtime.
    pub(crate) fn containerd_socket(&self) -> PathBuf {
        self.run.join("containerd.sock")
    }

    /// Its configuration.
    pub(crate) fn containerd_config(&self) -> PathBuf {
        self.run.join("containerd.toml")
    }

    /// Its output.
    pub(crate) fn containerd_log(&self) -> PathBuf {
        self.run.join("containerd.log")
    }

    /// Its process id.
    pub(crate) fn containerd_pid(&self) -> PathBuf {
        self.run.join("containerd.pid")
    }

    /// Our CNI configuration, used when the machine has none.
    pub(crate) fn cni(&self) -> PathBuf {
        self.run.join("cni")
    }

    /// Lock and process id of the running `up`.
    pub(crate) fn up_lock(&self) -> PathBuf {
        self.run.join("up.pid")
    }

    /// Appears when the node is ready: `--detach` waits for it.
    pub(crate) fn ready(&self) -> PathBuf {
        self.run.join("ready")
    }

    /// Output of a detached `up`.
    pub(crate) fn up_log(&self) -> PathBuf {
        self.run.join("up.log")
    }

    /// Says which foreign runtime this node was set up on.
    pub(crate) fn adopted(&self) -> PathBuf {
        self.data.join("runtime-endpoint")
    }
}

/// The administrator's kubeconfig to use: as given, from the environment, or where `up` puts it.
pub(crate) fn kubeconfig(given: Option<&Path>) -> PathBuf {
    given
        .map(Path::to_path_buf)
        .or_else(|| std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()).map(PathBuf::from))
        .unwrap_or_else(|| Path::new(Paths::DATA).join("admin.kubeconfig"))
}
