//! Decoding against the table of fields: unknown fields, wrong types, defaults. Errors carry the path, so that the caller,
//! who has the text, can add line and column.

use std::fmt;

use serde_json::{Map, Value};

use super::fields::FIELDS;
use crate::duration::GoDuration;
use crate::quantity::Quantity;

/// The type of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Bool,
    Int32,
    Int64,
    Uint32,
    Float,
    Text,
    Duration,
    /// Text, or a number of nanoseconds.
    DurationOrNanos,
    Quantity,
    Texts,
    Numbers,
    TextMap,
    BoolMap,
    TextsMap,
    QuantityMap,
    /// A list of objects, whose fields stand in the table as `path[].name`.
    List,
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) path: &'static str,
    pub(super) kind: Type,
    /// Zero is a value.
    pub(super) nullable: bool,
    /// JSON text.
    pub(super) default: Option<&'static str>,
}

impl Field {
    pub(super) fn default_value(&self) -> Option<Value> {
        self.default.and_then(|text| serde_json::from_str(text).ok())
    }
}

/// One step of a path into the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathStep {
    /// The value of that key.
    Key(String),
    /// The item at that place of a list.
    Index(usize),
}

/// A field that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// Where in the document.
    pub path: Vec<PathStep>,
    /// What is wrong, with what would be right.
    pub message: String,
}

impl ConfigError {
    /// Builds an error at a path written with dots.
    pub(super) fn at(path: &str, message: impl Into<String>) -> Self {
        let path = path.split('.').map(|key| PathStep::Key(key.to_owned())).collect();
        Self { path, message: message.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.path.iter().enumerate() {
            match step {
                PathStep::Key(key) if index == 0 => f.write_str(key)?,
                PathStep::Key(key) => write!(f, ".{key}")?,
                PathStep::Index(index) => write!(f, "[{index}]")?,
            }
        }
        write!(f, ": {}", self.message)
    }
}

/// Checks a document against the table; all faults are reported.
pub(super) fn check(document: &Map<String, Value>) -> Vec<ConfigError> {
    let mut checker = Checker { path: Vec::new(), errors: Vec::new() };
    checker.object("", document);
    checker.errors
}

struct Checker {
    path: Vec<PathStep>,
    errors: Vec<ConfigError>,
}

impl Checker {
    fn error(&mut self, message: String) {
        self.errors.push(ConfigError { path: self.path.clone(), message });
    }

    fn wrong(&mut self, found: &Value, wanted: &str) {
        self.error(format!("found {}, wanted {wanted}", describe(found)));
    }

    fn at(&mut self, step: PathStep, check: impl FnOnce(&mut Self)) {
        self.path.push(step);
        check(self);
        self.path.pop();
    }

    /// Checks the fields of an object whose fields stand in the table below `prefix` (which ends with a dot).
    fn object(&mut self, prefix: &str, object: &Map<String, Value>) {
        for (key, value) in object {
            let path = format!("{prefix}{key}");
            let field = FIELDS.iter().find(|field| field.path == path);
            let below = format!("{path}.");
            let has_fields = FIELDS.iter().any(|field| field.path.starts_with(&below));
            self.at(PathStep::Key(key.clone()), |checker| match (field, value) {
                // Null is an absent value everywhere.
                (Some(_), Value::Null) => {}
                (Some(field), value) => checker.value(field, value),
                (None, Value::Null) if has_fields => {}
                (None, Value::Object(inner)) if has_fields => checker.object(&below, inner),
                (None, other) if has_fields => checker.wrong(other, "an object"),
                (None, _) => {
                    let hint = closest(prefix, key).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
                    checker.error(format!("unknown field{hint}"));
                }
            });
        }
    }

