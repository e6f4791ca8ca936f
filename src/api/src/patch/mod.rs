//! The patches an apiserver takes: JSON patch (RFC 6902), merge patch (RFC 7396) and strategic merge patch.
//! Works on JSON values, so that nothing unknown is lost; error classes and texts are the apiserver's.

mod merge;
mod order;
mod table;

use json_patch::PatchOperation;
use serde_json::Value;

use crate::shape::{MAX_DEPTH, is_deeper};

/// The largest number of operations in a JSON patch.
const MAX_OPERATIONS: usize = 10_000;
/// How much all operations of one JSON patch may move, in bytes of JSON: some times the largest object.
const MAX_MOVED: usize = 64 * 1024 * 1024;
/// How much the `copy` operations of one JSON patch may add, in bytes of JSON.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// A patch that is refused. The HTTP class stands in the variant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// 400: the patch is malformed.
    #[error("{0}")]
    BadRequest(String),
    /// 413: too many operations, or copies that grow too much.
    #[error("{0}")]
    TooLarge(String),
    /// 422 with a fixed text: well-formed, but it does not fit the object (a failed `test`, a missing path).
    #[error("the server rejected our request due to an error in our request")]
    Unprocessable,
    /// 500: stock answers it as an internal error.
    #[error("{0}")]
    Internal(String),
}

/// The kinds of patches, told apart by the content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`
    Strategic,
    /// `application/apply-patch+yaml` and its CBOR twin's place; not handled here.
    Apply,
}

impl PatchKind {
    /// Tells the kind by the content type, parameters ignored.
    pub fn from_content_type(content_type: &str) -> Option<Self> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match media_type {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }
}

/// Applies a JSON patch.
pub fn json(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations: Vec<PatchOperation> =
        serde_json::from_value(patch.clone()).map_err(|error| PatchError::BadRequest(error.to_string()))?;
    if operations.len() > MAX_OPERATIONS {
        let text = "The allowed maximum operations in a JSON patch is";
        return Err(PatchError::TooLarge(format!("{text} {MAX_OPERATIONS}, got {}", operations.len())));
    }
    let mut result = object.clone();
    let (mut copied, mut moved) = (0, 0);
    for operation in operations {
        if let PatchOperation::Copy(copy) = &operation {
            // Each copy may hold the earlier ones: without a limit a short patch doubles the object with every line.
            let source = result.pointer(copy.from.as_str()).ok_or(PatchError::Unprocessable)?;
            copied += json_size(source);
            if copied > MAX_COPIED {
                return Err(PatchError::TooLarge(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
                )));
            }
        }
        moved += effort(&result, &operation);
        if moved > MAX_MOVED {
            let text = "Unable to complete the patch, the accumulated size of what is moved is";
            return Err(PatchError::TooLarge(format!("{text} {moved}, exceeding the limit {MAX_MOVED}")));
        }
        if nests_too_deep(&result, &operation) {
            return Err(PatchError::BadRequest(format!("the patched object has more than {MAX_DEPTH} levels")));
        }
        json_patch::patch(&mut result, &[operation]).map_err(|_| PatchError::Unprocessable)?;
    }
    Ok(result)
}

/// Whether an operation would make an object that is too deep. Looked at before it is done: a copy into its own depths
/// doubles them, and even to drop such a value takes more stack than there is.
fn nests_too_deep(object: &Value, operation: &PatchOperation) -> bool {
    let (path, value) = match operation {
        PatchOperation::Add(add) => (&add.path, Some(&add.value)),
        PatchOperation::Replace(replace) => (&replace.path, Some(&replace.value)),
        PatchOperation::Copy(copy) => (&copy.path, object.pointer(copy.from.as_str())),
        PatchOperation::Move(moved) => (&moved.path, object.pointer(moved.from.as_str())),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return false,
    };
    let above = path.as_str().matches('/').count();
    MAX_DEPTH.checked_sub(above).is_none_or(|left| value.is_some_and(|value| is_deeper(value, left)))
}

/// What an operation costs beside its own size: each of many may take the largest part of the object from here to there, or
/// move all items of the longest list by one place.
fn effort(object: &Value, operation: &PatchOperation) -> usize {
    let shift = |path: &str| {
        let (list, _) = path.rsplit_once('/').unwrap_or_default();
        object.pointer(list).and_then(Value::as_array).map_or(0, |items| items.len() / 2)
    };
    match operation {
        PatchOperation::Move(moved) => {
            let (path, from) = (moved.path.as_str(), moved.from.as_str());
            object.pointer(from).map_or(0, json_size) + shift(path) + shift(from)
        }
        PatchOperation::Add(add) => shift(add.path.as_str()),
        PatchOperation::Copy(copy) => shift(copy.path.as_str()),
        PatchOperation::Remove(remove) => shift(remove.path.as_str()),
        PatchOperation::Replace(_) | PatchOperation::Test(_) => 0,
    }
}

fn json_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| json_size(item) + 1).sum::<usize>() + 2,
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + 4 + json_size(value)).sum::<usize>() + 2,
    }
}

/// Applies a merge patch.
pub fn merge(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::BadRequest("invalid JSON document".to_owned()));
    }
    let mut result = object.clone();
    json_patch::merge(&mut result, patch);
    Ok(result)
}

/// Applies a strategic merge patch to an object of a built-in kind, e.g. `Pod`.
///
/// Kinds that are not built in do not take this patch at all: the caller answers 415 for them.
pub fn strategic(api_version: &str, kind: &str, object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return Err(PatchError::BadRequest("invalid JSON document".to_owned()));
    };
    let root = table::root(api_version, kind);
    merge::map(object.clone(), patch.clone(), root).map(Value::Object)
}

/// The merge key of a list field of a kind, found by the path of field names from the root: `None` when the list is
/// replaced as a whole, an empty text when it holds primitives that are united.
pub fn merge_key(api_version: &str, kind: &str, path: &[&str]) -> Option<&'static str> {
    let mut place = table::root(api_version, kind);
    let mut key = None;
    for name in path {
        let rule = place.field(name);
        (place, key) = (rule.child, rule.merge_key);
    }
    key
}

#[cfg(test)]
mod tests;
