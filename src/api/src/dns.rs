//! A pod's resolver configuration and host name: the dnsPolicy rules, the limits of a resolv.conf, the name's length.
//! The caller reads the host's file; the warnings returned become events of reason `DNSConfigForming`.

use k8s_openapi::api::core::v1::PodSpec;

const SERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_CHARACTERS_MAX: usize = 2048;
const SEARCH_MAX: usize = 253;
const HOSTNAME_MAX: usize = 63;
const FQDN_MAX: usize = 64;

/// Resolver settings, of the host or of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolver {
    /// Name servers in order.
    pub servers: Vec<String>,
    /// Search domains in order.
    pub searches: Vec<String>,
    /// Options such as `ndots:5`.
    pub options: Vec<String>,
}

/// What the node knows about DNS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterDns {
    /// `clusterDNS` of the configuration.
    pub servers: Vec<String>,
    /// `clusterDomain` of the configuration; may be empty.
    pub domain: String,
    /// The host's resolver file, parsed; `None` when `resolvConf` is the empty string.
    pub host: Option<Resolver>,
    /// Whether the node's first address is IPv6 (decides the loopback server without a resolver file).
    pub node_is_ipv6: bool,
}

/// A pod's settings and what had to be dropped or replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodDns {
    /// What the sandbox gets.
    pub resolver: Resolver,
    /// Messages for events of reason `DNSConfigForming`.
    pub warnings: Vec<String>,
    /// Set when ClusterFirst was asked for and the node has no cluster DNS: an event of reason `MissingClusterDNS`.
    pub missing_cluster_dns: Option<String>,
}

/// Parses a resolver file.
pub fn parse_resolv_conf(text: &str) -> Resolver {
    let mut resolver = Resolver::default();
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        match fields.next() {
            Some("nameserver") => resolver.servers.extend(fields.next().map(str::to_owned)),
            Some("search") => {
                resolver.searches = fields
                    .map(|domain| if domain == "." { domain } else { domain.strip_suffix('.').unwrap_or(domain) })
                    .filter(|domain| *domain != ".")
                    .map(str::to_owned)
                    .collect();
            }
            Some("options") => append_options(&mut resolver.options, fields.map(str::to_owned)),
            _ => {}
        }
    }
    resolver
}

/// What of the host's own file is beyond the limits: messages for events of reason `CheckLimitsForResolvConf` on the node.
pub fn host_warnings(path: &str, host: &Resolver) -> Vec<String> {
    let characters = host.searches.join(" ").len();
    let many = (host.searches.len() > SEARCHES_MAX).then(|| {
        format!("Resolv.conf file {path:?} contains search line consisting of more than {SEARCHES_MAX} domains!")
    });
    let long = (characters > SEARCH_CHARACTERS_MAX).then(|| {
        format!(
            "Resolv.conf file {path:?} contains search line which length is more than allowed {SEARCH_CHARACTERS_MAX}!"
        )
    });
    many.into_iter().chain(long).collect()
}

/// Computes what a pod's sandbox gets; `namespace` and `pod_text` (`name_ns(uid)`-like) are used for names and messages.
pub fn pod(spec: &PodSpec, namespace: &str, pod_text: &str, cluster: &ClusterDns) -> PodDns {
    let mut out = PodDns::default();
    let host_network = spec.host_network.unwrap_or(false);
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let cluster_first = match policy {
        "ClusterFirstWithHostNet" => true,
        "ClusterFirst" => !host_network,
        _ => false,
    };
    out.resolver = if policy == "None" {
        Resolver::default()
    } else if cluster_first && !cluster.servers.is_empty() {
        cluster_resolver(namespace, cluster)
    } else {
        if cluster_first {
            out.missing_cluster_dns = Some(format!(
                "kubelet does not have ClusterDNS IP configured and cannot create Pod using {policy:?} policy. \
                 Falling back to \"Default\" policy. pod: {pod_text:?}"
            ));
        }
        host_resolver(cluster)
    };
    if let Some(config) = &spec.dns_config {
        append_new(&mut out.resolver.servers, config.nameservers.iter().flatten());
        append_new(&mut out.resolver.searches, config.searches.iter().flatten());
        let options = config.options.iter().flatten().filter_map(|option| {
            let name = option.name.as_deref().filter(|name| !name.is_empty())?;
            Some(match option.value.as_deref() {
                Some(value) if !value.is_empty() => format!("{name}:{value}"),
                _ => name.to_owned(),
            })
        });
        append_options(&mut out.resolver.options, options);
    }
    apply_limits(&mut out);
    out
}

fn cluster_resolver(namespace: &str, cluster: &ClusterDns) -> Resolver {
    let mut searches = Vec::new();
    if !cluster.domain.is_empty() {
        searches.push(format!("{namespace}.svc.{}", cluster.domain));
        searches.push(format!("svc.{}", cluster.domain));
        searches.push(cluster.domain.clone());
    }
    if let Some(host) = &cluster.host {
        append_new(&mut searches, &host.searches);
    }
    Resolver { servers: cluster.servers.clone(), searches, options: vec!["ndots:5".to_owned()] }
}

