//! Reading and changing raw JSON objects.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::resources::Resource;
use crate::store::{Draft, Entry, Revision, Text};

/// An object as stored: its JSON, shared, never copied.
#[derive(Debug, Clone)]
pub struct Object {
    /// The JSON text.
    pub text: Text,
    /// When it was written; what its `resourceVersion` says.
    pub revision: Revision,
}

impl From<Entry> for Object {
    fn from(entry: Entry) -> Self {
        Self { text: entry.value, revision: entry.revision }
    }
}

impl Object {
    /// Returns an object that was not stored, as a dry run shows it.
    pub(crate) fn unstored(object: &Value) -> Self {
        Self { text: text_of(object).into(), revision: Revision(0) }
    }

    /// Returns the parsed object.
    pub fn value(&self) -> Result<Value, ApiError> {
        parse(&self.bytes())
    }

    /// Returns the JSON text in one.
    pub fn bytes(&self) -> bytes::Bytes {
        self.text.bytes()
    }
}

/// Parses stored bytes; a failure means that the store is damaged.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| ApiError::internal(format!("stored object is not JSON: {error}")))
}

/// Returns a text field of the metadata, or an empty text.
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or("")
}

/// Returns a text at a JSON pointer, or an empty text.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// Returns the list at a JSON pointer, or an empty one.
pub fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the map under a key, made if missing or of another type.
pub fn child<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    // The two fallbacks below cannot be reached: both values were just made maps.
    let Value::Object(map) = object else { unreachable!("just made a map") };
    let value = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(map) = value else { unreachable!("just made a map") };
    map
}

/// Returns the metadata, made if missing.
pub fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    child(object, "metadata")
}

/// Sets a key that is missing or null.
pub(crate) fn default(map: &mut Map<String, Value>, key: &str, value: impl FnOnce() -> Value) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value());
    }
}

/// Copies a key from one map to another; removes it if the source has none.
pub(crate) fn copy(to: &mut Map<String, Value>, from: Option<&Value>, key: &str) {
    match from.and_then(|from| from.get(key)) {
        Some(value) => to.insert(key.to_owned(), value.clone()),
        None => to.remove(key),
    };
}

/// Drops nulls in maps, as a typed decoder would.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Drops empty collections of the metadata and what the server does not keep.
pub(crate) fn tidy_metadata(object: &mut Value) {
    let meta = metadata(object);
    meta.remove("selfLink");
    for key in ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"] {
        let empty = match meta.get(key) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            _ => false,
        };
        if empty {
            meta.remove(key);
        }
    }
}

/// Writes a time as metadata shows it.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the draft of an object of a kind.
pub(crate) fn draft(resource: &Resource, object: &Value) -> Draft {
    match resource.custom {
        Some(custom) => Draft::of(&custom.kept(object)),
        None => Draft::of(object),
    }
}

/// Writes an object as it is written into the store.
pub(crate) fn text_of(object: &Value) -> bytes::Bytes {
    object.to_string().into()
}
