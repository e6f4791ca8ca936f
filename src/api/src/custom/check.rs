//! Values against schemas, in upstream's paths and words.

use serde_json::{Map, Value};

use super::format;
use super::structural::{ListType, Node, Type, Values};
use crate::validate::{FieldError, FieldErrorKind};

/// Most findings told of one object.
const MOST: usize = 100;

/// Checks an object. What an update leaves as it was is not refused, though a newer schema may not allow it.
pub fn object(node: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut check = Check { found: Vec::new(), path: String::new() };
    check.value(node, object, old, true);
    check.found
}

/// Checks a value that is no object of a kind, e.g. a default.
pub fn value(node: &Node, value: &Value, path: &str) -> Vec<FieldError> {
    let mut check = Check { found: Vec::new(), path: path.to_owned() };
    check.value(node, value, None, false);
    check.found
}

struct Check {
    found: Vec<FieldError>,
    path: String,
}

/// The item of an old list that has the same keys.
pub(super) fn counterpart<'v>(node: &Node, item: &Value, old: Option<&'v Value>) -> Option<&'v Value> {
    let ListType::Map(keys) = &node.list else { return None };
    let items = old?.as_array()?;
    items.iter().find(|other| keys.iter().all(|key| other.get(key) == item.get(key)))
}

impl Check {
    fn put(&mut self, kind: FieldErrorKind, message: String) {
        if self.found.len() < MOST {
            let path = if self.path.is_empty() { "<nil>".to_owned() } else { self.path.clone() };
            self.found.push(FieldError { path, message, kind });
        }
    }

    fn invalid(&mut self, value: &Value, detail: &str) {
        let text = format!("Invalid value: {value}: {} in body {detail}", self.path);
        self.put(FieldErrorKind::Invalid, text);
    }

    fn below(&mut self, key: &str, work: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        work(self);
        self.path.truncate(length);
    }

    fn item(&mut self, index: usize, work: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.extend(["[", &index.to_string(), "]"]);
        work(self);
        self.path.truncate(length);
    }

