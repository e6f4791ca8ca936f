//! Who asks, what is asked, and whether it may be: the words that login, rights and handlers share.
//! Pure data; a [`UserInfo`] rides on each request as an extension once login has succeeded.

use std::collections::BTreeMap;
use std::fmt;

/// Group of every client that has proved who it is.
pub const GROUP_AUTHENTICATED: &str = "system:authenticated";
/// Group of clients without any credentials.
pub const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group that may do everything.
pub const GROUP_MASTERS: &str = "system:masters";
/// Group of kubeadm's administrators; may do everything here as a cluster role binding gives it there.
pub const GROUP_CLUSTER_ADMINS: &str = "kubeadm:cluster-admins";
/// Group of node agents.
pub const GROUP_NODES: &str = "system:nodes";
/// Group of all service accounts.
pub const GROUP_SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// Prefix of a node agent's user name.
pub const NODE_USER_PREFIX: &str = "system:node:";
/// Prefix of a service account's user name.
pub const SERVICE_ACCOUNT_USER_PREFIX: &str = "system:serviceaccount:";
/// Name of clients without any credentials.
pub const USER_ANONYMOUS: &str = "system:anonymous";
/// The apiserver's own client name towards nodes.
pub const USER_KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// A client that has logged in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// User name, e.g. `system:node:n1`.
    pub name: String,
    /// Unique id where the login knows one (service accounts).
    pub uid: String,
    /// Groups, [`GROUP_AUTHENTICATED`] included.
    pub groups: Vec<String>,
    /// Further facts, e.g. the pod a token is bound to.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Returns a user with these groups and nothing else.
    pub fn new(name: impl Into<String>, groups: &[&str]) -> Self {
        Self { name: name.into(), groups: groups.iter().map(|&group| group.to_owned()).collect(), ..Self::default() }
    }

    /// Whether the user is in `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Returns the node's name if this is a node agent.
    pub fn node_name(&self) -> Option<&str> {
        if !self.is_in(GROUP_NODES) {
            return None;
        }
        self.name.strip_prefix(NODE_USER_PREFIX).filter(|name| !name.is_empty())
    }

    /// Returns namespace and name if this is a service account.
    pub fn service_account(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix(SERVICE_ACCOUNT_USER_PREFIX)?.split_once(':')
    }
}

/// What a request asks for, in the words of authorization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; the HTTP method in lower case
    /// for paths that are no resources.
    pub verb: String,
    /// API group, empty for the core group.
    pub api_group: String,
    /// API version, e.g. `v1`.
    pub version: String,
    /// Plural resource, e.g. `pods`.
    pub resource: String,
    /// Subresource or empty.
    pub subresource: String,
    /// Namespace or empty.
    pub namespace: String,
    /// Object's name or empty.
    pub name: String,
    /// The URL's path.
    pub path: String,
    /// Whether the path names a resource; `path` counts otherwise.
    pub is_resource: bool,
    /// The request's field selector as given, empty if none: a node may list only its own pods.
    pub field_selector: String,
}

/// Whether a request may go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not; the reason may be empty.
    Deny {
        /// Why, as it is shown behind the standard text.
        reason: String,
    },
}

impl Decision {
    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow)
    }
}

/// The standard text of a refusal: `pods "x" is forbidden: User "u" cannot get resource "pods" in API group "" in the
/// namespace "default"`, with the reason behind it if there is one.
#[derive(Debug)]
pub struct Forbidden<'a> {
    /// Who asked.
    pub user: &'a UserInfo,
    /// For what.
    pub attributes: &'a Attributes,
    /// Why not, may be empty.
    pub reason: &'a str,
}

impl Forbidden<'_> {
    /// Returns the resource as messages show it, e.g. `pods/log` or `leases.coordination.k8s.io`.
    pub fn resource(&self) -> String {
        let Attributes { api_group, resource, .. } = self.attributes;
        if api_group.is_empty() { resource.clone() } else { format!("{resource}.{api_group}") }
    }
}

impl fmt::Display for Forbidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attributes { verb, api_group, resource, subresource, namespace, name, path, is_resource, .. } =
            self.attributes;
        let user = &self.user.name;
        if !is_resource {
            write!(f, "forbidden: User {user:?} cannot {verb} path {path:?}")?;
        } else {
            let full = if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
            let shown = self.resource();
            if name.is_empty() {
                write!(f, "{shown} is forbidden: ")?;
            } else {
                write!(f, "{shown} {name:?} is forbidden: ")?;
            }
            write!(f, "User {user:?} cannot {verb} resource {full:?} in API group {api_group:?}")?;
            if namespace.is_empty() {
                write!(f, " at the cluster scope")?;
            } else {
                write!(f, " in the namespace {namespace:?}")?;
            }
        }
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_read_like_the_stock_apiserver() {
        let user = UserInfo::new(USER_ANONYMOUS, &[GROUP_UNAUTHENTICATED]);
        let mut asked =
            Attributes { verb: "list".into(), resource: "nodes".into(), is_resource: true, ..Attributes::default() };
        assert_eq!(
            Forbidden { user: &user, attributes: &asked, reason: "" }.to_string(),
            r#"nodes is forbidden: User "system:anonymous" cannot list resource "nodes" in API group "" at the cluster scope"#
        );
        asked = Attributes {
            verb: "get".into(),
            resource: "pods".into(),
            subresource: "log".into(),
            namespace: "a".into(),
            name: "p".into(),
            is_resource: true,
            ..Attributes::default()
        };
        assert_eq!(
            Forbidden { user: &user, attributes: &asked, reason: "because" }.to_string(),
            r#"pods "p" is forbidden: User "system:anonymous" cannot get resource "pods/log" in API group "" in the namespace "a": because"#
        );
    }

    #[test]
    fn only_members_of_the_nodes_group_are_nodes() {
        assert_eq!(UserInfo::new("system:node:n1", &[GROUP_NODES]).node_name(), Some("n1"));
        assert_eq!(UserInfo::new("system:node:n1", &[]).node_name(), None);
        assert_eq!(UserInfo::new("system:node:", &[GROUP_NODES]).node_name(), None);
        assert_eq!(UserInfo::new("system:serviceaccount:a:b", &[]).service_account(), Some(("a", "b")));
    }
}
