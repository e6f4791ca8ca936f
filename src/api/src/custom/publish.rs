//! Schemas of custom kinds as the OpenAPI documents show them, for `kubectl explain` and for clients that check before
//! they send.

use serde_json::{Map, Value, json};

/// Returns the name under which documents know a kind: `com.example.v1.Thing`.
pub fn name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').rev().collect();
    parts.extend([version, kind]);
    parts.join(".")
}

/// What a document can hold: version 2 knows no alternatives, and takes a value of several kinds for nothing said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `/openapi/v2`.
    V2,
    /// `/openapi/v3`.
    V3,
}

/// Returns a kind's schema. References begin with `prefix`.
pub fn kind(schema: &Value, gvk: (&str, &str, &str), dialect: Dialect, prefix: &str) -> Value {
    let mut shown = shown(schema, dialect, true, prefix);
    let (group, version, kind) = gvk;
    shown["x-kubernetes-group-version-kind"] = json!([{"group": group, "version": version, "kind": kind}]);
    shown
}

/// Returns the schema of a kind's lists.
pub fn list(name: &str, gvk: (&str, &str, &str), prefix: &str) -> Value {
    let (group, version, kind) = gvk;
    json!({"type": "object", "required": ["items"], "description": format!("{kind} is a list of {}", name.rsplit('.').next().unwrap_or_default()),
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"$ref": format!("{prefix}io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")},
            "items": {"type": "array", "items": {"$ref": format!("{prefix}{name}")}}},
        "x-kubernetes-group-version-kind": [{"group": group, "version": version, "kind": kind}]})
}

/// Keys that documents of version 2 do not have.
const NOT_IN_V2: [&str; 5] = ["oneOf", "anyOf", "not", "nullable", "x-kubernetes-validations"];

fn shown(schema: &Value, dialect: Dialect, whole: bool, prefix: &str) -> Value {
    let Some(map) = schema.as_object() else { return json!({}) };
    let mut out = Map::new();
    for (key, value) in map {
        let below = |value: &Value| shown(value, dialect, false, prefix);
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                fields.iter().map(|(name, field)| (name.clone(), below(field))).collect::<Map<_, _>>().into()
            }
            ("items" | "additionalProperties" | "not", Value::Object(_)) => below(value),
            ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => all.iter().map(below).collect(),
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    let embedded = map.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    if whole || embedded {
        let fields = out.entry("properties").or_insert_with(|| json!({}));
        if let Some(fields) = fields.as_object_mut() {
            for key in ["apiVersion", "kind"] {
                fields.entry(key).or_insert_with(|| json!({"type": "string"}));
            }
            let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
            fields.insert("metadata".to_owned(), json!({"$ref": format!("{prefix}{meta}")}));
        }
    }
    if dialect == Dialect::V2 {
        // A client that knows version 2 alone would take these for more than they say.
        let free =
            ["x-kubernetes-int-or-string", "nullable"].iter().any(|key| map.get(*key) == Some(&Value::Bool(true)));
        let open = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        NOT_IN_V2.iter().for_each(|key| drop(out.remove(*key)));
        out.remove("default");
        if free {
            for key in ["type", "items", "properties", "format"] {
                out.remove(key);
            }
        } else if open && !whole {
            for key in ["items", "properties"] {
                out.remove(key);
            }
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_shown_with_what_all_objects_have() {
        let schema = json!({"type": "object", "description": "A thing.", "properties": {
            "spec": {"type": "object", "properties": {"a": {"type": "string", "nullable": true, "description": "An a."},
                "b": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}}});
        let v3 = kind(&schema, ("example.com", "v1", "Thing"), Dialect::V3, "#/components/schemas/");
        assert_eq!(v3["properties"]["spec"], schema["properties"]["spec"]);
        assert_eq!(
            v3["properties"]["metadata"]["$ref"],
            "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        );
        assert_eq!(
            v3["x-kubernetes-group-version-kind"],
            json!([{"group": "example.com", "version": "v1", "kind": "Thing"}])
        );
        let v2 = kind(&schema, ("example.com", "v1", "Thing"), Dialect::V2, "#/definitions/");
        assert_eq!(
            v2["properties"]["spec"]["properties"],
            json!({"a": {"description": "An a."}, "b": {"x-kubernetes-int-or-string": true}})
        );
        assert_eq!(name("example.com", "v1", "Thing"), "com.example.v1.Thing");
    }
}
