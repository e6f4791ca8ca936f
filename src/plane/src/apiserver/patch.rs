//! Patches as requests bring them: media type and body in, changed object out. The rules live in the pure crate.

use http::StatusCode;
use longshore_api::patch::{self, PatchError, PatchKind};
use longshore_api::shape::{MAX_DEPTH, is_deeper};
use serde_json::Value;

use super::error::ApiError;
use super::resources::Resource;

/// A patch as sent.
#[derive(Debug, Clone)]
pub struct Patch {
    kind: PatchKind,
    body: Value,
    /// The row whose words it is in, if objects are stored in others.
    face: Option<&'static Resource>,
}

impl Patch {
    /// Returns a merge patch (RFC 7396).
    pub fn merge(body: Value) -> Self {
        Self { kind: PatchKind::Merge, body, face: None }
    }

    /// Returns a strategic merge patch.
    pub fn strategic(body: Value) -> Self {
        Self { kind: PatchKind::Strategic, body, face: None }
    }

    /// Reads a patch of a media type.
    pub fn parse(media_type: &str, body: &[u8]) -> Result<Self, ApiError> {
        let kind = match PatchKind::from_content_type(media_type) {
            // An apply is no change to an object that is there; see `Registry::apply`.
            Some(PatchKind::Apply) | None => return Err(ApiError::unsupported_media_type()),
            Some(kind) => kind,
        };
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
        Ok(Self { kind, body, face: None })
    }

    /// Returns a patch of a face of a kind, applied to what is stored.
    pub(crate) fn through(mut self, resource: &'static Resource) -> Self {
        self.face = resource.stored_as.map(|_| resource);
        self
    }

    /// Returns the patched object.
    pub fn apply(&self, resource: &Resource, old: &Value) -> Result<Value, ApiError> {
        match self.face {
            Some(face) => {
                let shown = face.strategy.shown(old.clone());
                self.apply_plain(face, &shown).map(|object| face.strategy.kept(object))
            }
            None => self.apply_plain(resource, old),
        }
    }

    fn apply_plain(&self, resource: &Resource, old: &Value) -> Result<Value, ApiError> {
        let patched = match self.kind {
            PatchKind::Json => patch::json(old, &self.body),
            PatchKind::Merge => patch::merge(old, &self.body),
            PatchKind::Strategic if resource.custom.is_some() => return Err(ApiError::unsupported_media_type()),
            PatchKind::Strategic => patch::strategic(&resource.api_version(), resource.kind, old, &self.body),
            PatchKind::Apply => return Err(ApiError::unsupported_media_type()),
        };
        let object = patched.map_err(|error| match error {
            PatchError::BadRequest(text) => ApiError::bad_request(text),
            PatchError::TooLarge(text) => ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", text),
            PatchError::Unprocessable => ApiError::bad_patch(),
            PatchError::Internal(text) => ApiError::internal(text),
        })?;
        if !object.is_object() {
            return Err(ApiError::bad_request("the patched object is no longer a JSON object"));
        }
        if is_deeper(&object, MAX_DEPTH) {
            return Err(ApiError::bad_request(format!("the patched object has more than {MAX_DEPTH} levels")));
        }
        Ok(object)
    }
}
