//! Cells that must be computed, in upstream's words.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{age, human, non_empty};
use crate::apiserver::object::{list, text};
use crate::apiserver::strategy::selector_of;

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn fraction(object: &Value, part: &str, whole: &str) -> Value {
    json!(format!("{}/{}", number(object, part), number(object, whole)))
}

pub(super) fn count(object: &Value, pointer: &str) -> Value {
    json!(list(object, pointer).len())
}

pub(super) fn since(object: &Value, pointer: &str, now: Timestamp) -> Value {
    match text(object, pointer) {
        "" => json!("<none>"),
        time => json!(age(time, now)),
    }
}

/// One field of each container of a template.
pub(super) fn containers(object: &Value, template: &str, field: &str) -> Value {
    let containers = list(object, &format!("{template}/spec/containers")).iter();
    let found: Vec<&str> = containers.map(|container| text(container, &format!("/{field}"))).collect();
    json!(found.join(","))
}

pub(super) fn pairs(object: &Value, pointer: &str) -> Value {
    let pairs = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    json!(non_empty(&pairs.join(",")))
}

/// A selector as a text; plain pairs in replication controllers.
pub(super) fn selector(object: &Value, pointer: &str) -> Value {
    if text(object, "/kind") == "ReplicationController" {
        return pairs(object, pointer);
    }
    json!(non_empty(&selector_of(object, pointer).to_string()))
}

/// The items of a list, or one field of each.
pub(super) fn joined(object: &Value, pointer: &str, field: &str, none: &str) -> Value {
    let items: Vec<&str> = list(object, pointer).iter().map(|item| text(item, field)).collect();
    if items.is_empty() { json!(none) } else { json!(items.join(",")) }
}

pub(super) fn controller(object: &Value) -> Value {
    let mut owners = list(object, "/metadata/ownerReferences").iter();
    let Some(owner) = owners.find(|owner| owner.get("controller") == Some(&json!(true))) else {
        return json!("<none>");
    };
    let group = text(owner, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    let kind = text(owner, "/kind").to_lowercase();
    let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
    json!(format!("{kind}/{}", text(owner, "/name")))
}

fn has_condition(object: &Value, kind: &str) -> bool {
    let mut conditions = list(object, "/status/conditions").iter();
    conditions.any(|condition| text(condition, "/type") == kind && text(condition, "/status") == "True")
}

pub(super) fn job_status(job: &Value) -> Value {
    let done = ["Complete", "Failed"].into_iter().find(|kind| has_condition(job, kind));
    if let Some(done) = done {
        return json!(done);
    }
    if job.pointer("/metadata/deletionTimestamp").is_some() {
        return json!("Terminating");
    }
    let other = ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|kind| has_condition(job, kind));
    json!(other.unwrap_or("Running"))
}

pub(super) fn completions(job: &Value) -> Value {
    let succeeded = number(job, "/status/succeeded");
    if job.pointer("/spec/completions").is_some() {
        return json!(format!("{succeeded}/{}", number(job, "/spec/completions")));
    }
    match number(job, "/spec/parallelism") {
        many if many > 1 => json!(format!("{succeeded}/1 of {many}")),
        _ => json!(format!("{succeeded}/1")),
    }
}

pub(super) fn job_duration(job: &Value, now: Timestamp) -> Value {
    let Ok(start) = text(job, "/status/startTime").parse::<Timestamp>() else { return json!("") };
    let end = text(job, "/status/completionTime").parse::<Timestamp>().unwrap_or(now);
    json!(human(end.duration_since(start).as_secs()))
}

/// A number or percentage that need not be there.
pub(super) fn amount(object: &Value, pointer: &str) -> Value {
    match object.pointer(pointer) {
        Some(Value::String(text)) => json!(text),
        Some(Value::Number(number)) => json!(number.to_string()),
        _ => json!("N/A"),
    }
}

pub(super) fn access_modes(object: &Value, pointer: &str) -> Value {
    let own: Vec<&str> = list(object, pointer).iter().filter_map(Value::as_str).collect();
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let short: Vec<&str> = known.iter().filter(|(long, _)| own.contains(long)).map(|(_, short)| *short).collect();
    json!(short.join(","))
}

pub(super) fn phase(object: &Value) -> Value {
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return json!("Terminating");
    }
    json!(text(object, "/status/phase"))
}

pub(super) fn claim(object: &Value) -> Value {
    match object.pointer("/spec/claimRef") {
        Some(claim) => json!(format!("{}/{}", text(claim, "/namespace"), text(claim, "/name"))),
        None => json!(""),
    }
}

pub(super) fn if_bound(claim: &Value, cell: Value) -> Value {
    if text(claim, "/spec/volumeName").is_empty() { json!("") } else { cell }
}

