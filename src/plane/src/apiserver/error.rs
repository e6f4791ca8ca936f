//! Errors as clients know them: `Status` objects with the stock reasons, texts and codes.

use std::fmt;

use http::{StatusCode, header};
use longshore_api::managed::Conflict;
use longshore_api::validate::FieldError;
use serde_json::{Map, Value, json};

use super::identity::Forbidden;
use super::resources::Resource;
use crate::store::StoreError;

/// A refusal, ready to be shown.
#[derive(Debug, Clone)]
pub struct ApiError {
    /// HTTP status.
    pub code: StatusCode,
    /// Machine-readable reason; empty where the stock server gives none.
    pub reason: &'static str,
    /// Text for people.
    pub message: String,
    details: Option<Box<Value>>,
}

/// One finding about one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// E.g. `FieldValueInvalid`.
    pub reason: &'static str,
    /// The text behind the field's path.
    pub message: String,
    /// The field's path.
    pub field: String,
}

impl From<FieldError> for Cause {
    fn from(found: FieldError) -> Self {
        Self { reason: found.kind.reason(), message: found.message, field: found.path }
    }
}

impl Cause {
    /// A value that is not allowed.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self { reason: "FieldValueInvalid", message: format!("Invalid value: {value}: {detail}"), field: field.into() }
    }

    /// A value that must be there.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self { reason: "FieldValueRequired", message, field: field.into() }
    }

    /// A value that is none of the known ones.
    pub fn unsupported(field: impl Into<String>, value: &str, known: &[&str]) -> Self {
        let known: Vec<String> = known.iter().map(|known| format!("{known:?}")).collect();
        let message = format!("Unsupported value: {value:?}: supported values: {}", known.join(", "));
        Self { reason: "FieldValueNotSupported", message, field: field.into() }
    }

    /// A value that stands there twice.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self { reason: "FieldValueDuplicate", message: format!("Duplicate value: {value}"), field: field.into() }
    }

    /// A value that names something which is not there.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self { reason: "FieldValueNotFound", message: format!("Not found: {value}"), field: field.into() }
    }

    /// A value or change that is forbidden.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self { reason: "FieldValueForbidden", message: format!("Forbidden: {detail}"), field: field.into() }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl ApiError {
    /// Returns an error without details.
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    /// Returns the error with details.
    pub(crate) fn with(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// 404 for an object.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let full = resource.full_name();
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{full} {name:?} not found")).with(details(
            resource,
            name,
            resource.plural,
        ))
    }

    /// 404 for a path.
    pub fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource").with(json!({}))
    }

    /// 409 for a taken name.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let full = resource.full_name();
        Self::new(StatusCode::CONFLICT, "AlreadyExists", format!("{full} {name:?} already exists")).with(details(
            resource,
            name,
            resource.plural,
        ))
    }

    /// 409 for a stale version.
    pub fn stale(resource: &Resource, name: &str) -> Self {
        let text = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, resource.plural, text)
    }

    /// 409 for another reason; `kind` is what the details and the text call the resource.
    pub fn conflict(resource: &Resource, name: &str, kind: &str, text: &str) -> Self {
        let full = if resource.group.is_empty() { kind.to_owned() } else { format!("{kind}.{}", resource.group) };
        Self::new(StatusCode::CONFLICT, "Conflict", format!("Operation cannot be fulfilled on {full} {name:?}: {text}"))
            .with(details(resource, name, kind))
    }

    /// 409: an apply would change what other managers own.
    pub(crate) fn apply_conflicts(conflicts: &[Conflict]) -> Self {
        let message = match conflicts {
            [one] => format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.path),
            many => {
                let mut lines: Vec<String> = Vec::new();
                for (at, conflict) in many.iter().enumerate() {
                    if at == 0 || many[at - 1].manager != conflict.manager {
                        lines.push(format!("conflicts with {}:", conflict.manager));
                    }
                    lines.push(format!("- {}", conflict.path));
                }
                format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
            }
        };
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|conflict| {
                let text = format!("conflict with {}", conflict.manager);
                json!({"reason": "FieldManagerConflict", "message": text, "field": conflict.path})
            })
            .collect();
        Self::new(StatusCode::CONFLICT, "Conflict", message).with(json!({"causes": causes}))
    }

    /// 422: an option of a request is not allowed. `kind` is that of the options, e.g. `PatchOptions`.
    pub(crate) fn bad_option(kind: &str, cause: &Cause) -> Self {
        let text = format!("{kind}.meta.k8s.io \"\" is invalid: {}: {}", cause.field, cause.message);
        let causes = json!([{"reason": cause.reason, "message": cause.message, "field": cause.field}]);
        let details = json!({"group": "meta.k8s.io", "kind": kind, "causes": causes});
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text).with(details)
    }

    /// 500 with a text alone.
    pub(crate) fn plain_internal(message: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 422 for an object that breaks rules.
    pub fn invalid(resource: &Resource, name: &str, causes: Vec<Cause>) -> Self {
        let texts: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        // Upstream says each text once, and lists every cause.
        let mut said = std::collections::HashSet::new();
        let texts: Vec<String> = texts.into_iter().filter(|text| said.insert(text.clone())).collect();
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let kind = resource.kind;
        let full = if resource.group.is_empty() { kind.to_owned() } else { format!("{kind}.{}", resource.group) };
        let mut info = details(resource, name, kind);
        if let Some(info) = info.as_object_mut() {
            let causes = causes
                .into_iter()
                .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}));
            info.insert("causes".to_owned(), Value::Array(causes.collect()));
        }
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", format!("{full} {name:?} is invalid: {list}")).with(info)
    }

    /// 422 for what a list or watch asks.
    pub(crate) fn invalid_list(cause: Cause) -> Self {
        let text = format!("ListOptions.meta.k8s.io \"\" is invalid: {}: {}", cause.field, cause.message);
        let cause = json!({"reason": cause.reason, "message": cause.message, "field": cause.field});
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text)
            .with(json!({"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]}))
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 403 by admission.
    pub fn forbidden(resource: &Resource, name: &str, text: &str) -> Self {
        let full = resource.full_name();
        Self::new(StatusCode::FORBIDDEN, "Forbidden", format!("{full} {name:?} is forbidden: {text}")).with(details(
            resource,
            name,
            resource.plural,
        ))
    }

    /// 403 by missing rights, with the text already made.
    fn denied(message: String, group: &str, kind: &str, name: &str) -> Self {
        let mut info = Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                info.insert(key.to_owned(), value.into());
            }
        }
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with(Value::Object(info))
    }

    /// 403 by missing rights, in the standard text.
    pub(super) fn refused(refusal: &Forbidden<'_>) -> Self {
        let asked = refusal.attributes;
        Self::denied(refusal.to_string(), &asked.api_group, &asked.resource, &asked.name)
    }

    /// 403 because the namespace is going away.
    pub fn namespace_terminating(resource: &Resource, name: &str, namespace: &str) -> Self {
        let text = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut error = Self::forbidden(resource, name, &text);
        if let Some(info) = error.details.as_mut().and_then(|info| info.as_object_mut()) {
            let message = format!("namespace {namespace} is being terminated");
            let cause = json!({"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"});
            info.insert("causes".to_owned(), json!([cause]));
        }
        error
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        let text = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", text).with(json!({}))
    }

    /// 406.
    pub fn not_acceptable() -> Self {
        let text = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", text).with(json!({}))
    }

    /// 415 with the stock text.
    pub fn unsupported_media_type() -> Self {
        Self::unsupported_media("415: Unsupported Media Type")
    }

    /// 415 with a text of its own.
    pub fn unsupported_media(message: &str) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message).with(json!({}))
    }

    /// 413.
    pub fn too_large(limit: usize) -> Self {
        let text = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", text).with(json!({}))
    }

    /// 429.
    pub fn too_many_requests() -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "Too many requests, please try again later.")
            .with(json!({"retryAfterSeconds": 1}))
    }

    /// 410 for a version that is gone.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 504 for a version that does not exist yet.
    pub fn future_version(requested: u64, current: u64) -> Self {
        let text = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", text).with(json!({"causes": [cause], "retryAfterSeconds": 1}))
    }

    /// 422 for a patch that cannot be applied.
    pub fn bad_patch() -> Self {
        let text = "the server rejected our request due to an error in our request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text).with(json!({}))
    }

    /// 422: the object that a patch makes cannot be read.
    pub(crate) fn bad_result(object: &str, detail: &str) -> Self {
        let cause = Cause::invalid("patch", &json!(object), detail);
        let text = format!(" \"\" is invalid: patch: {}", cause.message);
        let causes = json!([{"reason": cause.reason, "message": cause.message, "field": cause.field}]);
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text).with(json!({"causes": causes}))
    }

    /// 500.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", format!("Internal error occurred: {message}"))
            .with(json!({"causes": [{"message": message.to_string()}]}))
    }

    /// 503: the disk refuses writes.
    pub fn unavailable(message: impl fmt::Display) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message.to_string())
            .with(json!({"retryAfterSeconds": 5}))
    }

    /// Returns the error for what the store said about one object.
    pub fn from_store(error: &StoreError, resource: &Resource, name: &str) -> Self {
        match error {
            StoreError::Exists { .. } => Self::already_exists(resource, name),
            StoreError::NotFound { .. } => Self::not_found(resource, name),
            StoreError::Conflict { .. } => Self::stale(resource, name),
            StoreError::Compacted { requested, oldest } => {
                Self::expired(format!("too old resource version: {requested} ({oldest})"))
            }
            StoreError::Future { requested, current } => Self::future_version(requested.0, current.0),
            // No hint to try again soon: clients would wait for minutes instead of showing what is wrong.
            StoreError::Full { .. } => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", error.to_string())
            }
            StoreError::Io { .. } | StoreError::Closed => Self::unavailable(error),
        }
    }

    /// Whether the object is not there.
    pub fn is_not_found(&self) -> bool {
        self.reason == "NotFound"
    }

    /// Whether reading again may help.
    pub fn is_conflict(&self) -> bool {
        self.reason == "Conflict"
    }

    /// Whether the name is taken.
    pub fn is_already_exists(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    /// Returns the `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if let Some(status) = status.as_object_mut() {
            if !self.reason.is_empty() {
                status.insert("reason".to_owned(), self.reason.into());
            }
            if let Some(details) = &self.details {
                status.insert("details".to_owned(), (**details).clone());
            }
        }
        status
    }

    /// Returns the HTTP answer.
    pub fn response(&self) -> http::Response<axum::body::Body> {
        let mut response = http::Response::new(axum::body::Body::from(self.status().to_string()));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        let retry = self.details.as_ref().and_then(|details| details.get("retryAfterSeconds")).and_then(Value::as_u64);
        if let Some(retry) = retry {
            headers.insert(header::RETRY_AFTER, retry.into());
        }
        response
    }
}

fn details(resource: &Resource, name: &str, kind: &str) -> Value {
    let mut info = Map::new();
    for (key, value) in [("name", name), ("group", resource.group), ("kind", kind)] {
        if !value.is_empty() {
            info.insert(key.to_owned(), value.into());
        }
    }
    Value::Object(info)
}
