//! Limit ranges: pods get the defaults of their namespace, and what asks for too little or too much is refused.

use std::collections::BTreeMap;

use longshore_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::apiserver::error::ApiError;
use crate::apiserver::object::{child, list, meta, metadata, text};
use crate::apiserver::registry::Registry;
use crate::apiserver::resources::{LIMITRANGES, PERSISTENTVOLUMECLAIMS, PODS, Resource};

/// Says what was set.
const NOTE: &str = "kubernetes.io/limit-ranger";

type Amounts = BTreeMap<String, Quantity>;

/// Applies the ranges of an object's namespace to a new pod or claim.
pub(super) fn create(registry: &Registry, resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
    let namespace = meta(object, "namespace").to_owned();
    if registry.count(&LIMITRANGES, &namespace) == 0 {
        return Ok(());
    }
    let (ranges, _) = registry.list_values(&LIMITRANGES, &namespace)?;
    let limits: Vec<&Value> = ranges.iter().flat_map(|range| list(range, "/spec/limits")).collect();
    let mut faults = Vec::new();
    if std::ptr::eq(resource, &PODS) {
        set_defaults(object, &limits);
        check_pod(object, &limits, &mut faults);
    } else if std::ptr::eq(resource, &PERSISTENTVOLUMECLAIMS) {
        let requests = amounts(object, "/spec/resources/requests");
        for limit in limits.iter().filter(|limit| text(limit, "/type") == "PersistentVolumeClaim") {
            check_requests(limit, &requests, &mut faults);
        }
    }
    let text = match faults.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    Err(ApiError::forbidden(resource, meta(object, "name"), &text))
}

fn amounts(of: &Value, pointer: &str) -> Amounts {
    let map = of.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    map.filter_map(|(name, value)| Some((name.clone(), Quantity::parse(value.as_str()?).ok()?))).collect()
}

fn set_defaults(pod: &mut Value, limits: &[&Value]) {
    let mut notes: Vec<String> = Vec::new();
    for limit in limits.iter().filter(|limit| text(limit, "/type") == "Container") {
        for (containers, what) in [("containers", "container"), ("initContainers", "init container")] {
            let spec = child(pod, "spec");
            for container in spec.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
                let name = text(container, "/name").to_owned();
                for (key, from, word) in [("requests", "defaultRequest", "request"), ("limits", "default", "limit")] {
                    let set = fill(container, key, limit.get(from).and_then(Value::as_object));
                    if !set.is_empty() {
                        notes.push(format!("{} {word} for {what} {name}", set.join(", ")));
                    }
                }
            }
        }
    }
    if !notes.is_empty() {
        let annotations = metadata(pod).entry("annotations").or_insert_with(|| json!({}));
        annotations[NOTE] = json!(format!("LimitRanger plugin set: {}", notes.join("; ")));
    }
}

/// Sets what a container does not say. Returns the names of what was set.
fn fill(container: &mut Value, key: &str, defaults: Option<&Map<String, Value>>) -> Vec<String> {
    let mut set = Vec::new();
    for (name, value) in defaults.into_iter().flatten() {
        let resources = child(container, "resources").entry(key).or_insert_with(|| json!({}));
        if let Some(resources) = resources.as_object_mut()
            && !resources.contains_key(name)
        {
            resources.insert(name.clone(), value.clone());
            set.push(name.clone());
        }
    }
    set
}

fn check_pod(pod: &Value, limits: &[&Value], faults: &mut Vec<String>) {
    for limit in limits {
        match text(limit, "/type") {
            "Container" => {
                for container in ["/spec/containers", "/spec/initContainers"].iter().flat_map(|path| list(pod, path)) {
                    let requests = amounts(container, "/resources/requests");
                    check(limit, &requests, &amounts(container, "/resources/limits"), faults);
                }
            }
            "Pod" => check(limit, &total(pod, "requests"), &total(pod, "limits"), faults),
            _ => {}
        }
    }
}

/// What all containers of a pod ask for: the sum of those that run together, or the most that one alone needs before.
fn total(pod: &Value, key: &str) -> Amounts {
    let pointer = format!("/resources/{key}");
    let mut total = Amounts::new();
    for container in list(pod, "/spec/containers") {
        for (name, amount) in amounts(container, &pointer) {
            let sum = total.get(&name).map_or(amount, |sum| sum.plus(&amount));
            total.insert(name, sum);
        }
    }
    for container in list(pod, "/spec/initContainers") {
        for (name, amount) in amounts(container, &pointer) {
            let most = total.get(&name).filter(|sum| **sum >= amount).copied();
            total.insert(name, most.unwrap_or(amount));
        }
    }
    total
}

