//! Defaults of one container, init container or ephemeral container.

use serde_json::{Value, json};

use super::{Object, field, objects, set, set_number};
use crate::image_name;

pub(super) fn container(container: &mut Object) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = image_name::default_pull_policy(image);
    set(container, "imagePullPolicy", || json!(policy));
    set(container, "terminationMessagePath", || json!("/dev/termination-log"));
    set(container, "terminationMessagePolicy", || json!("File"));
    set(container, "resources", || json!({}));
    for port in objects(container, "ports") {
        set(port, "protocol", || json!("TCP"));
    }
    for variable in objects(container, "env") {
        if let Some(source) = field(variable, "valueFrom") {
            value_source(source);
            if let Some(file) = field(source, "fileKeyRef") {
                set(file, "optional", || json!(false));
            }
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = field(container, key) {
            set_number(probe, "timeoutSeconds", 1);
            set_number(probe, "periodSeconds", 10);
            set_number(probe, "successThreshold", 1);
            set_number(probe, "failureThreshold", 3);
            handler(probe);
            if let Some(grpc) = field(probe, "grpc") {
                set(grpc, "service", || json!(""));
            }
        }
    }
    if let Some(lifecycle) = field(container, "lifecycle") {
        for key in ["postStart", "preStop"] {
            if let Some(hook) = field(lifecycle, key) {
                handler(hook);
            }
        }
    }
}

/// Defaults of `fieldRef` and `resourceFieldRef`, in variables and in volume items alike.
pub(super) fn value_source(source: &mut Object) {
    if let Some(reference) = field(source, "fieldRef") {
        set(reference, "apiVersion", || json!("v1"));
    }
    if let Some(reference) = field(source, "resourceFieldRef") {
        set(reference, "divisor", || json!("0"));
    }
}

fn handler(handler: &mut Object) {
    if let Some(get) = field(handler, "httpGet") {
        set(get, "path", || json!("/"));
        set(get, "scheme", || json!("HTTP"));
    }
}

/// A limit without a request is also the request.
pub(super) fn requests_from_limits(container: &mut Object) {
    let Some(resources) = field(container, "resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if limits.is_empty() {
        return;
    }
    set(resources, "requests", || json!({}));
    let Some(requests) = field(resources, "requests") else { return };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// In the host's network a container port is a host port.
pub(super) fn host_ports(container: &mut Object) {
    for port in objects(container, "ports") {
        if let Some(number) = port.get("containerPort").and_then(Value::as_i64) {
            set_number(port, "hostPort", number);
        }
    }
}
