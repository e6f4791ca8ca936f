//! The kinds that tables tell, by group.

mod apps;
mod batch;
mod certificates;
mod core;
mod cron;
mod definitions;
mod network;
mod policy;
mod rbac;
mod storage;

pub(crate) use apps::{
    CONTROLLER_REVISIONS, DAEMON_SETS, DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS,
};
pub(crate) use batch::{CRON_JOBS, JOBS};
pub(crate) use certificates::{CERTIFICATE_SIGNING_REQUESTS, approval_causes};
pub(crate) use core::{
    ENDPOINTS, LIMIT_RANGES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, POD_TEMPLATES, RESOURCE_QUOTAS,
};
pub(crate) use definitions::CUSTOM_RESOURCE_DEFINITIONS;
pub(crate) use network::{ENDPOINT_SLICES, INGRESS_CLASSES, INGRESSES, NETWORK_POLICIES};
pub(crate) use policy::POD_DISRUPTION_BUDGETS;
pub(crate) use rbac::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES};
pub(crate) use storage::{STORAGE_CLASSES, VOLUME_ATTACHMENTS};
