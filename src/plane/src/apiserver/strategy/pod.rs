//! Pods: what is set at birth, what may change later, how long a deletion waits.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::Strategy;
use crate::apiserver::error::Cause;
use crate::apiserver::object::{child, copy, list, text};
use crate::apiserver::rules;

#[derive(Debug)]
pub(crate) struct Pods;

const IMMUTABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

impl Strategy for Pods {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<Pod>(object)
    }

    fn defaults(&self, object: &mut Value) {
        longshore_api::defaults::pod(object);
        // The stock server shows these two times even when they are unset.
        for condition in object.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(condition) = condition.as_object_mut() {
                condition.entry("lastProbeTime").or_insert(Value::Null);
                condition.entry("lastTransitionTime").or_insert(Value::Null);
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        if let Some(pod) = object.as_object_mut() {
            // What a client sends as status, a class included, does not count at birth.
            pod.remove("status");
        }
        let class = rules::qos(object);
        object["status"] = json!({"phase": "Pending", "qosClass": class});
    }

    fn prepare_status(&self, object: &mut Value, old: &Value) {
        copy(child(object, "metadata"), old.get("metadata"), "ownerReferences");
        // The class follows from the spec and never changes; a status without it keeps it.
        let class = old.pointer("/status/qosClass").cloned();
        if let Some(class) = class {
            let status = child(object, "status");
            status.entry("qosClass").or_insert(class);
        }
    }

    fn validate(&self, object: &Value) -> Vec<Cause> {
        rules::pod_causes(object)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<Cause> {
        let same = masked(object, old) == masked(old, old);
        let mut causes = Vec::new();
        if !same {
            causes.push(Cause::forbidden("spec", IMMUTABLE));
        }
        if !tolerations_only_grow(object, old) {
            causes.push(Cause::forbidden(
                "spec.tolerations",
                "existing toleration can not be modified except its tolerationSeconds",
            ));
        }
        causes
    }
}

/// Returns the specification without what may change.
fn masked(pod: &Value, old: &Value) -> Value {
    let mut spec = pod.get("spec").cloned().unwrap_or_default();
    for containers in ["containers", "initContainers"] {
        for container in spec.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
            container["image"] = Value::Null;
        }
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("activeDeadlineSeconds");
        spec.remove("tolerations");
        // Written through paths of their own; an update may not bring them.
        let negative = old.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) < 0;
        if negative && spec.get("terminationGracePeriodSeconds") == Some(&json!(1)) {
            copy(spec, old.get("spec"), "terminationGracePeriodSeconds");
        }
    }
    spec
}

fn tolerations_only_grow(object: &Value, old: &Value) -> bool {
    let bare = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(map) = toleration.as_object_mut() {
            map.remove("tolerationSeconds");
        }
        toleration
    };
    let now: Vec<Value> = list(object, "/spec/tolerations").iter().map(bare).collect();
    list(old, "/spec/tolerations").iter().all(|toleration| now.contains(&bare(toleration)))
}

/// Returns the seconds that a deletion of this pod waits: 0 if no agent has it or nothing of it runs any more.
pub(crate) fn grace_of(pod: &Value, wanted: Option<i64>) -> i64 {
    let own = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    let grace = wanted.unwrap_or(own);
    if text(pod, "/spec/nodeName").is_empty() || matches!(text(pod, "/status/phase"), "Failed" | "Succeeded") {
        return 0;
    }
    if grace < 0 { 1 } else { grace }
}
