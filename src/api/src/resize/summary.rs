//! The text about sizes that events carry.

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use serde::Serialize;

use super::has_amounts;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Entry<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Entry<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<ResourceRequirements>,
}

fn entry(container: &Container) -> Entry<'_> {
    let own = container.resources.clone().map(|own| ResourceRequirements { claims: None, ..own });
    Entry { name: &container.name, resources: own.filter(has_amounts) }
}

/// Sums up the sizes of a pod's containers in JSON, as the stock agent's events do: those of the pod as a whole are not told.
pub fn summary(spec: &PodSpec, generation: i64, error: Option<&str>) -> String {
    let summary = Summary {
        init_containers: spec.init_containers.iter().flatten().map(entry).collect(),
        containers: spec.containers.iter().map(entry).collect(),
        generation,
        error,
    };
    serde_json::to_string(&summary).unwrap_or_default()
}
