//! Rows of the core group.

use super::{NameRule, Resource, SCALE, Subresource, core};
use crate::apiserver::strategy::{self, kinds};

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

/// Events as `events.k8s.io` has them: the same objects under other words.
pub static EVENTS_V1: Resource = Resource {
    short_names: &["ev"],
    create_on_update: true,
    stored_as: Some(&EVENTS),
    ..Resource::new("events.k8s.io", "events", "event", "Event", &strategy::EventsFace)
};

/// Addresses behind a service, in the old form.
pub static ENDPOINTS: Resource = Resource {
    short_names: &["ep"],
    create_on_update: true,
    ..Resource::new("", "endpoints", "endpoints", "Endpoints", &kinds::ENDPOINTS)
};

/// Bounds of what pods may ask for.
pub static LIMITRANGES: Resource = Resource {
    short_names: &["limits"],
    create_on_update: true,
    ..Resource::new("", "limitranges", "limitrange", "LimitRange", &kinds::LIMIT_RANGES)
};

/// Volumes.
pub static PERSISTENTVOLUMES: Resource = Resource {
    short_names: &["pv"],
    namespaced: false,
    has_status: true,
    returns_deleted: true,
    ..Resource::new("", "persistentvolumes", "persistentvolume", "PersistentVolume", &kinds::PERSISTENT_VOLUMES)
};

/// Claims to volumes.
pub static PERSISTENTVOLUMECLAIMS: Resource = Resource {
    short_names: &["pvc"],
    has_status: true,
    returns_deleted: true,
    ..Resource::new(
        "",
        "persistentvolumeclaims",
        "persistentvolumeclaim",
        "PersistentVolumeClaim",
        &kinds::PERSISTENT_VOLUME_CLAIMS,
    )
};

/// Templates of pods.
pub static PODTEMPLATES: Resource = Resource {
    has_generation: true,
    returns_deleted: true,
    ..Resource::new("", "podtemplates", "podtemplate", "PodTemplate", &kinds::POD_TEMPLATES)
};

/// Sets of equal pods, in the old form.
pub static REPLICATIONCONTROLLERS: Resource = Resource {
    short_names: &["rc"],
    categories: &["all"],
    has_status: true,
    has_generation: true,
    orphans: true,
    subresources: &[SCALE],
    ..Resource::new(
        "",
        "replicationcontrollers",
        "replicationcontroller",
        "ReplicationController",
        &kinds::REPLICATION_CONTROLLERS,
    )
};

/// Bounds of what a namespace may hold.
pub static RESOURCEQUOTAS: Resource = Resource {
    short_names: &["quota"],
    has_status: true,
    returns_deleted: true,
    ..Resource::new("", "resourcequotas", "resourcequota", "ResourceQuota", &kinds::RESOURCE_QUOTAS)
};
