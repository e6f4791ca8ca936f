//! Schemas of definitions must be structural: each field has its type outside of alternatives, so that objects can be
//! pruned and filled by them. Upstream's paths and words.

use serde_json::{Map, Value, json};

use super::define::Report;
use super::structural::{Node, Type};
use super::{check, pattern, prune, rule_checks};

/// Keys that no schema of a custom kind has.
const UNSUPPORTED: [&str; 6] = ["$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties"];

/// Keys that say what a value is; they stand outside of alternatives.
const STRUCTURE: [&str; 10] = [
    "type",
    "title",
    "description",
    "default",
    "nullable",
    "additionalProperties",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];

/// Checks the schema of a version; whether it is kept from before.
pub(super) fn root(schema: &Value, path: &str, kept: bool, report: &mut Report) {
    match schema["type"].as_str().unwrap_or_default() {
        "" => report.required(format!("{path}.type"), "must not be empty at the root"),
        "object" => {}
        _ => report.invalid(format!("{path}.type"), &schema["type"], "must be object at the root"),
    }
    if schema["nullable"] == true {
        report.forbidden(format!("{path}.nullable"), "nullable cannot be true at the root");
    }
    metadata(&schema["properties"]["metadata"], path, report);
    let before = report.0.len();
    Walk { report }.node(schema, path, true);
    let sound = report.0.len() == before;
    rule_checks::root(schema, path, rule_checks::Trust { sound, kept }, report);
}

/// Of the metadata a schema may say how names look, no more.
fn metadata(metadata: &Value, path: &str, report: &mut Report) {
    let Some(map) = metadata.as_object() else { return };
    let path = format!("{path}.properties[metadata]");
    let plain =
        |map: &Map<String, Value>| map.keys().all(|key| matches!(key.as_str(), "type" | "properties" | "description"));
    let names = map.get("properties").and_then(Value::as_object);
    let fine =
        plain(map) && names.into_iter().flatten().all(|(key, _)| matches!(key.as_str(), "name" | "generateName"));
    if !fine {
        report.forbidden(
            path,
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        );
    }
}

struct Walk<'r> {
    report: &'r mut Report,
}