fn host_resolver(cluster: &ClusterDns) -> Resolver {
    cluster.host.clone().unwrap_or_else(|| Resolver {
        servers: vec![if cluster.node_is_ipv6 { "::1" } else { "127.0.0.1" }.to_owned()],
        // A lone dot keeps the runtime from copying the host's search list into the pod.
        searches: vec![".".to_owned()],
        options: Vec::new(),
    })
}

fn append_new<'a>(list: &mut Vec<String>, more: impl IntoIterator<Item = &'a String>) {
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

/// Appends options; one of the same name takes the place of the earlier one.
fn append_options(options: &mut Vec<String>, more: impl Iterator<Item = String>) {
    fn name(option: &str) -> &str {
        option.split_once(':').map_or(option, |(name, _)| name)
    }
    for option in more {
        match options.iter_mut().find(|present| name(present) == name(&option)) {
            Some(present) => *present = option,
            None => options.push(option),
        }
    }
}

fn apply_limits(out: &mut PodDns) {
    if out.resolver.servers.len() > SERVERS_MAX {
        out.resolver.servers.truncate(SERVERS_MAX);
        out.warnings.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            out.resolver.servers.join(" ")
        ));
    }
    let before = out.resolver.searches.len();
    out.resolver.searches.truncate(SEARCHES_MAX);
    let mut used = 0;
    let mut fits = Vec::new();
    for search in std::mem::take(&mut out.resolver.searches) {
        let length = search.len() + usize::from(!fits.is_empty());
        if search.len() > SEARCH_MAX {
            continue;
        }
        if used + length > SEARCH_CHARACTERS_MAX {
            break;
        }
        used += length;
        fits.push(search);
    }
    if fits.len() < before {
        out.warnings.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            fits.join(" ")
        ));
    }
    out.resolver.searches = fits;
}

/// A pod's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodHostname {
    /// First part of the name: what `hostname` shows without `setHostnameAsFQDN`.
    pub hostname: String,
    /// Domain under the cluster's domain; empty without a subdomain.
    pub domain: String,
    /// What the sandbox is created with; empty in the host's network.
    pub sandbox: String,
}

/// The name is longer than the kernel takes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long ({FQDN_MAX} characters is \
     the max, {} characters requested)",
    fqdn.len()
)]
pub struct FqdnTooLong {
    /// The name that was asked for.
    pub fqdn: String,
}

/// Computes a pod's names.
pub fn hostname(
    spec: &PodSpec,
    pod_name: &str,
    namespace: &str,
    cluster_domain: &str,
) -> Result<PodHostname, FqdnTooLong> {
    if let Some(name) = spec.hostname_override.as_deref().filter(|name| !name.is_empty()) {
        return Ok(PodHostname { hostname: name.to_owned(), domain: String::new(), sandbox: name.to_owned() });
    }
    let wanted = spec.hostname.as_deref().filter(|name| !name.is_empty());
    let hostname = wanted.map_or_else(|| truncated(pod_name), str::to_owned);
    let domain = match spec.subdomain.as_deref().filter(|name| !name.is_empty()) {
        Some(subdomain) => format!("{subdomain}.{namespace}.svc.{cluster_domain}"),
        None => String::new(),
    };
    let sandbox = if spec.host_network.unwrap_or(false) {
        String::new()
    } else if spec.set_hostname_as_fqdn.unwrap_or(false) && !domain.is_empty() {
        let fqdn = format!("{hostname}.{domain}");
        if fqdn.len() > FQDN_MAX {
            return Err(FqdnTooLong { fqdn });
        }
        fqdn
    } else {
        hostname.clone()
    };
    Ok(PodHostname { hostname, domain, sandbox })
}

