//! What a stock apiserver fills into a pod before it stores it; static pods get the same from the agent.
//! Works on raw JSON so that fields of newer versions pass through untouched.

mod container;
mod pod_level;
mod status;
mod tidy;
mod volume;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// Fills the defaults of a pod in place. Running it twice changes nothing more; parts of a wrong type are left alone,
/// validation names them.
pub fn pod(pod: &mut Value) {
    tidy::pod(pod);
    if let Some(status) = child(pod, "status") {
        status::status(status);
    }
    let Some(spec) = child(pod, "spec") else { return };
    set(spec, "enableServiceLinks", || json!(true));
    common(spec);
    let host_network = spec.get("hostNetwork").and_then(Value::as_bool).unwrap_or(false);
    for list in ["containers", "initContainers"] {
        for container in objects(spec, list) {
            container::requests_from_limits(container);
            if host_network {
                container::host_ports(container);
            }
        }
    }
    pod_level::requests(spec);
}

/// Fills the defaults of a pod template in place: what a pod gets only when it is made of the template stays open.
pub fn template(template: &mut Value) {
    tidy::pod(template);
    if let Some(spec) = child(template, "spec") {
        common(spec);
    }
}

/// What templates and pods have in common.
fn common(spec: &mut Object) {
    set(spec, "dnsPolicy", || json!("ClusterFirst"));
    set(spec, "restartPolicy", || json!("Always"));
    set(spec, "schedulerName", || json!("default-scheduler"));
    set(spec, "terminationGracePeriodSeconds", || json!(30));
    set(spec, "securityContext", || json!({}));
    mirror_service_account(spec);
    for volume in objects(spec, "volumes") {
        volume::volume(volume);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        objects(spec, list).for_each(container::container);
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`; both are shown, the new one wins.
fn mirror_service_account(spec: &mut Object) {
    let name = ["serviceAccountName", "serviceAccount"]
        .iter()
        .find_map(|key| spec.get(*key).filter(|name| name.as_str().is_some_and(|name| !name.is_empty())))
        .cloned();
    if let Some(name) = name {
        spec.insert("serviceAccountName".to_owned(), name.clone());
        spec.insert("serviceAccount".to_owned(), name);
    }
}

/// Sets a field that is absent, null or an empty string.
fn set(object: &mut Object, key: &str, value: impl FnOnce() -> Value) {
    let missing = match object.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    };
    if missing {
        object.insert(key.to_owned(), value());
    }
}

/// Sets a number that is absent, null or zero.
fn set_number(object: &mut Object, key: &str, value: i64) {
    let missing = match object.get(key) {
        None | Some(Value::Null) => true,
        Some(number) => number.as_i64() == Some(0),
    };
    if missing {
        object.insert(key.to_owned(), json!(value));
    }
}

fn child<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Object> {
    value.as_object_mut()?.get_mut(key)?.as_object_mut()
}

fn field<'a>(object: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    object.get_mut(key)?.as_object_mut()
}

fn objects<'a>(object: &'a mut Object, key: &str) -> impl Iterator<Item = &'a mut Object> {
    object.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}
