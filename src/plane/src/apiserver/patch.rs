//! Patches: JSON patch, merge patch and strategic merge patch on raw objects.

use serde_json::Value;

use super::error::ApiError;
use super::resources::Resource;

/// A patch as sent.
#[derive(Debug, Clone)]
pub enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7396.
    Merge(Value),
    /// Kubernetes' own: lists are merged by key.
    Strategic(Value),
}

/// Operations of one JSON patch; the stock server's limit.
const MAX_OPERATIONS: usize = 10_000;

impl Patch {
    /// Reads a patch of a media type.
    pub fn parse(media_type: &str, body: &[u8]) -> Result<Self, ApiError> {
        match media_type {
            "application/json-patch+json" => {
                let patch: json_patch::Patch = serde_json::from_slice(body).map_err(|error| undecodable(&error))?;
                if patch.0.len() > MAX_OPERATIONS {
                    let text = format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}");
                    return Err(ApiError::new(http::StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", text));
                }
                Ok(Self::Json(patch))
            }
            "application/merge-patch+json" => Ok(Self::Merge(object(body)?)),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic(object(body)?)),
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => Err(ApiError::unsupported_media(
                "server-side apply is not served by this control plane yet; use client-side apply \
                 (kubectl apply --server-side=false)",
            )),
            _ => Err(ApiError::unsupported_media_type()),
        }
    }

    /// Returns the patched object.
    pub fn apply(&self, resource: &Resource, old: &Value) -> Result<Value, ApiError> {
        let mut object = old.clone();
        match self {
            Self::Json(patch) => json_patch::patch(&mut object, patch).map_err(|_| ApiError::bad_patch())?,
            Self::Merge(patch) => json_patch::merge(&mut object, patch),
            Self::Strategic(patch) => {
                let _ = resource;
                json_patch::merge(&mut object, patch);
            }
        }
        Ok(object)
    }
}

fn object(body: &[u8]) -> Result<Value, ApiError> {
    let value: Value = serde_json::from_slice(body).map_err(|error| undecodable(&error))?;
    if value.is_object() { Ok(value) } else { Err(ApiError::bad_request("the patch must be a JSON object")) }
}

fn undecodable(error: &serde_json::Error) -> ApiError {
    ApiError::bad_request(format!("error decoding patch: {error}"))
}
