//! The checks that rows of a [`super::described::Described`] kind can ask for, in upstream's words.

use longshore_api::names;
use longshore_api::quantity::Quantity;
use longshore_api::selector::LabelSelector;
use serde_json::{Value, json};

use super::described::Check;
use super::paths::each;
use crate::apiserver::error::Cause;
use crate::apiserver::object::{list, text};

/// Checks one row.
pub(super) fn check(check: &Check, object: &Value, causes: &mut Vec<Cause>) {
    match *check {
        Check::Required(path, detail) => {
            for (at, value) in each(object, path) {
                if value.is_none_or(is_empty) {
                    causes.push(Cause::required(at, detail));
                }
            }
        }
        Check::OneOf(path, known) => one_of(object, path, known, false, causes),
        Check::Chosen(path, known) => one_of(object, path, known, true, causes),
        Check::AtLeast(path, least) => {
            for (at, value) in each(object, path) {
                if let Some(number) = value.and_then(Value::as_i64).filter(|number| *number < least) {
                    causes.push(Cause::invalid(at, &json!(number), at_least(least)));
                }
            }
        }
        Check::Form(path, form) => {
            for (at, value) in each(object, path) {
                if let Some(value) = value.and_then(Value::as_str).filter(|value| !value.is_empty()) {
                    causes.extend(form(value).iter().map(|detail| Cause::invalid(at.as_str(), &json!(value), detail)));
                }
            }
        }
        Check::Selector(path) => {
            for (at, value) in each(object, path) {
                if let Some(selector) = value {
                    label_selector(selector, &at, causes);
                }
            }
        }
        Check::Amount(path) => {
            for (at, value) in each(object, path) {
                if let Some(value) = value {
                    amount(value, &at, causes);
                }
            }
        }
        Check::Quantities(path) => {
            for (at, value) in each(object, path) {
                for (name, value) in value.and_then(Value::as_object).into_iter().flatten() {
                    quantity(value, &format!("{at}[{name}]"), causes);
                }
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

fn at_least(least: i64) -> &'static str {
    if least == 0 { "must be greater than or equal to 0" } else { "must be greater than 0" }
}

fn one_of(object: &Value, path: &str, known: &[&str], required: bool, causes: &mut Vec<Cause>) {
    for (at, value) in each(object, path) {
        match value.and_then(Value::as_str).unwrap_or_default() {
            "" if required => causes.push(Cause::required(at, "")),
            "" => {}
            value if known.contains(&value) => {}
            value => causes.push(Cause::unsupported(at, value, known)),
        }
    }
}

/// Checks a label selector.
pub(crate) fn label_selector(selector: &Value, at: &str, causes: &mut Vec<Cause>) {
    let field = format!("{at}.matchLabels");
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let keys = names::qualified_name(key);
        causes.extend(keys.iter().map(|detail| Cause::invalid(field.as_str(), &json!(key), detail)));
        let values = names::label_value(value);
        causes.extend(values.iter().map(|detail| Cause::invalid(field.as_str(), &json!(value), detail)));
    }
    for (index, term) in list(selector, "/matchExpressions").iter().enumerate() {
        let at = format!("{at}.matchExpressions[{index}]");
        let some = !list(term, "/values").is_empty();
        match text(term, "/operator") {
            "In" | "NotIn" if !some => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                causes.push(Cause::required(format!("{at}.values"), detail));
            }
            "Exists" | "DoesNotExist" if some => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                causes.push(Cause::forbidden(format!("{at}.values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let detail = "not a valid selector operator";
                causes.push(Cause::invalid(format!("{at}.operator"), &json!(other), detail));
            }
        }
        let key = text(term, "/key");
        let keys = names::qualified_name(key);
        causes.extend(keys.iter().map(|detail| Cause::invalid(format!("{at}.key"), &json!(key), detail)));
    }
}

/// Returns the number of a whole amount, or of a percentage.
pub(crate) fn percent(value: &Value) -> Option<i64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}

/// Checks a number or percentage.
fn amount(value: &Value, at: &str, causes: &mut Vec<Cause>) {
    if let Some(number) = value.as_i64() {
        if number < 0 {
            causes.push(Cause::invalid(at, value, at_least(0)));
        }
        return;
    }
    let sound = value
        .as_str()
        .and_then(|text| text.strip_suffix('%'))
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    if !sound {
        let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                      regex used for validation is '[0-9]+%')";
        causes.push(Cause::invalid(at, value, detail));
    }
}

/// Checks a quantity.
pub(crate) fn quantity(value: &Value, at: &str, causes: &mut Vec<Cause>) {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match Quantity::parse(&text) {
        Ok(quantity) if quantity.is_negative() => causes.push(Cause::invalid(at, &json!(text), at_least(0))),
        Ok(_) => {}
        Err(error) => causes.push(Cause::invalid(at, &json!(text), &error.to_string())),
    }
}

/// Returns the selector that an object holds at a pointer; what cannot be read selects nothing.
pub(crate) fn selector_of(object: &Value, pointer: &str) -> LabelSelector {
    object.pointer(pointer).and_then(selector).unwrap_or_else(LabelSelector::nothing)
}

fn selector(raw: &Value) -> Option<LabelSelector> {
    LabelSelector::from_object(Some(&longshore_api::shape::read(raw).ok()?)).ok()
}

/// Whether a label selector takes an object.
pub(crate) fn selects(raw: &Value, object: &Value) -> bool {
    selector(raw).is_some_and(|selector| selector.matches_object(object))
}
