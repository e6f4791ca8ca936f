//! Tells what a user may do: administrators everything, nodes their narrow rights, the apiserver's own client what the
//! nodes' ports need, everyone who has logged in discovery and questions about himself.

use super::Auth;
use crate::apiserver::identity::{
    Attributes, Decision, GROUP_AUTHENTICATED, GROUP_CLUSTER_ADMINS, GROUP_MASTERS, USER_KUBELET_CLIENT, UserInfo,
};

/// Paths that everyone may read, without login too.
const PUBLIC: &[&str] = &["/healthz", "/livez", "/readyz", "/version"];

/// Paths that everyone who has logged in may read.
const DISCOVERY: &[&str] = &["/", "/api", "/apis", "/openapi", "/.well-known/openid-configuration", "/openid/v1/jwks"];

/// Subresources of nodes that stand for paths on a node's port.
const NODE_PORT: &[&str] = &["proxy", "metrics", "stats", "log", "spec", "checkpoint", "configz", "healthz", "pods"];

impl Auth {
    /// Decides.
    pub fn decide(&self, user: &UserInfo, asked: &Attributes) -> Decision {
        if user.is_in(GROUP_MASTERS) || user.is_in(GROUP_CLUSTER_ADMINS) {
            return Decision::Allow;
        }
        if is_common(user, asked) || is_kubelet_client(user, asked) {
            return Decision::Allow;
        }
        match user.node_name() {
            Some(node) => self.decide_node(node, asked),
            None => deny(""),
        }
    }
}

pub(super) fn deny(reason: impl Into<String>) -> Decision {
    Decision::Deny { reason: reason.into() }
}

fn is_common(user: &UserInfo, asked: &Attributes) -> bool {
    let logged_in = user.is_in(GROUP_AUTHENTICATED);
    if !asked.is_resource {
        let below = |roots: &[&str]| {
            roots.iter().any(|&root| match asked.path.strip_prefix(root) {
                Some(rest) => rest.is_empty() || (root != "/" && rest.starts_with('/')),
                None => false,
            })
        };
        let reads = matches!(asked.verb.as_str(), "get" | "head");
        return reads && (below(PUBLIC) || (logged_in && below(DISCOVERY)));
    }
    logged_in
        && asked.verb == "create"
        && matches!(
            (asked.api_group.as_str(), asked.resource.as_str()),
            ("authorization.k8s.io", "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
                | ("authentication.k8s.io", "selfsubjectreviews")
        )
}

/// The apiserver knocks at nodes under this name; they ask here whether it may.
fn is_kubelet_client(user: &UserInfo, asked: &Attributes) -> bool {
    user.name == USER_KUBELET_CLIENT
        && asked.is_resource
        && asked.api_group.is_empty()
        && asked.resource == "nodes"
        && NODE_PORT.contains(&asked.subresource.as_str())
}
