//! What a stock apiserver refuses in a pod, with its field paths and words. Works on raw JSON after defaulting; the types of
//! the fields have been checked before, so a wrong type counts as an absent field.

mod container;
mod env;
mod probe;
mod report;
mod resources;
mod spec;
#[cfg(test)]
mod stock;
#[cfg(test)]
mod tests;
mod volume;

use serde_json::Value;

pub use report::{FieldError, FieldErrorKind};

use report::Report;

/// Checks a pod's spec. Name, labels and annotations follow the rules of all objects and are checked with them.
pub fn pod(pod: &Value) -> Vec<FieldError> {
    let mut report = Report::default();
    match pod.get("spec") {
        Some(spec) => spec::spec(spec, &mut report),
        None => report.required("spec.containers", ""),
    }
    report.end()
}

/// Checks a pod template that stands at `path`.
pub fn template(template: &Value, path: &str) -> Vec<FieldError> {
    let mut found = pod(template);
    for fault in &mut found {
        fault.path = format!("{path}.{}", fault.path);
    }
    found
}

/// The items of a list with the path of each.
fn items<'a>(value: &'a Value, path: &str, key: &str) -> impl Iterator<Item = (String, &'a Value)> + use<'a> {
    let path = format!("{path}.{key}");
    let list = value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().enumerate().map(move |(index, item)| (format!("{path}[{index}]"), item))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, key: &str) -> Option<i64> {
    value.get(key).and_then(Value::as_i64)
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// A field that is there and no null.
fn part<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|part| !part.is_null())
}
