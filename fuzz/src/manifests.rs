//! Manifests of static pods, as the agent reads them from a file.

use longshore_node::source::read_manifest;
use longshore_util::yaml;

const NODE: &str = "n1";
const ORIGIN: &str = "file:/etc/kubernetes/manifests/a.yaml";

/// Runs the target.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let made = read_manifest(text, NODE, ORIGIN);
    assert_eq!(made, read_manifest(text, NODE, ORIGIN), "one manifest, two pods");
    drop(yaml::documents(text));
    let pod = match made {
        Ok(pod) => pod,
        Err(error) => {
            assert!(!error.is_empty(), "refused without a word");
            return assert!(!error.contains(char::is_control), "more than a line of a log: {error:?}");
        }
    };
    // These become parts of paths.
    let parts = [&pod.metadata.name, &pod.metadata.namespace, &pod.metadata.uid];
    for part in parts {
        let part = part.as_deref().unwrap_or_default();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
        let is_safe = !part.is_empty() && part.len() <= 253 && part.chars().all(plain) && !part.starts_with('.');
        assert!(is_safe, "{part:?} is no part of a path");
    }
    let spec = pod.spec.unwrap_or_default();
    assert_eq!(spec.node_name.as_deref(), Some(NODE));
    assert!(!spec.containers.is_empty(), "a pod without containers");
    for container in &spec.containers {
        assert!(
            !container.name.contains('/') && !container.name.is_empty(),
            "{:?} is no part of a path",
            container.name
        );
    }
    // What was read can be written, and is the same pod then.
    let Ok(value) = yaml::to_value(text) else { return };
    for written in [yaml::to_string(&value).ok(), Some(value.to_string())].into_iter().flatten() {
        match read_manifest(&written, NODE, ORIGIN) {
            Ok(again) => assert_eq!(again.metadata.uid, pod.metadata.uid, "written anew: {written}"),
            Err(error) => panic!("written anew it is refused: {error}: {written}"),
        }
    }
}
