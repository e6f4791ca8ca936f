//! Resource quotas: what a namespace holds, counted from what is stored, against what it may hold.
//!
//! Nothing is kept in between: all objects are in memory, so a count is a walk over one namespace. The status that people
//! read is written by a loop of the plane's.

use std::collections::BTreeMap;

use longshore_api::quantity::Quantity;
use serde_json::{Value, json};

use super::error::ApiError;
use super::object::{list, meta, text};
use super::registry::Registry;
use super::resources::{PERSISTENTVOLUMECLAIMS, PODS, RESOURCEQUOTAS, Resource, SERVICES};
use super::rules;

/// Amounts by the names that quotas have for them.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// Kinds whose number has a name of its own, besides `count/KIND`.
const COUNTED: [&str; 7] =
    ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"];

/// Resources of pods that have a name without `requests.` in front, too.
const BARE: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];

const CLASS_STORAGE: &str = ".storageclass.storage.k8s.io/requests.storage";
const CLASS_CLAIMS: &str = ".storageclass.storage.k8s.io/persistentvolumeclaims";

/// Refuses a new object that its namespace has no room for. The caller holds the lock on quotas.
pub(super) fn check(registry: &Registry, resource: &'static Resource, object: &Value) -> Result<(), ApiError> {
    let namespace = meta(object, "namespace");
    let (quotas, _) = registry.list_values(&RESOURCEQUOTAS, namespace)?;
    for quota in &quotas {
        let hard = hard(quota);
        let wanted = only(of_object(resource, object, quota), &hard);
        if wanted.is_empty() {
            continue;
        }
        let (name, shown) = (meta(quota, "name"), meta(object, "name"));
        if std::ptr::eq(resource, &PODS)
            && let Some(lacks) = unsaid(object, &hard)
        {
            let text = format!("failed quota: {name}: must specify {lacks}");
            return Err(ApiError::forbidden(resource, shown, &text));
        }
        let used = used(registry, quota)?;
        let over = |name: &&String| {
            let zero = Quantity::default();
            let sum = used.get(*name).unwrap_or(&zero).plus(&wanted[*name]);
            hard.get(*name).is_some_and(|hard| sum > *hard)
        };
        let names: Vec<&String> = wanted.keys().filter(over).collect();
        if !names.is_empty() {
            let words = |amounts: &Amounts| {
                let all = names.iter().filter_map(|name| Some(format!("{name}={}", amounts.get(*name)?)));
                all.collect::<Vec<_>>().join(",")
            };
            let text = format!(
                "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
                words(&wanted),
                words(&used),
                words(&hard)
            );
            return Err(ApiError::forbidden(resource, shown, &text));
        }
    }
    Ok(())
}

/// Returns what a quota allows.
pub(crate) fn hard(quota: &Value) -> Amounts {
    amounts(quota, "/spec/hard")
}

/// Returns how much of what a quota names is in use.
pub(crate) fn used(registry: &Registry, quota: &Value) -> Result<Amounts, ApiError> {
    let namespace = meta(quota, "namespace");
    let hard = hard(quota);
    let mut used: Amounts = hard.keys().map(|name| (name.clone(), Quantity::default())).collect();
    let rows = registry.stored().into_iter().filter(|row| row.namespaced && concerns(row, &hard));
    for row in rows.filter(|row| registry.count(row, namespace) > 0) {
        let (objects, _) = registry.list_values(row, namespace)?;
        for object in &objects {
            add(&mut used, only(of_object(row, object, quota), &hard));
        }
    }
    Ok(used)
}

/// Whether a quota can say something of a kind: kinds that it does not name are not walked through.
fn concerns(row: &Resource, hard: &Amounts) -> bool {
    let count = format!("count/{}", row.full_name());
    hard.keys().any(|name| {
        *name == count
            || (row.group.is_empty() && *name == row.plural)
            || (std::ptr::eq(row, &SERVICES) && name.starts_with("services."))
            || (std::ptr::eq(row, &PERSISTENTVOLUMECLAIMS)
                && (name == "requests.storage" || name.contains(".storageclass.")))
            || (std::ptr::eq(row, &PODS)
                && (BARE.contains(&name.as_str()) || name.starts_with("requests.") || name.starts_with("limits.")))
    })
}

