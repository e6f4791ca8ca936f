//! The pod's own fields, and the order in which its parts are looked at.

use std::collections::HashSet;

use serde_json::Value;

use super::container::{Place, containers};
use super::volume::volumes;
use super::{Faults, FieldError, flag, has, list, number, text};
use crate::names;

/// Finds the faults of a pod's specification; its metadata is checked like any object's.
pub fn pod(pod: &Value) -> Vec<FieldError> {
    spec(pod.get("spec").unwrap_or(&Value::Null), "spec")
}

/// Finds the faults of a specification that stands at `path`.
pub fn spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut faults = Faults::default();
    let volumes = volumes(spec, path, &mut faults);
    let mut place = Place { volumes: &volumes, names: HashSet::new(), host_network: flag(spec, "hostNetwork") };
    if list(spec, "containers").is_empty() {
        faults.required(format!("{path}.containers"), "");
    }
    containers(spec, path, "containers", &mut place, &mut faults);
    containers(spec, path, "initContainers", &mut place, &mut faults);
    containers(spec, path, "ephemeralContainers", &mut place, &mut faults);
    match text(spec, "restartPolicy") {
        "" => faults.required(format!("{path}.restartPolicy"), ""),
        policy => faults.supported(format!("{path}.restartPolicy"), policy, &["Always", "OnFailure", "Never"]),
    }
    match text(spec, "dnsPolicy") {
        "" => faults.required(format!("{path}.dnsPolicy"), ""),
        policy => {
            let known = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
            faults.supported(format!("{path}.dnsPolicy"), policy, &known);
        }
    }
    security(spec, path, &mut faults);
    for (index, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            faults.required(format!("{path}.imagePullSecrets[{index}].name"), "");
        }
    }
    dns_config(spec, path, &mut faults);
    tolerations(spec, path, &mut faults);
    host_aliases(spec, path, &mut faults);
    for (key, rule) in [
        ("serviceAccountName", names::dns1123_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", names::dns1123_subdomain),
        ("hostname", names::dns1123_label),
        ("subdomain", names::dns1123_label),
        ("priorityClassName", names::dns1123_subdomain),
        ("runtimeClassName", names::dns1123_subdomain),
    ] {
        let value = text(spec, key);
        if !value.is_empty() {
            faults.name(format!("{path}.{key}"), value, rule);
        }
    }
    if let Some(deadline) = number(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&deadline)
    {
        faults.invalid(
            format!("{path}.activeDeadlineSeconds"),
            &deadline.into(),
            "must be between 1 and 2147483647, inclusive",
        );
    }
    faults.0
}

fn security(spec: &Value, path: &str, faults: &mut Faults) {
    let path = format!("{path}.securityContext");
    let context = spec.get("securityContext").unwrap_or(&Value::Null);
    for key in ["runAsUser", "runAsGroup", "fsGroup"] {
        ids(context, &path, key, faults);
    }
    for (index, group) in list(context, "supplementalGroups").iter().enumerate() {
        if !group.as_i64().is_some_and(|group| (0..=i64::from(i32::MAX)).contains(&group)) {
            let path = format!("{path}.supplementalGroups[{index}]");
            faults.invalid(path, group, "must be between 0 and 2147483647, inclusive");
        }
    }
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let value = Value::Bool(true);
        let text = "ShareProcessNamespace and HostPID cannot both be enabled";
        faults.invalid(format!("{path}.shareProcessNamespace"), &value, text);
    }
    let mut seen = HashSet::new();
    for (index, sysctl) in list(context, "sysctls").iter().enumerate() {
        let path = format!("{path}.sysctls[{index}].name");
        let name = text(sysctl, "name");
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '/' | '-' | '_');
        if name.is_empty() {
            faults.required(path, "");
        } else if name.len() > 253 || !name.chars().all(fine) {
            let detail = "must have at most 253 characters and match regex \
                          ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            faults.invalid_text(path, name, detail);
        } else if !seen.insert(name.replace('/', ".")) {
            faults.duplicate(path, name);
        }
    }
}

pub(super) fn ids(context: &Value, path: &str, key: &str, faults: &mut Faults) {
    if let Some(id) = number(context, key)
        && !(0..=i64::from(i32::MAX)).contains(&id)
    {
        faults.invalid(format!("{path}.{key}"), &id.into(), "must be between 0 and 2147483647, inclusive");
    }
}

fn dns_config(spec: &Value, path: &str, faults: &mut Faults) {
    let path = format!("{path}.dnsConfig");
    let config = spec.get("dnsConfig").unwrap_or(&Value::Null);
    let servers = list(config, "nameservers");
    if text(spec, "dnsPolicy") == "None" && servers.is_empty() {
        let text = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        faults.required(format!("{path}.nameservers"), text);
    }
    if servers.len() > 3 {
        let value = Value::Array(servers.to_vec());
        faults.invalid(format!("{path}.nameservers"), &value, "must not have more than 3 nameservers");
    }
    for (index, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or_default();
        if server.parse::<std::net::IpAddr>().is_err() {
            let text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            faults.invalid_text(format!("{path}.nameservers[{index}]"), server, text);
        }
    }
    let searches = list(config, "searches");
    if searches.len() > 32 {
        let value = Value::Array(searches.to_vec());
        faults.invalid(format!("{path}.searches"), &value, "must not have more than 32 search paths");
    }
    for (index, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            faults.required(format!("{path}.options[{index}]"), "must not be empty");
        }
    }
}

fn tolerations(spec: &Value, path: &str, faults: &mut Faults) {
    for (index, toleration) in list(spec, "tolerations").iter().enumerate() {
        let path = format!("{path}.tolerations[{index}]");
        let (key, operator, effect) =
            (text(toleration, "key"), text(toleration, "operator"), text(toleration, "effect"));
        if !key.is_empty() {
            faults.name(format!("{path}.key"), key, names::qualified_name);
        }
        if key.is_empty() && operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            faults.invalid_text(format!("{path}.operator"), operator, detail);
        }
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            faults.invalid_text(format!("{path}.effect"), effect, detail);
        }
        match operator {
            "Equal" | "" => faults.name(format!("{path}.operator"), text(toleration, "value"), names::label_value),
            "Exists" if !text(toleration, "value").is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                faults.invalid_text(format!("{path}.operator"), operator, detail);
            }
            "Exists" => {}
            other => faults.supported(format!("{path}.operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            faults.supported(format!("{path}.effect"), effect, &["NoExecute", "NoSchedule", "PreferNoSchedule"]);
        }
    }
}

fn host_aliases(spec: &Value, path: &str, faults: &mut Faults) {
    for (index, alias) in list(spec, "hostAliases").iter().enumerate() {
        let path = format!("{path}.hostAliases[{index}]");
        let address = text(alias, "ip");
        if address.parse::<std::net::IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            faults.invalid_text(format!("{path}.ip"), address, detail);
        }
        for (index, name) in list(alias, "hostnames").iter().filter_map(Value::as_str).enumerate() {
            faults.name(format!("{path}.hostnames[{index}]"), name, names::dns1123_subdomain);
        }
    }
}
