//! The cells of each kind, computed as upstream's printers do.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, described, pod};
use crate::apiserver::object::{list, text};

pub(super) const NONE: &str = "<none>";

const fn shown(name: &'static str) -> Column {
    Column { name, kind: "string", priority: 0 }
}

const fn wide(name: &'static str) -> Column {
    Column { name, kind: "string", priority: 1 }
}

pub(super) fn columns(kind: &str) -> Vec<Column> {
    if let Some(columns) = described::columns(kind) {
        return columns;
    }
    let rest: &[Column] = match kind {
        "Pod" => &[
            shown("Ready"),
            shown("Status"),
            shown("Restarts"),
            shown("Age"),
            wide("IP"),
            wide("Node"),
            wide("Nominated Node"),
            wide("Readiness Gates"),
        ],
        "Node" => &[
            shown("Status"),
            shown("Roles"),
            shown("Age"),
            shown("Version"),
            wide("Internal-IP"),
            wide("External-IP"),
            wide("OS-Image"),
            wide("Kernel-Version"),
            wide("Container-Runtime"),
        ],
        "Namespace" => &[shown("Status"), shown("Age")],
        "ConfigMap" => &[shown("Data"), shown("Age")],
        "Secret" => &[shown("Type"), Column { name: "Data", kind: "string", priority: 0 }, shown("Age")],
        "ServiceAccount" => &[shown("Secrets"), shown("Age")],
        "Service" => &[
            shown("Type"),
            shown("Cluster-IP"),
            shown("External-IP"),
            shown("Port(s)"),
            shown("Age"),
            wide("Selector"),
        ],
        "Event" => {
            return vec![
                shown("Last Seen"),
                shown("Type"),
                shown("Reason"),
                shown("Object"),
                wide("Subobject"),
                wide("Source"),
                shown("Message"),
                wide("First Seen"),
                wide("Count"),
                wide("Name"),
            ];
        }
        "Lease" => &[shown("Holder"), shown("Age")],
        "CSINode" => &[Column { name: "Drivers", kind: "integer", priority: 0 }, shown("Age")],
        "RuntimeClass" => &[shown("Handler"), shown("Age")],
        _ => &[shown("Age")],
    };
    std::iter::once(shown("Name")).chain(rest.iter().copied()).collect()
}

pub(super) fn cells(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    if let Some(cells) = described::cells(kind, object, now) {
        return cells;
    }
    let name = json!(text(object, "/metadata/name"));
    let age = json!(age(text(object, "/metadata/creationTimestamp"), now));
    let size = |pointer: &str| match object.pointer(pointer) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(items)) => items.len(),
        _ => 0,
    };
    let or_none = |pointer: &str| json!(non_empty(text(object, pointer)));
    match kind {
        "Pod" => pod::cells(object, now),
        "Node" => node(object, age),
        "Namespace" => vec![name, json!(text(object, "/status/phase")), age],
        "ConfigMap" => vec![name, json!(size("/data") + size("/binaryData")), age],
        "Secret" => vec![name, json!(text(object, "/type")), json!(size("/data")), age],
        "ServiceAccount" => vec![name, json!(size("/secrets")), age],
        "Service" => service(object, age),
        "Event" => event(object, now),
        "Lease" => vec![name, json!(text(object, "/spec/holderIdentity")), age],
        "CSINode" => vec![name, json!(size("/spec/drivers")), age],
        "RuntimeClass" => vec![name, or_none("/handler"), age],
        _ => vec![name, age],
    }
}

pub(super) fn non_empty(text: &str) -> &str {
    if text.is_empty() { NONE } else { text }
}

