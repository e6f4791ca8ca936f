//! The number of copies of a workload, read and written through the `Scale` of `autoscaling`.

use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use longshore_api::custom::definition::Scale;
use serde_json::{Map, Value, json};

use super::read::one;
use super::{Call, wanted};
use crate::apiserver::error::{ApiError, Cause};
use crate::apiserver::negotiate::{check_kind, decode, media_type, read_body};
use crate::apiserver::object::{Object, child, copy, meta, metadata, text, text_of};
use crate::apiserver::patch::Patch;
use crate::apiserver::registry::Part;
use crate::apiserver::resources::{Resource, SCALES};
use crate::apiserver::server::Api;
use crate::apiserver::strategy::selector_of;

/// Answers `.../NAME/scale`.
pub(super) async fn scale(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let form = wanted(request.headers())?;
    let namespace = call.namespace(resource);
    let stored = api.registry().get(resource, namespace, call.name())?;
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return one(api, call, &SCALES, StatusCode::OK, form, shown(resource, &stored)?);
    }
    let options = call.write_options()?;
    let (parts, body) = request.into_parts();
    let body = read_body(body).await?;
    let sent = if parts.method == Method::PATCH {
        let before = scale_of(resource, &resource.read(&stored)?);
        Patch::parse(&media_type(&parts.headers), &body)?.apply(&SCALES, &before)?
    } else {
        let sent = decode(&parts.headers, SCALES.kind, &body)?;
        check_kind(&sent, &SCALES.api_version(), SCALES.kind)?;
        sent
    };
    let name = meta(&sent, "name");
    if !name.is_empty() && name != call.name() {
        let text = format!("the name of the object ({name}) does not match the name on the URL ({})", call.name());
        return Err(ApiError::bad_request(text));
    }
    let replicas = match sent.pointer("/spec/replicas") {
        None | Some(Value::Null) => 0,
        Some(number) => number.as_i64().ok_or_else(|| {
            ApiError::bad_request("Scale in version \"v1\" cannot be handled as a Scale: spec.replicas is no number")
        })?,
    };
    if replicas < 0 {
        let cause = Cause::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0");
        return Err(ApiError::invalid(&SCALES, call.name(), vec![cause]));
    }
    let change = |mut object: Value| {
        let uid = meta(&sent, "uid");
        if !uid.is_empty() && uid != meta(&object, "uid") {
            let own = meta(&object, "uid");
            let text = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own}");
            return Err(ApiError::conflict(resource, call.name(), resource.plural, &text));
        }
        let version = meta(&sent, "resourceVersion");
        if !version.is_empty() {
            metadata(&mut object).insert("resourceVersion".to_owned(), json!(version));
        }
        match scale_paths(resource) {
            Some(paths) => put(&mut object, &paths.spec, replicas),
            None => drop(child(&mut object, "spec").insert("replicas".to_owned(), json!(replicas))),
        }
        Ok(Some(object))
    };
    let written = api.registry().modify(resource, namespace, call.name(), Part::Main, &options, change).await?;
    one(api, call, &SCALES, StatusCode::OK, form, shown(resource, &written)?)
}

/// Where a custom kind keeps its numbers.
fn scale_paths(resource: &Resource) -> Option<Scale> {
    resource.custom?.served()?.version().scale.clone()
}

/// Sets a number below maps that are made where they are missing.
fn put(object: &mut Value, path: &[String], number: i64) {
    let Some((last, before)) = path.split_last() else { return };
    let mut at = object;
    for name in before {
        child(at, name);
        at = &mut at[name];
    }
    if !at.is_object() {
        *at = json!({});
    }
    at[last] = json!(number);
}

fn shown(resource: &Resource, object: &Object) -> Result<Object, ApiError> {
    let scale = scale_of(resource, &resource.read(object)?);
    Ok(Object { text: text_of(&scale).into(), revision: object.revision })
}

fn scale_of(resource: &Resource, object: &Value) -> Value {
    let mut head = Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        copy(&mut head, object.get("metadata"), key);
    }
    let paths = scale_paths(resource);
    let at = |path: &[String]| path.iter().try_fold(object, |value, name| value.get(name));
    let pointer = |pointer: &str| object.pointer(pointer);
    let (wanted, present) = match &paths {
        Some(paths) => (at(&paths.spec), at(&paths.status)),
        None => (pointer("/spec/replicas"), pointer("/status/replicas")),
    };
    let number = |value: Option<&Value>| value.and_then(Value::as_i64).unwrap_or(0);
    let mut spec = Map::new();
    if number(wanted) != 0 {
        spec.insert("replicas".to_owned(), json!(number(wanted)));
    }
    let mut status = json!({"replicas": number(present)});
    let selector = match &paths {
        Some(paths) => {
            let text = paths.selector.as_deref().and_then(at).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        }
        None => selector_text(object),
    };
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": head, "spec": spec, "status": status})
}

/// Replication controllers have plain pairs, all others a selector.
fn selector_text(object: &Value) -> String {
    if text(object, "/kind") == "ReplicationController" {
        let pairs = object.pointer("/spec/selector").and_then(Value::as_object).into_iter().flatten();
        let pairs: Vec<String> =
            pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
        return pairs.join(",");
    }
    selector_of(object, "/spec/selector").to_string()
}
