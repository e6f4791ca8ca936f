//! Create, update, patch, delete.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use longshore_util::yaml;
use serde_json::{Value, json};

use super::read::{list_options, many, one};
use super::{Call, fields, may_create, wanted};
use crate::apiserver::error::{ApiError, Cause};
use crate::apiserver::negotiate::{self, Wanted, answer, check_depth, check_kind, media_type, read_body};
use crate::apiserver::object::meta;
use crate::apiserver::patch::Patch;
use crate::apiserver::registry::{Apply, DeleteOptions, ObjectList, Part, Propagation, WriteOptions, bad_types};
use crate::apiserver::resources::{JOBS, Resource};
use crate::apiserver::server::Api;

/// A server-side apply.
const APPLY: &str = "application/apply-patch+yaml";

/// What comes with a whole object.
struct Sent {
    wanted: Wanted,
    options: WriteOptions,
    object: Value,
}

impl Sent {
    async fn read(call: &Call, resource: &'static Resource, request: Request<Body>) -> Result<Self, ApiError> {
        let wanted = wanted(request.headers())?;
        let options = call.write_options()?;
        let (parts, body) = request.into_parts();
        let (object, findings) = negotiate::decode_object(&parts.headers, resource, &read_body(body).await?)?;
        options.judge(&findings).map_err(|text| bad_types(resource, &text))?;
        let object = if resource.stored_as.is_some() {
            resource.strategy.decode(&object).map_err(|detail| bad_types(resource, &detail))?;
            let causes =
                if call.info.attributes.verb == "create" { resource.strategy.validate(&object) } else { Vec::new() };
            if !causes.is_empty() {
                return Err(ApiError::invalid(resource.stored(), meta(&object, "name"), causes));
            }
            resource.strategy.kept(object)
        } else {
            object
        };
        Ok(Self { wanted, options, object })
    }
}

pub(super) async fn create(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let Sent { wanted, options, object } = Sent::read(call, resource, request).await?;
    let made = api.registry().create(resource.stored(), call.namespace(resource), object, &options).await?;
    one(api, call, resource, StatusCode::CREATED, wanted, made).map(|response| fields::told(&options, response))
}

pub(super) async fn update(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    part: Part,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let Sent { wanted, options, object } = Sent::read(call, resource, request).await?;
    if meta(&object, "name").is_empty() {
        return Err(ApiError::bad_request("name must be provided"));
    }
    let (written, new) =
        api.registry().update(resource.stored(), call.namespace(resource), call.name(), part, object, &options).await?;
    let code = if new { StatusCode::CREATED } else { StatusCode::OK };
    one(api, call, resource, code, wanted, written).map(|response| fields::told(&options, response))
}

pub(super) async fn patch(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    part: Part,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let wanted = wanted(request.headers())?;
    let options = call.write_options()?;
    let (parts, body) = request.into_parts();
    let body = read_body(body).await?;
    let media_type = media_type(&parts.headers);
    if media_type == APPLY {
        return apply(api, call, resource, part, &body, wanted, &options).await;
    }
    if !call.query.get("force").is_empty() {
        let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
        return Err(ApiError::bad_option("PatchOptions", &cause));
    }
    let patch = Patch::parse(&media_type, &body)?.through(resource);
    let written =
        api.registry().patch(resource.stored(), call.namespace(resource), call.name(), part, &patch, &options).await?;
    one(api, call, resource, StatusCode::OK, wanted, written).map(|response| fields::told(&options, response))
}

async fn apply(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    part: Part,
    body: &[u8],
    wanted: Wanted,
    options: &WriteOptions,
) -> Result<Response<Body>, ApiError> {
    if call.query.get("fieldManager").is_empty() {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(ApiError::bad_option("PatchOptions", &cause));
    }
    let sent = match serde_json::from_slice(body) {
        Ok(sent) => sent,
        Err(_) => {
            let text = std::str::from_utf8(body)
                .map_err(|_| ApiError::bad_request("error decoding YAML: the body is not UTF-8"))?;
            yaml::to_value(text).map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?
        }
    };
    check_kind(&sent, &resource.api_version(), resource.kind)?;
    check_depth(&sent, resource.kind)?;
    let sent = if resource.stored_as.is_some() { resource.strategy.kept(sent) } else { sent };
    let namespace = call.namespace(resource);
    if api.registry().find(resource.stored(), namespace, call.name())?.is_none() {
        // What is not there is created, which takes the right to do that.
        may_create(api, call)?;
    }
    let apply = Apply { object: sent, force: call.query.flag("force") };
    let (written, new) = api.registry().apply(resource.stored(), namespace, call.name(), part, apply, options).await?;
    let code = if new { StatusCode::CREATED } else { StatusCode::OK };
    one(api, call, resource, code, wanted, written).map(|response| fields::told(options, response))
}