pub(super) fn age(since: &str, now: Timestamp) -> String {
    match since.parse::<Timestamp>() {
        Ok(since) => human(now.duration_since(since).as_secs()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Writes a duration as kubectl does: two units while small, one when large.
pub(super) fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 3600;
    const DAY: i64 = 86_400;
    const YEAR: i64 = 365 * DAY;
    let two = |big: i64, unit: &str, small: i64, rest: &str| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{rest}") }
    };
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(seconds / MINUTE, "m", seconds % MINUTE, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds / HOUR, "h", seconds / MINUTE % 60, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds / DAY, "d", seconds / HOUR % 24, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two(seconds / YEAR, "y", seconds / DAY % 365, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

fn node(node: &Value, age: Value) -> Vec<Value> {
    let mut status: Vec<&str> = Vec::new();
    for condition in list(node, "/status/conditions").iter().filter(|entry| text(entry, "/type") == "Ready") {
        status.push(if text(condition, "/status") == "True" { "Ready" } else { "NotReady" });
    }
    if status.is_empty() {
        status.push("Unknown");
    }
    if node.pointer("/spec/unschedulable") == Some(&json!(true)) {
        status.push("SchedulingDisabled");
    }
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => Some(role),
            _ if key == "kubernetes.io/role" => value.as_str().filter(|role| !role.is_empty()),
            _ => None,
        })
        .collect();
    roles.sort_unstable();
    roles.dedup();
    let address = |kind: &str| {
        let found = list(node, "/status/addresses").iter().find(|entry| text(entry, "/type") == kind);
        json!(found.map_or(NONE, |entry| non_empty(text(entry, "/address"))))
    };
    let info = |field: &str| match text(node, &format!("/status/nodeInfo/{field}")) {
        "" => json!("<unknown>"),
        known => json!(known),
    };
    vec![
        json!(text(node, "/metadata/name")),
        json!(status.join(",")),
        json!(non_empty(&roles.join(","))),
        age,
        json!(text(node, "/status/nodeInfo/kubeletVersion")),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn service(service: &Value, age: Value) -> Vec<Value> {
    let ports: Vec<String> = list(service, "/spec/ports")
        .iter()
        .map(|port| {
            let number = |key: &str| port.get(key).and_then(Value::as_i64).unwrap_or(0);
            let protocol = text(port, "/protocol");
            match number("nodePort") {
                0 => format!("{}/{protocol}", number("port")),
                node_port => format!("{}:{node_port}/{protocol}", number("port")),
            }
        })
        .collect();
    let external: Vec<&str> = list(service, "/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    let external = match text(service, "/spec/type") {
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        "LoadBalancer" if external.is_empty() => "<pending>".to_owned(),
        _ => non_empty(&external.join(",")).to_owned(),
    };
    let selector: Vec<String> = service
        .pointer("/spec/selector")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    vec![
        json!(text(service, "/metadata/name")),
        json!(text(service, "/spec/type")),
        json!(non_empty(text(service, "/spec/clusterIP"))),
        json!(external),
        json!(non_empty(&ports.join(","))),
        age,
        json!(non_empty(&selector.join(","))),
    ]
}

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let first_of = |pointers: &[&str]| {
        let found = pointers.iter().map(|pointer| text(event, pointer)).find(|time| !time.is_empty());
        found.map_or_else(|| "<unknown>".to_owned(), |time| age(time, now))
    };
    let first = first_of(&["/firstTimestamp", "/eventTime", "/metadata/creationTimestamp"]);
    let last = first_of(&["/series/lastObservedTime", "/lastTimestamp", "/firstTimestamp", "/eventTime"]);
    let about =
        format!("{}/{}", text(event, "/involvedObject/kind").to_lowercase(), text(event, "/involvedObject/name"));
    let source = [text(event, "/source/component"), text(event, "/source/host")];
    let source: Vec<&str> = source.into_iter().filter(|part| !part.is_empty()).collect();
    let source = if source.is_empty() { text(event, "/reportingComponent").to_owned() } else { source.join(", ") };
    let count = event.pointer("/series/count").or_else(|| event.get("count")).and_then(Value::as_i64).unwrap_or(1);
    vec![
        json!(last),
        json!(text(event, "/type")),
        json!(text(event, "/reason")),
        json!(about),
        json!(text(event, "/involvedObject/fieldPath")),
        json!(source),
        json!(text(event, "/message").trim()),
        json!(first),
        json!(count),
        json!(text(event, "/metadata/name")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        for (seconds, want) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (90_000, "25h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (-5, "<invalid>"),
        ] {
            assert_eq!(human(seconds), want, "{seconds}");
        }
    }
}
