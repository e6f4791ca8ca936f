//! Which sysctls a pod may set: the safe ones that this kernel keeps apart, and those that the node's owner allows.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PodSpec;

use super::Refusal;

/// Safe sysctls and the kernel from which on they are kept apart for each pod.
const SAFE: [(&str, (u32, u32)); 12] = [
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

/// The list of allowed sysctls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SysctlRules {
    names: BTreeSet<String>,
    prefixes: Vec<String>,
}

impl SysctlRules {
    /// Builds the list for a kernel (`uname -r`) and the patterns of `allowedUnsafeSysctls`.
    pub fn new(kernel: &str, allowed: &[String]) -> Self {
        let kernel = version(kernel);
        let mut rules = Self {
            names: SAFE.iter().filter(|(_, since)| kernel >= *since).map(|(name, _)| (*name).to_owned()).collect(),
            prefixes: Vec::new(),
        };
        for pattern in allowed {
            let pattern = dotted(pattern);
            match pattern.strip_suffix('*') {
                Some(prefix) => rules.prefixes.push(prefix.to_owned()),
                None => drop(rules.names.insert(pattern)),
            }
        }
        rules
    }

    /// Returns why a pod may not set what it wants to.
    pub(super) fn check(&self, spec: &PodSpec) -> Option<Refusal> {
        let security = spec.security_context.as_ref()?;
        let host_network = spec.host_network.unwrap_or(false);
        let host_ipc = spec.host_ipc.unwrap_or(false);
        let wanted = security.sysctls.iter().flatten().map(|sysctl| dotted(&sysctl.name));
        let forbidden = wanted.into_iter().find_map(|name| {
            let known = self.names.contains(&name) || self.prefixes.iter().any(|prefix| name.starts_with(prefix));
            if !known {
                return Some((name, "not allowlisted"));
            }
            if host_network && name.starts_with("net.") {
                return Some((name, "not allowed with host net enabled"));
            }
            (host_ipc && (name.starts_with("kernel.") || name.starts_with("fs.mqueue.")))
                .then_some((name, "not allowed with host ipc enabled"))
        });
        forbidden.map(|(name, why)| Refusal::new("SysctlForbidden", format!("forbidden sysctl: {name:?} {why}")))
    }
}

/// Slashes may part the name as well; dots then are part of it (a network interface's).
fn dotted(name: &str) -> String {
    match name.find(['.', '/']).and_then(|first| name.as_bytes().get(first)) {
        Some(b'/') => name
            .chars()
            .map(|character| match character {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// Major and minor number; a text that has none counts as the oldest.
fn version(release: &str) -> (u32, u32) {
    let mut numbers =
        release.split(|character: char| !character.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(rules: &SysctlRules, name: &str, host: &str) -> Option<String> {
        let mut spec = json!({"containers": [], "securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
        if !host.is_empty() {
            spec[host] = json!(true);
        }
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        rules.check(&spec).map(|refusal| refusal.message)
    }

    #[test]
    fn safe_allowed_and_forbidden() {
        let rules = SysctlRules::new("6.1.0-18-amd64", &["kernel.msg*".to_owned(), "net/core/somaxconn".to_owned()]);
        for (name, host, want) in [
            ("net.ipv4.tcp_syncookies", "", None),
            ("net/ipv4/tcp_syncookies", "", None),
            ("net.ipv4.tcp_rmem", "", None),
            ("kernel.msgmax", "", None),
            ("net.core.somaxconn", "", None),
            ("net.core.somaxconn", "hostIPC", None),
            ("kernel.sem", "", Some("forbidden sysctl: \"kernel.sem\" not allowlisted")),
            (
                "net.ipv4.tcp_syncookies",
                "hostNetwork",
                Some("forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host net enabled"),
            ),
            ("kernel.msgmax", "hostIPC", Some("forbidden sysctl: \"kernel.msgmax\" not allowed with host ipc enabled")),
            ("kernel.msgmax", "hostNetwork", None),
        ] {
            assert_eq!(refused(&rules, name, host).as_deref(), want, "{name} {host}");
        }
    }

    #[test]
    fn an_old_kernel_shares_what_later_ones_keep_apart() {
        let rules = SysctlRules::new("4.14.2", &[]);
        assert_eq!(refused(&rules, "net.ipv4.tcp_fin_timeout", ""), None);
        assert!(refused(&rules, "net.ipv4.tcp_rmem", "").is_some());
        assert_eq!(version("odd"), (0, 0));
    }

    #[test]
    fn dots_of_an_interface_stay_apart_from_separators() {
        assert_eq!(dotted("net/ipv4/conf/eth0.1/rp_filter"), "net.ipv4.conf.eth0/1.rp_filter");
        assert_eq!(dotted("net.ipv4.conf.eth0/1.rp_filter"), "net.ipv4.conf.eth0/1.rp_filter");
    }
}
