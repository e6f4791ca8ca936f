//! The table of what is served: one row per kind. A new kind is a new row; what a kind does beyond the common rules is
//! its [`Strategy`].

use super::strategy::{self, Strategy};

/// How an object's name must look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain, as for most kinds.
    Subdomain,
    /// A DNS label (namespaces).
    Label,
    /// A DNS label that starts with a letter (services).
    ServiceLabel,
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
    /// What this kind does beyond the common rules.
    pub strategy: &'static dyn Strategy,
}

impl Resource {
    const fn new(
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
            strategy,
        }
    }

    /// Returns `plural` or `plural.group`.
    pub fn full_name(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
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

/// Namespaces.
pub static NAMESPACES: Resource = Resource {
    short_names: &["ns"],
    namespaced: false,
    has_status: true,
    subresources: &[core("Namespace", &["update"], "finalize")],
    delete_collection: false,
    returns_deleted: true,
    name_rule: NameRule::Label,
    ..Resource::new("", "namespaces", "namespace", "Namespace", &strategy::Namespaces)
};

/// Nodes.
pub static NODES: Resource = Resource {
    short_names: &["no"],
    namespaced: false,
    has_status: true,
    subresources: &[core("NodeProxyOptions", &["create", "delete", "get", "patch", "update"], "proxy")],
    ..Resource::new("", "nodes", "node", "Node", &strategy::Nodes)
};

/// Pods.
pub static PODS: Resource = Resource {
    short_names: &["po"],
    categories: &["all"],
    has_status: true,
    has_generation: true,
    returns_deleted: true,
    subresources: &[
        core("PodAttachOptions", &["create", "get"], "attach"),
        core("Binding", &["create"], "binding"),
        core("Pod", &["get", "patch", "update"], "ephemeralcontainers"),
        Subresource { name: "eviction", group: "policy", version: "v1", kind: "Eviction", verbs: &["create"] },
        core("PodExecOptions", &["create", "get"], "exec"),
        core("Pod", &["get"], "log"),
        core("PodPortForwardOptions", &["create", "get"], "portforward"),
        core("Pod", &["get", "patch", "update"], "resize"),
    ],
    ..Resource::new("", "pods", "pod", "Pod", &strategy::Pods)
};

/// Configuration for pods.
pub static CONFIGMAPS: Resource = Resource {
    short_names: &["cm"],
    ..Resource::new("", "configmaps", "configmap", "ConfigMap", &strategy::ConfigMaps)
};

/// Secrets.
pub static SECRETS: Resource = Resource::new("", "secrets", "secret", "Secret", &strategy::Secrets);

/// Identities of pods.
pub static SERVICEACCOUNTS: Resource = Resource {
    short_names: &["sa"],
    returns_deleted: true,
    subresources: &[Subresource {
        name: "token",
        group: "authentication.k8s.io",
        version: "v1",
        kind: "TokenRequest",
        verbs: &["create"],
    }],
    ..Resource::new("", "serviceaccounts", "serviceaccount", "ServiceAccount", &strategy::ServiceAccounts)
};

/// Services.
pub static SERVICES: Resource = Resource {
    short_names: &["svc"],
    categories: &["all"],
    has_status: true,
    returns_deleted: true,
    name_rule: NameRule::ServiceLabel,
    ..Resource::new("", "services", "service", "Service", &strategy::Services)
};

/// What happened.
pub static EVENTS: Resource = Resource {
    short_names: &["ev"],
    create_on_update: true,
    ..Resource::new("", "events", "event", "Event", &strategy::Events)
};

/// Heartbeats and locks.
pub static LEASES: Resource = Resource {
    unconditional_update: false,
    create_on_update: true,
    ..Resource::new("coordination.k8s.io", "leases", "lease", "Lease", &strategy::Leases)
};

/// Storage drivers of a node.
pub static CSINODES: Resource = Resource {
    namespaced: false,
    unconditional_update: false,
    ..Resource::new("storage.k8s.io", "csinodes", "csinode", "CSINode", &strategy::CsiNodes)
};

/// Storage drivers.
pub static CSIDRIVERS: Resource = Resource {
    namespaced: false,
    unconditional_update: false,
    ..Resource::new("storage.k8s.io", "csidrivers", "csidriver", "CSIDriver", &strategy::CsiDrivers)
};

/// Kinds of container runtime.
pub static RUNTIMECLASSES: Resource = Resource {
    namespaced: false,
    unconditional_update: false,
    ..Resource::new("node.k8s.io", "runtimeclasses", "runtimeclass", "RuntimeClass", &strategy::RuntimeClasses)
};

/// Priorities of pods.
pub static PRIORITYCLASSES: Resource = Resource {
    short_names: &["pc"],
    namespaced: false,
    ..Resource::new(
        "scheduling.k8s.io",
        "priorityclasses",
        "priorityclass",
        "PriorityClass",
        &strategy::PriorityClasses,
    )
};

/// All rows, in discovery's order.
pub static ALL: &[&Resource] = &[
    &CONFIGMAPS,
    &EVENTS,
    &NAMESPACES,
    &NODES,
    &PODS,
    &SECRETS,
    &SERVICEACCOUNTS,
    &SERVICES,
    &LEASES,
    &RUNTIMECLASSES,
    &PRIORITYCLASSES,
    &CSIDRIVERS,
    &CSINODES,
];

/// A review that is answered and not stored (token and access reviews); its handler lives with login and rights.
#[derive(Debug)]
pub struct Review {
    /// API group.
    pub group: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Name on command lines.
    pub singular: &'static str,
    /// Name in objects.
    pub kind: &'static str,
    /// Whether it is asked inside a namespace.
    pub namespaced: bool,
}

/// Reviews served.
pub static REVIEWS: &[Review] = &[
    Review {
        group: "authentication.k8s.io",
        plural: "tokenreviews",
        singular: "tokenreview",
        kind: "TokenReview",
        namespaced: false,
    },
    Review {
        group: "authentication.k8s.io",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        kind: "SelfSubjectReview",
        namespaced: false,
    },
    Review {
        group: "authorization.k8s.io",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        kind: "LocalSubjectAccessReview",
        namespaced: true,
    },
    Review {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        kind: "SelfSubjectAccessReview",
        namespaced: false,
    },
    Review {
        group: "authorization.k8s.io",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        kind: "SubjectAccessReview",
        namespaced: false,
    },
];

/// Returns the row of a resource.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    ALL.iter().copied().find(|row| row.group == group && row.version == version && row.plural == plural)
}

/// Returns the row of a kind.
pub fn find_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    ALL.iter().copied().find(|row| row.kind == kind && row.api_version() == api_version)
}