fn check(limit: &Value, requests: &Amounts, limits: &Amounts, faults: &mut Vec<String>) {
    let kind = text(limit, "/type");
    for (name, least) in amounts(limit, "/min") {
        let start = format!("minimum {name} usage per {kind} is {least}");
        match (requests.get(&name), limits.get(&name)) {
            (None, _) => faults.push(format!("{start}.  No request is specified")),
            (Some(own), _) if *own < least => faults.push(format!("{start}, but request is {own}")),
            (Some(_), Some(own)) if *own < least => faults.push(format!("{start}, but limit is {own}")),
            _ => {}
        }
    }
    for (name, most) in amounts(limit, "/max") {
        let start = format!("maximum {name} usage per {kind} is {most}");
        match (limits.get(&name), requests.get(&name)) {
            (None, _) => faults.push(format!("{start}.  No limit is specified")),
            (Some(own), _) if *own > most => faults.push(format!("{start}, but limit is {own}")),
            (Some(_), Some(own)) if *own > most => faults.push(format!("{start}, but request is {own}")),
            _ => {}
        }
    }
    for (name, ratio) in amounts(limit, "/maxLimitRequestRatio") {
        let start = format!("{name} max limit to request ratio per {kind} is {ratio}, but");
        let request = requests.get(&name).filter(|own| !own.is_zero());
        match (request, limits.get(&name).filter(|own| !own.is_zero())) {
            (None, _) => faults.push(format!("{start} no request is specified or request is 0")),
            (_, None) => faults.push(format!("{start} no limit is specified or limit is 0")),
            (Some(request), Some(own)) => {
                let (own, request) = (i128::from(own.milli_value()), i128::from(request.milli_value()));
                if own * 1000 > request * i128::from(ratio.milli_value()) {
                    let thousands = own * 1_000_000 / request;
                    let text =
                        format!("{start} provided ratio is {}.{:06}", thousands / 1_000_000, thousands % 1_000_000);
                    faults.push(text);
                }
            }
        }
    }
}

/// Claims have requests only.
fn check_requests(limit: &Value, requests: &Amounts, faults: &mut Vec<String>) {
    let kind = text(limit, "/type");
    for (name, own) in requests {
        if let Some(least) = amounts(limit, "/min").get(name).filter(|least| own < *least) {
            faults.push(format!("minimum {name} usage per {kind} is {least}, but request is {own}"));
        }
        if let Some(most) = amounts(limit, "/max").get(name).filter(|most| own > *most) {
            faults.push(format!("maximum {name} usage per {kind} is {most}, but request is {own}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(resources: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[test]
    fn a_pod_gets_what_it_does_not_say_and_is_told_so() {
        let limit =
            json!({"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}});
        let mut pod = pod(json!({"limits": {"cpu": "2"}}));
        set_defaults(&mut pod, &[&limit]);
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "100m"}})
        );
        assert_eq!(
            pod["metadata"]["annotations"][NOTE],
            "LimitRanger plugin set: cpu request for container c; memory limit for container c"
        );
    }

    #[test]
    fn too_little_and_too_much_are_refused_in_words() {
        let limit = json!({"type": "Container", "min": {"cpu": "100m"}, "max": {"memory": "1Gi"},
            "maxLimitRequestRatio": {"cpu": "2"}});
        for (resources, want) in [
            (json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "1Gi"}}), vec![]),
            (
                json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "100m", "memory": "2Gi"}}),
                vec![
                    "minimum cpu usage per Container is 100m, but request is 50m",
                    "maximum memory usage per Container is 1Gi, but limit is 2Gi",
                ],
            ),
            (
                json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "300m", "memory": "1Gi"}}),
                vec!["cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"],
            ),
            (
                json!({"limits": {"memory": "1Gi"}}),
                vec![
                    "minimum cpu usage per Container is 100m.  No request is specified",
                    "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
                ],
            ),
        ] {
            let mut faults = Vec::new();
            check_pod(&pod(resources), &[&limit], &mut faults);
            assert_eq!(faults, want);
        }
    }
}
