//! From raw JSON to a typed object, with the path of the field that does not fit in the error.

mod reader;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a value as `T`; the error names the field, what was found and what is wanted.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(reader::Reader(value)).map_err(|misfit| misfit.to_string())
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
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::{Pod, Secret};
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
        assert_eq!(
            error(json!({"spec": {"containers": [{}, {"ports": [{"containerPort": 1_u64 << 40}]}]}})),
            "spec.containers[1].ports[0].containerPort: invalid value: integer `1099511627776`, expected i32"
        );
        assert_eq!(
            error(json!({"metadata": {"labels": {"a.b/c": null}}})),
            "metadata.labels.a.b/c: invalid type: null, expected a string"
        );
        assert_eq!(error(json!([1])), "invalid type: sequence, expected Pod");
    }

    #[test]
    fn what_serde_can_read_is_read_as_by_the_usual_reader() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        enum Word {
            One,
            Two(u8, bool),
            Three { a: Option<char> },
        }
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct All {
            words: Vec<Word>,
            pair: (i8, String),
            none: Option<u64>,
            map: BTreeMap<String, f64>,
            unit: (),
            raw: Value,
        }
        let whole = json!({
            "words": ["One", {"Two": [1, true]}, {"Three": {"a": "x"}}, {"Three": {"a": null}}],
            "pair": [-1, "a"], "none": null, "map": {"a": 1, "b": -0.5}, "unit": null, "raw": {"a": [1, null, -2]}, "more": [{}],
        });
        assert_eq!(read::<All>(&whole).unwrap(), serde_json::from_value(whole.clone()).unwrap());
        for (pointer, bad) in [
            ("/pair", json!([1])),
            ("/pair", json!([1, "a", 2])),
            ("/words/1", json!({"Two": [1]})),
            ("/words/0", json!("Four")),
            ("/words/0", json!({"One": null, "Two": null})),
            ("/unit", json!(0)),
            ("/map/a", json!("1")),
            ("/none", json!(-1)),
        ] {
            let mut value = whole.clone();
            *value.pointer_mut(pointer).unwrap() = bad.clone();
            let usual = serde_json::from_value::<All>(value.clone()).unwrap_err().to_string();
            let error = read::<All>(&value).unwrap_err();
            assert!(error.ends_with(&usual), "{bad}: {error}, but {usual}");
            let path = pointer[1..].replace("/0", "[0]").replace("/1", "[1]").replace('/', ".");
            assert!(error.starts_with(&path), "{bad}: {error}");
        }
        let secret: Secret = read(&json!({"data": {"a": "/w=="}})).unwrap();
        assert_eq!(secret.data.unwrap()["a"].0, [0xff]);
    }
}
