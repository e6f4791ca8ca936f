//! Rows of what makes pods, and of what keeps them together.

use super::{Resource, SCALE};
use crate::apiserver::strategy::kinds;

/// Earlier states of daemon and stateful sets.
pub static CONTROLLERREVISIONS: Resource = Resource::new(
    "apps",
    "controllerrevisions",
    "controllerrevision",
    "ControllerRevision",
    &kinds::CONTROLLER_REVISIONS,
);

/// The number of copies of a workload. Not stored: a view of the workload itself.
pub static SCALES: Resource =
    Resource::new("autoscaling", "scales", "scale", "Scale", &crate::apiserver::strategy::Scales);

/// One pod on each node.
pub static DAEMONSETS: Resource =
    Resource { short_names: &["ds"], ..workload("daemonsets", "daemonset", "DaemonSet", &kinds::DAEMON_SETS) };

/// Replica sets that follow each other.
pub static DEPLOYMENTS: Resource = Resource {
    short_names: &["deploy"],
    subresources: &[SCALE],
    ..workload("deployments", "deployment", "Deployment", &kinds::DEPLOYMENTS)
};

/// Sets of equal pods.
pub static REPLICASETS: Resource = Resource {
    short_names: &["rs"],
    subresources: &[SCALE],
    ..workload("replicasets", "replicaset", "ReplicaSet", &kinds::REPLICA_SETS)
};

/// Sets of pods with names and volumes of their own.
pub static STATEFULSETS: Resource = Resource {
    short_names: &["sts"],
    subresources: &[SCALE],
    ..workload("statefulsets", "statefulset", "StatefulSet", &kinds::STATEFUL_SETS)
};

const fn workload(
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    strategy: &'static dyn crate::apiserver::strategy::Strategy,
) -> Resource {
    Resource {
        categories: &["all"],
        has_status: true,
        has_generation: true,
        ..Resource::new("apps", plural, singular, kind, strategy)
    }
}

/// Jobs at set times.
pub static CRONJOBS: Resource = Resource {
    short_names: &["cj"],
    categories: &["all"],
    has_status: true,
    has_generation: true,
    ..Resource::new("batch", "cronjobs", "cronjob", "CronJob", &kinds::CRON_JOBS)
};

/// Pods that run to their end.
pub static JOBS: Resource = Resource {
    categories: &["all"],
    has_status: true,
    has_generation: true,
    orphans: true,
    ..Resource::new("batch", "jobs", "job", "Job", &kinds::JOBS)
};

/// How many pods of a set may be taken away at once.
pub static PODDISRUPTIONBUDGETS: Resource = Resource {
    short_names: &["pdb"],
    has_status: true,
    has_generation: true,
    unconditional_update: false,
    ..Resource::new(
        "policy",
        "poddisruptionbudgets",
        "poddisruptionbudget",
        "PodDisruptionBudget",
        &kinds::POD_DISRUPTION_BUDGETS,
    )
};