/// Returns what one object takes of a quota.
fn of_object(row: &Resource, object: &Value, quota: &Value) -> Amounts {
    let mut taken = Amounts::new();
    let is_pod = std::ptr::eq(row, &PODS);
    let scoped = quota.pointer("/spec/scopes").is_some() || quota.pointer("/spec/scopeSelector").is_some();
    if scoped && !(is_pod && in_scope(object, quota)) {
        return taken;
    }
    let one = Quantity::parse("1").unwrap_or_default();
    taken.insert(format!("count/{}", row.full_name()), one);
    if is_pod && matches!(text(object, "/status/phase"), "Succeeded" | "Failed") {
        return taken;
    }
    if row.group.is_empty() && COUNTED.contains(&row.plural) {
        taken.insert(row.plural.to_owned(), one);
    }
    if is_pod {
        for (kind, prefix) in [("requests", "requests."), ("limits", "limits.")] {
            for (name, amount) in of_pod(object, kind) {
                if kind == "requests" && BARE.contains(&name.as_str()) {
                    taken.insert(name.clone(), amount);
                }
                taken.insert(format!("{prefix}{name}"), amount);
            }
        }
    } else if std::ptr::eq(row, &SERVICES) {
        match text(object, "/spec/type") {
            "LoadBalancer" => drop(taken.insert("services.loadbalancers".to_owned(), one)),
            "NodePort" => drop(taken.insert("services.nodeports".to_owned(), one)),
            _ => {}
        }
    } else if std::ptr::eq(row, &PERSISTENTVOLUMECLAIMS) {
        let class = text(object, "/spec/storageClassName");
        let storage = amounts(object, "/spec/resources/requests").remove("storage");
        if let Some(storage) = storage {
            if !class.is_empty() {
                taken.insert(format!("{class}{CLASS_STORAGE}"), storage);
            }
            taken.insert("requests.storage".to_owned(), storage);
        }
        if !class.is_empty() {
            taken.insert(format!("{class}{CLASS_CLAIMS}"), one);
        }
    }
    taken
}

/// What the containers of a pod ask for: the sum of those that run together, or the most that one alone needs before.
fn of_pod(pod: &Value, kind: &str) -> Amounts {
    let pointer = format!("/resources/{kind}");
    let mut total = Amounts::new();
    let runs_on = |container: &&Value| text(container, "/restartPolicy") == "Always";
    let sidecars = list(pod, "/spec/initContainers").iter().filter(runs_on);
    for container in list(pod, "/spec/containers").iter().chain(sidecars) {
        add(&mut total, amounts(container, &pointer));
    }
    for container in list(pod, "/spec/initContainers").iter().filter(|container| !runs_on(container)) {
        for (name, amount) in amounts(container, &pointer) {
            if total.get(&name).is_none_or(|sum| *sum < amount) {
                total.insert(name, amount);
            }
        }
    }
    add(&mut total, amounts(pod, "/spec/overhead"));
    total
}

fn amounts(of: &Value, pointer: &str) -> Amounts {
    let map = of.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    map.filter_map(|(name, value)| Some((name.clone(), Quantity::parse(value.as_str()?).ok()?))).collect()
}

fn add(to: &mut Amounts, more: Amounts) {
    for (name, amount) in more {
        let sum = to.get(&name).map_or(amount, |own| own.plus(&amount));
        to.insert(name, sum);
    }
}

fn only(mut amounts: Amounts, hard: &Amounts) -> Amounts {
    amounts.retain(|name, _| hard.contains_key(name));
    amounts
}