    fn value(&mut self, field: &Field, value: &Value) {
        match field.kind {
            Type::Bool if value.is_boolean() => {}
            Type::Bool => self.wrong(value, "true or false"),
            Type::Int32 => self.integer(value, i32::MIN.into(), i32::MAX.into()),
            Type::Uint32 => self.integer(value, 0, u32::MAX.into()),
            Type::Int64 => self.integer(value, i64::MIN, i64::MAX),
            Type::Float if value.is_number() => {}
            Type::Float => self.wrong(value, "a number"),
            Type::Text => self.text(value),
            Type::DurationOrNanos if value.is_i64() => {}
            Type::Duration | Type::DurationOrNanos => match value.as_str().map(GoDuration::parse) {
                Some(Ok(_)) => {}
                Some(Err(error)) => self.error(error.to_string()),
                None => self.wrong(value, "a duration like \"1m30s\""),
            },
            Type::Quantity => self.quantity(value),
            Type::Texts => self.each(value, Self::text),
            Type::Numbers => self.each(value, |checker, item| checker.integer(item, i32::MIN.into(), i32::MAX.into())),
            Type::TextMap => self.entries(value, Self::text),
            Type::QuantityMap => self.entries(value, Self::quantity),
            Type::TextsMap => self.entries(value, |checker, item| checker.each(item, Self::text)),
            Type::BoolMap => self.entries(value, |checker, item| {
                if !item.is_boolean() {
                    checker.wrong(item, "true or false");
                }
            }),
            Type::List => {
                let prefix = format!("{}[].", field.path);
                self.each(value, |checker, item| match item {
                    Value::Object(object) => checker.object(&prefix, object),
                    other => checker.wrong(other, "an object"),
                });
            }
        }
    }

    fn text(&mut self, value: &Value) {
        if !value.is_string() {
            self.wrong(value, "text (put it in quotes)");
        }
    }

    fn integer(&mut self, value: &Value, least: i64, most: i64) {
        match value.as_i64() {
            Some(number) if (least..=most).contains(&number) => {}
            Some(_) => self.wrong(value, &format!("a whole number from {least} to {most}")),
            None => self.wrong(value, "a whole number"),
        }
    }

    fn quantity(&mut self, value: &Value) {
        if let Err(error) = serde_json::from_value::<Quantity>(value.clone()) {
            self.error(format!("found {}: {error}", describe(value)));
        }
    }

    fn each(&mut self, value: &Value, mut check: impl FnMut(&mut Self, &Value)) {
        let Value::Array(items) = value else { return self.wrong(value, "a list") };
        for (index, item) in items.iter().enumerate() {
            self.at(PathStep::Index(index), |checker| check(checker, item));
        }
    }

    fn entries(&mut self, value: &Value, mut check: impl FnMut(&mut Self, &Value)) {
        let Value::Object(entries) = value else { return self.wrong(value, "an object") };
        for (key, item) in entries {
            self.at(PathStep::Key(key.clone()), |checker| check(checker, item));
        }
    }
}

/// A value as an error shows it, cut when long.
fn describe(value: &Value) -> String {
    let text = value.to_string();
    let text: String =
        if text.chars().count() > 60 { text.chars().take(60).chain("…".chars()).collect() } else { text };
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => text,
        Value::String(_) => format!("the text {text}"),
        Value::Array(_) => format!("the list {text}"),
        Value::Object(_) => format!("the object {text}"),
    }
}

/// The known name below `prefix` that is most like `key`, if any is.
fn closest(prefix: &str, key: &str) -> Option<&'static str> {
    let names = FIELDS.iter().filter_map(|field| field.path.strip_prefix(prefix));
    crate::flags::closest(key, names.map(|name| name.split(['.', '[']).next().unwrap_or(name)))
}

/// The value at a path written with dots.
pub(super) fn get<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(document, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// Sets the value at a path written with dots, making objects on the way.
pub(super) fn set(document: &mut Value, path: &str, value: Value) {
    let mut place = document;
    for key in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(object) = place else { return };
        place = object.entry(key).or_insert(Value::Null);
    }
    *place = value;
}

/// Says whether a value counts as not given where zero means unset.
pub(super) fn is_zero(kind: Type, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) if matches!(kind, Type::Duration | Type::DurationOrNanos) => {
            GoDuration::parse(text) == Ok(GoDuration::ZERO)
        }
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}
