//! Cells of custom kinds, by the paths that their definitions give.

use jiff::Timestamp;
use longshore_api::custom::definition::Column;
use serde_json::{Value, json};

use super::cells;
use crate::apiserver::object::meta;

/// Returns the definitions of the columns, the name first.
pub(super) fn definitions(columns: &[Column]) -> Vec<Value> {
    let name = json!({"name": "Name", "type": "string", "format": "name", "priority": 0,
        "description": "Name must be unique within a namespace. Is required when creating resources, although some resources \
            may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for \
            creation idempotence and configuration definition. Cannot be updated. More info: \
            https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"});
    let rest = columns.iter().map(|column| {
        json!({"name": column.name, "type": column.kind, "format": column.format, "description": column.description,
            "priority": column.priority})
    });
    std::iter::once(name).chain(rest).collect()
}

/// Returns the cells of an object.
pub(super) fn cells(columns: &[Column], object: &Value, now: Timestamp) -> Vec<Value> {
    let rest = columns.iter().map(|column| {
        let found = column.path.as_ref().map(|path| path.find(object)).unwrap_or_default();
        cell(&column.kind, &found, now)
    });
    std::iter::once(json!(meta(object, "name"))).chain(rest).collect()
}

fn cell(kind: &str, found: &[&Value], now: Timestamp) -> Value {
    let Some(first) = found.first() else { return Value::Null };
    match (kind, first) {
        ("string", _) => json!(found.iter().map(|value| plain(value)).collect::<Vec<_>>().join(" ")),
        (_, Value::Null) => Value::Null,
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => json!(whole),
            // As upstream: the whole part.
            (None, Some(number)) => serde_json::from_str(&format!("{:.0}", number.trunc())).unwrap_or(Value::Null),
            (None, None) => Value::Null,
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => (*first).clone(),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(_) => json!(cells::age(text, now)),
            Err(_) => json!("<invalid>"),
        },
        _ => Value::Null,
    }
}

/// A value as Go's JSONPath prints it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::custom::Definition;

    use super::*;

    #[test]
    fn cells_have_the_type_of_their_column() {
        let column = |kind: &str, path: &str| json!({"name": "c", "type": kind, "jsonPath": path});
        let definition = Definition::read(&json!({"spec": {"versions": [{"name": "v1", "additionalPrinterColumns": [
            column("string", ".spec.text"), column("integer", ".spec.number"), column("number", ".spec.half"),
            column("boolean", ".spec.flag"), column("date", ".spec.time"), column("string", ".spec.list[*].n"),
            column("string", ".spec.map"), column("integer", ".spec.text"), column("string", ".spec.none"),
            column("date", ".spec.text")]}]}}));
        let object = json!({"metadata": {"name": "x"}, "spec": {"text": "t", "number": 3, "half": 1.5, "flag": true,
            "time": "2026-01-01T00:00:00Z", "list": [{"n": "a"}, {"n": "b"}], "map": {"k": 1}}});
        let got = cells(&definition.versions[0].columns, &object, "2026-01-01T00:05:00Z".parse().unwrap());
        assert_eq!(json!(got), json!(["x", "t", 3, 1.5, true, "5m", "a b", "{\"k\":1}", null, null, "<invalid>"]));
    }
}
