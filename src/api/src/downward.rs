//! What a container may learn of its own pod: fields and resources, for variables and for downward volumes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceFieldSelector};

use crate::quantity::Quantity;
use crate::resources::{self, Amounts, Side};

/// Facts that are not in the spec.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Addresses of the pod.
    pub pod_ips: &'a [String],
    /// Addresses of the node.
    pub host_ips: &'a [String],
    /// What the node gives to pods; answers for limits that are not set.
    pub allocatable: &'a Amounts,
}

/// Returns the value of a field path; the error is a message for people.
pub fn field(pod: &Pod, path: &str, facts: Facts<'_>) -> Result<String, String> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let text = |value: &Option<String>| Ok(value.clone().unwrap_or_default());
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => &meta.labels,
            "metadata.annotations" => &meta.annotations,
            _ => return Err(format!("fieldPath {path:?} does not support subscript")),
        };
        return Ok(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    match path {
        "metadata.name" => text(&meta.name),
        "metadata.namespace" => text(&meta.namespace),
        "metadata.uid" => text(&meta.uid),
        "metadata.labels" => Ok(format_map(meta.labels.as_ref())),
        "metadata.annotations" => Ok(format_map(meta.annotations.as_ref())),
        "spec.nodeName" => text(&spec.and_then(|spec| spec.node_name.clone())),
        "spec.serviceAccountName" => text(&spec.and_then(|spec| spec.service_account_name.clone())),
        "status.hostIP" => text(&facts.host_ips.first().cloned()),
        "status.hostIPs" => Ok(facts.host_ips.join(",")),
        "status.podIP" => text(&facts.pod_ips.first().cloned()),
        "status.podIPs" => Ok(facts.pod_ips.join(",")),
        _ => Err(format!("unsupported fieldPath: {path}")),
    }
}

/// Splits `path['key']`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
}

/// Writes a map as downward volumes show it: sorted lines `key="escaped value"`.
pub fn format_map(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> =
        map.into_iter().flatten().map(|(key, value)| format!("{key}={}", go_quote(value))).collect();
    lines.join("\n")
}

/// Quotes as Go's `%q`.
fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let code = format!("{:02x}", c as u32);
                out.push_str("\\x");
                out.push_str(&code);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Returns a container's request or limit divided and rounded up; `own` is the container that asks.
pub fn resource(pod: &Pod, selector: &ResourceFieldSelector, own: &str, facts: Facts<'_>) -> Result<String, String> {
    let wanted = selector.container_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(own);
    let container = pod
        .spec
        .iter()
        .flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()))
        .find(|container| container.name == wanted)
        .ok_or_else(|| format!("container {wanted} not found"))?;
    let (side, name) = match selector.resource.split_once('.') {
        Some(("limits", name)) => (Side::Limits, name),
        Some(("requests", name)) => (Side::Requests, name),
        _ => return Err(format!("unsupported container resource : {}", selector.resource)),
    };
    let present = resources::of_container(container, side).get(name).copied().filter(|amount| !amount.is_zero());
    let amount = match (present, side) {
        (Some(amount), _) => amount,
        (None, Side::Limits) => facts.allocatable.get(name).copied().unwrap_or(Quantity::ZERO),
        (None, Side::Requests) => Quantity::ZERO,
    };
    let divisor = selector.divisor.as_ref().and_then(|raw| Quantity::try_from(raw).ok()).filter(|by| !by.is_zero());
    let quotient = if name == resources::CPU {
        divide_up(amount.milli_value(), divisor.map_or(1000, |by| by.milli_value()))
    } else {
        divide_up(amount.value(), divisor.map_or(1, |by| by.value()))
    };
    Ok(quotient.to_string())
}

fn divide_up(amount: i64, by: i64) -> i64 {
    let by = by.max(1);
    amount / by + i64::from(amount % by > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b": "two", "a": "1"},
                         "annotations": {"x.y/z": "q\"uo\\te\n"}},
            "spec": {"nodeName": "n", "serviceAccountName": "sa", "containers": [
                {"name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"memory": "33Mi"}}},
                {"name": "d"}]}}))
        .unwrap()
    }

    fn with_facts<T>(act: impl FnOnce(Facts<'_>) -> T) -> T {
        let allocatable = Amounts::from([("cpu".to_owned(), Quantity::parse("4").unwrap())]);
        let (pod_ips, host_ips) = (["10.0.0.1".to_owned(), "fd00::1".to_owned()], ["192.0.2.1".to_owned()]);
        act(Facts { pod_ips: &pod_ips, host_ips: &host_ips, allocatable: &allocatable })
    }

    #[test]
    fn field_table() {
        with_facts(|facts| {
            for (path, want) in [
                ("metadata.name", "p"),
                ("metadata.labels['b']", "two"),
                ("metadata.labels['none']", ""),
                ("metadata.labels", "a=\"1\"\nb=\"two\""),
                ("metadata.annotations", "x.y/z=\"q\\\"uo\\\\te\\n\""),
                ("spec.nodeName", "n"),
                ("spec.serviceAccountName", "sa"),
                ("status.podIP", "10.0.0.1"),
                ("status.podIPs", "10.0.0.1,fd00::1"),
                ("status.hostIP", "192.0.2.1"),
            ] {
                assert_eq!(field(&pod(), path, facts).as_deref(), Ok(want), "{path}");
            }
            assert!(field(&pod(), "status.phase", facts).is_err());
            assert!(field(&pod(), "spec.x['y']", facts).is_err());
        });
    }

    #[test]
    fn resource_table() {
        with_facts(|facts| {
            for (selector, want) in [
                (json!({"resource": "limits.cpu", "divisor": "0"}), "2"),
                (json!({"resource": "limits.cpu", "divisor": "1m"}), "1500"),
                (json!({"resource": "requests.memory", "divisor": "1Mi"}), "33"),
                (json!({"resource": "requests.memory"}), "34603008"),
                (json!({"resource": "limits.cpu", "containerName": "d"}), "4"),
                (json!({"resource": "requests.cpu"}), "0"),
            ] {
                let parsed: ResourceFieldSelector = serde_json::from_value(selector.clone()).unwrap();
                assert_eq!(resource(&pod(), &parsed, "c", facts).as_deref(), Ok(want), "{selector}");
            }
            let bad = |value: Value| resource(&pod(), &serde_json::from_value(value).unwrap(), "c", facts);
            assert!(bad(json!({"resource": "x.cpu"})).is_err());
            assert!(bad(json!({"resource": "limits.cpu", "containerName": "none"})).is_err());
        });
    }
}
