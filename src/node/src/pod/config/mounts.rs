//! The mounts of a container, in the order of its spec, then the hosts file, then the termination message.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, VolumeMount};
use longshore_api::expand;
use longshore_cri::v1;

use super::{ConfigError, ImageMount};

const HOSTS: &str = "/etc/hosts";

/// Position of a mount in the container's list; names the folder of its subPath.
pub type SubPathKey = usize;

/// A volume that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFact {
    /// Where it is on the host.
    pub path: PathBuf,
    /// The volume itself can only be read.
    pub read_only: bool,
}

/// What mounts are made from.
#[derive(Debug, Clone, Copy)]
pub struct MountInput<'a> {
    /// The container.
    pub container: &'a Container,
    /// The pod's volumes by name.
    pub volumes: &'a BTreeMap<String, VolumeFact>,
    /// Where each subPath was bound, by position in the container's list.
    pub sub_paths: &'a BTreeMap<SubPathKey, PathBuf>,
    /// Which mounts are images, by position in the container's list.
    pub images: &'a BTreeMap<SubPathKey, ImageMount>,
    /// The pod's hosts file; `None` when the pod has no address yet.
    pub hosts: Option<&'a Path>,
    /// The file for the termination message.
    pub termination: Option<&'a Path>,
    /// Whether the runtime can mount read-only recursively.
    pub recursive_read_only: bool,
}

/// Builds the mounts.
pub fn mounts(input: &MountInput<'_>) -> Result<Vec<v1::Mount>, ConfigError> {
    let container = input.container;
    let mut out = Vec::new();
    let mut own_hosts = false;
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let target = absolute(&mount.mount_path);
        own_hosts |= target == HOSTS;
        if let Some(ImageMount { image, sub_path }) = input.images.get(&index) {
            // Always read-only, whatever the mount says: the image is everybody's.
            out.push(v1::Mount {
                container_path: target,
                readonly: true,
                image: Some(v1::ImageSpec {
                    image: image.reference.clone(),
                    user_specified_image: image.written.clone(),
                    ..v1::ImageSpec::default()
                }),
                image_sub_path: sub_path.clone(),
                ..v1::Mount::default()
            });
            continue;
        }
        let volume = input.volumes.get(&mount.name).ok_or_else(|| {
            ConfigError::new(format!(
                "cannot find volume {:?} to mount into container {:?}",
                mount.name, container.name
            ))
        })?;
        let host = input.sub_paths.get(&index).unwrap_or(&volume.path);
        out.push(v1::Mount {
            container_path: target,
            host_path: host.to_string_lossy().into_owned(),
            readonly: mount.read_only.unwrap_or(false) || volume.read_only,
            recursive_read_only: recursive(mount, input.recursive_read_only)?,
            propagation: propagation(mount, container)?.into(),
            ..v1::Mount::default()
        });
    }
    let own = |target: &str, host: &Path| v1::Mount {
        container_path: target.to_owned(),
        host_path: host.to_string_lossy().into_owned(),
        ..v1::Mount::default()
    };
    if let Some(hosts) = input.hosts.filter(|_| !own_hosts) {
        out.push(own(HOSTS, hosts));
    }
    if let (Some(file), Some(target)) = (input.termination, container.termination_message_path.as_deref()) {
        out.push(own(target, file));
    }
    Ok(out)
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn propagation(mount: &VolumeMount, container: &Container) -> Result<v1::MountPropagation, ConfigError> {
    let privileged = container.security_context.as_ref().and_then(|own| own.privileged).unwrap_or(false);
    match mount.mount_propagation.as_deref() {
        None | Some("None" | "") => Ok(v1::MountPropagation::PropagationPrivate),
        Some("HostToContainer") => Ok(v1::MountPropagation::PropagationHostToContainer),
        Some("Bidirectional") if privileged => Ok(v1::MountPropagation::PropagationBidirectional),
        Some("Bidirectional") => Err(ConfigError::new(format!(
            "volume {:?}: mount propagation Bidirectional is available only to privileged containers",
            mount.name
        ))),
        Some(other) => Err(ConfigError::new(format!("invalid MountPropagation mode: {other:?}"))),
    }
}

fn recursive(mount: &VolumeMount, supported: bool) -> Result<bool, ConfigError> {
    let refuse = |why: &str| {
        Err(ConfigError::new(format!(
            "failed to resolve recursive read-only mode: volume {:?} requested recursive read-only mode, but {why}",
            mount.name
        )))
    };
    let wish = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled" | "") => return Ok(false),
        Some(wish) => wish,
    };
    if !mount.read_only.unwrap_or(false) {
        return refuse("it is not read-only");
    }
    match mount.mount_propagation.as_deref() {
        None | Some("None" | "") => {}
        Some(other) => return refuse(&format!("it is not compatible with propagation {other:?}")),
    }
    match wish {
        "IfPossible" => Ok(supported),
        "Enabled" if supported => Ok(true),
        "Enabled" => refuse("it is not supported by the runtime"),
        other => refuse(&format!("{other:?} is no such mode")),
    }
}

/// Returns the path inside the volume that a mount wants, expanded and checked; `None` for the whole volume.
pub fn sub_path(mount: &VolumeMount, env: &[(String, String)]) -> Result<Option<PathBuf>, ConfigError> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let text = match given(&mount.sub_path_expr) {
        Some(expression) => {
            let lookup = |name: &str| env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
            expand::expand_strict(&expression, lookup).map_err(|error| ConfigError::new(error.to_string()))?
        }
        None => match given(&mount.sub_path) {
            Some(path) => path,
            None => return Ok(None),
        },
    };
    let path = PathBuf::from(&text);
    if path.is_absolute() {
        return Err(ConfigError::new(format!("error SubPath `{text}` must not be an absolute path")));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(ConfigError::new(format!("unable to provision SubPath `{text}`: must not contain '..'")));
    }
    Ok(Some(path))
}
