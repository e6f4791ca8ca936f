//! What a typed encoder writes into a status although nobody set it.

use serde_json::{Value, json};

use super::{Object, objects};

pub(super) fn status(status: &mut Object) {
    for condition in objects(status, "conditions") {
        for key in ["lastProbeTime", "lastTransitionTime"] {
            condition.entry(key).or_insert(Value::Null);
        }
    }
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in objects(status, list) {
            for (key, value) in [
                ("image", json!("")),
                ("imageID", json!("")),
                ("lastState", json!({})),
                ("ready", json!(false)),
                ("restartCount", json!(0)),
                ("state", json!({})),
            ] {
                container.entry(key).or_insert(value);
            }
        }
    }
}
