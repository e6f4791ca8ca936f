//! Sizes of a pod that runs: requests and limits of cpu and memory are changed through a path of their own.

use k8s_openapi::api::core::v1::PodSpec;
use longshore_api::qos;
use longshore_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::apiserver::error::Cause;
use crate::apiserver::object::{child, copy, list, text};

const LISTS: [&str; 2] = ["containers", "initContainers"];
const ONLY: &str = "only cpu and memory resources are mutable";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Takes of the sent object what this path may write; the rest of it does not count.
pub(crate) fn take_over(object: &mut Value, sent: &Value) {
    for name in LISTS {
        let path = format!("/spec/{name}");
        let own = object.pointer_mut(&path).and_then(Value::as_array_mut);
        for container in own.into_iter().flatten() {
            let same = list(sent, &path).iter().find(|other| other.get("name") == container.get("name"));
            if let (Some(container), Some(same)) = (container.as_object_mut(), same) {
                for key in ["resources", "resizePolicy"] {
                    copy(container, Some(same), key);
                }
            }
        }
    }
    copy(child(object, "spec"), sent.get("spec"), "resources");
}

/// What may not be done to the sizes of a pod. `sent` is the object as the client sent it.
pub(crate) fn causes(pod: &Value, old: &Value, sent: &Value) -> Vec<Cause> {
    if old.pointer("/metadata/annotations").and_then(|notes| notes.get(MIRROR)).is_some() {
        return vec![Cause::forbidden("", "static pods cannot be resized")];
    }
    if text(old, "/spec/os/name") == "windows" {
        return vec![Cause::forbidden("", "windows pods cannot be resized")];
    }
    let mut causes = Vec::new();
    let class = |pod: &Value| {
        pod.get("spec")
            .and_then(|spec| longshore_api::shape::read::<PodSpec>(spec).ok())
            .map(|spec| qos::compute(&spec))
    };
    let given = text(old, "/status/qosClass");
    let before = if given.is_empty() { class(old).map(qos::Qos::as_str) } else { Some(given) };
    if before != class(pod).map(qos::Qos::as_str) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        causes.push(Cause::invalid("spec", &json!(given), detail));
    }
    if !is_supported(old) {
        causes.push(Cause::forbidden("spec", "Pod running on node without support for resize"));
    }
    causes.extend(whole(pod, old));
    let order = order(sent, old);
    if !order.is_empty() {
        causes.extend(order);
        return causes;
    }
    causes.extend(of_containers(pod, old));
    causes
}

/// A node that shows no sizes of a running container cannot change them.
fn is_supported(old: &Value) -> bool {
    let running =
        list(old, "/status/containerStatuses").iter().find(|status| status.pointer("/state/running").is_some());
    running.is_none_or(|status| status.get("resources").is_some())
}

/// Containers stay the same ones in the same order.
fn order(sent: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in LISTS {
        let path = format!("/spec/{name}");
        let (new, old) = (list(sent, &path), list(old, &path));
        if new.len() != old.len() {
            let text = format!("{name} may not be added or removed on resize");
            causes.push(Cause::forbidden(format!("spec.{name}"), &text));
            continue;
        }
        for (index, (new, old)) in new.iter().zip(old).enumerate() {
            if new.get("name") != old.get("name") {
                let text = format!("{name} may not be renamed or reordered on resize");
                causes.push(Cause::forbidden(format!("spec.{name}[{index}].name"), &text));
            }
        }
    }
    causes
}

fn of_containers(pod: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in ["initContainers", "containers"] {
        let path = format!("/spec/{name}");
        for (index, (new, old)) in list(pod, &path).iter().zip(list(old, &path)).enumerate() {
            let at = format!("spec.{name}[{index}]");
            for side in ["requests", "limits"] {
                if is_less(new.pointer(&format!("/resources/{side}")), old.pointer(&format!("/resources/{side}"))) {
                    let text = format!("resource {side} cannot be removed");
                    causes.push(Cause::forbidden(format!("{at}.resources.{side}"), &text));
                }
            }
            let is_init = name == "initContainers";
            if fixed(new) != fixed(old) {
                causes.push(if is_init {
                    let text = "only cpu and memory resources for init or sidecar containers are mutable";
                    Cause::forbidden(at.clone(), text)
                } else {
                    Cause::forbidden("spec", ONLY)
                });
            }
            let restarts =
                list(new, "/resizePolicy").iter().any(|policy| text(policy, "/restartPolicy") == "RestartContainer");
            if is_init && restarts && text(new, "/restartPolicy") != "Always" && new != old {
                let text = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                causes.push(Cause::forbidden(at, text));
            }
        }
    }
    causes
}

/// The sizes of the pod as a whole.
fn whole(pod: &Value, old: &Value) -> Vec<Cause> {
    let (new, old) = (pod.pointer("/spec/resources"), old.pointer("/spec/resources"));
    let sides = |own: Option<&Value>| {
        amounts(own.and_then(|own| own.get("requests"))).len() + amounts(own.and_then(|own| own.get("limits"))).len()
    };
    if sides(new) + sides(old) == 0 {
        return Vec::new();
    }
    if old.is_some() && new.is_none() {
        return vec![Cause::forbidden("spec.resources", "pod-level resources cannot be removed")];
    }
    let mut causes = Vec::new();
    for side in ["requests", "limits"] {
        if is_less(new.and_then(|new| new.get(side)), old.and_then(|old| old.get(side))) {
            let text = format!("pod-level resource {side} cannot be removed");
            causes.push(Cause::forbidden(format!("spec.resources.{side}"), &text));
        }
    }
    if others(new) != others(old) {
        causes.push(Cause::forbidden("spec", "only cpu and memory resources are mutable at pod-level"));
    }
    causes
}

fn amounts(side: Option<&Value>) -> Map<String, Value> {
    side.and_then(Value::as_object).cloned().unwrap_or_default()
}

fn is_less(new: Option<&Value>, old: Option<&Value>) -> bool {
    let (new, old) = (amounts(new), amounts(old));
    old.keys().any(|name| !new.contains_key(name))
}

/// What of requests and limits is neither cpu nor memory, with amounts in one writing.
fn others(own: Option<&Value>) -> Value {
    let side = |name: &str| {
        let mut side = amounts(own.and_then(|own| own.get(name)));
        side.retain(|name, _| name != "cpu" && name != "memory");
        for amount in side.values_mut() {
            if let Some(one) = amount.as_str().and_then(|text| Quantity::parse(text).ok()) {
                *amount = json!(one.to_string());
            }
        }
        side
    };
    json!({"limits": side("limits"), "requests": side("requests"), "claims": own.and_then(|own| own.get("claims"))})
}

/// What of a container this path may not change.
fn fixed(container: &Value) -> Value {
    let mut fixed = container.clone();
    let own = others(container.get("resources"));
    if let Some(fixed) = fixed.as_object_mut() {
        fixed.insert("resources".to_owned(), own);
    }
    fixed
}
