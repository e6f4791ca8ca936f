//! Keeps the status of disruption budgets: how many pods there should be, are healthy, and may be taken away now.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use crate::apiserver::error::ApiError;
use crate::apiserver::object::{list, meta, text, time};
use crate::apiserver::registry::{Part, Registry, WriteOptions};
use crate::apiserver::resources::{PODDISRUPTIONBUDGETS, PODS};
use crate::apiserver::{percent, selects};

/// How long an eviction counts while the pod has not begun to go.
const PATIENCE: SignedDuration = SignedDuration::from_secs(120);

/// How many owners above a pod are looked at: a replica set and its deployment, and one to spare.
const OWNERS: usize = 3;

/// Between two looks while evictions are on their way.
const EVERY: Duration = Duration::from_secs(20);

pub(super) async fn run(registry: Registry, token: CancellationToken) {
    let mut budgets = Feed::new(&registry, &PODDISRUPTIONBUDGETS);
    let mut pods = Feed::new(&registry, &PODS);
    let mut waiting = BTreeSet::new();
    loop {
        let namespaces: BTreeSet<String> = tokio::select! {
            biased;
            () = token.cancelled() => return,
            keys = budgets.next() => keys.into_iter().map(|(namespace, _)| namespace).collect(),
            keys = pods.next() => keys.into_iter().map(|(namespace, _)| namespace).collect(),
            () = tokio::time::sleep(EVERY), if !waiting.is_empty() => std::mem::take(&mut waiting),
        };
        for namespace in namespaces {
            match look(&registry, &namespace).await {
                Ok(true) => {
                    waiting.insert(namespace);
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%namespace, %error, "disruption budgets could not be brought up to date"),
            }
        }
    }
}