impl Walk<'_> {
    fn node(&mut self, schema: &Value, path: &str, root: bool) {
        let Some(map) = schema.as_object() else { return };
        self.plain(map, path);
        let kind = schema["type"].as_str().unwrap_or_default();
        let flag = |key: &str| schema[key] == true;
        if flag("x-kubernetes-int-or-string") && !kind.is_empty() {
            self.report.forbidden(format!("{path}.type"), "must be empty if x-kubernetes-int-or-string is true");
        }
        if flag("x-kubernetes-embedded-resource") {
            if kind != "object" {
                self.report.invalid(
                    format!("{path}.type"),
                    &json!(kind),
                    "must be object if x-kubernetes-embedded-resource is true",
                );
            }
            if !schema["properties"].is_object() && !flag("x-kubernetes-preserve-unknown-fields") {
                let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                              x-kubernetes-preserve-unknown-fields";
                self.report.required(format!("{path}.properties"), detail);
            }
        }
        if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let detail = "must be true or undefined";
            self.report.invalid(format!("{path}.x-kubernetes-preserve-unknown-fields"), &json!(false), detail);
        }
        self.list(schema, path);
        self.default(schema, path, root);
        self.alternatives(schema, schema, path);
        let properties = schema["properties"].as_object();
        for (name, below) in properties.into_iter().flatten() {
            let path = format!("{path}.properties[{name}]");
            // What all objects have needs no type.
            if !(root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata")) {
                self.typed(below, &path, "must not be empty for specified object fields");
            }
            self.node(below, &path, false);
        }
        match &schema["additionalProperties"] {
            Value::Bool(false) => {
                self.report
                    .forbidden(format!("{path}.additionalProperties"), "additionalProperties cannot be set to false");
            }
            below @ Value::Object(_) => {
                if properties.is_some_and(|properties| !properties.is_empty()) {
                    let detail = "additionalProperties and properties are mutual exclusive";
                    self.report.forbidden(format!("{path}.additionalProperties"), detail);
                }
                let path = format!("{path}.additionalProperties");
                self.typed(below, &path, "must not be empty for specified object fields");
                self.node(below, &path, false);
            }
            _ => {}
        }
        match &schema["items"] {
            Value::Array(_) => {
                self.report.forbidden(format!("{path}.items"), "items must be a schema object and not an array");
            }
            below @ Value::Object(_) => {
                let items = format!("{path}.items");
                self.typed(below, &items, "must not be empty for specified array items");
                self.node(below, &items, false);
            }
            _ if kind == "array" => self.report.required(format!("{path}.items"), "must be specified"),
            _ => {}
        }
    }

    fn typed(&mut self, schema: &Value, path: &str, detail: &str) {
        let free = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"]
            .iter()
            .any(|key| schema[key] == true);
        match schema["type"].as_str().unwrap_or_default() {
            "" if !free => self.report.required(format!("{path}.type"), detail),
            "" => {}
            kind if Type::read(kind).is_none() => {
                let known = ["array", "boolean", "integer", "number", "object", "string"];
                self.report.unsupported(format!("{path}.type"), &json!(kind), &known);
            }
            _ => {}
        }
    }

    /// Keys that are wrong wherever they stand.
    fn plain(&mut self, map: &Map<String, Value>, path: &str) {
        for key in UNSUPPORTED {
            let empty = match map.get(key) {
                None | Some(Value::Null) => true,
                Some(Value::Object(map)) => map.is_empty(),
                Some(Value::String(text)) => text.is_empty(),
                Some(_) => false,
            };
            if !empty {
                self.report.forbidden(format!("{path}.{key}"), &format!("{key} is not supported"));
            }
        }
        if map.get("uniqueItems") == Some(&Value::Bool(true)) {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.report.forbidden(format!("{path}.uniqueItems"), detail);
        }
        if let Some(text) = map.get("pattern").and_then(Value::as_str)
            && let Err(error) = pattern::compile(text)
        {
            let detail = format!("must be a valid regular expression, but isn't: {error}");
            self.report.invalid(format!("{path}.pattern"), &json!(text), &detail);
        }
        if let Some(kind) = map.get("x-kubernetes-map-type").filter(|kind| *kind != "atomic" && *kind != "granular") {
            self.report.unsupported(format!("{path}.x-kubernetes-map-type"), kind, &["atomic", "granular"]);
        }
    }

    fn list(&mut self, schema: &Value, path: &str) {
        let kind = schema["type"].as_str().unwrap_or_default();
        let Some(list) = schema["x-kubernetes-list-type"].as_str() else {
            if schema["x-kubernetes-list-map-keys"].is_array() {
                let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
                self.report.required(format!("{path}.x-kubernetes-list-type"), detail);
            }
            return;
        };
        if !["atomic", "set", "map"].contains(&list) {
            self.report.unsupported(format!("{path}.x-kubernetes-list-type"), &json!(list), &["atomic", "map", "set"]);
            return;
        }
        if kind != "array" {
            self.report.invalid(
                format!("{path}.type"),
                &json!(kind),
                "must be array if x-kubernetes-list-type is specified",
            );
            return;
        }
        let items = &schema["items"];
        if list == "set" && items["type"] == "object" && items["x-kubernetes-map-type"] != "atomic" {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            self.report.invalid(format!("{path}.items.x-kubernetes-map-type"), &items["x-kubernetes-map-type"], detail);
        }
        if list == "set" && items["nullable"] == true {
            self.report
                .forbidden(format!("{path}.items.nullable"), "cannot be nullable when x-kubernetes-list-type is set");
        }
        if list != "map" {
            return;
        }
        if items["type"] != "object" {
            self.report.invalid(
                format!("{path}.items.type"),
                &items["type"],
                "must be object if parent array's x-kubernetes-list-type is map",
            );
        }
        let keys = schema["x-kubernetes-list-map-keys"].as_array().cloned().unwrap_or_default();
        if keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            self.report.required(format!("{path}.x-kubernetes-list-map-keys"), detail);
        }
        for (index, key) in keys.iter().enumerate() {
            let name = key.as_str().unwrap_or_default();
            let field = &items["properties"][name];
            if !field.is_object() {
                let detail = "entries must all be names of item properties";
                self.report.invalid(format!("{path}.x-kubernetes-list-map-keys[{index}]"), key, detail);
                continue;
            }
            if matches!(field["type"].as_str(), Some("object" | "array")) {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                self.report.invalid(format!("{path}.items.properties[{name}].type"), &field["type"], detail);
            }
            let required = items["required"].as_array().is_some_and(|required| required.contains(key));
            if !required && field.get("default").is_none() {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                self.report.required(format!("{path}.items.properties[{name}].default"), detail);
            }
        }
    }

    /// A default must be what the schema allows.
    fn default(&mut self, schema: &Value, path: &str, root: bool) {
        let Some(default) = schema.get("default").filter(|default| !default.is_null()) else { return };
        let path = format!("{path}.default");
        if root {
            self.report.forbidden(path, "must not be set at the root");
            return;
        }
        let node = Node::read(schema);
        let mut pruned = default.clone();
        if !prune::value(&node, &mut pruned).is_empty() {
            self.report.invalid(path, default, "must not have unknown fields");
            return;
        }
        super::fill::object(&node, &mut pruned);
        let found = check::value(&node, &pruned, &path);
        self.report.0.extend(found);
    }

    /// Below `allOf`, `anyOf`, `oneOf` and `not` values are judged, not told what they are.
    fn alternatives(&mut self, schema: &Value, structure: &Value, path: &str) {
        for key in ["allOf", "anyOf", "oneOf"] {
            for (index, below) in schema[key].as_array().into_iter().flatten().enumerate() {
                self.judging(below, structure, &format!("{path}.{key}[{index}]"));
            }
        }
        if schema["not"].is_object() {
            self.judging(&schema["not"], structure, &format!("{path}.not"));
        }
    }

    fn judging(&mut self, schema: &Value, structure: &Value, path: &str) {
        let Some(map) = schema.as_object() else { return };
        self.plain(map, path);
        let int_or_string = structure["x-kubernetes-int-or-string"] == true;
        for key in STRUCTURE {
            let set = map.get(key).is_some_and(|value| !value.is_null() && *value != "" && *value != false);
            if set && !(key == "type" && int_or_string) {
                self.report.forbidden(format!("{path}.{key}"), "must be empty to be structural");
            }
        }
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.properties[{name}]");
            let own = &structure["properties"][name];
            let own = if own.is_object() { own } else { &structure["additionalProperties"] };
            if own.is_object() || structure["x-kubernetes-preserve-unknown-fields"] == true {
                self.judging(below, own, &path);
            } else {
                let place = path.split_once(".openAPIV3Schema").map_or("", |(_, rest)| rest);
                let detail = format!("because it is defined in {}", place.trim_start_matches('.'));
                let field = path.replacen(".anyOf", "", 1);
                self.report.required(field, &detail);
            }
        }
        if schema["items"].is_object() {
            self.judging(&schema["items"], &structure["items"], &format!("{path}.items"));
        }
        self.alternatives(schema, structure, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(schema: Value) -> Vec<String> {
        let mut report = Report::default();
        root(&schema, "schema", false, &mut report);
        report.0.iter().map(ToString::to_string).collect()
    }

    fn spec(schema: Value) -> Vec<String> {
        found(json!({"type": "object", "properties": {"spec": schema}}))
    }

    #[test]
    fn what_is_structural_is_taken() {
        for schema in [
            json!({"type": "object", "properties": {"a": {"type": "string", "default": "x"}}, "anyOf": [{"required": ["a"]}]}),
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}}}),
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "self.a > 0"}]}),
        ] {
            assert_eq!(spec(schema.clone()), [""; 0], "{schema}");
        }
    }

    #[test]
    fn what_is_not_is_refused_with_its_place() {
        for (schema, want) in [
            (json!({}), "schema.properties[spec].type: Required value: must not be empty for specified object fields"),
            (
                json!({"type": "array", "items": {}}),
                "schema.properties[spec].items.type: Required value: must not be empty for specified array items",
            ),
            (
                json!({"type": "object", "anyOf": [{"type": "object"}]}),
                "schema.properties[spec].anyOf[0].type: Forbidden: must be empty to be structural",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
                "schema.properties[spec].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ),
            (
                json!({"type": "string", "$ref": "#/x"}),
                "schema.properties[spec].$ref: Forbidden: $ref is not supported",
            ),
            (
                json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}),
                "schema.properties[spec].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
                "schema.properties[spec].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ),
            (
                json!({"type": "integer", "default": "x"}),
                "schema.properties[spec].default: Invalid value: \"string\": schema.properties[spec].default in body must be of type integer: \"string\"",
            ),
            (
                json!({"type": "object", "default": {"b": 1}, "properties": {"a": {"type": "string"}}}),
                "schema.properties[spec].default: Invalid value: {\"b\":1}: must not have unknown fields",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "self.b > 0"}]}),
                "schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: \"self.b > 0\": compilation failed: ERROR: <input>:1:1: undefined field 'b'",
            ),
            (
                json!({"type": "string", "pattern": "("}),
                "schema.properties[spec].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't",
            ),
        ] {
            let found = spec(schema.clone());
            assert!(found.len() == 1 && found[0].starts_with(want), "{schema}: {found:?}");
        }
        assert_eq!(found(json!({"properties": {}})), ["schema.type: Required value: must not be empty at the root"]);
    }
}