    fn value(&mut self, node: &Node, value: &Value, old: Option<&Value>, whole: bool) {
        if old == Some(value) || (value.is_null() && node.nullable) {
            return;
        }
        if !self.fits_type(node, value) {
            return;
        }
        if node.embedded {
            self.embedded(value);
        }
        if let Some(values) = &node.values {
            self.demands(values, value);
        }
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if (whole || node.embedded) && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                        continue;
                    }
                    if let Some(below) = node.below(key) {
                        let old = old.and_then(|old| old.get(key));
                        self.below(key, |check| check.value(below, value, old, false));
                    }
                }
            }
            Value::Array(items) => {
                self.unique(node, items);
                if let Some(below) = &node.items {
                    for (index, item) in items.iter().enumerate() {
                        let old = counterpart(node, item, old);
                        self.item(index, |check| check.value(below, item, old, false));
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn fits_type(&mut self, node: &Node, value: &Value) -> bool {
        let wanted = match node.kind {
            None if node.int_or_string && !value.is_string() && !is_whole(value) => "integer,string",
            None => return true,
            Some(kind) if has_type(kind, value) => return true,
            Some(kind) => kind.name(),
        };
        let is = type_name(value);
        let path = &self.path;
        let text = format!("Invalid value: {is:?}: {path} in body must be of type {wanted}: {is:?}");
        self.put(FieldErrorKind::TypeInvalid, text);
        false
    }

    fn embedded(&mut self, value: &Value) {
        for key in ["apiVersion", "kind"] {
            if value.get(key).and_then(Value::as_str).is_none_or(str::is_empty) {
                self.below(key, |check| {
                    check.put(FieldErrorKind::Required, "Required value: must not be empty".to_owned());
                });
            }
        }
    }

    fn demands(&mut self, values: &Values, value: &Value) {
        if let Some(known) = &values.one_of_values
            && !known.contains(value)
        {
            let known: Vec<String> = known
                .iter()
                .map(|known| match known {
                    Value::String(text) => format!("{text:?}"),
                    other => format!("{:?}", other.to_string()),
                })
                .collect();
            let text = format!("Unsupported value: {value}: supported values: {}", known.join(", "));
            self.put(FieldErrorKind::NotSupported, text);
        }
        match value {
            Value::String(text) => self.text(values, value, text),
            Value::Number(number) => {
                if let Some(number) = number.as_f64() {
                    self.number(values, value, number);
                }
            }
            Value::Array(items) => self.list(values, value, items),
            Value::Object(map) => self.map(values, value, map),
            Value::Null | Value::Bool(_) => {}
        }
        self.alternatives(values, value);
    }

    fn text(&mut self, values: &Values, value: &Value, text: &str) {
        let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
        if let Some(most) = values.max_length.filter(|most| length > *most) {
            self.put(FieldErrorKind::TooLong, format!("Too long: may not be more than {most} bytes"));
        }
        if let Some(least) = values.min_length.filter(|least| length < *least) {
            self.invalid(value, &format!("should be at least {least} chars long"));
        }
        if !values.pattern.is_empty()
            && let Some(regex) = values.pattern.regex()
            && !regex.is_match(text)
        {
            self.invalid(value, &format!("should match '{}'", values.pattern.text));
        }
        if !values.format.is_empty() && !format::fits(&values.format, text) {
            let detail = format!("must be of type {}: {text:?}", values.format);
            let text = format!("Invalid value: {value}: {} in body {detail}", self.path);
            self.put(FieldErrorKind::TypeInvalid, text);
        }
    }

    fn number(&mut self, values: &Values, value: &Value, number: f64) {
        if let Some(most) = values.maximum {
            if values.exclusive_maximum && number >= most {
                self.invalid(value, &format!("should be less than {most}"));
            } else if number > most {
                self.invalid(value, &format!("should be less than or equal to {most}"));
            }
        }
        if let Some(least) = values.minimum {
            if values.exclusive_minimum && number <= least {
                self.invalid(value, &format!("should be greater than {least}"));
            } else if number < least {
                self.invalid(value, &format!("should be greater than or equal to {least}"));
            }
        }
        if let Some(of) = values.multiple_of.filter(|of| *of != 0.0) {
            let times = number / of;
            if (times - times.round()).abs() > 1e-9 {
                self.invalid(value, &format!("should be a multiple of {of}"));
            }
        }
    }

    fn list(&mut self, values: &Values, value: &Value, items: &[Value]) {
        let length = u64::try_from(items.len()).unwrap_or(u64::MAX);
        if let Some(most) = values.max_items.filter(|most| length > *most) {
            self.put(FieldErrorKind::TooMany, format!("Too many: {length}: must have at most {most} items"));
        }
        if let Some(least) = values.min_items.filter(|least| length < *least) {
            self.invalid(value, &format!("should have at least {least} items"));
        }
        if values.unique_items
            && items.iter().enumerate().any(|(at, item)| items.get(..at).is_some_and(|before| before.contains(item)))
        {
            self.invalid(value, "shouldn't contain duplicates");
        }
    }

    fn map(&mut self, values: &Values, value: &Value, map: &Map<String, Value>) {
        let length = u64::try_from(map.len()).unwrap_or(u64::MAX);
        if let Some(most) = values.max_properties.filter(|most| length > *most) {
            self.put(FieldErrorKind::TooMany, format!("Too many: {length}: must have at most {most} items"));
        }
        if let Some(least) = values.min_properties.filter(|least| length < *least) {
            self.invalid(value, &format!("should have at least {least} properties"));
        }
        for key in values.required.iter().filter(|key| !map.contains_key(*key)) {
            self.below(key, |check| check.put(FieldErrorKind::Required, "Required value".to_owned()));
        }
    }

    /// `allOf`, `anyOf`, `oneOf`, `not`.
    fn alternatives(&mut self, values: &Values, value: &Value) {
        let failures = |nodes: &[Node]| -> Vec<Vec<FieldError>> {
            nodes
                .iter()
                .map(|node| {
                    let mut check = Self { found: Vec::new(), path: self.path.clone() };
                    check.value(node, value, None, false);
                    check.found
                })
                .collect()
        };
        let (all, any, one) = (failures(&values.all_of), failures(&values.any_of), failures(&values.one_of));
        let not = values.not.as_deref().map(|node| failures(std::slice::from_ref(node)).concat());
        let path = self.path.clone();
        let composite = |check: &mut Self, detail: &str| {
            check.put(FieldErrorKind::Invalid, format!("Invalid value: \"\": {path:?} must {detail}"));
        };
        let best = |all: Vec<Vec<FieldError>>| all.into_iter().min_by_key(Vec::len).unwrap_or_default();
        let failed = all.iter().any(|found| !found.is_empty());
        self.take(all.concat());
        if failed {
            composite(self, "validate all the schemas (allOf)");
        }
        if !any.is_empty() && any.iter().all(|found| !found.is_empty()) {
            composite(self, "validate at least one schema (anyOf)");
            self.take(best(any));
        }
        if !one.is_empty() {
            match one.iter().filter(|found| found.is_empty()).count() {
                1 => {}
                0 => {
                    composite(self, "validate one and only one schema (oneOf). Found none valid");
                    self.take(best(one));
                }
                many => {
                    let text = format!("validate one and only one schema (oneOf). Found {many} valid alternatives");
                    composite(self, &text);
                }
            }
        }
        if not.is_some_and(|found| found.is_empty()) {
            composite(self, "not validate the schema (not)");
        }
    }

    fn take(&mut self, found: Vec<FieldError>) {
        let room = MOST.saturating_sub(self.found.len());
        self.found.extend(found.into_iter().take(room));
    }

    /// Items of sets and maps must differ.
    fn unique(&mut self, node: &Node, items: &[Value]) {
        let mut seen = std::collections::HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let key = match &node.list {
                ListType::Atomic => return,
                ListType::Set => item.clone(),
                ListType::Map(keys) => {
                    let keys = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
                    Value::Object(keys.collect())
                }
            };
            if !seen.insert(key.to_string()) {
                self.item(index, |check| check.put(FieldErrorKind::Duplicate, format!("Duplicate value: {key}")));
            }
        }
    }
}

fn is_whole(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        _ => false,
    }
}

