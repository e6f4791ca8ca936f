//! What of a status must be sent: pure. The agent owns its conditions, container statuses, addresses and phase; what
//! others wrote stays, also when what is known of it is old.

use serde_json::{Map, Value, json};

/// Fields of the status that others own.
const FOREIGN_FIELDS: [&str; 4] =
    ["nominatedNodeName", "resourceClaimStatuses", "extendedResourceClaimStatus", "resize"];
/// Fields that stay when the agent has no value for them.
const STICKY_FIELDS: [&str; 4] = ["phase", "qosClass", "startTime", "observedGeneration"];
/// Conditions that the agent alone writes; `DisruptionTarget` is shared.
const OWN_CONDITIONS: [&str; 8] = [
    "PodScheduled",
    "Ready",
    "Initialized",
    "ContainersReady",
    "PodReadyToStartContainers",
    "PodResizePending",
    "PodResizeInProgress",
    "AllContainersRestarting",
];

/// Returns the strategic merge patch that brings the status in the API (`base`) to ours, or none when nothing differs.
pub(super) fn patch(base: &Value, ours: &Value, uid: &str) -> Option<Value> {
    let base = without_nulls(base);
    let ours = without_nulls(ours);
    let (base, ours) = (as_object(base), as_object(ours));
    let mut status = Map::new();
    for (field, value) in &ours {
        if FOREIGN_FIELDS.contains(&field.as_str()) {
            continue;
        }
        match field.as_str() {
            "conditions" => conditions(list(&base, field), list(&ours, field), &mut status),
            "podIPs" | "hostIPs" => addresses(field, list(&base, field), list(&ours, field), &mut status),
            _ if base.get(field) == Some(value) => {}
            _ => drop(status.insert(field.clone(), replacing(base.get(field), value))),
        }
    }
    for field in base.keys().filter(|field| !ours.contains_key(*field)) {
        let stays = FOREIGN_FIELDS.contains(&field.as_str())
            || STICKY_FIELDS.contains(&field.as_str())
            || field == "conditions";
        if !stays {
            status.insert(field.clone(), Value::Null);
        }
    }
    (!status.is_empty()).then(|| json!({"metadata": {"uid": uid}, "status": status}))
}

/// A map is merged by the server: keys that are gone must be named.
fn replacing(old: Option<&Value>, new: &Value) -> Value {
    let (Some(Value::Object(old)), Value::Object(new)) = (old, new) else { return new.clone() };
    let mut merged = new.clone();
    for key in old.keys() {
        merged.entry(key.clone()).or_insert(Value::Null);
    }
    Value::Object(merged)
}

fn list<'a>(status: &'a Map<String, Value>, field: &str) -> &'a [Value] {
    status.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn kind(condition: &Value) -> &str {
    condition["type"].as_str().unwrap_or_default()
}

fn conditions(base: &[Value], ours: &[Value], status: &mut Map<String, Value>) {
    let find = |list: &[Value], wanted: &str| list.iter().find(|condition| kind(condition) == wanted).cloned();
    let mut changes = Vec::new();
    for condition in ours {
        match find(base, kind(condition)) {
            Some(old) if old == *condition => {}
            old => changes.push(replacing(old.as_ref(), condition)),
        }
    }
    for old in base {
        if OWN_CONDITIONS.contains(&kind(old)) && kind(old) != "PodScheduled" && find(ours, kind(old)).is_none() {
            changes.push(json!({"type": kind(old), "$patch": "delete"}));
        }
    }
    // Others' conditions come first, ours in our order.
    let foreign = base.iter().filter(|old| find(ours, kind(old)).is_none() && !OWN_CONDITIONS.contains(&kind(old)));
    let kept = base.iter().filter(|old| kind(old) == "PodScheduled" && find(ours, "PodScheduled").is_none());
    let order: Vec<Value> = foreign.chain(ours).chain(kept).map(|condition| json!({"type": kind(condition)})).collect();
    let present: Vec<&str> =
        base.iter().map(kind).filter(|name| order.iter().any(|entry| kind(entry) == *name)).collect();
    let wanted: Vec<&str> = order.iter().map(kind).filter(|name| present.contains(name)).collect();
    if changes.is_empty() && present == wanted {
        return;
    }
    if !changes.is_empty() {
        status.insert("conditions".to_owned(), Value::Array(changes));
    }
    status.insert("$setElementOrder/conditions".to_owned(), Value::Array(order));
}

