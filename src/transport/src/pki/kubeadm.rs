//! The names, subjects and lifetimes that kubeadm gives its files, so that ours can stand in their place.

use std::net::IpAddr;
use std::time::Duration;

use super::{LeafRequest, SubjectAltName};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long authorities are good.
pub const AUTHORITY_VALIDITY: Duration = Duration::from_secs(3650 * DAY.as_secs());
/// How long all other certificates are good.
pub const LEAF_VALIDITY: Duration = Duration::from_secs(365 * DAY.as_secs());
/// Certificates that end within this are made anew at start.
pub const RENEW_WITHIN: Duration = Duration::from_secs(90 * DAY.as_secs());

/// Common name of the cluster's authority.
pub const AUTHORITY_NAME: &str = "kubernetes";
/// Mode of private keys.
pub const KEY_MODE: u32 = 0o600;
/// Mode of certificates.
pub const CERTIFICATE_MODE: u32 = 0o644;

/// File stems below the pki folder (`.crt` and `.key` behind them).
pub const CA: &str = "ca";
/// See [`CA`].
pub const APISERVER: &str = "apiserver";
/// See [`CA`].
pub const APISERVER_KUBELET_CLIENT: &str = "apiserver-kubelet-client";
/// The key that signs service-account tokens.
pub const SERVICE_ACCOUNT_KEY: &str = "sa.key";
/// Its public half.
pub const SERVICE_ACCOUNT_PUBLIC_KEY: &str = "sa.pub";

/// Returns the apiserver's serving certificate: kubeadm's names, the service's address, and what else it is reached by.
pub fn apiserver(service: IpAddr, domain: &str, further: &[SubjectAltName]) -> LeafRequest {
    let mut names = vec![
        SubjectAltName::Dns("kubernetes".to_owned()),
        SubjectAltName::Dns("kubernetes.default".to_owned()),
        SubjectAltName::Dns("kubernetes.default.svc".to_owned()),
        SubjectAltName::Dns(format!("kubernetes.default.svc.{domain}")),
        SubjectAltName::Ip(service),
    ];
    names.extend_from_slice(further);
    LeafRequest::server("kube-apiserver", names)
}

/// Returns the client certificate with which the apiserver talks to nodes.
pub fn apiserver_kubelet_client() -> LeafRequest {
    LeafRequest::client("kube-apiserver-kubelet-client", None)
}

/// Returns the client certificate of a node's agent.
pub fn node(name: &str) -> LeafRequest {
    LeafRequest::client(format!("system:node:{name}"), Some("system:nodes"))
}

/// Returns the client certificate of the administrator.
pub fn admin() -> LeafRequest {
    LeafRequest::client("kubernetes-admin", Some("kubeadm:cluster-admins"))
}

/// Returns the client certificate of the administrator whose rights no role can take.
pub fn super_admin() -> LeafRequest {
    LeafRequest::client("kubernetes-super-admin", Some("system:masters"))
}

/// Returns a node's serving certificate.
pub fn node_server(name: &str, names: Vec<SubjectAltName>) -> LeafRequest {
    let mut request = LeafRequest::server(format!("system:node:{name}"), names);
    request.organization = Some("system:nodes".to_owned());
    request
}
