//! Reads once what configurations of pods need to know of the machine.

use std::path::Path;

use longshore_api::dns::{self, ClusterDns};
use longshore_api::resources::NodeSwap;
use longshore_host::facts::MachineFacts;

use super::AgentOptions;
use crate::node::NodeHandle;
use crate::pod::config::NodeFacts;

/// Reads the facts.
pub(super) fn read(options: &AgentOptions, node: &NodeHandle, cgroup_v2: bool) -> NodeFacts {
    let config = &options.settings.config;
    let machine = MachineFacts::read(Path::new("/"));
    let addresses = node.host_ips();
    NodeFacts {
        root: options.root(),
        pod_logs: config.pod_logs_dir.clone().into(),
        dns: ClusterDns {
            servers: config.cluster_dns.clone(),
            domain: config.cluster_domain.clone(),
            host: resolver(&config.resolv_conf),
            node_is_ipv6: addresses.first().is_some_and(std::net::IpAddr::is_ipv6),
        },
        cpu: options.cpu_policy(),
        memory: i64::try_from(machine.memory).unwrap_or(i64::MAX),
        huge_pages: machine.hugepages.iter().map(|pages| page_name(pages.page)).collect(),
        cgroup_v2,
        swap: (cgroup_v2 && options.shares_swap()).then(|| NodeSwap {
            memory: i64::try_from(machine.memory).unwrap_or(i64::MAX),
            swap: i64::try_from(machine.swap).unwrap_or(i64::MAX),
        }),
        swap_accounting: Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists(),
        single_process_oom_kill: config.single_process_oom_kill.unwrap_or(!cgroup_v2),
        stop_signals: options.settings.gates.is_enabled("ContainerStopSignals"),
        seccomp_default: config.seccomp_default || options.settings.process.seccomp_default,
        extra_masked: throttle_folders(Path::new("/sys/devices/system/cpu")),
        host_ips: addresses.iter().map(ToString::to_string).collect(),
        allocatable: node.capacity().allocatable_amounts(),
    }
}

/// The host's resolver file; `None` when none is to be used.
fn resolver(path: &str) -> Option<dns::Resolver> {
    if path.is_empty() {
        return None;
    }
    match std::fs::read_to_string(path) {
        Ok(text) => Some(dns::parse_resolv_conf(&text)),
        Err(error) => {
            tracing::warn!(path, %error, "the resolver file cannot be read, pods get none of its servers");
            Some(dns::Resolver::default())
        }
    }
}

/// A page size as the runtime names it: `2MB`, `1GB`.
fn page_name(bytes: u64) -> String {
    let units = [("GB", 1u64 << 30), ("MB", 1 << 20), ("KB", 1 << 10)];
    let found = units.iter().find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size));
    found.map_or_else(|| format!("{bytes}B"), |(name, size)| format!("{}{name}", bytes / size))
}

/// Folders that tell of other tenants' load, one per cpu; the runtime is asked to mask them.
fn throttle_folders(cpus: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(cpus) else { return Vec::new() };
    let mut found: Vec<String> = entries
        .flatten()
        .map(|entry| entry.path().join("thermal_throttle"))
        .filter(|path| path.exists())
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn pages_are_named_as_the_runtime_does() {
        let names: Vec<String> = [2 << 20, 1 << 30, 64 << 10].into_iter().map(super::page_name).collect();
        assert_eq!(names, ["2MB", "1GB", "64KB"]);
    }
}