fn addresses(field: &str, base: &[Value], ours: &[Value], status: &mut Map<String, Value>) {
    if base == ours {
        return;
    }
    let gone = base.iter().filter(|old| !ours.contains(old)).map(|old| json!({"ip": old["ip"], "$patch": "delete"}));
    let list: Vec<Value> = ours.iter().cloned().chain(gone).collect();
    status.insert(field.to_owned(), Value::Array(list));
    status.insert(format!("$setElementOrder/{field}"), Value::Array(ours.to_vec()));
}

fn as_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The API shows absent times as null.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::patch::strategic;
    use proptest::prelude::*;

    use super::*;

    fn applied(base: &Value, ours: &Value) -> Value {
        let pod = json!({"metadata": {"uid": "u"}, "status": base});
        match patch(base, ours, "u") {
            Some(patch) => strategic("v1", "Pod", &pod, &patch).unwrap()["status"].clone(),
            None => base.clone(),
        }
    }

    fn condition(name: &str, status: &str) -> Value {
        json!({"type": name, "status": status})
    }

    #[test]
    fn only_what_differs_is_sent() {
        let base =
            json!({"phase": "Pending", "qosClass": "Burstable", "conditions": [condition("PodScheduled", "True")]});
        let ours = json!({"phase": "Running", "qosClass": "Burstable", "conditions": [condition("Ready", "False"), condition("PodScheduled", "True")]});
        assert_eq!(
            patch(&base, &ours, "u").unwrap(),
            json!({"metadata": {"uid": "u"}, "status": {"phase": "Running", "conditions": [condition("Ready", "False")],
                "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "PodScheduled"}]}})
        );
        assert_eq!(applied(&base, &ours), ours);
        assert_eq!(patch(&ours, &ours, "u"), None);
        let with_nulls =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False", "lastProbeTime": null}]});
        assert_eq!(
            patch(&with_nulls, &json!({"phase": "Running", "conditions": [condition("Ready", "False")]}), "u"),
            None
        );
    }

    #[test]
    fn what_others_wrote_stays() {
        let base = json!({"nominatedNodeName": "n", "conditions": [condition("example.com/gate", "True"), condition("Ready", "True")]});
        let ours = json!({"phase": "Running", "conditions": [condition("Ready", "False")]});
        let want = json!({"phase": "Running", "nominatedNodeName": "n", "conditions": [condition("example.com/gate", "True"), condition("Ready", "False")]});
        assert_eq!(applied(&base, &ours), want);
    }

    #[test]
    fn what_is_gone_is_taken_away() {
        let base = json!({"phase": "Running", "reason": "Evicted", "podIP": "1", "podIPs": [{"ip": "1"}, {"ip": "2"}],
            "conditions": [{"type": "Ready", "status": "False", "reason": "X", "message": "m"}, condition("PodResizePending", "True")],
            "containerStatuses": [{"name": "a", "ready": true}]});
        let ours = json!({"phase": "Running", "podIPs": [{"ip": "2"}], "conditions": [condition("Ready", "True")],
            "containerStatuses": [{"name": "a", "ready": false}]});
        assert_eq!(applied(&base, &ours), ours);
    }

    fn status() -> impl Strategy<Value = Value> {
        let conditions =
            proptest::sample::subsequence(OWN_CONDITIONS[1..].to_vec(), 0..4).prop_shuffle().prop_flat_map(|names| {
                let count = names.len();
                (Just(names), proptest::collection::vec(any::<bool>(), count))
            });
        let ips = proptest::sample::subsequence(vec!["1", "2", "3"], 0..3).prop_shuffle();
        (conditions, ips, "[a-c]?", 0..3).prop_map(|((names, truths), ips, reason, count)| {
            let conditions: Vec<Value> = names.iter().zip(truths).map(|(name, truth)| condition(name, &truth.to_string())).collect();
            let mut status = json!({"phase": "Running", "conditions": conditions, "podIPs": ips.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>(),
                "containerStatuses": (0..count).map(|index| json!({"name": index.to_string()})).collect::<Vec<_>>()});
            if !reason.is_empty() {
                status["reason"] = json!(reason);
            }
            status
        })
    }

    proptest! {
        #[test]
        fn the_patch_gives_our_status_and_then_nothing_more(base in status(), ours in status()) {
            let after = applied(&base, &ours);
            prop_assert_eq!(&after, &ours);
            prop_assert_eq!(patch(&after, &ours, "u"), None);
        }
    }
}
