//! The configuration of a pod's sandbox.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use longshore_api::resources::{self, LinuxResources};
use longshore_api::restart::is_sidecar;
use longshore_api::{dns, security as rules};
use longshore_cri::{labels, v1};

use super::{ConfigError, NodeFacts, pod_text, security};
use crate::model::DesiredPod;

/// A configuration and what the pod's owner should hear about it.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxConfig {
    /// What the runtime is asked for.
    pub config: v1::PodSandboxConfig,
    /// Reason and message of warning events.
    pub warnings: Vec<(&'static str, String)>,
}

/// Builds the configuration; `cgroup_parent` is the pod's own cgroup as the runtime wants it named.
pub fn sandbox_config(
    pod: &DesiredPod,
    attempt: u32,
    cgroup_parent: &str,
    facts: &NodeFacts,
) -> Result<SandboxConfig, ConfigError> {
    let spec = spec_of(pod)?;
    let (name, namespace) = (&*pod.key.name, &*pod.key.namespace);
    let names = dns::hostname(spec, name, namespace, &facts.dns.domain)
        .map_err(|error| ConfigError { reason: "FailedCreatePodSandBox", message: error.to_string() })?;
    let text = pod_text(pod);
    let resolver = dns::pod(spec, namespace, &text, &facts.dns);
    let missing = resolver.missing_cluster_dns.map(|message| ("MissingClusterDNS", message));
    let warnings =
        missing.into_iter().chain(resolver.warnings.into_iter().map(|text| ("DNSConfigForming", text))).collect();
    let folder = format!("{namespace}_{name}_{}", pod.uid);
    let config = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.to_owned(),
            uid: pod.uid.to_string(),
            namespace: namespace.to_owned(),
            attempt,
        }),
        hostname: names.sandbox,
        log_directory: facts.pod_logs.join(folder).to_string_lossy().into_owned(),
        dns_config: Some(v1::DnsConfig {
            servers: resolver.resolver.servers,
            searches: resolver.resolver.searches,
            options: resolver.resolver.options,
        }),
        port_mappings: port_mappings(spec),
        labels: labels_of(pod),
        annotations: pod.pod.metadata.annotations.iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect(),
        linux: Some(linux(spec, cgroup_parent, facts)),
        windows: None,
    };
    Ok(SandboxConfig { config, warnings })
}

pub(super) fn spec_of(pod: &DesiredPod) -> Result<&PodSpec, ConfigError> {
    pod.pod.spec.as_ref().ok_or_else(|| ConfigError::new(format!("pod {} has no spec", pod.key)))
}

fn labels_of(pod: &DesiredPod) -> BTreeMap<String, String> {
    // The agent's own labels come last: by them it finds its pods again, whatever a manifest says.
    let own = [
        (labels::POD_NAME, pod.key.name.to_string()),
        (labels::POD_NAMESPACE, pod.key.namespace.to_string()),
        (labels::POD_UID, pod.uid.to_string()),
    ];
    let given = pod.pod.metadata.labels.iter().flatten().map(|(key, value)| (key.clone(), value.clone()));
    given.chain(own.map(|(key, value)| (key.to_owned(), value))).collect()
}

fn port_mappings(spec: &PodSpec) -> Vec<v1::PortMapping> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let of = |container: &Container| container.ports.clone().unwrap_or_default();
    spec.containers
        .iter()
        .chain(sidecars)
        .flat_map(of)
        .map(|port| v1::PortMapping {
            protocol: protocol(port.protocol.as_deref()).into(),
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or_default(),
            host_ip: port.host_ip.unwrap_or_default(),
        })
        .collect()
}

fn protocol(text: Option<&str>) -> v1::Protocol {
    match text {
        Some("UDP") => v1::Protocol::Udp,
        Some("SCTP") => v1::Protocol::Sctp,
        _ => v1::Protocol::Tcp,
    }
}

pub(super) fn resources_message(from: LinuxResources) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_period: from.cpu_period,
        cpu_quota: from.cpu_quota,
        cpu_shares: from.cpu_shares,
        memory_limit_in_bytes: from.memory_limit,
        ..v1::LinuxContainerResources::default()
    }
}

/// Entries of the unified hierarchy that hold for sandbox and containers alike.
pub(super) fn unified(facts: &NodeFacts) -> BTreeMap<String, String> {
    if facts.cgroup_v2 && !facts.single_process_oom_kill {
        BTreeMap::from([("memory.oom.group".to_owned(), "1".to_owned())])
    } else {
        BTreeMap::new()
    }
}

fn linux(spec: &PodSpec, cgroup_parent: &str, facts: &NodeFacts) -> v1::LinuxPodSandboxConfig {
    let pod = spec.security_context.as_ref();
    let seccomp = v1::SecurityProfile {
        profile_type: v1::security_profile::ProfileType::RuntimeDefault.into(),
        localhost_ref: String::new(),
    };
    let sysctls = pod.and_then(|pod| pod.sysctls.as_ref());
    v1::LinuxPodSandboxConfig {
        cgroup_parent: cgroup_parent.to_owned(),
        security_context: Some(v1::LinuxSandboxSecurityContext {
            namespace_options: Some(security::namespaces(spec, None)),
            selinux_options: pod.and_then(|pod| pod.se_linux_options.as_ref()).map(security::selinux),
            run_as_user: pod.and_then(|pod| pod.run_as_user).map(security::number),
            run_as_group: pod.and_then(|pod| pod.run_as_group).map(security::number),
            supplemental_groups: rules::supplementary_groups(spec),
            supplemental_groups_policy: security::groups_policy(spec).into(),
            privileged: rules::is_privileged_pod(spec),
            seccomp: Some(seccomp),
            ..v1::LinuxSandboxSecurityContext::default()
        }),
        sysctls: sysctls.into_iter().flatten().map(|sysctl| (sysctl.name.clone(), sysctl.value.clone())).collect(),
        overhead: Some(resources_message(resources::overhead_linux(spec, facts.cpu))),
        resources: Some(v1::LinuxContainerResources {
            unified: unified(facts),
            ..resources_message(resources::sandbox_linux(spec, facts.cpu))
        }),
    }
}