/// Brings a namespace's budgets up to date. Returns whether evictions are on their way.
async fn look(registry: &Registry, namespace: &str) -> Result<bool, ApiError> {
    if registry.count(&PODDISRUPTIONBUDGETS, namespace) == 0 {
        return Ok(false);
    }
    let (budgets, _) = registry.list_values(&PODDISRUPTIONBUDGETS, namespace)?;
    let (pods, _) = registry.list_values(&PODS, namespace)?;
    let now = registry.clock().now();
    let mut waits = false;
    for budget in budgets {
        let chosen: Vec<&Value> = pods
            .iter()
            .filter(|pod| budget.pointer("/spec/selector").is_some_and(|selector| selects(selector, pod)))
            .filter(|pod| !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed"))
            .collect();
        let expected = expected(registry, &budget, &chosen)?;
        let status = status(&budget, &chosen, expected, now);
        waits |= status.get("disruptedPods").is_some();
        let change = |mut current: Value| {
            // Somebody evicted meanwhile: his event brings us here again.
            let same = meta(&current, "resourceVersion") == meta(&budget, "resourceVersion");
            if !same || current.get("status") == Some(&status) {
                return Ok(None);
            }
            current["status"] = status.clone();
            Ok(Some(current))
        };
        let own = WriteOptions::default();
        match registry.modify(&PODDISRUPTIONBUDGETS, namespace, meta(&budget, "name"), Part::Status, &own, change).await
        {
            Err(error) if !error.is_not_found() => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(waits)
}

/// How many pods there should be. A budget in whole numbers of what must stay counts the pods; all others need to know
/// how many their owners want.
fn expected(registry: &Registry, budget: &Value, pods: &[&Value]) -> Result<i64, ApiError> {
    let whole = budget.pointer("/spec/minAvailable").is_some_and(Value::is_i64);
    if whole {
        return Ok(i64::try_from(pods.len()).unwrap_or(i64::MAX));
    }
    let mut wanted: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods {
        if let Some((uid, replicas)) = scale_of(registry, pod)? {
            wanted.insert(uid, replicas);
        }
    }
    Ok(wanted.values().sum())
}

/// Follows controllers up to the last that says how many it wants.
fn scale_of(registry: &Registry, object: &Value) -> Result<Option<(String, i64)>, ApiError> {
    let mut found = None;
    let mut current = object.clone();
    for _ in 0..OWNERS {
        let mut owners = list(&current, "/metadata/ownerReferences").iter();
        let Some(owner) = owners.find(|owner| owner.get("controller") == Some(&json!(true))) else { break };
        let Some(row) = registry.kind(text(owner, "/apiVersion"), text(owner, "/kind")) else { break };
        let namespace = if row.namespaced { meta(object, "namespace") } else { "" };
        let Some(above) = registry.find(row, namespace, text(owner, "/name"))? else { break };
        if meta(&above, "uid") != text(owner, "/uid") {
            break;
        }
        if let Some(replicas) = above.pointer("/spec/replicas").and_then(Value::as_i64) {
            found = Some((meta(&above, "uid").to_owned(), replicas));
        }
        current = above;
    }
    Ok(found)
}

fn status(budget: &Value, pods: &[&Value], expected: i64, now: Timestamp) -> Value {
    let spec = |key: &str| budget.pointer(&format!("/spec/{key}"));
    // Percentages are rounded up, of what must stay and of what may go.
    let amount = |value: &Value| match percent(value) {
        Some(percent) => (percent * expected + 99) / 100,
        None => value.as_i64().unwrap_or(0),
    };
    let desired = match (spec("maxUnavailable"), spec("minAvailable")) {
        (Some(most), _) => (expected - amount(most)).max(0),
        (None, Some(least)) => amount(least),
        (None, None) => 0,
    };
    let mut disrupted = Map::new();
    let known = budget.pointer("/status/disruptedPods").and_then(Value::as_object);
    for (name, at) in known.into_iter().flatten() {
        let there = pods.iter().any(|pod| meta(pod, "name") == name && !is_going(pod));
        let since = at.as_str().and_then(|at| at.parse::<Timestamp>().ok()).unwrap_or(now);
        if there && now.duration_since(since) < PATIENCE {
            disrupted.insert(name.clone(), at.clone());
        }
    }
    let healthy =
        pods.iter().filter(|pod| is_ready(pod) && !is_going(pod) && !disrupted.contains_key(meta(pod, "name")));
    let healthy = i64::try_from(healthy.count()).unwrap_or(i64::MAX);
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let generation = budget.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
    let mut status = json!({"observedGeneration": generation, "disruptionsAllowed": allowed, "currentHealthy": healthy,
        "desiredHealthy": desired, "expectedPods": expected, "conditions": conditions(budget, allowed, generation, now)});
    if !disrupted.is_empty() {
        status["disruptedPods"] = json!(disrupted);
    }
    status
}

fn conditions(budget: &Value, allowed: i64, generation: i64, now: Timestamp) -> Value {
    let (state, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let old = list(budget, "/status/conditions").iter().find(|own| text(own, "/type") == "DisruptionAllowed");
    let since = match old {
        Some(old) if text(old, "/status") == state => text(old, "/lastTransitionTime").to_owned(),
        _ => time(now),
    };
    json!([{"type": "DisruptionAllowed", "status": state, "reason": reason, "message": "",
        "observedGeneration": generation, "lastTransitionTime": since}])
}

fn is_going(pod: &Value) -> bool {
    !text(pod, "/metadata/deletionTimestamp").is_empty()
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = list(pod, "/status/conditions").iter();
    conditions.any(|own| text(own, "/type") == "Ready" && text(own, "/status") == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, ready: bool) -> Value {
        let ready = if ready { "True" } else { "False" };
        json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn a_budget_allows_what_is_over() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let pods = [pod("a", true), pod("b", true), pod("c", true), pod("d", false)];
        let pods: Vec<&Value> = pods.iter().collect();
        for (spec, desired, allowed) in [
            (json!({"minAvailable": 2}), 2, 1),
            (json!({"minAvailable": 4}), 4, 0),
            (json!({"minAvailable": "51%"}), 3, 0),
            (json!({"maxUnavailable": 2}), 2, 1),
            (json!({"maxUnavailable": "25%"}), 3, 0),
            (json!({"maxUnavailable": "100%"}), 0, 3),
        ] {
            let status = status(&json!({"metadata": {"generation": 3}, "spec": spec}), &pods, 4, now);
            assert_eq!(
                (&status["desiredHealthy"], &status["disruptionsAllowed"]),
                (&json!(desired), &json!(allowed)),
                "{spec}"
            );
            assert_eq!(status["currentHealthy"], 3);
        }
    }

    #[test]
    fn an_eviction_on_its_way_counts_for_two_minutes() {
        let now: Timestamp = "2026-01-01T00:02:00Z".parse().unwrap();
        let (pod_a, pod_b) = (pod("a", true), pod("b", true));
        let budget = |at: &str| json!({"spec": {"minAvailable": 1}, "status": {"disruptedPods": {"a": at}}});
        let fresh = status(&budget("2026-01-01T00:01:00Z"), &[&pod_a, &pod_b], 2, now);
        assert_eq!((&fresh["currentHealthy"], &fresh["disruptionsAllowed"]), (&json!(1), &json!(0)));
        let old = status(&budget("2026-01-01T00:00:00Z"), &[&pod_a, &pod_b], 2, now);
        assert_eq!((&old["currentHealthy"], old.get("disruptedPods")), (&json!(2), None));
    }
}
