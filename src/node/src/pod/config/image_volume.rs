//! Volumes that are images: mounted by the runtime itself, where it can. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, Volume};

use super::{ConfigError, SubPathKey, sub_path};

/// An image that serves as a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeImage {
    /// What the runtime resolved it to.
    pub reference: String,
    /// As the user wrote it.
    pub written: String,
}

/// An image volume at one place of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageMount {
    /// The image.
    pub image: VolumeImage,
    /// Folder inside the image; empty for the whole.
    pub sub_path: String,
}

/// The image volumes that a container mounts.
pub fn image_volumes<'a>(spec: &'a PodSpec, container: &Container) -> Vec<&'a Volume> {
    let mounted = |name: &str| container.volume_mounts.iter().flatten().any(|mount| mount.name == name);
    spec.volumes.iter().flatten().filter(|volume| volume.image.is_some() && mounted(&volume.name)).collect()
}

/// Where a container mounts which image, by the position of the mount; checks that the runtime can.
pub fn image_mounts(
    container: &Container,
    images: &BTreeMap<String, VolumeImage>,
    env: &[(String, String)],
    runtime: &str,
    version: &str,
) -> Result<BTreeMap<SubPathKey, ImageMount>, ConfigError> {
    let mut out = BTreeMap::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let Some(image) = images.get(&mount.name) else { continue };
        let sub_path = sub_path(mount, env)?.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        if let Some(why) = refusal(runtime, version, !sub_path.is_empty()) {
            return Err(ConfigError::new(format!("image volume {:?} cannot be mounted: {why}", mount.name)));
        }
        out.insert(index, ImageMount { image: image.clone(), sub_path });
    }
    Ok(out)
}

/// Major and minor.
type Version = (u32, u32);

/// First versions of runtimes that mount images, and folders of images. Others are taken at their word.
const MOUNTERS: [(&str, Version, Version); 2] = [("containerd", (2, 1), (2, 2)), ("cri-o", (1, 31), (1, 33))];

/// Why a runtime cannot mount an image; older ones would not refuse but mount something else.
fn refusal(name: &str, given: &str, with_sub_path: bool) -> Option<String> {
    let (_, whole, part) = MOUNTERS.iter().find(|(known, ..)| name.eq_ignore_ascii_case(known))?;
    let needed = if with_sub_path { part } else { whole };
    let own = version(given)?;
    let what = if with_sub_path { "a folder of an image (subPath)" } else { "images" };
    (own < *needed).then(|| format!("{name} {} cannot mount {what}, {name} {}.{} can", given, needed.0, needed.1))
}

/// Major and minor out of `v2.1.9+ds1` or `1.6.20~ds1`.
fn version(text: &str) -> Option<Version> {
    let mut parts = text.trim_start_matches('v').split('.');
    let major = parts.next()?.parse().ok()?;
    let minor: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
    Some((major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_runtimes_that_can_are_asked() {
        for (name, version, whole, part) in [
            ("containerd", "1.6.20~ds1", false, false),
            ("containerd", "v1.7.24", false, false),
            ("containerd", "2.1.9+ds1", true, false),
            ("containerd", "v2.2.0-rc.1", true, true),
            ("cri-o", "1.30.1", false, false),
            ("cri-o", "1.31.0", true, false),
            ("cri-o", "1.34.2", true, true),
            ("other", "0.1", true, true),
            ("containerd", "unknown", true, true),
        ] {
            assert_eq!(refusal(name, version, false).is_none(), whole, "{name} {version}");
            assert_eq!(refusal(name, version, true).is_none(), part, "{name} {version} subPath");
        }
    }

    #[test]
    fn a_mount_carries_the_image_and_the_folder() {
        let container: Container = serde_json::from_value(json!({"name": "c", "volumeMounts": [
            {"name": "other", "mountPath": "/o"}, {"name": "v", "mountPath": "/v"},
            {"name": "v", "mountPath": "/w", "subPathExpr": "a/$(X)"},
        ]}))
        .unwrap();
        let image = VolumeImage { reference: "sha256:1".into(), written: "reg/a:1".into() };
        let images = BTreeMap::from([("v".to_owned(), image.clone())]);
        let env = [("X".to_owned(), "b".to_owned())];
        let made = image_mounts(&container, &images, &env, "containerd", "2.2.0").unwrap();
        assert_eq!(made[&1], ImageMount { image: image.clone(), sub_path: String::new() });
        assert_eq!(made[&2].sub_path, "a/b");
        assert_eq!(made.len(), 2);
        let error = image_mounts(&container, &images, &env, "containerd", "2.1.9").unwrap_err();
        assert_eq!(
            error.message,
            "image volume \"v\" cannot be mounted: containerd 2.1.9 cannot mount a folder of an image (subPath), containerd 2.2 can"
        );
    }
}
