//! Rows, filters and figures as lists show them.

use std::collections::BTreeMap;

use super::world::{Container, Sandbox, State};
use crate::v1;

fn has_labels(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

pub(super) fn sandbox_matches(sandbox: &Sandbox, filter: Option<&v1::PodSandboxFilter>) -> bool {
    filter.is_none_or(|filter| {
        (filter.id.is_empty() || sandbox.status.id.starts_with(&filter.id))
            && filter.state.as_ref().is_none_or(|state| state.state == sandbox.status.state)
            && has_labels(&sandbox.status.labels, &filter.label_selector)
    })
}

pub(super) fn container_matches(container: &Container, filter: Option<&v1::ContainerFilter>) -> bool {
    filter.is_none_or(|filter| {
        (filter.id.is_empty() || container.status.id.starts_with(&filter.id))
            && (filter.pod_sandbox_id.is_empty() || container.sandbox.starts_with(&filter.pod_sandbox_id))
            && filter.state.as_ref().is_none_or(|state| state.state == container.status.state)
            && has_labels(&container.status.labels, &filter.label_selector)
    })
}

pub(super) fn sandbox_row(sandbox: &Sandbox) -> v1::PodSandbox {
    let status = &sandbox.status;
    v1::PodSandbox {
        id: status.id.clone(),
        metadata: status.metadata.clone(),
        state: status.state,
        created_at: status.created_at,
        labels: status.labels.clone(),
        annotations: status.annotations.clone(),
        runtime_handler: status.runtime_handler.clone(),
    }
}

pub(super) fn container_row(container: &Container) -> v1::Container {
    let status = &container.status;
    v1::Container {
        id: status.id.clone(),
        pod_sandbox_id: container.sandbox.clone(),
        metadata: status.metadata.clone(),
        image: status.image.clone(),
        image_ref: status.image_ref.clone(),
        state: status.state,
        created_at: status.created_at,
        labels: status.labels.clone(),
        annotations: status.annotations.clone(),
        image_id: status.image_id.clone(),
    }
}

fn number(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}

pub(super) fn container_figures(state: &State, container: &Container, now: i64) -> v1::ContainerStats {
    let status = &container.status;
    let working_set = state.memory.get(&status.id).copied().unwrap_or(0);
    v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes {
            id: status.id.clone(),
            metadata: status.metadata.clone(),
            labels: status.labels.clone(),
            annotations: status.annotations.clone(),
        }),
        cpu: Some(v1::CpuUsage { timestamp: now, usage_core_nano_seconds: number(0), ..Default::default() }),
        memory: Some(v1::MemoryUsage {
            timestamp: now,
            working_set_bytes: number(working_set),
            usage_bytes: number(working_set),
            rss_bytes: number(working_set),
            ..Default::default()
        }),
        writable_layer: Some(v1::FilesystemUsage { timestamp: now, used_bytes: number(0), ..Default::default() }),
        ..Default::default()
    }
}

pub(super) fn sandbox_figures(state: &State, sandbox: &Sandbox, now: i64) -> v1::PodSandboxStats {
    let status = &sandbox.status;
    let inside = state.containers.values().filter(|container| container.sandbox == status.id);
    v1::PodSandboxStats {
        attributes: Some(v1::PodSandboxAttributes {
            id: status.id.clone(),
            metadata: status.metadata.clone(),
            labels: status.labels.clone(),
            annotations: status.annotations.clone(),
        }),
        linux: Some(v1::LinuxPodSandboxStats {
            containers: inside.map(|container| container_figures(state, container, now)).collect(),
            ..Default::default()
        }),
        windows: None,
    }
}
