//! Unknown fields: found by what a typed decoder leaves out, told or refused as the client asks. They are kept either
//! way, so that newer clients lose nothing.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use super::Call;
use crate::apiserver::error::ApiError;
use crate::apiserver::resources::Resource;

/// Most findings told.
const MOST: usize = 20;

/// What becomes of unknown fields.
pub(super) struct Unknown(Vec<String>);

/// Looks for unknown fields in what a client sent: an object, or a patch that looks like one.
pub(super) fn check(call: &Call, resource: &Resource, sent: &Value) -> Result<Unknown, ApiError> {
    let strict = match call.query.get("fieldValidation") {
        "Ignore" => return Ok(Unknown(Vec::new())),
        "" | "Warn" => false,
        "Strict" => true,
        other => {
            let text = format!(
                "fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
            );
            return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text));
        }
    };
    // Wrong types are refused later, with a text of their own.
    let Ok(Some(known)) = resource.strategy.decode(sent, true) else { return Ok(Unknown(Vec::new())) };
    let mut found = Vec::new();
    compare(sent, &known, "", &mut found);
    let found: Vec<String> = found.into_iter().map(|path| format!("unknown field {path:?}")).collect();
    if strict && !found.is_empty() {
        return Err(ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
            found.join(", "),
            kind = resource.kind,
            version = resource.version,
        )));
    }
    Ok(Unknown(found))
}

/// Collects what `sent` has and `known` has not.
fn compare(sent: &Value, known: &Value, path: &str, found: &mut Vec<String>) {
    if found.len() >= MOST {
        return;
    }
    match (sent, known) {
        (Value::Object(sent), Value::Object(known)) => {
            // Directives of a strategic merge patch are no fields.
            for (key, value) in sent.iter().filter(|(key, value)| !value.is_null() && !key.starts_with('$')) {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match known.get(key) {
                    Some(known) => compare(value, known, &below, found),
                    None => found.push(below),
                }
            }
        }
        (Value::Array(sent), Value::Array(known)) => {
            for (index, (sent, known)) in sent.iter().zip(known).enumerate() {
                compare(sent, known, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

impl Unknown {
    /// Adds the warnings to an answer.
    pub(super) fn told(self, mut response: Response<Body>) -> Response<Body> {
        for text in self.0 {
            let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
        response
    }
}
