//! The content of a pod's `/etc/hosts`. The file is rewritten at every container start, so the text must depend on
//! nothing but the arguments.

use k8s_openapi::api::core::v1::HostAlias;

const POD_HEADER: &str = "# Kubernetes-managed hosts file.\n";
const HOST_NETWORK_HEADER: &str = "# Kubernetes-managed hosts file (host network).\n";
const LOOPBACK: &str = "127.0.0.1\tlocalhost\n\
                        ::1\tlocalhost ip6-localhost ip6-loopback\n\
                        fe00::0\tip6-localnet\n\
                        fe00::0\tip6-mcastprefix\n\
                        fe00::1\tip6-allnodes\n\
                        fe00::2\tip6-allrouters\n";

/// Returns the file of a pod with its own network.
pub fn pod_network(ips: &[String], hostname: &str, domain: &str, aliases: &[HostAlias]) -> String {
    let mut out = String::from(POD_HEADER);
    out.push_str(LOOPBACK);
    for ip in ips {
        out.push_str(ip);
        out.push('\t');
        if !domain.is_empty() {
            out.push_str(hostname);
            out.push('.');
            out.push_str(domain);
            out.push('\t');
        }
        out.push_str(hostname);
        out.push('\n');
    }
    push_aliases(&mut out, aliases);
    out
}

/// Returns the file of a pod in the host's network: the host's own file, then the aliases.
pub fn host_network(host_file: &str, aliases: &[HostAlias]) -> String {
    let mut out = String::from(HOST_NETWORK_HEADER);
    out.push_str(host_file);
    push_aliases(&mut out, aliases);
    out
}

fn push_aliases(out: &mut String, aliases: &[HostAlias]) {
    if aliases.is_empty() {
        return;
    }
    out.push_str("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        out.push_str(&alias.ip);
        for name in alias.hostnames.iter().flatten() {
            out.push('\t');
            out.push_str(name);
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alias() -> HostAlias {
        HostAlias { ip: "192.0.2.9".to_owned(), hostnames: Some(vec!["foo.local".to_owned(), "bar.local".to_owned()]) }
    }

    #[test]
    fn pod_file_is_as_recorded() {
        let text = pod_network(&["10.88.0.2".to_owned()], "h1", "sub.g-dns-none.svc.cluster.local", &[alias()]);
        assert_eq!(
            text,
            "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
             fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n\
             10.88.0.2\th1.sub.g-dns-none.svc.cluster.local\th1\n\n# Entries added by HostAliases.\n\
             192.0.2.9\tfoo.local\tbar.local\n"
        );
    }

    #[test]
    fn each_address_gets_a_line_and_no_domain_no_long_name() {
        let text = pod_network(&["10.0.0.1".to_owned(), "fd00::1".to_owned()], "p", "", &[]);
        assert!(text.ends_with("10.0.0.1\tp\nfd00::1\tp\n"));
    }

    #[test]
    fn host_network_keeps_the_hosts_file() {
        assert_eq!(
            host_network("127.0.0.1 localhost\n", &[alias()]),
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n\n\
             # Entries added by HostAliases.\n192.0.2.9\tfoo.local\tbar.local\n"
        );
    }
}
