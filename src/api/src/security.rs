//! The effective security settings of a container: its own over the pod's, with the rules that combine them.

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Capabilities, Container, Pod, PodSpec, SELinuxOptions, SeccompProfile, SecurityContext,
};

/// Annotation prefix by which AppArmor profiles were given before there was a field.
const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// A profile for system calls or for AppArmor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Profile {
    /// The runtime's own.
    RuntimeDefault,
    /// None.
    Unconfined,
    /// One on the node: a path below the profile folder, or the name of a loaded one.
    Localhost(String),
}

/// What holds for one container.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// User id; `None` leaves it to the image.
    pub run_as_user: Option<i64>,
    /// Group id; `None` leaves it to the image.
    pub run_as_group: Option<i64>,
    /// The first process must not be root.
    pub run_as_non_root: bool,
    /// All devices and capabilities.
    pub privileged: bool,
    /// The root file system is read-only.
    pub read_only_root: bool,
    /// The process cannot gain rights by a set-uid program.
    pub no_new_privileges: bool,
    /// Capabilities to add.
    pub add_capabilities: Vec<String>,
    /// Capabilities to drop.
    pub drop_capabilities: Vec<String>,
    /// System call profile.
    pub seccomp: Profile,
    /// SELinux label parts.
    pub selinux: Option<SELinuxOptions>,
    /// `/proc` is shown whole: nothing is masked or read-only.
    pub proc_unmasked: bool,
}

/// Computes what holds for a container. `seccomp_default` is the node's setting of that name.
pub fn effective(spec: &PodSpec, container: Option<&SecurityContext>, seccomp_default: bool) -> Effective {
    let pod = spec.security_context.as_ref();
    let privileged = container.and_then(|own| own.privileged).unwrap_or(false);
    let seccomp = container
        .and_then(|own| own.seccomp_profile.as_ref())
        .or_else(|| pod.and_then(|pod| pod.seccomp_profile.as_ref()))
        .map(seccomp_profile);
    let seccomp = match seccomp {
        _ if privileged => Profile::Unconfined,
        Some(profile) => profile,
        None if seccomp_default => Profile::RuntimeDefault,
        None => Profile::Unconfined,
    };
    let capabilities: Capabilities = container.and_then(|own| own.capabilities.clone()).unwrap_or_default();
    Effective {
        run_as_user: container.and_then(|own| own.run_as_user).or_else(|| pod.and_then(|pod| pod.run_as_user)),
        run_as_group: container.and_then(|own| own.run_as_group).or_else(|| pod.and_then(|pod| pod.run_as_group)),
        run_as_non_root: container
            .and_then(|own| own.run_as_non_root)
            .or_else(|| pod.and_then(|pod| pod.run_as_non_root))
            .unwrap_or(false),
        privileged,
        read_only_root: container.and_then(|own| own.read_only_root_filesystem).unwrap_or(false),
        no_new_privileges: container.and_then(|own| own.allow_privilege_escalation) == Some(false),
        add_capabilities: capabilities.add.unwrap_or_default(),
        drop_capabilities: capabilities.drop.unwrap_or_default(),
        seccomp,
        selinux: container
            .and_then(|own| own.se_linux_options.clone())
            .or_else(|| pod.and_then(|pod| pod.se_linux_options.clone())),
        proc_unmasked: container.and_then(|own| own.proc_mount.as_deref()) == Some("Unmasked"),
    }
}

fn seccomp_profile(profile: &SeccompProfile) -> Profile {
    named_profile(&profile.type_, profile.localhost_profile.as_deref())
}

fn app_armor_profile(profile: &AppArmorProfile) -> Profile {
    named_profile(&profile.type_, profile.localhost_profile.as_deref())
}

/// The AppArmor profile of a container: its own field, the pod's, then the annotation of old; `None` = nothing is said.
pub fn app_armor(pod: &Pod, spec: &PodSpec, name: &str, container: Option<&SecurityContext>) -> Option<Profile> {
    let field = container
        .and_then(|own| own.app_armor_profile.as_ref())
        .or_else(|| spec.security_context.as_ref().and_then(|pod| pod.app_armor_profile.as_ref()));
    if let Some(field) = field {
        return Some(app_armor_profile(field));
    }
    let annotations = pod.metadata.annotations.as_ref()?;
    match annotations.get(&format!("{APP_ARMOR_ANNOTATION}{name}"))?.as_str() {
        "" => None,
        "runtime/default" => Some(Profile::RuntimeDefault),
        "unconfined" => Some(Profile::Unconfined),
        other => Some(Profile::Localhost(other.strip_prefix("localhost/").unwrap_or(other).to_owned())),
    }
}

fn named_profile(kind: &str, localhost: Option<&str>) -> Profile {
    match kind {
        "RuntimeDefault" => Profile::RuntimeDefault,
        "Localhost" => Profile::Localhost(localhost.unwrap_or_default().to_owned()),
        _ => Profile::Unconfined,
    }
}

/// Says whether any container of the pod is privileged (the sandbox then is as well).
pub fn is_privileged_pod(spec: &PodSpec) -> bool {
    let privileged =
        |container: &Container| container.security_context.as_ref().and_then(|own| own.privileged).unwrap_or(false);
    spec.init_containers.iter().flatten().chain(&spec.containers).any(privileged)
        || spec
            .ephemeral_containers
            .iter()
            .flatten()
            .any(|container| container.security_context.as_ref().and_then(|own| own.privileged).unwrap_or(false))
}