pub(super) async fn delete(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let wanted = wanted(request.headers())?;
    let (parts, body) = request.into_parts();
    let options = delete_options(call, &parts.headers, &read_body(body).await?)?;
    let done = api.registry().delete(resource.stored(), call.namespace(resource), call.name(), &options).await?;
    let told = |response| {
        if std::ptr::eq(resource, &JOBS) && options.propagation.is_none() { warned(response) } else { response }
    };
    if done.gone && !resource.returns_deleted {
        let object = done.object.value()?;
        let mut details = json!({"name": call.name(), "kind": resource.plural, "uid": meta(&object, "uid")});
        if !resource.group.is_empty() {
            details["group"] = json!(resource.group);
        }
        return success(StatusCode::OK, wanted, Some(details)).map(told);
    }
    // Upstream says that something is still to be done only to those who asked to wait for it.
    let waits = !done.gone && options.propagation == Some(Propagation::Foreground);
    let code = if waits { StatusCode::ACCEPTED } else { StatusCode::OK };
    one(api, call, resource, code, wanted, done.object).map(told)
}

/// Jobs leave their pods behind unless a client says otherwise; few expect that.
fn warned(mut response: Response<Body>) -> Response<Body> {
    let text = "299 - \"child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                remove them or set propagationPolicy=Orphan to suppress this warning\"";
    response.headers_mut().append(header::WARNING, HeaderValue::from_static(text));
    response
}

pub(super) async fn delete_collection(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let wanted = wanted(request.headers())?;
    let selection = list_options(call, resource)?;
    let (parts, body) = request.into_parts();
    let options = delete_options(call, &parts.headers, &read_body(body).await?)?;
    let items =
        api.registry().delete_collection(resource.stored(), call.namespace(resource), &selection, &options).await?;
    let list = ObjectList { items, revision: api.registry().revision(), ..ObjectList::default() };
    many(api, call, resource, wanted, &list)
}

/// Answers with a `Status` that says "done".
pub(super) fn success(code: StatusCode, wanted: Wanted, details: Option<Value>) -> Result<Response<Body>, ApiError> {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    match details {
        Some(details) => status["details"] = details,
        None => status["code"] = json!(code.as_u16()),
    }
    answer(code, wanted, Bytes::from(status.to_string()))
}

/// Reads `DeleteOptions` from body and query; the body wins.
pub(super) fn delete_options(call: &Call, headers: &HeaderMap, body: &[u8]) -> Result<DeleteOptions, ApiError> {
    let mut options = DeleteOptions { write: call.write_options()?, ..DeleteOptions::default() };
    let grace = call.query.get("gracePeriodSeconds");
    if !grace.is_empty() {
        options.grace =
            Some(grace.parse().map_err(|_| ApiError::bad_request(format!("invalid gracePeriodSeconds {grace:?}")))?);
    }
    let mut asked = json!({});
    for key in ["propagationPolicy", "orphanDependents"] {
        let value = call.query.get(key);
        if !value.is_empty() {
            asked[key] = if key == "orphanDependents" { json!(call.query.flag(key)) } else { json!(value) };
        }
    }
    options.propagation = propagation(&asked)?;
    if body.is_empty() {
        return Ok(options);
    }
    let sent = negotiate::decode(headers, "DeleteOptions", body)?;
    read_delete_options(&sent, &mut options)?;
    Ok(options)
}

/// Reads what shall become of others: a policy, or the old word for two of them.
fn propagation(sent: &Value) -> Result<Option<Propagation>, ApiError> {
    let invalid = |detail: String| {
        let field = "propagationPolicy";
        let text = format!("DeleteOptions.meta.k8s.io \"\" is invalid: {field}: {detail}");
        let cause = json!({"reason": "FieldValueInvalid", "message": detail, "field": field});
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text)
            .with(json!({"group": "meta.k8s.io", "kind": "DeleteOptions", "causes": [cause]}))
    };
    let policy = sent.get("propagationPolicy").and_then(Value::as_str);
    let orphans = sent.get("orphanDependents").and_then(Value::as_bool);
    Ok(match (policy, orphans) {
        (Some(policy), Some(_)) => {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            return Err(invalid(format!("Invalid value: {policy:?}: {detail}")));
        }
        (Some("Orphan"), None) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some("Background"), None) | (None, Some(false)) => Some(Propagation::Background),
        (Some("Foreground"), None) => Some(Propagation::Foreground),
        (Some(other), None) => {
            let known = "supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
            return Err(invalid(format!("Unsupported value: {other:?}: {known}")));
        }
        (None, None) => None,
    })
}

pub(super) fn read_delete_options(sent: &Value, options: &mut DeleteOptions) -> Result<(), ApiError> {
    let bad = |field: &str| ApiError::bad_request(format!("DeleteOptions: {field} has the wrong type"));
    if !sent.is_object() {
        return Err(bad("the body"));
    }
    match sent.get("gracePeriodSeconds") {
        None | Some(Value::Null) => {}
        Some(grace) => options.grace = Some(grace.as_i64().ok_or_else(|| bad("gracePeriodSeconds"))?),
    }
    let text = |pointer: &str| match sent.pointer(pointer) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(bad(pointer)),
    };
    options.propagation = propagation(sent)?.or(options.propagation);
    options.uid = text("/preconditions/uid")?;
    options.resource_version = text("/preconditions/resourceVersion")?;
    match sent.get("dryRun") {
        None | Some(Value::Null) => {}
        Some(Value::Array(items)) if items.iter().all(|item| item == "All") => {
            options.write.dry_run |= !items.is_empty();
        }
        Some(_) => return Err(bad("dryRun")),
    }
    Ok(())
}
