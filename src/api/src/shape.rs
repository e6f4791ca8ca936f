//! From raw JSON to a typed object, with the path of the field that does not fit in the error.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a value as `T`; the error names the field, what was found and what is wanted.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    // Keeping track of the path costs more than reading: it is done for what does not fit.
    if let Ok(fits) = T::deserialize(value) {
        return Ok(fits);
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        // A dot alone is the whole object.
        if path == "." { error.into_inner().to_string() } else { format!("{path}: {}", error.into_inner()) }
    })
}

/// The deepest nesting of an object: JSON readers end at 128 levels, and objects are put into lists and frames.
pub const MAX_DEPTH: usize = 100;

/// Whether a value has more than so many levels of lists and maps. Looks no deeper than that, whatever there is.
pub fn is_deeper(value: &Value, levels: usize) -> bool {
    let Some(below) = levels.checked_sub(1) else { return value.is_object() || value.is_array() };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, below)),
        Value::Object(map) => map.values().any(|value| is_deeper(value, below)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    #[test]
    fn levels_are_lists_and_maps() {
        assert!(!is_deeper(&json!(1), 0) && is_deeper(&json!([]), 0));
        let value = json!({"a": [{"b": 1}], "c": 1});
        assert!(is_deeper(&value, 2) && !is_deeper(&value, 3));
    }

    #[test]
    fn the_error_names_the_field() {
        let error = |value: Value| read::<Pod>(&value).unwrap_err();
        assert_eq!(
            error(json!({"spec": {"containers": "nope"}})),
            "spec.containers: invalid type: string \"nope\", expected a sequence"
        );
        assert_eq!(
            error(json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1e20}]}]}})),
            "spec.containers[0].ports[0].containerPort: invalid type: floating point `1e+20`, expected i32"
        );
        assert_eq!(error(json!([1])), "invalid type: sequence, expected Pod");
    }
}