/// Cuts a pod's name to what a kernel takes as one label.
fn truncated(name: &str) -> String {
    let cut: String = name.chars().take(HOSTNAME_MAX).collect();
    if cut.len() == name.len() { cut } else { cut.trim_end_matches(['-', '.']).to_owned() }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodDNSConfig, PodDNSConfigOption};

    use super::*;

    fn cluster() -> ClusterDns {
        ClusterDns {
            servers: vec!["10.96.0.10".to_owned()],
            domain: "cluster.local".to_owned(),
            host: Some(parse_resolv_conf("# c\nnameserver 10.255.255.53\nsearch corp.example. .\noptions edns0\n")),
            node_is_ipv6: false,
        }
    }

    fn strings(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    #[test]
    fn host_file_last_search_wins_and_options_add_up() {
        let got = parse_resolv_conf(
            "search a\nsearch b c.\nnameserver 1.1.1.1 x\nnameserver\noptions ndots:1\noptions ndots:2 rotate\nfoo",
        );
        assert_eq!(got.searches, strings(&["b", "c"]));
        assert_eq!(got.servers, strings(&["1.1.1.1"]));
        assert_eq!(got.options, strings(&["ndots:2", "rotate"]));
    }

    #[test]
    fn cluster_first_puts_cluster_before_host() {
        let got = pod(&PodSpec::default(), "ns", "p_ns(u)", &cluster());
        assert_eq!(got.resolver.servers, strings(&["10.96.0.10"]));
        assert_eq!(
            got.resolver.searches,
            strings(&["ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example"])
        );
        assert_eq!(got.resolver.options, strings(&["ndots:5"]));
        assert!(got.warnings.is_empty());
    }

    #[test]
    fn host_network_uses_the_host_unless_told_otherwise() {
        let spec = PodSpec { host_network: Some(true), ..Default::default() };
        assert_eq!(pod(&spec, "ns", "p", &cluster()).resolver, cluster().host.unwrap());
        let spec = PodSpec { dns_policy: Some("ClusterFirstWithHostNet".to_owned()), ..spec };
        assert_eq!(pod(&spec, "ns", "p", &cluster()).resolver.servers, strings(&["10.96.0.10"]));
    }

    #[test]
    fn no_cluster_dns_falls_back_and_says_so() {
        let mut cluster = cluster();
        cluster.servers.clear();
        let got = pod(&PodSpec::default(), "ns", "p", &cluster);
        assert_eq!(got.resolver.servers, strings(&["10.255.255.53"]));
        assert!(got.missing_cluster_dns.unwrap().contains("Falling back to \"Default\""));
    }

    #[test]
    fn without_host_file_loopback_answers() {
        let mut cluster = cluster();
        cluster.host = None;
        let spec = PodSpec { dns_policy: Some("Default".to_owned()), ..Default::default() };
        let got = pod(&spec, "ns", "p", &cluster).resolver;
        assert_eq!((got.servers, got.searches), (strings(&["127.0.0.1"]), strings(&["."])));
    }

    #[test]
    fn dns_config_alone_with_policy_none() {
        let option = |name: &str, value: Option<&str>| PodDNSConfigOption {
            name: Some(name.to_owned()),
            value: value.map(str::to_owned),
        };
        let spec = PodSpec {
            dns_policy: Some("None".to_owned()),
            dns_config: Some(PodDNSConfig {
                nameservers: Some(strings(&["192.0.2.53", "192.0.2.53"])),
                searches: Some(strings(&["a.example", "b.example"])),
                options: Some(vec![option("ndots", Some("3")), option("edns0", None)]),
            }),
            ..Default::default()
        };
        let got = pod(&spec, "ns", "p", &cluster()).resolver;
        assert_eq!(got.servers, strings(&["192.0.2.53"]));
        assert_eq!(got.options, strings(&["ndots:3", "edns0"]));
    }

    #[test]
    fn limits_drop_and_warn() {
        let spec = PodSpec {
            dns_config: Some(PodDNSConfig {
                nameservers: Some((0..5).map(|n| format!("192.0.2.{n}")).collect()),
                searches: Some((0..40).map(|n| format!("s{n}.example")).collect()),
                options: None,
            }),
            ..Default::default()
        };
        let got = pod(&spec, "ns", "p", &cluster());
        assert_eq!(got.resolver.servers.len(), 3);
        assert_eq!(got.resolver.searches.len(), 32);
        assert_eq!(got.warnings.len(), 2);
    }

    #[test]
    fn long_searches_stay_under_the_line_limit() {
        let spec = PodSpec {
            dns_config: Some(PodDNSConfig {
                searches: Some((0..20).map(|n| format!("{n}{}", "x".repeat(200))).collect()),
                ..Default::default()
            }),
            ..Default::default()
        };
        let got = pod(&spec, "ns", "p", &cluster());
        assert!(got.resolver.searches.join(" ").len() <= 2048);
        assert_eq!(got.warnings.len(), 1);
    }

    #[test]
    fn names_follow_hostname_subdomain_and_fqdn() {
        let spec = PodSpec {
            hostname: Some("h1".to_owned()),
            subdomain: Some("sub".to_owned()),
            set_hostname_as_fqdn: Some(true),
            ..Default::default()
        };
        let got = hostname(&spec, "p", "g-fqdn", "cluster.local").unwrap();
        assert_eq!(got.sandbox, "h1.sub.g-fqdn.svc.cluster.local");
        assert_eq!((got.hostname.as_str(), got.domain.as_str()), ("h1", "sub.g-fqdn.svc.cluster.local"));
        let long = PodSpec { subdomain: Some("s".repeat(60)), ..spec };
        assert!(
            hostname(&long, "p", "ns", "cluster.local").unwrap_err().to_string().contains("is too long (64 characters")
        );
    }

    #[test]
    fn long_pod_names_are_cut_without_a_dangling_dash() {
        let name = format!("{}-rest", "a".repeat(62));
        let got = hostname(&PodSpec::default(), &name, "ns", "d").unwrap();
        assert_eq!(got.sandbox, "a".repeat(62));
        let host = PodSpec { host_network: Some(true), ..Default::default() };
        assert_eq!(hostname(&host, "p", "ns", "d").unwrap().sandbox, "");
    }
}
