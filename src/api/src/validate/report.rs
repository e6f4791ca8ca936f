//! Findings and their wording.

use std::fmt;

use serde_json::Value;

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// It is missing.
    Required,
    /// Its value breaks a rule.
    Invalid,
    /// Its value is none of the known ones.
    NotSupported,
    /// Its value stands there twice.
    Duplicate,
    /// It names something that is not there.
    NotFound,
    /// It may not be set here.
    Forbidden,
    /// It is longer than allowed.
    TooLong,
    /// It has more items than allowed.
    TooMany,
    /// It has another type.
    TypeInvalid,
}

impl FieldErrorKind {
    /// The reason in a `Status` cause.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The field, e.g. `spec.containers[0].image`.
    pub path: String,
    /// What is wrong, without the path.
    pub message: String,
    /// What is wrong, for programs.
    pub kind: FieldErrorKind,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Collects findings.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<FieldError>);

impl Report {
    pub(super) fn end(self) -> Vec<FieldError> {
        self.0
    }

    fn put(&mut self, path: impl Into<String>, kind: FieldErrorKind, value: Option<String>, detail: &str) {
        let mut message = kind.words().to_owned();
        for more in value.as_deref().into_iter().chain(Some(detail).filter(|detail| !detail.is_empty())) {
            message.push_str(": ");
            message.push_str(more);
        }
        self.0.push(FieldError { path: path.into(), message, kind });
    }

    pub(super) fn required(&mut self, path: impl Into<String>, detail: &str) {
        self.put(path, FieldErrorKind::Required, None, detail);
    }

    pub(super) fn invalid(&mut self, path: impl Into<String>, value: impl Into<Value>, detail: &str) {
        self.put(path, FieldErrorKind::Invalid, Some(value.into().to_string()), detail);
    }

    pub(super) fn forbidden(&mut self, path: impl Into<String>, detail: &str) {
        self.put(path, FieldErrorKind::Forbidden, None, detail);
    }

    pub(super) fn duplicate(&mut self, path: impl Into<String>, value: impl Into<Value>) {
        self.put(path, FieldErrorKind::Duplicate, Some(value.into().to_string()), "");
    }

    pub(super) fn not_found(&mut self, path: impl Into<String>, value: impl Into<Value>) {
        self.put(path, FieldErrorKind::NotFound, Some(value.into().to_string()), "");
    }

    pub(super) fn unsupported(&mut self, path: impl Into<String>, value: &str, known: &[&str]) {
        let known: Vec<String> = known.iter().map(|known| format!("{known:?}")).collect();
        let detail = format!("supported values: {}", known.join(", "));
        self.put(path, FieldErrorKind::NotSupported, Some(Value::from(value).to_string()), &detail);
    }

    /// Reports each text of a name rule.
    pub(super) fn texts(&mut self, path: &str, value: &str, texts: Vec<String>) {
        for detail in texts {
            self.invalid(path, value, &detail);
        }
    }

    /// A field that must be there and one of the known values.
    pub(super) fn one_of(&mut self, path: impl Into<String>, value: &str, known: &[&str]) {
        if value.is_empty() {
            self.required(path, "");
        } else if !known.contains(&value) {
            self.unsupported(path, value, known);
        }
    }

    /// A number that must not be negative.
    pub(super) fn not_negative(&mut self, path: impl Into<String>, value: Option<i64>) {
        if let Some(value) = value.filter(|value| *value < 0) {
            self.invalid(path, value, "must be greater than or equal to 0");
        }
    }
}
