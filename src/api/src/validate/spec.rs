//! The pod's own fields.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::container::{self, Kind, Names};
use super::report::Report;
use super::{flag, items, number, part, resources, text, volume};
use crate::names;

const ID_MAX: i64 = 2_147_483_647;
const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

pub(super) fn spec(spec: &Value, out: &mut Report) {
    let mut known = Names { volumes: volume::volumes(spec, out), containers: BTreeSet::new(), ports: BTreeSet::new() };
    if items(spec, "spec", "containers").next().is_none() {
        out.required("spec.containers", "");
    }
    for (list, kind) in
        [("containers", Kind::App), ("initContainers", Kind::Init), ("ephemeralContainers", Kind::Ephemeral)]
    {
        for (path, container) in items(spec, "spec", list) {
            container::container(container, &path, kind, spec, &mut known, out);
        }
    }
    resources::pod(spec, out);
    out.one_of("spec.restartPolicy", text(spec, "restartPolicy"), &["Always", "OnFailure", "Never"]);
    dns(spec, out);
    for (key, value) in spec.get("nodeSelector").and_then(Value::as_object).into_iter().flatten() {
        out.texts("spec.nodeSelector", key, names::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        out.texts("spec.nodeSelector", value, names::label_value(value));
    }
    security(spec, out);
    for (path, secret) in items(spec, "spec", "imagePullSecrets") {
        if text(secret, "name").is_empty() {
            out.required(format!("{path}.name"), "");
        }
    }
    for (path, gate) in items(spec, "spec", "readinessGates") {
        let kind = text(gate, "conditionType");
        out.texts(&format!("{path}.conditionType"), kind, names::qualified_name(kind));
    }
    let name = |key: &str, rule: fn(&str) -> Vec<String>, out: &mut Report| {
        let value = text(spec, key);
        if !value.is_empty() {
            out.texts(&format!("spec.{key}"), value, rule(value));
        }
    };
    name("serviceAccountName", names::dns1123_subdomain, out);
    name("nodeName", names::dns1123_subdomain, out);
    if let Some(seconds) = number(spec, "activeDeadlineSeconds").filter(|seconds| !(1..=ID_MAX).contains(seconds)) {
        out.invalid("spec.activeDeadlineSeconds", seconds, "must be between 1 and 2147483647, inclusive");
    }
    name("hostname", names::dns1123_label, out);
    name("subdomain", names::dns1123_label, out);
    for (path, toleration) in items(spec, "spec", "tolerations") {
        tolerate(toleration, &path, out);
    }
    for (path, alias) in items(spec, "spec", "hostAliases") {
        let ip = text(alias, "ip");
        if ip.parse::<IpAddr>().is_err() {
            out.invalid(format!("{path}.ip"), ip, IP);
        }
        for (path, host) in items(alias, &path, "hostnames") {
            let host = host.as_str().unwrap_or_default();
            out.texts(&path, host, names::dns1123_subdomain(host));
        }
    }
    name("priorityClassName", names::dns1123_subdomain, out);
    name("runtimeClassName", names::dns1123_subdomain, out);
    if flag(spec, "hostPID") && flag(spec, "shareProcessNamespace") {
        out.invalid(
            "spec.securityContext.shareProcessNamespace",
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
}

fn dns(spec: &Value, out: &mut Report) {
    let policy = text(spec, "dnsPolicy");
    out.one_of("spec.dnsPolicy", policy, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    let servers =
        spec.pointer("/dnsConfig/nameservers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if policy == "None" && servers.is_empty() {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        out.required("spec.dnsConfig.nameservers", detail);
    }
    let Some(config) = part(spec, "dnsConfig") else { return };
    if servers.len() > 3 {
        out.invalid("spec.dnsConfig.nameservers", servers.to_vec(), "must not have more than 3 nameservers");
    }
    for (path, server) in items(config, "spec.dnsConfig", "nameservers") {
        let server = server.as_str().unwrap_or_default();
        if server.parse::<IpAddr>().is_err() {
            out.invalid(path, server, IP);
        }
    }
    for (path, search) in items(config, "spec.dnsConfig", "searches") {
        let search = search.as_str().unwrap_or_default();
        // A trailing dot is how people write a complete name; a lone one keeps the list empty.
        let bare = search.strip_suffix('.').unwrap_or(search).replace('_', "-");
        if search != "." {
            out.texts(&path, search, names::dns1123_subdomain(&bare));
        }
    }
    for (path, option) in items(config, "spec.dnsConfig", "options") {
        if text(option, "name").is_empty() {
            out.required(path, "must not be empty");
        }
    }
}

fn security(spec: &Value, out: &mut Report) {
    let Some(pod) = part(spec, "securityContext") else { return };
    let path = "spec.securityContext";
    for key in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(&format!("{path}.{key}"), number(pod, key), out);
    }
    for (path, group) in items(pod, path, "supplementalGroups") {
        id(&path, group.as_i64(), out);
    }
    let mut seen = BTreeSet::new();
    for (path, sysctl) in items(pod, path, "sysctls") {
        let name = text(sysctl, "name");
        let shape = |part: &str| {
            let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
            let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
            part.bytes().all(inner) && edge(part.bytes().next()) && edge(part.bytes().last())
        };
        if name.is_empty() {
            out.required(format!("{path}.name"), "");
        } else if name.len() > 253 || !name.split(['.', '/']).all(shape) {
            let regex = "must have at most 253 characters and match regex \
                         ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            out.invalid(format!("{path}.name"), name, regex);
        } else if !seen.insert(name) {
            out.duplicate(format!("{path}.name"), name);
        }
    }
    container::profiles(pod, path, out);
}

/// Ids of users and groups.
pub(super) fn id(path: &str, value: Option<i64>, out: &mut Report) {
    if let Some(value) = value.filter(|value| !(0..=ID_MAX).contains(value)) {
        out.invalid(path, value, "must be between 0 and 2147483647, inclusive");
    }
}

fn tolerate(toleration: &Value, path: &str, out: &mut Report) {
    let (key, operator, effect) = (text(toleration, "key"), text(toleration, "operator"), text(toleration, "effect"));
    if !key.is_empty() {
        out.texts(&format!("{path}.key"), key, names::qualified_name(key));
    } else if operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        out.invalid(format!("{path}.operator"), operator, detail);
    }
    if part(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        out.invalid(format!("{path}.effect"), effect, detail);
    }
    match operator {
        "" | "Equal" => {
            let value = text(toleration, "value");
            out.texts(&format!("{path}.operator"), value, names::label_value(value));
        }
        "Exists" => {
            if !text(toleration, "value").is_empty() {
                out.invalid(
                    format!("{path}.operator"),
                    text(toleration, "value"),
                    "value must be empty when `operator` is 'Exists'",
                );
            }
        }
        // Numeric comparison came later; its values are checked where they are used.
        "Lt" | "Gt" => {}
        other => out.unsupported(format!("{path}.operator"), other, &["Equal", "Exists"]),
    }
    if !effect.is_empty() && !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        out.unsupported(format!("{path}.effect"), effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
    }
}
