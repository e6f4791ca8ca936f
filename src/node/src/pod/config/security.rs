//! Security settings in the runtime's words.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, SELinuxOptions};
use longshore_api::security::{self, Effective, ImageUser, Profile};
use longshore_cri::v1;

use super::{ConfigError, NodeFacts};

/// Parts of `/proc` and `/sys` that tell of the machine or act on it.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) fn namespaces(spec: &PodSpec, target: Option<&str>) -> v1::NamespaceOption {
    let node_or = |host: Option<bool>, other: v1::NamespaceMode| {
        if host.unwrap_or(false) { v1::NamespaceMode::Node } else { other }
    };
    let shared = spec.share_process_namespace.unwrap_or(false);
    let own = if shared { v1::NamespaceMode::Pod } else { v1::NamespaceMode::Container };
    let pid = match target {
        Some(_) => v1::NamespaceMode::Target,
        None => node_or(spec.host_pid, own),
    };
    v1::NamespaceOption {
        network: node_or(spec.host_network, v1::NamespaceMode::Pod).into(),
        pid: pid.into(),
        ipc: node_or(spec.host_ipc, v1::NamespaceMode::Pod).into(),
        target_id: target.unwrap_or_default().to_owned(),
        userns_options: Some(v1::UserNamespace {
            mode: v1::NamespaceMode::Node.into(),
            ..v1::UserNamespace::default()
        }),
    }
}

/// Users of the pod's own: its ids from 0 on are a range of the host's.
pub fn own_users(first: u32, length: u32) -> v1::UserNamespace {
    let ids = vec![v1::IdMapping { host_id: first, container_id: 0, length }];
    v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: ids.clone(), gids: ids }
}

pub(super) fn groups_policy(spec: &PodSpec) -> v1::SupplementalGroupsPolicy {
    let policy = spec.security_context.as_ref().and_then(|pod| pod.supplemental_groups_policy.as_deref());
    if policy == Some("Strict") { v1::SupplementalGroupsPolicy::Strict } else { v1::SupplementalGroupsPolicy::Merge }
}

pub(super) fn selinux(options: &SELinuxOptions) -> v1::SeLinuxOption {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    v1::SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}

pub(super) fn number(value: i64) -> v1::Int64Value {
    v1::Int64Value { value }
}

fn profile(profile: &Profile, root: Option<&std::path::Path>) -> v1::SecurityProfile {
    use v1::security_profile::ProfileType;
    let (kind, reference) = match profile {
        Profile::RuntimeDefault => (ProfileType::RuntimeDefault, String::new()),
        Profile::Unconfined => (ProfileType::Unconfined, String::new()),
        Profile::Localhost(name) => {
            let path = root.map_or_else(|| name.clone(), |root| root.join(name).to_string_lossy().into_owned());
            (ProfileType::Localhost, path)
        }
    };
    v1::SecurityProfile { profile_type: kind.into(), localhost_ref: reference }
}

pub(super) struct ContainerInput<'a> {
    pub(super) pod: &'a Pod,
    pub(super) spec: &'a PodSpec,
    pub(super) container: &'a Container,
    pub(super) image_user: &'a ImageUser,
    pub(super) pod_text: &'a str,
    pub(super) target: Option<&'a str>,
    pub(super) facts: &'a NodeFacts,
}

pub(super) fn of_container(input: &ContainerInput<'_>) -> Result<v1::LinuxContainerSecurityContext, ConfigError> {
    let settings =
        security::effective(input.spec, input.container.security_context.as_ref(), input.facts.seccomp_default);
    security::check_non_root(&settings, input.image_user, input.pod_text, input.container).map_err(ConfigError::new)?;
    let app_armor =
        security::app_armor(input.pod, input.spec, &input.container.name, input.container.security_context.as_ref());
    if settings.seccomp == Profile::Localhost(String::new()) {
        return Err(ConfigError::new("localhostProfile must be set if seccompProfile type is Localhost."));
    }
    if app_armor == Some(Profile::Localhost(String::new())) {
        return Err(ConfigError::new("localhostProfile must be set if appArmorProfile type is Localhost."));
    }
    let mut out = v1::LinuxContainerSecurityContext {
        capabilities: capabilities(&settings),
        privileged: settings.privileged,
        namespace_options: Some(namespaces(input.spec, input.target)),
        selinux_options: settings.selinux.as_ref().map(selinux),
        run_as_group: settings.run_as_group.map(number),
        readonly_rootfs: settings.read_only_root,
        supplemental_groups: security::supplementary_groups(input.spec),
        supplemental_groups_policy: groups_policy(input.spec).into(),
        no_new_privs: settings.no_new_privileges,
        seccomp: Some(profile(&settings.seccomp, Some(&input.facts.root.join("seccomp")))),
        apparmor: app_armor.as_ref().map(|wanted| profile(wanted, None)),
        ..v1::LinuxContainerSecurityContext::default()
    };
    match (settings.run_as_user, input.image_user) {
        (Some(id), _) => out.run_as_user = Some(number(id)),
        (None, ImageUser::Id(id)) => out.run_as_user = Some(number(*id)),
        (None, ImageUser::Name(name)) => out.run_as_username.clone_from(name),
    }
    if !settings.proc_unmasked {
        out.masked_paths =
            MASKED.iter().map(|path| (*path).to_owned()).chain(input.facts.extra_masked.clone()).collect();
        out.readonly_paths = READ_ONLY.iter().map(|path| (*path).to_owned()).collect();
    }
    Ok(out)
}

fn capabilities(settings: &Effective) -> Option<v1::Capability> {
    if settings.add_capabilities.is_empty() && settings.drop_capabilities.is_empty() {
        return None;
    }
    Some(v1::Capability {
        add_capabilities: settings.add_capabilities.clone(),
        drop_capabilities: settings.drop_capabilities.clone(),
        ..v1::Capability::default()
    })
}
