//! Validation of pods on raw JSON: finds what a stock apiserver finds, in its order and with its texts.
//! Types are checked by the decoder before; parts of a wrong type are left alone here.

mod container;
mod environment;
mod handler;
mod pod;
mod volume;

#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;

pub use pod::{pod, spec};

/// What kind of fault a field has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// It is missing.
    Required,
    /// Its value breaks a rule.
    Invalid,
    /// Its value is none of the known ones.
    NotSupported,
    /// It has been used already.
    Duplicate,
    /// It names something that is not there.
    NotFound,
    /// It may not be set here.
    Forbidden,
    /// It is too long.
    TooLong,
}

impl FieldErrorKind {
    /// The reason that a `Status` shows.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
        }
    }
}

/// One fault of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The field, e.g. `spec.containers[0].image`.
    pub path: String,
    /// The text behind the path, e.g. `Required value`.
    pub message: String,
    /// What kind of fault.
    pub kind: FieldErrorKind,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Collects faults.
#[derive(Debug, Default)]
struct Faults(Vec<FieldError>);

impl Faults {
    fn add(&mut self, kind: FieldErrorKind, path: impl Into<String>, message: String) {
        self.0.push(FieldError { path: path.into(), message, kind });
    }

    fn required(&mut self, path: impl Into<String>, detail: &str) {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        self.add(FieldErrorKind::Required, path, message);
    }

    fn invalid(&mut self, path: impl Into<String>, value: &Value, detail: &str) {
        self.add(FieldErrorKind::Invalid, path, format!("Invalid value: {value}: {detail}"));
    }

    fn invalid_text(&mut self, path: impl Into<String>, value: &str, detail: &str) {
        self.add(FieldErrorKind::Invalid, path, format!("Invalid value: {value:?}: {detail}"));
    }

    fn forbidden(&mut self, path: impl Into<String>, detail: &str) {
        self.add(FieldErrorKind::Forbidden, path, format!("Forbidden: {detail}"));
    }

    fn duplicate(&mut self, path: impl Into<String>, value: &str) {
        self.add(FieldErrorKind::Duplicate, path, format!("Duplicate value: {value:?}"));
    }

    fn not_found(&mut self, path: impl Into<String>, value: &str) {
        self.add(FieldErrorKind::NotFound, path, format!("Not found: {value:?}"));
    }

    fn supported(&mut self, path: impl Into<String>, value: &str, known: &[&str]) {
        if known.contains(&value) {
            return;
        }
        let list: Vec<String> = known.iter().map(|word| format!("{word:?}")).collect();
        let message = format!("Unsupported value: {value:?}: supported values: {}", list.join(", "));
        self.add(FieldErrorKind::NotSupported, path, message);
    }

    /// Adds the texts of a rule for names.
    fn name(&mut self, path: impl Into<String>, value: &str, rule: fn(&str) -> Vec<String>) {
        let path = path.into();
        for detail in rule(value) {
            self.invalid_text(path.clone(), value, &detail);
        }
    }

    fn port(&mut self, path: impl Into<String>, value: i64) {
        if !(1..=65_535).contains(&value) {
            self.invalid(path, &value.into(), "must be between 1 and 65535, inclusive");
        }
    }

    fn not_negative(&mut self, path: impl Into<String>, value: Option<i64>) {
        if let Some(value) = value.filter(|value| *value < 0) {
            self.invalid(path, &value.into(), "must be greater than or equal to 0");
        }
    }

    fn mode(&mut self, path: impl Into<String>, value: Option<i64>) {
        if let Some(value) = value.filter(|value| !(0..=0o777).contains(value)) {
            self.invalid(path, &value.into(), "must be a number between 0 and 0777 (octal), both inclusive");
        }
    }

    /// A path below something: relative, without steps back.
    fn relative_path(&mut self, path: &str, value: &str) {
        if value.starts_with('/') {
            self.invalid_text(path, value, "must be a relative path");
        }
        self.no_backsteps(path, value);
    }

    fn no_backsteps(&mut self, path: &str, value: &str) {
        if value.split('/').any(|part| part == "..") {
            self.invalid_text(path, value, "must not contain '..'");
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("")
}

fn number(value: &Value, key: &str) -> Option<i64> {
    value.get(key).and_then(Value::as_i64)
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn has(value: &Value, key: &str) -> bool {
    value.get(key).is_some_and(|value| !value.is_null())
}