pub(super) fn class_name(class: &Value) -> Value {
    let notes = class.pointer("/metadata/annotations");
    let is_default = notes.and_then(|notes| notes.get("storageclass.kubernetes.io/is-default-class"));
    let name = text(class, "/metadata/name");
    if is_default == Some(&json!("true")) { json!(format!("{name} (default)")) } else { json!(name) }
}

/// What is used of what may be used: bounds on limits, or all others.
pub(super) fn quota(quota: &Value, limits: bool) -> Value {
    let hard = quota.pointer("/status/hard").and_then(Value::as_object).into_iter().flatten();
    let used = quota.pointer("/status/used");
    let mut lines: Vec<String> = hard
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, hard)| {
            let used = used.and_then(|used| used.get(name)).and_then(Value::as_str).unwrap_or("0");
            format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
        })
        .collect();
    lines.sort();
    json!(lines.join(", "))
}

/// At most three of many.
fn some(all: &[String], none: &str) -> Value {
    const MOST: usize = 3;
    if all.is_empty() {
        return json!(none);
    }
    let shown = all.get(..MOST).unwrap_or(all).join(",");
    if all.len() > MOST { json!(format!("{shown} + {} more...", all.len() - MOST)) } else { json!(shown) }
}

pub(super) fn endpoints(object: &Value) -> Value {
    let mut all = Vec::new();
    for subset in list(object, "/subsets") {
        let ports = list(subset, "/ports");
        for address in list(subset, "/addresses") {
            let ip = text(address, "/ip");
            let ip = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
            if ports.is_empty() {
                all.push(text(address, "/ip").to_owned());
            }
            all.extend(ports.iter().map(|port| format!("{ip}:{}", number(port, "/port"))));
        }
    }
    some(&all, "<none>")
}

pub(super) fn slice_ports(slice: &Value) -> Value {
    let ports: Vec<String> = list(slice, "/ports")
        .iter()
        .map(|port| match number(port, "/port") {
            0 => "*".to_owned(),
            number => number.to_string(),
        })
        .collect();
    some(&ports, "<unset>")
}

pub(super) fn slice_addresses(slice: &Value) -> Value {
    let endpoints = list(slice, "/endpoints").iter();
    let addresses = endpoints.flat_map(|endpoint| list(endpoint, "/addresses")).filter_map(Value::as_str);
    some(&addresses.map(str::to_owned).collect::<Vec<_>>(), "<unset>")
}

pub(super) fn hosts(ingress: &Value) -> Value {
    let rules = list(ingress, "/spec/rules").iter().map(|rule| text(rule, "/host").to_owned());
    let hosts: Vec<String> = rules.filter(|host| !host.is_empty()).collect();
    some(&hosts, "*")
}

pub(super) fn ingress_address(ingress: &Value) -> Value {
    let entries = list(ingress, "/status/loadBalancer/ingress").iter();
    let addresses: Vec<&str> = entries
        .map(|entry| match text(entry, "/ip") {
            "" => text(entry, "/hostname"),
            ip => ip,
        })
        .collect();
    json!(addresses.join(","))
}

pub(super) fn ingress_ports(ingress: &Value) -> Value {
    json!(if list(ingress, "/spec/tls").is_empty() { "80" } else { "80, 443" })
}

pub(super) fn parameters(class: &Value) -> Value {
    let Some(own) = class.pointer("/spec/parameters") else { return json!("<none>") };
    let group = text(own, "/apiGroup");
    let kind = text(own, "/kind");
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    json!(format!("{kind}/{}", text(own, "/name")))
}

pub(super) fn subjects(binding: &Value, kind: &str) -> Value {
    let own = list(binding, "/subjects").iter().filter(|subject| text(subject, "/kind") == kind);
    let names: Vec<String> = own
        .map(|subject| {
            let name = text(subject, "/name");
            if kind == "ServiceAccount" { format!("{}/{name}", text(subject, "/namespace")) } else { name.to_owned() }
        })
        .collect();
    json!(names.join(", "))
}

pub(super) fn requested(request: &Value) -> Value {
    match request.pointer("/spec/expirationSeconds").and_then(Value::as_i64) {
        Some(seconds) => json!(human(seconds)),
        None => json!("<none>"),
    }
}

pub(super) fn request_state(request: &Value) -> Value {
    let conditions = list(request, "/status/conditions");
    let has = |kind: &str| conditions.iter().any(|condition| text(condition, "/type") == kind);
    let mut words: Vec<&str> = Vec::new();
    if has("Denied") {
        words.push("Denied");
    } else if has("Approved") {
        words.push("Approved");
    } else {
        words.push("Pending");
    }
    if has("Failed") {
        words.push("Failed");
    }
    if !text(request, "/status/certificate").is_empty() {
        words.push("Issued");
    }
    json!(words.join(","))
}
