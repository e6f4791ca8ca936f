//! One container of any list.

use std::collections::BTreeSet;

use serde_json::Value;

use super::report::Report;
use super::{env, flag, items, number, part, probe, resources, spec, text, volume};
use crate::names;

/// The list in which a container stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    App,
    Init,
    Ephemeral,
}

/// Names that must be known or unique in the whole pod.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) volumes: BTreeSet<String>,
    pub(super) containers: BTreeSet<String>,
    pub(super) ports: BTreeSet<String>,
}

pub(super) fn container(container: &Value, path: &str, kind: Kind, pod: &Value, known: &mut Names, out: &mut Report) {
    let name = text(container, "name");
    let at = format!("{path}.name");
    if name.is_empty() {
        out.required(at.as_str(), "");
    } else {
        out.texts(&at, name, names::dns1123_label(name));
    }
    let image = text(container, "image");
    if image.is_empty() {
        out.required(format!("{path}.image"), "");
    } else if image.trim() != image {
        out.invalid(format!("{path}.image"), image, "must not have leading or trailing whitespace");
    }
    let restart = text(container, "restartPolicy");
    if !restart.is_empty() {
        if kind == Kind::Ephemeral {
            out.forbidden(format!("{path}.restartPolicy"), "may not be set for ephemeral containers");
        } else if !["Always", "Never", "OnFailure"].contains(&restart) {
            out.unsupported(format!("{path}.restartPolicy"), restart, &["Always", "Never", "OnFailure"]);
        }
    }
    if !name.is_empty() && !known.containers.insert(name.to_owned()) {
        out.duplicate(at, name);
    }
    limits_of_kind(container, path, kind, restart, out);
    ports(container, path, kind, pod, known, out);
    env::variables(container, path, known, out);
    mounts(container, path, known, out);
    probe::hooks(container, path, pod, out);
    probe::probes(container, path, out);
    let policy = text(container, "imagePullPolicy");
    out.one_of(format!("{path}.imagePullPolicy"), policy, &["Always", "IfNotPresent", "Never"]);
    let message = text(container, "terminationMessagePolicy");
    if !message.is_empty() {
        out.one_of(format!("{path}.terminationMessagePolicy"), message, &["FallbackToLogsOnError", "File"]);
    }
    resources::container(container, path, out);
    let never = text(pod, "restartPolicy") == "Never" && restart != "Always";
    resources::policies(container, path, never, out);
    security(container, path, out);
}

/// What plain init containers and ephemeral ones may not have.
fn limits_of_kind(container: &Value, path: &str, kind: Kind, restart: &str, out: &mut Report) {
    let hooks = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
    match kind {
        Kind::Init if restart != "Always" => {
            for key in hooks.into_iter().filter(|key| part(container, key).is_some()) {
                out.forbidden(
                    format!("{path}.{key}"),
                    "may not be set for init containers without restartPolicy=Always",
                );
            }
        }
        Kind::Ephemeral => {
            for key in hooks.into_iter().chain(["ports"]).filter(|key| part(container, key).is_some()) {
                out.forbidden(format!("{path}.{key}"), "cannot be set for an Ephemeral Container");
            }
        }
        Kind::App | Kind::Init => {}
    }
}

