//! Containers of all three kinds.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::environment::environment;
use super::handler::{lifecycle, probes};
use super::{Faults, flag, has, list, number, pod, text};
use crate::names;
use crate::quantity::Quantity;

/// What containers share.
pub(super) struct Place<'a> {
    /// Names of the pod's volumes.
    pub(super) volumes: &'a HashSet<&'a str>,
    /// Names used so far; one name space for all containers of a pod.
    pub(super) names: HashSet<String>,
    pub(super) host_network: bool,
}

pub(super) fn containers(spec: &Value, path: &str, kind: &str, place: &mut Place<'_>, faults: &mut Faults) {
    for (index, container) in list(spec, kind).iter().enumerate() {
        let path = format!("{path}.{kind}[{index}]");
        identity(container, &path, kind, place, faults);
        ports(container, &path, place, faults);
        environment(container, &path, faults);
        mounts(container, &path, place, faults);
        let policy = text(container, "imagePullPolicy");
        if !policy.is_empty() {
            faults.supported(format!("{path}.imagePullPolicy"), policy, &["Always", "IfNotPresent", "Never"]);
        }
        let policy = text(container, "terminationMessagePolicy");
        if !policy.is_empty() {
            let known = ["FallbackToLogsOnError", "File"];
            faults.supported(format!("{path}.terminationMessagePolicy"), policy, &known);
        }
        resources(container, &path, faults);
        security(container, &path, faults);
        let sidecar = text(container, "restartPolicy") == "Always";
        if kind == "containers" || (kind == "initContainers" && sidecar) {
            lifecycle(container, &path, faults);
            probes(container, &path, faults);
        } else {
            for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if has(container, key) {
                    let detail = if kind == "initContainers" {
                        "may not be set for init containers without restartPolicy=Always"
                    } else {
                        "cannot be set for an Ephemeral Container"
                    };
                    faults.forbidden(format!("{path}.{key}"), detail);
                }
            }
        }
        restart_policy(container, &path, faults);
    }
}

fn identity(container: &Value, path: &str, kind: &str, place: &mut Place<'_>, faults: &mut Faults) {
    let name = text(container, "name");
    if name.is_empty() {
        faults.required(format!("{path}.name"), "");
    } else {
        faults.name(format!("{path}.name"), name, names::dns1123_label);
        if !place.names.insert(name.to_owned()) {
            faults.duplicate(format!("{path}.name"), name);
        }
    }
    let image = text(container, "image");
    if image.is_empty() {
        faults.required(format!("{path}.image"), "");
    } else if image.trim() != image {
        faults.invalid_text(format!("{path}.image"), image, "must not have leading or trailing whitespace");
    }
    if kind == "ephemeralContainers" {
        for key in ["ports", "resources"] {
            if container.get(key).is_some_and(|value| !is_empty(value)) {
                faults.forbidden(format!("{path}.{key}"), "cannot be set for an Ephemeral Container");
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn restart_policy(container: &Value, path: &str, faults: &mut Faults) {
    let policy = text(container, "restartPolicy");
    if !policy.is_empty() {
        faults.supported(format!("{path}.restartPolicy"), policy, &["Always", "Never", "OnFailure"]);
    }
}

fn ports(container: &Value, path: &str, place: &Place<'_>, faults: &mut Faults) {
    let mut seen = HashSet::new();
    for (index, port) in list(container, "ports").iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        let name = text(port, "name");
        if !name.is_empty() {
            faults.name(format!("{path}.name"), name, names::port_name);
            if !seen.insert(name) {
                faults.duplicate(format!("{path}.name"), name);
            }
        }
        let own = number(port, "containerPort").unwrap_or(0);
        if own == 0 {
            faults.required(format!("{path}.containerPort"), "");
        } else {
            faults.port(format!("{path}.containerPort"), own);
        }
        if let Some(host) = number(port, "hostPort").filter(|host| *host != 0) {
            faults.port(format!("{path}.hostPort"), host);
            if place.host_network && host != own {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                faults.invalid(format!("{path}.hostPort"), &host.into(), detail);
            }
        }
        match text(port, "protocol") {
            "" => faults.required(format!("{path}.protocol"), ""),
            protocol => faults.supported(format!("{path}.protocol"), protocol, &["SCTP", "TCP", "UDP"]),
        }
    }
}

fn mounts(container: &Value, path: &str, place: &Place<'_>, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            faults.required(format!("{path}.name"), "");
        } else if !place.volumes.contains(name) {
            faults.not_found(format!("{path}.name"), name);
        }
        if target.is_empty() {
            faults.required(format!("{path}.mountPath"), "");
        } else if !seen.insert(target) {
            faults.invalid_text(format!("{path}.mountPath"), target, "must be unique");
        }
        let (plain, expanded) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        faults.relative_path(&format!("{path}.subPath"), plain);
        if !expanded.is_empty() {
            if !plain.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                faults.invalid_text(format!("{path}.subPathExpr"), expanded, detail);
            }
            faults.relative_path(&format!("{path}.subPathExpr"), expanded);
        }
        let propagation = text(mount, "mountPropagation");
        if !propagation.is_empty() {
            let known = ["Bidirectional", "HostToContainer", "None"];
            faults.supported(format!("{path}.mountPropagation"), propagation, &known);
            let privileged = container.get("securityContext").is_some_and(|context| flag(context, "privileged"));
            if propagation == "Bidirectional" && !privileged {
                let detail = "Bidirectional mount propagation is available only to privileged containers";
                faults.forbidden(format!("{path}.mountPropagation"), detail);
            }
        }
    }
}

