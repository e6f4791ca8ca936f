//! The types as schemas of an OpenAPI document, for `kubectl explain` and for clients that check before they send.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Field, Leaf, Schema, Shape, TypeId};

impl Schema {
    /// Returns the name under which documents know a type.
    pub fn public_name(&self, id: TypeId) -> String {
        let found = self.get(id);
        let place = match found.package {
            "meta/v1" => "apimachinery.pkg.apis.meta.v1".to_owned(),
            "apiextensions/v1" => "apiextensions-apiserver.pkg.apis.apiextensions.v1".to_owned(),
            other => format!("api.{}", other.replace('/', ".")),
        };
        format!("io.k8s.{place}.{}", found.name)
    }
}

/// Returns the schemas of types and of all that they hold, by name. References begin with `prefix`.
pub fn definitions(schema: &Schema, roots: impl IntoIterator<Item = TypeId>, prefix: &str) -> Map<String, Value> {
    let mut open: Vec<TypeId> = roots.into_iter().collect();
    let mut seen: BTreeSet<TypeId> = open.iter().copied().collect();
    let writer = Writer { schema, prefix };
    let mut all = Map::new();
    while let Some(id) = open.pop() {
        all.insert(schema.public_name(id), writer.object(id));
        for field in schema.fields(id) {
            match field.leaf {
                Leaf::Object(inner) if seen.insert(inner) => open.push(inner),
                leaf => {
                    if let Some((name, value)) = special(leaf) {
                        all.insert(name.to_owned(), value);
                    }
                }
            }
        }
    }
    all
}

/// Types with a schema of their own that are no objects with fields.
fn special(leaf: Leaf) -> Option<(&'static str, Value)> {
    Some(match leaf {
        Leaf::Quantity => ("io.k8s.apimachinery.pkg.api.resource.Quantity", json!({"type": "string"})),
        Leaf::IntOrText => {
            ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", json!({"type": "string", "format": "int-or-string"}))
        }
        Leaf::Time => ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", json!({"type": "string", "format": "date-time"})),
        Leaf::MicroTime => {
            ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", json!({"type": "string", "format": "date-time"}))
        }
        Leaf::Raw => ("io.k8s.apimachinery.pkg.runtime.RawExtension", json!({"type": "object"})),
        Leaf::FieldSet => ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", json!({"type": "object"})),
        Leaf::Json => ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", json!({})),
        Leaf::SchemaOrBool => {
            ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", json!({}))
        }
        Leaf::SchemaOrList => {
            ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", json!({}))
        }
        Leaf::SchemaOrTexts => {
            ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", json!({}))
        }
        Leaf::Text | Leaf::Bool | Leaf::Int32 | Leaf::Int64 | Leaf::Double | Leaf::Bytes | Leaf::Object(_) => {
            return None;
        }
    })
}

struct Writer<'a> {
    schema: &'a Schema,
    prefix: &'a str,
}

