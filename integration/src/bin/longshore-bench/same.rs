//! The runtime's configuration of the bench's pod as a stock kubelet was recorded to send it (`integration/golden`, case
//! minimal): bare calls that asked for less than the agent must would be no floor for the same pod.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use longshore_cri::v1;

/// A container that ends at once on TERM.
pub(crate) const COMMAND: [&str; 3] = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"];
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Files of one pod that an agent makes before it calls the runtime.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
}

impl Files {
    /// Makes them; not part of what is timed.
    pub(crate) fn make(name: &str) -> anyhow::Result<Self> {
        let root = std::env::temp_dir().join("longshore-bench").join(name);
        let make = || {
            std::fs::create_dir_all(root.join("logs/c"))?;
            std::fs::create_dir_all(root.join("token"))?;
            std::fs::write(root.join("token/token"), "no token")?;
            std::fs::write(root.join("hosts"), "127.0.0.1\tlocalhost\n")?;
            std::fs::write(root.join("message"), "")
        };
        make().with_context(|| format!("make the pod's files under {}", root.display()))?;
        Ok(Self { root })
    }

    /// Takes them away.
    pub(crate) fn remove(name: &str) -> anyhow::Result<()> {
        let root = std::env::temp_dir().join("longshore-bench").join(name);
        std::fs::remove_dir_all(&root).with_context(|| format!("remove {}", root.display()))
    }

    fn path(&self, inside: impl AsRef<Path>) -> String {
        self.root.join(inside).display().to_string()
    }
}

/// The sandbox.
pub(crate) fn sandbox(name: &str, cgroup_parent: &str, files: &Files) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("bench-{name}"),
            namespace: "bare".to_owned(),
            attempt: 0,
        }),
        hostname: name.to_owned(),
        log_directory: files.path("logs"),
        dns_config: Some(v1::DnsConfig {
            servers: vec!["10.96.0.10".to_owned()],
            searches: ["bare.svc.cluster.local", "svc.cluster.local", "cluster.local"].map(str::to_owned).to_vec(),
            options: vec!["ndots:5".to_owned()],
        }),
        labels: [("io.kubernetes.pod.name".to_owned(), name.to_owned())].into(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: format!("{cgroup_parent}/{name}"),
            resources: Some(v1::LinuxContainerResources { cpu_period: 100_000, cpu_shares: 2, ..Default::default() }),
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(own_processes()),
                seccomp: Some(v1::SecurityProfile::default()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The container in it.
pub(crate) fn container(image: &str, files: &Files) -> v1::ContainerConfig {
    let mount = |container_path: &str, inside: &str, readonly| v1::Mount {
        container_path: container_path.to_owned(),
        host_path: files.path(inside),
        readonly,
        ..Default::default()
    };
    let unconfined = v1::SecurityProfile {
        profile_type: v1::security_profile::ProfileType::Unconfined.into(),
        ..Default::default()
    };
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "c".to_owned(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: image.to_owned(), ..Default::default() }),
        command: COMMAND.map(str::to_owned).to_vec(),
        log_path: "c/0.log".to_owned(),
        mounts: vec![
            mount("/var/run/secrets/kubernetes.io/serviceaccount", "token", true),
            mount("/etc/hosts", "hosts", false),
            mount("/dev/termination-log", "message", false),
        ],
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(v1::LinuxContainerResources {
                cpu_period: 100_000,
                cpu_shares: 2,
                oom_score_adj: 1000,
                ..Default::default()
            }),
            security_context: Some(v1::LinuxContainerSecurityContext {
                masked_paths: MASKED.map(str::to_owned).to_vec(),
                readonly_paths: READ_ONLY.map(str::to_owned).to_vec(),
                namespace_options: Some(own_processes()),
                run_as_user: Some(v1::Int64Value { value: 0 }),
                seccomp: Some(unconfined),
                ..Default::default()
            }),
        }),
        ..Default::default()
    }
}

/// Each container sees its own processes only; everything else is the pod's.
fn own_processes() -> v1::NamespaceOption {
    v1::NamespaceOption { pid: v1::NamespaceMode::Container.into(), ..Default::default() }
}
