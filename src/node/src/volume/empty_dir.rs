//! Folders that live as long as their pod, on disk or in memory. Blocking.

use std::path::Path;

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, PodSpec, Volume};
use longshore_api::quantity::Quantity;
use longshore_api::resources::{self, Amounts, MEMORY, Side};
use longshore_host::path::{self, GroupMask};

use super::Mounter;

const MODE: u32 = 0o777;

/// What an empty folder is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Medium {
    Disk,
    Memory { size: Option<u64> },
    HugePages { page_size: u64 },
}

/// Reads the medium; memory is bounded by the volume's own limit, the pod's and what the node gives.
pub(super) fn medium(source: &EmptyDirVolumeSource, spec: &PodSpec, allocatable: &Amounts) -> Result<Medium, String> {
    match source.medium.as_deref().unwrap_or_default() {
        "" => Ok(Medium::Disk),
        "Memory" => {
            let own = source.size_limit.as_ref().and_then(|raw| Quantity::try_from(raw).ok());
            Ok(Medium::Memory { size: memory_bound(own, spec, allocatable) })
        }
        other => match other.strip_prefix("HugePages") {
            Some(size) => Ok(Medium::HugePages { page_size: page_size(size.trim_start_matches('-'), spec)? }),
            None => Err(format!("unknown storage medium {other:?}")),
        },
    }
}

/// Says whether what a pod writes into the volume takes memory.
pub(super) fn is_in_memory(volume: &Volume) -> bool {
    volume.empty_dir.as_ref().is_some_and(|source| source.medium.as_deref() == Some("Memory"))
}

/// The smallest of the bounds that are set.
pub(super) fn memory_bound(own: Option<Quantity>, spec: &PodSpec, allocatable: &Amounts) -> Option<u64> {
    let pod = resources::pod(spec, Side::Limits).get(MEMORY).copied();
    let bounded = pod.filter(|_| all_bound(spec));
    [own, bounded, allocatable.get(MEMORY).copied()]
        .into_iter()
        .flatten()
        .map(|bound| bound.value())
        .filter(|bound| *bound > 0)
        .min()
        .and_then(|bound| u64::try_from(bound).ok())
}

/// The sum of limits bounds the pod only if no container is without one.
fn all_bound(spec: &PodSpec) -> bool {
    let own =
        spec.resources.as_ref().and_then(|own| own.limits.as_ref()).is_some_and(|limits| limits.contains_key(MEMORY));
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    own || containers.all(|container| resources::of_container(container, Side::Limits).contains_key(MEMORY))
}

fn page_size(text: &str, spec: &PodSpec) -> Result<u64, String> {
    let parse = |text: &str| {
        Quantity::parse(text).ok().and_then(|size| u64::try_from(size.value()).ok()).filter(|size| *size > 0)
    };
    if !text.is_empty() {
        return parse(text).ok_or_else(|| format!("{text:?} is no size of huge pages"));
    }
    let asked = resources::pod(spec, Side::Requests);
    let mut sizes = asked.keys().filter_map(|name| name.strip_prefix("hugepages-"));
    match (sizes.next(), sizes.next()) {
        (Some(one), None) => parse(one).ok_or_else(|| format!("{one:?} is no size of huge pages")),
        (None, _) => Err("medium HugePages needs a request for huge pages".to_owned()),
        (Some(_), Some(_)) => Err("medium HugePages is not clear: more than one size is requested".to_owned()),
    }
}

/// Makes the folder; called again it changes nothing. `ready` is the marker that stands once the folder is complete.
pub(super) fn set_up(
    mounter: &dyn Mounter,
    folder: &Path,
    ready: &Path,
    medium: &Medium,
    group: Option<u32>,
) -> Result<(), String> {
    let text = |error: &dyn std::error::Error| chain(error);
    match medium {
        Medium::Disk => {
            if ready.exists() && folder.is_dir() {
                return Ok(());
            }
            path::make_dir(folder, MODE).map_err(|error| text(&error))?;
        }
        Medium::Memory { .. } | Medium::HugePages { .. } => {
            // What is mounted has a mode of its own.
            if mounter.is_mount_point(folder).map_err(|error| text(&error))? {
                return Ok(());
            }
            path::make_dir(folder, MODE).map_err(|error| text(&error))?;
            match medium {
                Medium::Memory { size } => mounter.tmpfs(folder, *size),
                Medium::HugePages { page_size } => mounter.huge_pages(folder, *page_size),
                Medium::Disk => Ok(()),
            }
            .map_err(|error| text(&error))?;
        }
    }
    if let Some(group) = group {
        path::own_tree(folder, group, GroupMask::ReadWrite).map_err(|error| text(&error))?;
    }
    mark(ready)
}

/// Leaves the marker that upstream's agent looks for as well.
pub(super) fn mark(ready: &Path) -> Result<(), String> {
    if ready.exists() {
        return Ok(());
    }
    if let Some(parent) = ready.parent() {
        path::make_dir(parent, 0o750).map_err(|error| chain(&error))?;
    }
    std::fs::File::create(ready).map(drop).map_err(|error| format!("mark {}: {error}", ready.display()))
}

/// An error with its causes in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn medium_of(source: Value, containers: Value) -> Result<Medium, String> {
        let spec: PodSpec = serde_json::from_value(json!({"containers": containers})).unwrap();
        let node = Amounts::from([(MEMORY.to_owned(), Quantity::parse("8Gi").unwrap())]);
        medium(&serde_json::from_value(source).unwrap(), &spec, &node)
    }

    #[test]
    fn memory_takes_the_smallest_bound() {
        let limit = json!([{"name": "c", "resources": {"limits": {"memory": "64Mi"}}}]);
        let half = json!([{"name": "c", "resources": {"limits": {"memory": "64Mi"}}}, {"name": "d"}]);
        let size = |source: Value, containers: &Value| match medium_of(source, containers.clone()).unwrap() {
            Medium::Memory { size } => size.unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(size(json!({"medium": "Memory"}), &limit), 64 << 20);
        assert_eq!(size(json!({"medium": "Memory"}), &half), 8 << 30);
        assert_eq!(size(json!({"medium": "Memory", "sizeLimit": "1Mi"}), &limit), 1 << 20);
        assert_eq!(medium_of(json!({}), limit), Ok(Medium::Disk));
    }

    #[test]
    fn huge_pages_need_one_clear_size() {
        let one = json!([{"name": "c", "resources": {"requests": {"hugepages-2Mi": "4Mi"}}}]);
        assert_eq!(
            medium_of(json!({"medium": "HugePages"}), one.clone()),
            Ok(Medium::HugePages { page_size: 2 << 20 })
        );
        assert_eq!(medium_of(json!({"medium": "HugePages-1Gi"}), one), Ok(Medium::HugePages { page_size: 1 << 30 }));
        assert!(medium_of(json!({"medium": "HugePages"}), json!([{"name": "c"}])).is_err());
        assert!(medium_of(json!({"medium": "Floppy"}), json!([])).is_err());
    }
}
