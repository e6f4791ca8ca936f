//! The configuration of one container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use longshore_api::expand;
use longshore_api::quantity::Quantity;
use longshore_api::resources::{self, Side};
use longshore_api::security::ImageUser;
use longshore_cri::{labels, v1};

use super::sandbox::{resources_message, spec_of, unified};
use super::{ConfigError, NodeFacts, annotations, find_container, pod_text, security};
use crate::model::DesiredPod;
use crate::pod::signal;

/// Everything that a container's configuration is made from.
#[derive(Debug, Clone, Copy)]
pub struct ContainerInput<'a> {
    /// The pod.
    pub pod: &'a DesiredPod,
    /// The container's name.
    pub name: &'a str,
    /// Attempt number, equal to the restart count.
    pub attempt: u32,
    /// What the runtime resolved the image to.
    pub image: &'a str,
    /// The user that the image names.
    pub image_user: &'a ImageUser,
    /// Variables, complete.
    pub env: &'a [(String, String)],
    /// Mounts, complete.
    pub mounts: &'a [v1::Mount],
    /// Id of the container whose processes an ephemeral container sees.
    pub target: Option<&'a str>,
    /// The node.
    pub facts: &'a NodeFacts,
}

/// Builds the configuration.
pub fn container_config(input: &ContainerInput<'_>) -> Result<v1::ContainerConfig, ConfigError> {
    let spec = spec_of(input.pod)?;
    let (_, container) = find_container(spec, input.name)
        .ok_or_else(|| ConfigError::new(format!("container {:?} is not in the pod's spec", input.name)))?;
    let container = &*container;
    let text = pod_text(input.pod);
    let lookup = |name: &str| input.env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let expand_all = |list: &Option<Vec<String>>| -> Vec<String> {
        list.iter().flatten().map(|text| expand::expand(text, lookup)).collect()
    };
    let security_context = security::of_container(&security::ContainerInput {
        pod: &input.pod.pod,
        spec,
        container,
        image_user: input.image_user,
        pod_text: &text,
        target: input.target,
        facts: input.facts,
    })?;
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: container.name.clone(), attempt: input.attempt }),
        image: Some(v1::ImageSpec {
            image: input.image.to_owned(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..v1::ImageSpec::default()
        }),
        command: expand_all(&container.command),
        args: expand_all(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: input
            .env
            .iter()
            .map(|(key, value)| v1::KeyValue { key: key.clone(), value: value.clone().into_bytes() })
            .collect(),
        mounts: input.mounts.to_vec(),
        labels: labels_of(input.pod, container),
        annotations: annotations::of_container(&input.pod.pod, container, input.attempt),
        log_path: format!("{}/{}.log", container.name, input.attempt),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(container_size(input.pod, container, input.facts)),
            security_context: Some(security_context),
        }),
        stop_signal: stop_signal(container, input.facts),
        ..v1::ContainerConfig::default()
    })
}

/// The signal that the spec asks for; the runtime's own choice without it and without upstream's gate
/// `ContainerStopSignals`.
fn stop_signal(container: &Container, facts: &NodeFacts) -> i32 {
    let asked = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_deref());
    let asked = asked.filter(|_| facts.stop_signals).and_then(signal::parse);
    asked.unwrap_or(v1::Signal::RuntimeDefault).into()
}

fn labels_of(pod: &DesiredPod, container: &Container) -> BTreeMap<String, String> {
    BTreeMap::from([
        (labels::CONTAINER_NAME.to_owned(), container.name.clone()),
        (labels::POD_NAME.to_owned(), pod.key.name.to_string()),
        (labels::POD_NAMESPACE.to_owned(), pod.key.namespace.to_string()),
        (labels::POD_UID.to_owned(), pod.uid.to_string()),
    ])
}

/// What the runtime is told of a container's size, when it is made and when it gets another one.
pub fn container_size(pod: &DesiredPod, container: &Container, facts: &NodeFacts) -> v1::LinuxContainerResources {
    let empty = PodSpec::default();
    let base = resources::container_linux(pod.pod.spec.as_ref().unwrap_or(&empty), container, facts.cpu);
    let mut out = v1::LinuxContainerResources {
        oom_score_adj: resources::oom_score_adj(&pod.pod, container, facts.memory),
        hugepage_limits: huge_pages(container, facts),
        unified: unified(facts),
        ..resources_message(base)
    };
    // What gets no swap: v2 says so outright, v1 by a bound on memory and swap together.
    if facts.cgroup_v2 {
        let critical = crate::admit::is_critical(&pod.pod, pod.source.is_static());
        let swap = facts.swap.map_or(0, |node| resources::swap_limit(&pod.pod, container, critical, node));
        out.unified.insert("memory.swap.max".to_owned(), swap.to_string());
    } else if facts.swap_accounting {
        out.memory_swap_limit_in_bytes = base.memory_limit;
    }
    out
}

/// One entry per page size of the host: what is not asked for is bound to nothing.
fn huge_pages(container: &Container, facts: &NodeFacts) -> Vec<v1::HugepageLimit> {
    let limits = resources::of_container(container, Side::Limits);
    let asked = |size: &str| {
        let bytes = page_bytes(size)?;
        let entry = limits.iter().find(|(name, _)| {
            name.strip_prefix("hugepages-")
                .and_then(|text| Quantity::parse(text).ok())
                .is_some_and(|q| q.value() == bytes)
        });
        entry.and_then(|(_, limit)| u64::try_from(limit.value()).ok())
    };
    facts
        .huge_pages
        .iter()
        .map(|size| v1::HugepageLimit { page_size: size.clone(), limit: asked(size).unwrap_or(0) })
        .collect()
}

/// Reads `2MB` or `1GB`, which mean powers of 1024.
fn page_bytes(size: &str) -> Option<i64> {
    Quantity::parse(&size.replace("KB", "Ki").replace("MB", "Mi").replace("GB", "Gi")).ok().map(|size| size.value())
}
