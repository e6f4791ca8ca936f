//! Unknown and repeated fields: found and left out when a body is read, told or refused as the client asks.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};

use super::Call;
use crate::apiserver::error::ApiError;
use crate::apiserver::registry::{FieldValidation, WriteOptions};

/// Reads what the client wants done about such fields.
pub(super) fn validation(call: &Call) -> Result<FieldValidation, ApiError> {
    match call.query.get("fieldValidation") {
        "Ignore" => Ok(FieldValidation::Ignore),
        "" | "Warn" => Ok(FieldValidation::Warn),
        "Strict" => Ok(FieldValidation::Strict),
        other => {
            let text = format!(
                "fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
            );
            Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text))
        }
    }
}

/// Adds the warnings of a write to its answer.
pub(super) fn told(options: &WriteOptions, mut response: Response<Body>) -> Response<Body> {
    for text in options.warnings.take() {
        response = warned(&text, response);
    }
    response
}

/// Adds a warning to an answer.
pub(super) fn warned(text: &str, mut response: Response<Body>) -> Response<Body> {
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
        response.headers_mut().append(header::WARNING, value);
    }
    response
}