/// Says for which containers a pod must say what a quota counts.
fn unsaid(pod: &Value, hard: &Amounts) -> Option<String> {
    let mut lacks = Vec::new();
    for name in hard.keys() {
        let (kind, resource) = match name.split_once('.') {
            Some((kind @ ("requests" | "limits"), resource)) => (kind, resource),
            _ if BARE.contains(&name.as_str()) => ("requests", name.as_str()),
            _ => continue,
        };
        if !BARE.contains(&resource) {
            continue;
        }
        let containers = ["/spec/containers", "/spec/initContainers"].iter().flat_map(|path| list(pod, path));
        let silent =
            containers.filter(|container| !amounts(container, &format!("/resources/{kind}")).contains_key(resource));
        let names: Vec<&str> = silent.map(|container| text(container, "/name")).collect();
        if !names.is_empty() {
            lacks.push(format!("{name} for: {}", names.join(",")));
        }
    }
    if lacks.is_empty() { None } else { Some(lacks.join("; ")) }
}

/// Whether a pod is one of those that a quota is about.
fn in_scope(pod: &Value, quota: &Value) -> bool {
    let plain = list(quota, "/spec/scopes").iter().filter_map(Value::as_str);
    if !plain.into_iter().all(|scope| has_scope(pod, scope, "Exists", &[])) {
        return false;
    }
    list(quota, "/spec/scopeSelector/matchExpressions")
        .iter()
        .all(|term| has_scope(pod, text(term, "/scopeName"), text(term, "/operator"), list(term, "/values")))
}

fn has_scope(pod: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
    let ends = pod.pointer("/spec/activeDeadlineSeconds").is_some();
    let best_effort = rules::qos(pod) == "BestEffort";
    match scope {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        "PriorityClass" => {
            let class = json!(text(pod, "/spec/priorityClassName"));
            let some = class != "";
            match operator {
                "In" => values.contains(&class),
                "NotIn" => !values.contains(&class),
                "DoesNotExist" => !some,
                _ => some,
            }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(requests: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3"}}}],
            "containers": [{"name": "c", "resources": {"requests": requests}}, {"name": "d", "resources": {"requests": requests}}]}})
    }

    fn shown(amounts: &Amounts) -> Vec<String> {
        amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
    }

    #[test]
    fn a_pod_takes_what_its_containers_ask_for_together_or_one_before() {
        let hard: Amounts = amounts(&json!({"cpu": "1", "requests.memory": "1", "pods": "1", "count/pods": "1"}), "");
        let taken = only(of_object(&PODS, &pod(json!({"cpu": "1", "memory": "1Gi"})), &json!({})), &hard);
        assert_eq!(shown(&taken), ["count/pods=1", "cpu=3", "pods=1", "requests.memory=2Gi"]);
        let mut ended = pod(json!({"cpu": "1"}));
        ended["status"] = json!({"phase": "Succeeded"});
        assert_eq!(shown(&only(of_object(&PODS, &ended, &json!({})), &hard)), ["count/pods=1"]);
    }

    #[test]
    fn what_is_counted_must_be_said() {
        let hard = amounts(&json!({"cpu": "1", "limits.memory": "1", "pods": "1"}), "");
        let lacks = unsaid(&pod(json!({"cpu": "1"})), &hard).unwrap();
        assert_eq!(lacks, "limits.memory for: c,d,i");
        assert_eq!(unsaid(&pod(json!({"cpu": "1"})), &amounts(&json!({"pods": "1"}), "")), None);
    }

    #[test]
    fn a_quota_with_scopes_is_about_some_pods_only() {
        let quota = json!({"spec": {"scopes": ["NotBestEffort", "NotTerminating"]}});
        assert!(in_scope(&pod(json!({"cpu": "1"})), &quota));
        let mut ends = pod(json!({"cpu": "1"}));
        ends["spec"]["activeDeadlineSeconds"] = json!(5);
        assert!(!in_scope(&ends, &quota));
        let selector = json!({"spec": {"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}});
        assert!(!in_scope(&ends, &selector));
        ends["spec"]["priorityClassName"] = json!("high");
        assert!(in_scope(&ends, &selector));
    }
}