/// The supplementary groups of all containers: the volumes' group first, then the pod's list.
pub fn supplementary_groups(spec: &PodSpec) -> Vec<i64> {
    let Some(pod) = spec.security_context.as_ref() else { return Vec::new() };
    pod.fs_group.into_iter().chain(pod.supplemental_groups.iter().flatten().copied()).collect()
}

/// The user that an image names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageUser {
    /// A number; images that name nobody run as 0.
    Id(i64),
    /// A name, which only the image's own files resolve.
    Name(String),
}

/// Refuses root where `runAsNonRoot` is set; the error is the message for the container's status.
pub fn check_non_root(settings: &Effective, image: &ImageUser, pod: &str, container: &Container) -> Result<(), String> {
    if !settings.run_as_non_root {
        return Ok(());
    }
    let place = format!("(pod: {pod:?}, container: {})", container.name);
    match (settings.run_as_user, image) {
        (Some(0), _) => Err(format!("container's runAsUser breaks non-root policy {place}")),
        (Some(_), _) => Ok(()),
        (None, ImageUser::Id(0)) => Err(format!("container has runAsNonRoot and image will run as root {place}")),
        (None, ImageUser::Id(_)) => Ok(()),
        (None, ImageUser::Name(name)) => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root {place}; \
             set securityContext.runAsUser to the number of {name} in image {}",
            container.image.as_deref().unwrap_or_default()
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn effective_of(spec: Value, container: Value) -> Effective {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let container: SecurityContext = serde_json::from_value(container).unwrap();
        effective(&spec, Some(&container), false)
    }

    #[test]
    fn the_container_wins_over_the_pod_field_by_field() {
        let spec =
            json!({"containers": [], "securityContext": {"runAsUser": 1000, "runAsGroup": 3000, "runAsNonRoot": true}});
        let got = effective_of(spec, json!({"runAsUser": 1234, "runAsNonRoot": false}));
        assert_eq!((got.run_as_user, got.run_as_group, got.run_as_non_root), (Some(1234), Some(3000), false));
    }

    #[test]
    fn seccomp_table() {
        let pod = json!({"containers": [], "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "a.json"}}});
        let plain = json!({"containers": []});
        for (spec, container, want) in [
            (&plain, json!({}), Profile::Unconfined),
            (&plain, json!({"seccompProfile": {"type": "RuntimeDefault"}}), Profile::RuntimeDefault),
            (&pod, json!({}), Profile::Localhost("a.json".to_owned())),
            (&pod, json!({"privileged": true}), Profile::Unconfined),
        ] {
            assert_eq!(effective_of(spec.clone(), container.clone()).seccomp, want, "{container}");
        }
        let spec = PodSpec::default();
        assert_eq!(effective(&spec, None, true).seccomp, Profile::RuntimeDefault);
    }

    #[test]
    fn an_app_armor_profile_is_the_containers_then_the_pods_then_the_annotation() {
        let of = |annotation: &str, pod: Value, container: Value| {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": annotation}},
                "spec": {"containers": [], "securityContext": pod}}))
            .unwrap();
            let container: SecurityContext = serde_json::from_value(container).unwrap();
            app_armor(&pod, pod.spec.as_ref().unwrap(), "c", Some(&container))
        };
        let field = |kind: &str, name: &str| json!({"appArmorProfile": {"type": kind, "localhostProfile": name}});
        let local = |name: &str| Some(Profile::Localhost(name.to_owned()));
        let own = field("Localhost", "a");
        assert_eq!(of("unconfined", field("RuntimeDefault", ""), own), local("a"));
        assert_eq!(of("unconfined", field("RuntimeDefault", ""), json!({})), Some(Profile::RuntimeDefault));
        assert_eq!(of("localhost/b", json!({}), json!({})), local("b"));
        assert_eq!(of("runtime/default", json!({}), json!({})), Some(Profile::RuntimeDefault));
        assert_eq!(of("unconfined", json!({}), json!({})), Some(Profile::Unconfined));
        assert_eq!(of("", json!({}), json!({})), None);
    }

    #[test]
    fn groups_start_with_the_volumes_group() {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [],
            "securityContext": {"fsGroup": 2000, "supplementalGroups": [4000, 5000]}}))
        .unwrap();
        assert_eq!(supplementary_groups(&spec), [2000, 4000, 5000]);
    }

    #[test]
    fn non_root_texts_are_as_recorded() {
        let strict = json!({"runAsNonRoot": true});
        let check = |container: Value, image: ImageUser| {
            let named = Container { name: "c".into(), image: Some("app:1".into()), ..Container::default() };
            check_non_root(&effective_of(json!({"containers": []}), container), &image, "p_ns(u)", &named)
        };
        assert_eq!(
            check(strict.clone(), ImageUser::Id(0)).unwrap_err(),
            "container has runAsNonRoot and image will run as root (pod: \"p_ns(u)\", container: c)"
        );
        assert_eq!(
            check(strict.clone(), ImageUser::Name("app".to_owned())).unwrap_err(),
            "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root \
             (pod: \"p_ns(u)\", container: c); set securityContext.runAsUser to the number of app in image app:1"
        );
        assert!(check(strict, ImageUser::Id(5)).is_ok());
        assert!(check(json!({"runAsNonRoot": true, "runAsUser": 0}), ImageUser::Id(5)).is_err());
        assert!(check(json!({"runAsNonRoot": true, "runAsUser": 7}), ImageUser::Id(0)).is_ok());
        assert!(check(json!({}), ImageUser::Id(0)).is_ok());
    }
}