fn has_type(kind: Type, value: &Value) -> bool {
    match kind {
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Integer => is_whole(value),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_whole(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(schema: Value, sent: Value) -> Vec<String> {
        let node = Node::read(&json!({"type": "object", "properties": {"spec": schema}}));
        object(&node, &json!({"spec": sent}), None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_demand_has_upstreams_words() {
        for (schema, sent, want) in [
            (
                json!({"type": "string"}),
                json!(1),
                r#"spec: Invalid value: "integer": spec in body must be of type string: "integer""#,
            ),
            (
                json!({"type": "integer"}),
                json!("a"),
                r#"spec: Invalid value: "string": spec in body must be of type integer: "string""#,
            ),
            (
                json!({"type": "string", "enum": ["a", "b"]}),
                json!("c"),
                r#"spec: Unsupported value: "c": supported values: "a", "b""#,
            ),
            (
                json!({"type": "string", "pattern": "^a$"}),
                json!("b"),
                r#"spec: Invalid value: "b": spec in body should match '^a$'"#,
            ),
            (json!({"type": "string", "maxLength": 1}), json!("ab"), "spec: Too long: may not be more than 1 bytes"),
            (
                json!({"type": "string", "minLength": 3}),
                json!("ab"),
                r#"spec: Invalid value: "ab": spec in body should be at least 3 chars long"#,
            ),
            (
                json!({"type": "string", "format": "date-time"}),
                json!("x"),
                r#"spec: Invalid value: "x": spec in body must be of type date-time: "x""#,
            ),
            (
                json!({"type": "integer", "minimum": 1}),
                json!(0),
                "spec: Invalid value: 0: spec in body should be greater than or equal to 1",
            ),
            (
                json!({"type": "integer", "maximum": 1, "exclusiveMaximum": true}),
                json!(1),
                "spec: Invalid value: 1: spec in body should be less than 1",
            ),
            (
                json!({"type": "integer", "multipleOf": 5}),
                json!(7),
                "spec: Invalid value: 7: spec in body should be a multiple of 5",
            ),
            (
                json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}),
                json!(["a", "b"]),
                "spec: Too many: 2: must have at most 1 items",
            ),
            (
                json!({"type": "array", "minItems": 1, "items": {"type": "string"}}),
                json!([]),
                "spec: Invalid value: []: spec in body should have at least 1 items",
            ),
            (json!({"type": "object", "required": ["a"]}), json!({}), "spec.a: Required value"),
            (
                json!({"type": "object", "minProperties": 1}),
                json!({}),
                "spec: Invalid value: {}: spec in body should have at least 1 properties",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
                json!(["a", "a"]),
                r#"spec[1]: Duplicate value: "a""#,
            ),
            (
                json!({"x-kubernetes-int-or-string": true}),
                json!(true),
                r#"spec: Invalid value: "boolean": spec in body must be of type integer,string: "boolean""#,
            ),
            (
                json!({"type": "string"}),
                json!(null),
                r#"spec: Invalid value: "null": spec in body must be of type string: "null""#,
            ),
        ] {
            assert_eq!(found(schema, sent), [want]);
        }
    }

    #[test]
    fn what_fits_is_taken() {
        for (schema, sent) in [
            (json!({"type": "string", "nullable": true}), json!(null)),
            (json!({"type": "integer"}), json!(1.0)),
            (json!({"type": "number"}), json!(1)),
            (json!({"x-kubernetes-int-or-string": true}), json!("50%")),
            (json!({"type": "object", "additionalProperties": {"type": "integer"}}), json!({"a": 1})),
            (json!({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}), json!({"b": 1})),
            (json!({"type": "object", "not": {"required": ["a"]}}), json!({"b": 1})),
        ] {
            assert_eq!(found(schema, sent), [""; 0]);
        }
    }

    #[test]
    fn alternatives_say_how_many_hold() {
        let schema = json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
        assert_eq!(
            found(schema.clone(), json!({"a": 1, "b": 1})),
            [
                r#"spec: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives"#
            ]
        );
        assert_eq!(
            found(schema, json!({})),
            [
                r#"spec: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found none valid"#,
                "spec.a: Required value"
            ]
        );
        let not = found(json!({"type": "object", "not": {"required": ["a"]}}), json!({"a": 1}));
        assert_eq!(not, [r#"spec: Invalid value: "": "spec" must not validate the schema (not)"#]);
    }

    #[test]
    fn items_of_a_map_differ_in_their_keys() {
        let schema = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}, "v": {"type": "integer"}}}});
        let twice = found(schema, json!([{"n": "a", "v": 1}, {"n": "a", "v": 2}]));
        assert_eq!(twice, [r#"spec[1]: Duplicate value: {"n":"a"}"#]);
    }

    #[test]
    fn what_an_update_leaves_alone_is_not_refused() {
        let node = Node::read(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string", "maxLength": 1}, "b": {"type": "string", "maxLength": 1}}}}}));
        let old = json!({"spec": {"a": "long", "b": "x"}});
        assert!(object(&node, &json!({"spec": {"a": "long", "b": "y"}}), Some(&old)).is_empty());
        assert_eq!(object(&node, &json!({"spec": {"a": "longer", "b": "y"}}), Some(&old)).len(), 1);
    }
}
