//! The variables that tell a container about services, in the old link format.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

const MASTER_NAMESPACE: &str = "default";
const MASTER_NAME: &str = "kubernetes";

/// What is needed of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceFact {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its cluster address; headless services have none or `None`.
    pub cluster_ip: String,
    /// Its ports in order.
    pub ports: Vec<ServicePortFact>,
}

/// One port of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePortFact {
    /// Name; may be empty when it is the only one.
    pub name: String,
    /// Number.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`; empty counts as TCP.
    pub protocol: String,
}

/// Returns the variables of a pod in `namespace`: the API's own service always, the namespace's when `links` is on.
pub fn variables<'a>(
    services: impl IntoIterator<Item = &'a ServiceFact>,
    namespace: &str,
    links: bool,
) -> BTreeMap<String, String> {
    let mut chosen: BTreeMap<&str, &ServiceFact> = BTreeMap::new();
    for service in services {
        if service.cluster_ip.is_empty() || service.cluster_ip == "None" {
            continue;
        }
        if links && service.namespace == namespace {
            chosen.insert(&service.name, service);
        } else if service.namespace == MASTER_NAMESPACE && service.name == MASTER_NAME {
            chosen.entry(&service.name).or_insert(service);
        }
    }
    let mut out = BTreeMap::new();
    for service in chosen.into_values() {
        push(&mut out, service);
    }
    out
}

fn variable_name(text: &str) -> String {
    text.to_uppercase().replace('-', "_")
}

fn push(out: &mut BTreeMap<String, String>, service: &ServiceFact) {
    let name = variable_name(&service.name);
    out.insert(format!("{name}_SERVICE_HOST"), service.cluster_ip.clone());
    if let Some(first) = service.ports.first() {
        out.insert(format!("{name}_SERVICE_PORT"), first.port.to_string());
    }
    for (index, port) in service.ports.iter().enumerate() {
        if !port.name.is_empty() {
            out.insert(format!("{name}_SERVICE_PORT_{}", variable_name(&port.name)), port.port.to_string());
        }
        let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
        let host = if service.cluster_ip.contains(':') {
            format!("[{}]", service.cluster_ip)
        } else {
            service.cluster_ip.clone()
        };
        let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
        if index == 0 {
            out.insert(format!("{name}_PORT"), url.clone());
        }
        let prefix = format!("{name}_PORT_{}_{}", port.port, protocol.to_uppercase());
        out.insert(format!("{prefix}_PROTO"), protocol.to_lowercase());
        out.insert(format!("{prefix}_PORT"), port.port.to_string());
        out.insert(format!("{prefix}_ADDR"), service.cluster_ip.clone());
        out.insert(prefix, url);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(namespace: &str, name: &str, ip: &str, ports: &[(&str, i32, &str)]) -> ServiceFact {
        ServiceFact {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            cluster_ip: ip.to_owned(),
            ports: ports
                .iter()
                .map(|(name, port, protocol)| ServicePortFact {
                    name: (*name).to_owned(),
                    port: *port,
                    protocol: (*protocol).to_owned(),
                })
                .collect(),
        }
    }

    #[test]
    fn the_api_service_gives_the_recorded_variables() {
        let services = [service("default", "kubernetes", "10.96.0.1", &[("https", 443, "TCP")])];
        let got: Vec<String> =
            variables(&services, "g", false).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            got,
            [
                "KUBERNETES_PORT=tcp://10.96.0.1:443",
                "KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443",
                "KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1",
                "KUBERNETES_PORT_443_TCP_PORT=443",
                "KUBERNETES_PORT_443_TCP_PROTO=tcp",
                "KUBERNETES_SERVICE_HOST=10.96.0.1",
                "KUBERNETES_SERVICE_PORT=443",
                "KUBERNETES_SERVICE_PORT_HTTPS=443",
            ]
        );
    }

    #[test]
    fn links_are_of_the_own_namespace_and_headless_ones_are_skipped() {
        let services = [
            service("a", "web-app", "10.0.0.5", &[("", 80, ""), ("dns", 53, "UDP")]),
            service("a", "headless", "None", &[("", 80, "TCP")]),
            service("b", "other", "10.0.0.6", &[("", 80, "TCP")]),
        ];
        let got = variables(&services, "a", true);
        assert_eq!(got["WEB_APP_SERVICE_HOST"], "10.0.0.5");
        assert_eq!(got["WEB_APP_PORT"], "tcp://10.0.0.5:80");
        assert_eq!(got["WEB_APP_PORT_53_UDP"], "udp://10.0.0.5:53");
        assert_eq!(got["WEB_APP_SERVICE_PORT_DNS"], "53");
        assert!(!got.keys().any(|key| key.starts_with("HEADLESS") || key.starts_with("OTHER")));
        assert!(variables(&services, "a", false).is_empty());
    }

    #[test]
    fn an_own_service_named_kubernetes_hides_the_apis() {
        let services = [
            service("default", "kubernetes", "10.96.0.1", &[("", 443, "TCP")]),
            service("a", "kubernetes", "10.0.0.9", &[("", 1, "TCP")]),
        ];
        assert_eq!(variables(&services, "a", true)["KUBERNETES_SERVICE_HOST"], "10.0.0.9");
        assert_eq!(variables(services.iter().rev(), "a", true)["KUBERNETES_SERVICE_HOST"], "10.0.0.9");
        assert_eq!(variables(&services, "a", false)["KUBERNETES_SERVICE_HOST"], "10.96.0.1");
    }

    #[test]
    fn ipv6_addresses_are_bracketed_in_urls() {
        let got = variables(&[service("a", "x", "fd00::1", &[("", 1, "TCP")])], "a", true);
        assert_eq!(got["X_PORT"], "tcp://[fd00::1]:1");
        assert_eq!(got["X_SERVICE_HOST"], "fd00::1");
    }
}
