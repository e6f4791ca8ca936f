//! Formats that have names: `format.dns1123Label().validate(text)` tells what is wrong with a text, if anything is.

use crate::cel::eval::{Found, no_overload};
use crate::cel::value::Val;
use crate::custom::format;
use crate::names;

type Check = fn(&str) -> Vec<String>;

const FORMATS: [(&str, Check); 13] = [
    ("dns1123Label", names::dns1123_label),
    ("dns1123Subdomain", names::dns1123_subdomain),
    ("dns1035Label", names::dns1035_label),
    ("qualifiedName", names::qualified_name),
    ("dns1123LabelPrefix", |text| names::dns1123_label(&masked(text))),
    ("dns1123SubdomainPrefix", |text| names::dns1123_subdomain(&masked(text))),
    ("dns1035LabelPrefix", |text| names::dns1035_label(&masked(text))),
    ("labelValue", names::label_value),
    ("uri", |text| told(format::is_uri(text), "invalid URI for request")),
    ("uuid", |text| told(format::fits("uuid", text), "does not match the UUID format")),
    ("byte", |text| told(format::fits("byte", text), "invalid base64")),
    ("date", |text| told(format::fits("date", text), "invalid date")),
    ("datetime", |text| told(format::fits("datetime", text), "invalid datetime")),
];

/// Names that are made longer may end with a dash.
fn masked(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut rest = rest.to_owned();
            rest.pop();
            rest + "a"
        }
        _ => text.to_owned(),
    }
}

fn told(fits: bool, detail: &str) -> Vec<String> {
    if fits { Vec::new() } else { vec![detail.to_owned()] }
}

/// Whether there is such a format.
pub(in crate::cel) fn is_known(name: &str) -> bool {
    FORMATS.iter().any(|(own, _)| *own == name)
}

/// A function of the place `format`.
pub(super) fn placed<'v>(name: &str, args: &[Val<'v>]) -> Found<'v> {
    let find = |name: &str| FORMATS.iter().find(|(own, _)| *own == name).map(|(own, _)| Val::Format(own));
    match (name, args) {
        ("named", [Val::Text(name)]) => Ok(Val::Optional(find(name).map(Box::new))),
        (name, []) => find(name).map_or_else(no_overload, Ok),
        _ => no_overload(),
    }
}

/// Tells what is wrong with a text.
pub(super) fn validate<'v>(format: &str, text: &str) -> Found<'v> {
    let Some((_, check)) = FORMATS.iter().find(|(own, _)| *own == format) else { return no_overload() };
    let found: Vec<Val<'v>> = check(text).into_iter().map(Val::text).collect();
    Ok(Val::Optional((!found.is_empty()).then(|| Box::new(Val::list(found)))))
}
