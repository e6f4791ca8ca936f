//! The table of what is served: one row per kind. A new kind is a new row; what a kind does beyond the common rules is
//! its [`Strategy`].

use super::custom::Custom;
use super::strategy::Strategy;

mod cluster;
mod core;
mod reviews;
mod workloads;

pub use cluster::*;
pub use core::*;
pub use reviews::{REVIEWS, Review};
pub use workloads::*;

/// How an object's name must look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain, as for most kinds.
    Subdomain,
    /// A DNS label (namespaces).
    Label,
    /// A DNS label that starts with a letter (services).
    ServiceLabel,
    /// Anything that fits into a path (roles).
    PathSegment,
}

/// A path below an object.
#[derive(Debug, Clone, Copy)]
pub struct Subresource {
    /// Last part of the path.
    pub name: &'static str,
    /// Group of what it speaks.
    pub group: &'static str,
    /// Version of what it speaks.
    pub version: &'static str,
    /// Kind of what it speaks.
    pub kind: &'static str,
    /// Verbs it takes.
    pub verbs: &'static [&'static str],
}

/// One kind.
#[derive(Debug)]
pub struct Resource {
    /// API group, empty for the core.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Name on command lines.
    pub singular: &'static str,
    /// Name in objects.
    pub kind: &'static str,
    /// Short names for command lines.
    pub short_names: &'static [&'static str],
    /// Categories, e.g. `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether `status` is written through its own path only.
    pub has_status: bool,
    /// Further paths below an object.
    pub subresources: &'static [Subresource],
    /// Whether `metadata.generation` counts changes of the specification.
    pub has_generation: bool,
    /// Whether an update without a version is taken.
    pub unconditional_update: bool,
    /// Whether an update of nothing creates.
    pub create_on_update: bool,
    /// Whether a deletion answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// Whether a whole collection can be deleted.
    pub delete_collection: bool,
    /// How names look.
    pub name_rule: NameRule,
    /// Whether what belongs to an object outlives it unless a client says otherwise.
    pub orphans: bool,
    /// The row as which objects are stored, for a second face of a kind.
    pub stored_as: Option<&'static Self>,
    /// What its definition says, for a custom kind.
    pub custom: Option<&'static Custom>,
    /// What this kind does beyond the common rules.
    pub strategy: &'static dyn Strategy,
}

impl Resource {
    pub(super) const fn new(
        group: &'static str,
        plural: &'static str,
        singular: &'static str,
        kind: &'static str,
        strategy: &'static dyn Strategy,
    ) -> Self {
        Self {
            group,
            version: "v1",
            plural,
            singular,
            kind,
            short_names: &[],
            categories: &[],
            namespaced: true,
            has_status: false,
            subresources: &[],
            has_generation: false,
            unconditional_update: true,
            create_on_update: false,
            returns_deleted: false,
            delete_collection: true,
            name_rule: NameRule::Subdomain,
            orphans: false,
            stored_as: None,
            custom: None,
            strategy,
        }
    }

    /// Returns the row as which its objects are stored.
    pub fn stored(&'static self) -> &'static Self {
        self.stored_as.unwrap_or(self)
    }

    /// Returns `plural` or `plural.group`.
    pub fn full_name(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns the name of its lists.
    pub fn list_kind(&self) -> String {
        self.custom.map_or_else(|| format!("{}List", self.kind), |custom| custom.list_kind.clone())
    }

    /// Returns the `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the prefix of its keys in the store; with a namespace, that namespace's.
    pub fn prefix(&self, namespace: &str) -> String {
        let base =
            if self.group.is_empty() { self.plural.to_owned() } else { format!("{}/{}", self.group, self.plural) };
        if self.namespaced && !namespace.is_empty() { format!("{base}/{namespace}/") } else { format!("{base}/") }
    }

    /// Returns an object's key in the store.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        format!("{}{name}", self.prefix(namespace))
    }

    /// Returns the subresource of that name, `status` included.
    pub fn subresource(&self, name: &str) -> Option<Subresource> {
        if name == "status" && self.has_status {
            return Some(Subresource {
                name: "status",
                group: self.group,
                version: self.version,
                kind: self.kind,
                verbs: &["get", "patch", "update"],
            });
        }
        self.subresources.iter().find(|sub| sub.name == name).copied()
    }

    /// Returns the verbs of the kind itself, in discovery's order.
    pub fn verbs(&self) -> &'static [&'static str] {
        if self.delete_collection {
            &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        } else {
            &["create", "delete", "get", "list", "patch", "update", "watch"]
        }
    }
}

const fn core(kind: &'static str, verbs: &'static [&'static str], name: &'static str) -> Subresource {
    Subresource { name, group: "", version: "v1", kind, verbs }
}

/// The number of copies, as `autoscaling` speaks of it.
pub(super) const SCALE: Subresource = Subresource {
    name: "scale",
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
    verbs: &["get", "patch", "update"],
};

/// All rows, by group and name.
pub static ALL: &[&Resource] = &[
    &CONFIGMAPS,
    &ENDPOINTS,
    &EVENTS,
    &LIMITRANGES,
    &NAMESPACES,
    &NODES,
    &PERSISTENTVOLUMECLAIMS,
    &PERSISTENTVOLUMES,
    &PODS,
    &PODTEMPLATES,
    &REPLICATIONCONTROLLERS,
    &RESOURCEQUOTAS,
    &SECRETS,
    &SERVICEACCOUNTS,
    &SERVICES,
    &CONTROLLERREVISIONS,
    &DAEMONSETS,
    &DEPLOYMENTS,
    &REPLICASETS,
    &STATEFULSETS,
    &EVENTS_V1,
    &CRONJOBS,
    &JOBS,
    &CERTIFICATESIGNINGREQUESTS,
    &INGRESSCLASSES,
    &INGRESSES,
    &NETWORKPOLICIES,
    &PODDISRUPTIONBUDGETS,
    &CLUSTERROLEBINDINGS,
    &CLUSTERROLES,
    &ROLEBINDINGS,
    &ROLES,
    &CSIDRIVERS,
    &CSINODES,
    &STORAGECLASSES,
    &VOLUMEATTACHMENTS,
    &CUSTOMRESOURCEDEFINITIONS,
    &PRIORITYCLASSES,
    &LEASES,
    &RUNTIMECLASSES,
    &ENDPOINTSLICES,
];

/// The groups besides the core, in discovery's order.
pub const GROUPS: &[&str] = &[
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
];

/// Returns the rows that are compiled in and stored, each kind once.
pub fn built_in() -> impl Iterator<Item = &'static Resource> {
    ALL.iter().copied().filter(|row| row.stored_as.is_none())
}

/// Returns the row of a resource that is compiled in.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    ALL.iter().copied().find(|row| row.group == group && row.version == version && row.plural == plural)
}

/// Returns the row of a kind that is compiled in.
pub fn find_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    ALL.iter().copied().find(|row| row.kind == kind && row.api_version() == api_version)
}
