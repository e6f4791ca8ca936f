//! Ephemeral containers of a pod: added through a path of their own, never changed or taken away.

use serde_json::{Value, json};

use crate::apiserver::error::Cause;
use crate::apiserver::object::{list, text};

const PATH: &str = "spec.ephemeralContainers";

/// A pod cannot be born with guests.
pub(crate) fn at_birth(pod: &Value) -> Option<Cause> {
    (!list(pod, "/spec/ephemeralContainers").is_empty()).then(|| Cause::forbidden(PATH, "cannot be set on create"))
}

/// What may not be done to the guests of a pod.
pub(crate) fn causes(pod: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if pod.pointer("/metadata/annotations").and_then(|notes| notes.get("kubernetes.io/config.mirror")).is_some() {
        causes.push(Cause::forbidden("", "static pods do not support ephemeral containers"));
        return causes;
    }
    let now = list(pod, "/spec/ephemeralContainers");
    for (index, guest) in now.iter().enumerate() {
        let target = text(guest, "/targetContainerName");
        let known = ["/spec/containers", "/spec/initContainers"]
            .iter()
            .flat_map(|path| list(pod, path))
            .any(|container| text(container, "/name") == target);
        if !target.is_empty() && !known {
            causes.push(Cause::not_found(format!("{PATH}[{index}].targetContainerName"), &json!(target)));
        }
    }
    for before in list(old, "/spec/ephemeralContainers") {
        let name = text(before, "/name");
        match now.iter().find(|guest| text(guest, "/name") == name) {
            None => causes
                .push(Cause::forbidden(PATH, &format!("existing ephemeral containers {name:?} may not be removed\n"))),
            Some(guest) if guest != before => causes
                .push(Cause::forbidden(PATH, &format!("existing ephemeral containers {name:?} may not be changed\n"))),
            Some(_) => {}
        }
    }
    causes
}
