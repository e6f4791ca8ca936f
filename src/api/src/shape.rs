//! From raw JSON to a typed object, with the path of the field that does not fit in the error.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a value as `T`; the error names the field, what was found and what is wanted.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        // A dot alone is the whole object.
        if path == "." { error.into_inner().to_string() } else { format!("{path}: {}", error.into_inner()) }
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

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