impl Writer<'_> {
    fn object(&self, id: TypeId) -> Value {
        let found = self.schema.get(id);
        let fields = self.schema.fields(id);
        let mut properties: Map<String, Value> =
            fields.iter().map(|field| (field.name.to_owned(), self.field(field))).collect();
        let mut object = json!({"type": "object"});
        if found.is_kind {
            for key in ["apiVersion", "kind"] {
                properties.insert(key.to_owned(), json!({"type": "string"}));
            }
            let (group, version) = found.api_version.rsplit_once('/').unwrap_or(("", found.api_version));
            object["x-kubernetes-group-version-kind"] =
                json!([{"group": group, "version": version, "kind": found.name}]);
        }
        let required: Vec<&str> = fields.iter().filter(|field| field.is_required()).map(|field| field.name).collect();
        if !required.is_empty() {
            object["required"] = json!(required);
        }
        if !properties.is_empty() {
            object["properties"] = properties.into();
        }
        if found.atomic {
            object["x-kubernetes-map-type"] = json!("atomic");
        }
        object
    }

    fn field(&self, field: &Field) -> Value {
        let one = self.leaf(field.leaf);
        let mut value = match field.shape {
            Shape::One => one,
            Shape::List | Shape::Items => json!({"type": "array", "items": one}),
            Shape::Map => json!({"type": "object", "additionalProperties": one}),
            Shape::MapOfItems => {
                json!({"type": "object", "additionalProperties": {"type": "array", "items": one}})
            }
        };
        if let Some(keys) = field.keys() {
            value["x-kubernetes-list-type"] = json!("map");
            value["x-kubernetes-list-map-keys"] = json!(keys.collect::<Vec<_>>());
        } else if field.is_set() {
            value["x-kubernetes-list-type"] = json!("set");
        } else if matches!(field.shape, Shape::List | Shape::Items) {
            value["x-kubernetes-list-type"] = json!("atomic");
        } else if field.is_atomic() && field.shape == Shape::Map {
            value["x-kubernetes-map-type"] = json!("atomic");
        }
        if let Some(strategy) = field.mark("s=") {
            value["x-kubernetes-patch-strategy"] = json!(strategy);
        }
        if let Some(key) = field.merge_key() {
            value["x-kubernetes-patch-merge-key"] = json!(key);
        }
        if let Some(default) = field.default_value().and_then(|text| serde_json::from_str::<Value>(text).ok())
            && field.shape == Shape::One
        {
            value["default"] = default;
        }
        value
    }

    fn leaf(&self, leaf: Leaf) -> Value {
        let reference = |name: &str| json!({"$ref": format!("{}{name}", self.prefix)});
        match leaf {
            Leaf::Text => json!({"type": "string"}),
            Leaf::Bool => json!({"type": "boolean"}),
            Leaf::Int32 => json!({"type": "integer", "format": "int32"}),
            Leaf::Int64 => json!({"type": "integer", "format": "int64"}),
            Leaf::Double => json!({"type": "number", "format": "double"}),
            Leaf::Bytes => json!({"type": "string", "format": "byte"}),
            Leaf::Object(id) => reference(&self.schema.public_name(id)),
            other => special(other).map_or_else(|| json!({}), |(name, _)| reference(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;

    fn pods() -> Map<String, Value> {
        definitions(schema(), schema().kind("v1", "Pod"), "#/x/")
    }

    #[test]
    fn a_kind_brings_all_that_it_holds_and_every_reference_has_its_schema() {
        fn references(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(map) => {
                    found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    map.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let everything = definitions(schema(), schema().types(), "#/x/");
        for all in [pods(), everything] {
            let mut found = Vec::new();
            all.values().for_each(|value| references(value, &mut found));
            assert!(found.len() > 100);
            for name in found {
                assert!(all.contains_key(name.strip_prefix("#/x/").unwrap()), "{name}");
            }
        }
        assert!(!pods().contains_key("io.k8s.api.core.v1.Node"));
    }

    #[test]
    fn schemas_say_type_requirement_kind_and_how_lists_merge() {
        let pods = pods();
        let pod = &pods["io.k8s.api.core.v1.Pod"];
        assert_eq!(pod["x-kubernetes-group-version-kind"], json!([{"group": "", "version": "v1", "kind": "Pod"}]));
        assert_eq!(pod["properties"]["kind"], json!({"type": "string"}));
        let spec = &pods["io.k8s.api.core.v1.PodSpec"];
        assert_eq!(spec["required"], json!(["containers"]));
        let want = json!({"type": "array", "items": {"$ref": "#/x/io.k8s.api.core.v1.Container"},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name"});
        assert_eq!(spec["properties"]["containers"], want);
        assert_eq!(spec["properties"]["nodeSelector"]["x-kubernetes-map-type"], "atomic");
        assert_eq!(spec["properties"]["tolerations"]["x-kubernetes-list-type"], "atomic");
        let port = &pods["io.k8s.api.core.v1.ContainerPort"]["properties"];
        assert_eq!(port["protocol"], json!({"type": "string", "default": "TCP"}));
        assert_eq!(port["containerPort"], json!({"type": "integer", "format": "int32"}));
        assert!(pods["io.k8s.api.core.v1.Volume"]["properties"].get("hostPath").is_some(), "embedded fields");
    }
}
