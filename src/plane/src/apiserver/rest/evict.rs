//! Evictions: deletions of pods that ask the disruption budgets first.

use axum::body::Body;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

use super::write::{read_delete_options, success};
use super::{Call, wanted};
use crate::apiserver::error::ApiError;
use crate::apiserver::negotiate::{check_kind, decode, read_body};
use crate::apiserver::object::{child, list, meta, text, time};
use crate::apiserver::registry::{DeleteOptions, Part, WriteOptions};
use crate::apiserver::resources::{PODDISRUPTIONBUDGETS, PODS};
use crate::apiserver::server::Api;
use crate::apiserver::strategy::selector_of;

pub(super) async fn evict(api: &Api, call: &Call, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let wanted = wanted(request.headers())?;
    let (parts, body) = request.into_parts();
    let eviction = decode(&parts.headers, "Eviction", &read_body(body).await?)?;
    check_kind(&eviction, "policy/v1", "Eviction")?;
    let sent = text(&eviction, "/metadata/name");
    if !sent.is_empty() && sent != call.name() {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = DeleteOptions { write: call.write_options()?, ..DeleteOptions::default() };
    if let Some(sent) = eviction.get("deleteOptions").filter(|sent| !sent.is_null()) {
        read_delete_options(sent, &mut options)?;
    }
    let namespace = &call.info.attributes.namespace;
    let pod = api.registry().get(&PODS, namespace, call.name())?.value()?;
    let ended = matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed" | "Pending");
    if !ended && text(&pod, "/metadata/deletionTimestamp").is_empty() {
        ask_budget(api, namespace, &pod, options.write.dry_run).await?;
    }
    if options.uid.is_none() {
        options.uid = Some(meta(&pod, "uid").to_owned());
    }
    api.registry().delete(&PODS, namespace, call.name(), &options).await?;
    success(StatusCode::CREATED, wanted, None)
}

/// Takes one disruption out of the budget that a pod is under.
async fn ask_budget(api: &Api, namespace: &str, pod: &Value, dry_run: bool) -> Result<(), ApiError> {
    let (budgets, _) = api.registry().list_values(&PODDISRUPTIONBUDGETS, namespace)?;
    let mut over = budgets.iter().filter(|budget| selector_of(budget, "/spec/selector").matches_object(pod));
    let Some(budget) = over.next() else { return Ok(()) };
    if over.next().is_some() {
        let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", text)
            .with(json!({"causes": [{"message": text}]})));
    }
    let ready = list(pod, "/status/conditions")
        .iter()
        .any(|own| text(own, "/type") == "Ready" && text(own, "/status") == "True");
    let number =
        |budget: &Value, key: &str| budget.pointer(&format!("/status/{key}")).and_then(Value::as_i64).unwrap_or(0);
    if !ready {
        // What does not run well anyway may go if enough others do, or if the budget says so.
        let always = text(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow";
        let (healthy, desired) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
        if always || (healthy >= desired && desired > 0) {
            return Ok(());
        }
    }
    let name = meta(budget, "name").to_owned();
    let pod_name = meta(pod, "name").to_owned();
    let now = time(api.registry().clock().now());
    let change = |mut budget: Value| {
        let observed = number(&budget, "observedGeneration");
        let generation = budget.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
        if observed < generation {
            return Err(refusal(&format!("The disruption budget {name} is still being processed by the server.")));
        }
        let allowed = number(&budget, "disruptionsAllowed");
        if allowed <= 0 {
            let (needed, have) = (number(&budget, "desiredHealthy"), number(&budget, "currentHealthy"));
            let text = format!("The disruption budget {name} needs {needed} healthy pods and has {have} currently");
            return Err(refusal(&text));
        }
        let status = child(&mut budget, "status");
        status.insert("disruptionsAllowed".to_owned(), json!(allowed - 1));
        status.entry("disruptedPods").or_insert_with(|| json!({}))[&pod_name] = json!(now);
        Ok(Some(budget))
    };
    let own = WriteOptions { dry_run, ..WriteOptions::default() };
    api.registry().modify(&PODDISRUPTIONBUDGETS, namespace, &name, Part::Status, &own, change).await.map(drop)
}

fn refusal(detail: &str) -> ApiError {
    let text = "Cannot evict pod as it would violate the pod's disruption budget.";
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", text)
        .with(json!({"causes": [{"reason": "DisruptionBudget", "message": detail}]}))
}