fn resources(container: &Value, path: &str, faults: &mut Faults) {
    let resources = container.get("resources").unwrap_or(&Value::Null);
    let path = format!("{path}.resources");
    let read = |kind: &str, name: &str, faults: &mut Faults| -> Option<Quantity> {
        let value = text(resources.get(kind)?, name);
        match Quantity::parse(value) {
            Ok(quantity) if quantity.is_negative() => {
                let path = format!("{path}.{kind}[{name}]");
                faults.invalid_text(path, value, "must be greater than or equal to 0");
                None
            }
            Ok(quantity) => Some(quantity),
            Err(error) => {
                faults.invalid_text(format!("{path}.{kind}[{name}]"), value, &error.to_string());
                None
            }
        }
    };
    for kind in ["limits", "requests"] {
        for name in resources.get(kind).and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name) {
            let known = ["cpu", "memory", "ephemeral-storage"];
            if !name.contains('/') && !known.contains(&name.as_str()) && !name.starts_with("hugepages-") {
                let path = format!("{path}.{kind}[{name}]");
                faults.invalid_text(path, name, "must be a standard resource for containers");
                continue;
            }
            let Some(own) = read(kind, name, faults) else { continue };
            if kind != "requests" {
                continue;
            }
            let Some(limit) = resources.get("limits").map(|limits| text(limits, name)).filter(|text| !text.is_empty())
            else {
                continue;
            };
            if Quantity::parse(limit).is_ok_and(|limit| own.milli_value() > limit.milli_value()) {
                let value = resources.get(kind).map_or("", |requests| text(requests, name));
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                faults.invalid_text(format!("{path}.{kind}"), value, &detail);
            }
        }
    }
}

fn security(container: &Value, path: &str, faults: &mut Faults) {
    let context = container.get("securityContext").unwrap_or(&Value::Null);
    let path = format!("{path}.securityContext");
    for key in ["runAsUser", "runAsGroup"] {
        pod::ids(context, &path, key, faults);
    }
    let mount = text(context, "procMount");
    if !mount.is_empty() {
        faults.supported(format!("{path}.procMount"), mount, &["Default", "Unmasked"]);
    }
    if context.get("allowPrivilegeEscalation") == Some(&Value::Bool(false)) {
        if flag(context, "privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            faults.invalid_text(path.clone(), "context", detail);
        }
        let added = context.get("capabilities").map_or(&[] as &[Value], |capabilities| list(capabilities, "add"));
        if added.iter().any(|name| name == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            faults.invalid_text(path, "context", detail);
        }
    }
}
