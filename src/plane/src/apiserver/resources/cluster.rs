//! Rows of what clusters are run with: locks, classes, storage, network, rights.

use super::{NameRule, Resource, Subresource};
use crate::apiserver::strategy::{self, kinds};

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
    returns_deleted: true,
    ..Resource::new("storage.k8s.io", "csinodes", "csinode", "CSINode", &strategy::CsiNodes)
};

/// Storage drivers.
pub static CSIDRIVERS: Resource = Resource {
    namespaced: false,
    unconditional_update: false,
    returns_deleted: true,
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
    has_generation: true,
    ..Resource::new(
        "scheduling.k8s.io",
        "priorityclasses",
        "priorityclass",
        "PriorityClass",
        &strategy::PriorityClasses,
    )
};

/// Definitions of custom kinds.
pub static CUSTOMRESOURCEDEFINITIONS: Resource = Resource {
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    namespaced: false,
    has_status: true,
    has_generation: true,
    ..Resource::new(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "customresourcedefinition",
        "CustomResourceDefinition",
        &kinds::CUSTOM_RESOURCE_DEFINITIONS,
    )
};

/// Requests for certificates.
pub static CERTIFICATESIGNINGREQUESTS: Resource = Resource {
    short_names: &["csr"],
    namespaced: false,
    has_status: true,
    subresources: &[Subresource {
        name: "approval",
        group: "certificates.k8s.io",
        version: "v1",
        kind: "CertificateSigningRequest",
        verbs: &["get", "patch", "update"],
    }],
    ..Resource::new(
        "certificates.k8s.io",
        "certificatesigningrequests",
        "certificatesigningrequest",
        "CertificateSigningRequest",
        &kinds::CERTIFICATE_SIGNING_REQUESTS,
    )
};

/// Addresses behind a service.
pub static ENDPOINTSLICES: Resource = Resource {
    has_generation: true,
    ..Resource::new("discovery.k8s.io", "endpointslices", "endpointslice", "EndpointSlice", &kinds::ENDPOINT_SLICES)
};

/// Who serves ways in from outside.
pub static INGRESSCLASSES: Resource = Resource {
    namespaced: false,
    has_generation: true,
    ..Resource::new("networking.k8s.io", "ingressclasses", "ingressclass", "IngressClass", &kinds::INGRESS_CLASSES)
};

/// Ways in from outside.
pub static INGRESSES: Resource = Resource {
    short_names: &["ing"],
    has_status: true,
    has_generation: true,
    ..Resource::new("networking.k8s.io", "ingresses", "ingress", "Ingress", &kinds::INGRESSES)
};

/// Who may talk to whom.
pub static NETWORKPOLICIES: Resource = Resource {
    short_names: &["netpol"],
    has_generation: true,
    ..Resource::new("networking.k8s.io", "networkpolicies", "networkpolicy", "NetworkPolicy", &kinds::NETWORK_POLICIES)
};

const fn rights(
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    strategy: &'static dyn strategy::Strategy,
) -> Resource {
    Resource {
        create_on_update: true,
        name_rule: NameRule::PathSegment,
        ..Resource::new("rbac.authorization.k8s.io", plural, singular, kind, strategy)
    }
}

/// Who has a role in the whole cluster.
pub static CLUSTERROLEBINDINGS: Resource = Resource {
    namespaced: false,
    ..rights("clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding", &kinds::CLUSTER_ROLE_BINDINGS)
};

/// Roles of the whole cluster.
pub static CLUSTERROLES: Resource =
    Resource { namespaced: false, ..rights("clusterroles", "clusterrole", "ClusterRole", &kinds::CLUSTER_ROLES) };

/// Who has a role in a namespace.
pub static ROLEBINDINGS: Resource = rights("rolebindings", "rolebinding", "RoleBinding", &kinds::ROLE_BINDINGS);

/// Roles of a namespace.
pub static ROLES: Resource = rights("roles", "role", "Role", &kinds::ROLES);

/// Classes of storage.
pub static STORAGECLASSES: Resource = Resource {
    short_names: &["sc"],
    namespaced: false,
    returns_deleted: true,
    ..Resource::new("storage.k8s.io", "storageclasses", "storageclass", "StorageClass", &kinds::STORAGE_CLASSES)
};

/// What is attached to nodes.
pub static VOLUMEATTACHMENTS: Resource = Resource {
    namespaced: false,
    has_status: true,
    unconditional_update: false,
    returns_deleted: true,
    ..Resource::new(
        "storage.k8s.io",
        "volumeattachments",
        "volumeattachment",
        "VolumeAttachment",
        &kinds::VOLUME_ATTACHMENTS,
    )
};