fn ports(container: &Value, path: &str, kind: Kind, pod: &Value, known: &mut Names, out: &mut Report) {
    let mut own = BTreeSet::new();
    for (path, port) in items(container, path, "ports") {
        let name = text(port, "name");
        if !name.is_empty() {
            let faults = names::port_name(name);
            if faults.is_empty() && !own.insert(name) {
                out.duplicate(format!("{path}.name"), name);
            }
            out.texts(&format!("{path}.name"), name, faults);
        }
        let (inner, outer) = (number(port, "containerPort").unwrap_or(0), number(port, "hostPort").unwrap_or(0));
        if inner == 0 {
            out.required(format!("{path}.containerPort"), "");
        } else {
            for detail in names::port_number(inner) {
                out.invalid(format!("{path}.containerPort"), inner, &detail);
            }
        }
        let protocol = text(port, "protocol");
        if outer != 0 {
            for detail in names::port_number(outer) {
                out.invalid(format!("{path}.hostPort"), outer, &detail);
            }
            let place = format!("{protocol}/{}/{outer}", text(port, "hostIP"));
            // Init containers of before are gone when the next one runs.
            if kind == Kind::App && !known.ports.insert(place.clone()) {
                out.duplicate(format!("{path}.hostPort"), place);
            }
        }
        if flag(pod, "hostNetwork") && outer != inner {
            out.invalid(format!("{path}.containerPort"), inner, "must match `hostPort` when `hostNetwork` is true");
        }
        out.one_of(format!("{path}.protocol"), protocol, &["SCTP", "TCP", "UDP"]);
    }
}

fn mounts(container: &Value, path: &str, known: &Names, out: &mut Report) {
    let mut places = BTreeSet::new();
    let privileged = part(container, "securityContext").is_some_and(|own| flag(own, "privileged"));
    for (path, mount) in items(container, path, "volumeMounts") {
        let (name, place) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            out.required(format!("{path}.name"), "");
        } else if !known.volumes.contains(name) {
            out.not_found(format!("{path}.name"), name);
        }
        if place.is_empty() {
            out.required(format!("{path}.mountPath"), "");
        } else if !places.insert(place) {
            out.invalid(format!("{path}.mountPath"), place, "must be unique");
        }
        let (fixed, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        volume::local_path(&format!("{path}.subPath"), fixed, out);
        if !expression.is_empty() {
            if !fixed.is_empty() {
                out.invalid(
                    format!("{path}.subPathExpr"),
                    expression,
                    "subPathExpr and subPath are mutually exclusive",
                );
            }
            volume::local_path(&format!("{path}.subPathExpr"), expression, out);
        }
        let propagation = text(mount, "mountPropagation");
        if propagation == "Bidirectional" && !privileged {
            let detail = "Bidirectional mount propagation is available only to privileged containers";
            out.forbidden(format!("{path}.mountPropagation"), detail);
        } else if !["", "Bidirectional", "HostToContainer", "None"].contains(&propagation) {
            let known = ["Bidirectional", "HostToContainer", "None"];
            out.unsupported(format!("{path}.mountPropagation"), propagation, &known);
        }
    }
}

fn security(container: &Value, path: &str, out: &mut Report) {
    let Some(own) = part(container, "securityContext") else { return };
    let at = format!("{path}.securityContext");
    for key in ["runAsUser", "runAsGroup"] {
        spec::id(&format!("{at}.{key}"), number(own, key), out);
    }
    let mount = text(own, "procMount");
    if !["", "Default", "Unmasked"].contains(&mount) {
        out.unsupported(format!("{at}.procMount"), mount, &["Default", "Unmasked"]);
    }
    if own.get("allowPrivilegeEscalation").and_then(Value::as_bool) == Some(false) && flag(own, "privileged") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        out.invalid(at.as_str(), own.clone(), detail);
    }
    profiles(own, &at, out);
}

/// Profiles on the node are named by a path that must stay below the folder of profiles.
pub(super) fn profiles(own: &Value, at: &str, out: &mut Report) {
    for key in ["seccompProfile", "appArmorProfile"] {
        let Some(profile) = part(own, key) else { continue };
        let (kind, file) = (text(profile, "type"), text(profile, "localhostProfile"));
        out.one_of(format!("{at}.{key}.type"), kind, &["Localhost", "RuntimeDefault", "Unconfined"]);
        let at = format!("{at}.{key}.localhostProfile");
        match (kind, file.is_empty()) {
            ("Localhost", true) => out.required(at, "must be set when seccomp type is Localhost"),
            ("Localhost", false) if key == "seccompProfile" => volume::local_path(&at, file, out),
            ("Localhost", false) | (_, true) => {}
            (_, false) => out.invalid(at, file, "can only be set when seccomp type is Localhost"),
        }
    }
}
