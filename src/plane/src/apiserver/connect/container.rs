//! Which of a pod's containers is meant.

use serde_json::Value;

use crate::apiserver::error::ApiError;
use crate::apiserver::object::{list, meta, text};

/// Annotation that names the container that tools take when none is named.
const DEFAULT: &str = "kubectl.kubernetes.io/default-container";

/// Returns the container that is named, or the one that is meant when none is.
pub(super) fn choose(pod: &Value, named: &str) -> Result<String, ApiError> {
    let pod_name = meta(pod, "name");
    let names = |pointer: &str| -> Vec<&str> { list(pod, pointer).iter().map(|one| text(one, "/name")).collect() };
    let (containers, init, ephemeral) =
        (names("/spec/containers"), names("/spec/initContainers"), names("/spec/ephemeralContainers"));
    if !named.is_empty() {
        if [&containers, &init, &ephemeral].iter().any(|names| names.contains(&named)) {
            return Ok(named.to_owned());
        }
        return Err(ApiError::bad_request(format!("container {named} is not valid for pod {pod_name}")));
    }
    if let [only] = containers.as_slice() {
        return Ok((*only).to_owned());
    }
    let noted = pod.pointer("/metadata/annotations").and_then(|notes| notes.get(DEFAULT)).and_then(Value::as_str);
    if let Some(noted) = noted.filter(|noted| containers.contains(noted)) {
        return Ok(noted.to_owned());
    }
    let mut message = format!("a container name must be specified for pod {pod_name}");
    if !containers.is_empty() {
        message = format!("{message}, choose one of: [{}]", containers.join(" "));
    }
    for (what, names) in [("init", init), ("ephemeral", ephemeral)] {
        if !names.is_empty() {
            message = format!("{message} or one of the {what} containers: [{}]", names.join(" "));
        }
    }
    Err(ApiError::bad_request(message))
}
