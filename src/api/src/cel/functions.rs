//! Functions: CEL's own and those that Kubernetes adds for texts, lists, sets, quantities, addresses and URLs.

mod amounts;
mod formats;
mod lists;
pub(super) mod named;
mod texts;
pub(super) mod versions;

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::eval::{Found, Run, failed, no_overload, overflow};
use super::network;
use super::value::Val;
use crate::custom::format;
use crate::quantity::Quantity;

/// Words before the dot in names of functions.
pub(super) const PLACES: [&str; 8] = ["optional", "sets", "math", "cel", "format", "strings", "lists", "ip"];

/// Functions and methods that there are, for checks before anything runs.
pub(super) const KNOWN: [&str; 107] = [
    "size",
    "type",
    "dyn",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "bool",
    "duration",
    "timestamp",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "lowerAscii",
    "upperAscii",
    "replace",
    "split",
    "substring",
    "trim",
    "join",
    "reverse",
    "isSorted",
    "sum",
    "min",
    "max",
    "slice",
    "flatten",
    "distinct",
    "sort",
    "find",
    "findAll",
    "url",
    "isURL",
    "getScheme",
    "getHost",
    "getHostname",
    "getPort",
    "getEscapedPath",
    "getQuery",
    "ip",
    "isIP",
    "family",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "cidr",
    "isCIDR",
    "containsIP",
    "containsCIDR",
    "prefixLength",
    "masked",
    "isCanonical",
    "quantity",
    "isQuantity",
    "sign",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "isInteger",
    "asInteger",
    "asApproximateFloat",
    "add",
    "sub",
    "hasValue",
    "value",
    "orValue",
    "or",
    "of",
    "none",
    "ofNonZeroValue",
    "equivalent",
    "intersects",
    "greatest",
    "least",
    "abs",
    "ceil",
    "floor",
    "round",
    "trunc",
    "isNaN",
    "quote",
    "format",
    "semver",
    "isSemver",
    "major",
    "minor",
    "patch",
    "named",
    "validate",
    "range",
];

/// Writes a value as messages show it.
pub(super) fn shown(value: &Val<'_>) -> String {
    match value {
        Val::Text(text) => text.to_string(),
        Val::Int(number) => number.to_string(),
        Val::Uint(number) => number.to_string(),
        Val::Double(number) => number.to_string(),
        Val::Bool(value) => value.to_string(),
        other => other.type_name().to_owned(),
    }
}

fn int(number: usize) -> Val<'static> {
    Val::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// A function without a value in front.
pub(super) fn function<'v>(run: &mut Run<'v, '_>, name: &str, args: &[Val<'v>]) -> Found<'v> {
    match (name, args) {
        ("size", [value]) => size(value),
        ("matches", [text, pattern]) => method(run, text, "matches", std::slice::from_ref(pattern)),
        ("type", [value]) => Ok(Val::Type(value.type_name())),
        ("dyn", [value]) => Ok(value.clone()),
        ("int", [value]) => to_int(value),
        ("uint", [value]) => to_uint(value),
        ("double", [value]) => to_double(value),
        ("string", [value]) => to_text(value),
        ("bytes", [Val::Text(text)]) => Ok(Val::Bytes(text.as_bytes().into())),
        ("bytes", [Val::Bytes(bytes)]) => Ok(Val::Bytes(Arc::clone(bytes))),
        ("bool", [Val::Bool(value)]) => Ok(Val::Bool(*value)),
        ("bool", [Val::Text(text)]) => match &**text {
            "true" | "t" | "TRUE" | "True" | "1" => Ok(Val::Bool(true)),
            "false" | "f" | "FALSE" | "False" | "0" => Ok(Val::Bool(false)),
            other => failed(format!("type conversion error from 'string' to 'bool': {other}")),
        },
        ("duration", [Val::Text(text)]) => match format::span(text) {
            Some(span) => Ok(Val::Span(SignedDuration::from_nanos(span))),
            None => failed(format!("time: invalid duration {text:?}")),
        },
        ("duration", [Val::Span(span)]) => Ok(Val::Span(*span)),
        ("timestamp", [Val::Text(text)]) => match text.parse() {
            Ok(time) => Ok(Val::Time(time)),
            Err(_) => failed(format!("invalid timestamp {text:?}")),
        },
        ("timestamp", [Val::Int(seconds)]) => Timestamp::from_second(*seconds).map(Val::Time).map_err(|_| overflow()),
        ("timestamp", [Val::Time(time)]) => Ok(Val::Time(*time)),
        ("quantity", [Val::Text(text)]) => match Quantity::parse(text) {
            Ok(quantity) => Ok(Val::Quantity(Arc::new(quantity))),
            Err(error) => failed(error.to_string()),
        },
        ("isQuantity", [Val::Text(text)]) => Ok(Val::Bool(Quantity::parse(text).is_ok())),
        _ => network::function(name, args).or_else(|| versions::function(name, args)).unwrap_or_else(no_overload),
    }
}

/// A function with a place in front, `sets.contains(a, b)`.
pub(super) fn placed<'v>(run: &mut Run<'v, '_>, place: &str, name: &str, args: &[Val<'v>]) -> Found<'v> {
    run.pay(&args.iter().collect::<Vec<_>>())?;
    match (place, name, args) {
        ("format", ..) => named::placed(name, args),
        ("strings", "quote", [Val::Text(text)]) => Ok(Val::text(format!("{text:?}"))),
        ("ip", "isCanonical", [Val::Text(text)]) => network::is_canonical(text),
        ("lists", "range", [Val::Int(count)]) => {
            let Ok(steps) = u64::try_from(*count) else { return failed("lists.range: size must be non-negative") };
            run.pay_steps(steps)?;
            Ok(Val::list((0..*count).map(Val::Int).collect()))
        }
        ("optional", "of", [value]) => Ok(Val::Optional(Some(Box::new(value.clone())))),
        ("optional", "none", []) => Ok(Val::Optional(None)),
        ("optional", "ofNonZeroValue", [value]) => {
            let zero = match value {
                Val::Null | Val::Bool(false) | Val::Int(0) | Val::Uint(0) => true,
                Val::Double(number) => *number == 0.0,
                Val::Text(_) | Val::Bytes(_) | Val::List(_) | Val::Map(_) | Val::JsonList(..) | Val::JsonMap(..) => {
                    value.size() == 0
                }
                _ => false,
            };
            Ok(Val::Optional((!zero).then(|| Box::new(value.clone()))))
        }
        ("sets", "contains" | "equivalent" | "intersects", [a, b]) => {
            let (Some(a), Some(b)) = (a.items(), b.items()) else { return no_overload() };
            let mut found = |item: &Val<'v>, of: &[Val<'v>]| -> Result<bool, super::CelError> {
                for other in of {
                    if run.equal(other, item)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            };
            if name == "intersects" {
                for item in &a {
                    if found(item, &b)? {
                        return Ok(Val::Bool(true));
                    }
                }
                return Ok(Val::Bool(false));
            }
            for item in &b {
                if !found(item, &a)? {
                    return Ok(Val::Bool(false));
                }
            }
            for item in a.iter().filter(|_| name == "equivalent") {
                if !found(item, &b)? {
                    return Ok(Val::Bool(false));
                }
            }
            Ok(Val::Bool(true))
        }
        ("math", "greatest" | "least", args) => {
            let items = match args {
                [list] => list.items().unwrap_or_else(|| vec![list.clone()]),
                many => many.to_vec(),
            };
            lists::extreme(&items, if name == "greatest" { Ordering::Greater } else { Ordering::Less })
        }
        ("math", "abs", [Val::Int(number)]) => number.checked_abs().map(Val::Int).ok_or_else(overflow),
        ("math", _, [Val::Double(number)]) => Ok(match name {
            "abs" => Val::Double(number.abs()),
            "ceil" => Val::Double(number.ceil()),
            "floor" => Val::Double(number.floor()),
            "round" => Val::Double(number.round()),
            "trunc" => Val::Double(number.trunc()),
            "isNaN" => Val::Bool(number.is_nan()),
            _ => return no_overload(),
        }),
        _ => no_overload(),
    }
}

/// A function of a value.
pub(super) fn method<'v>(run: &mut Run<'v, '_>, on: &Val<'v>, name: &str, args: &[Val<'v>]) -> Found<'v> {
    if name == "size" && args.is_empty() {
        return size(on);
    }
    match on {
        Val::Text(text) => texts::method(run, text, name, args),
        Val::List(_) | Val::JsonList(..) => lists::method(run, on, name, args),
        Val::Time(time) => amounts::time(*time, name, args),
        Val::Span(span) => match (name, args) {
            ("getHours", []) => Ok(Val::Int(span.as_secs() / 3600)),
            ("getMinutes", []) => Ok(Val::Int(span.as_secs() / 60)),
            ("getSeconds", []) => Ok(Val::Int(span.as_secs())),
            ("getMilliseconds", []) => Ok(Val::Int(i64::from(span.subsec_millis()))),
            _ => no_overload(),
        },
        Val::Quantity(quantity) => amounts::quantity(quantity, name, args),
        Val::Version(version) => versions::method(version, name, args),
        Val::Format(format) => match (name, args) {
            ("validate", [Val::Text(text)]) => named::validate(format, text),
            _ => no_overload(),
        },
        Val::Optional(inner) => match (name, args, inner) {
            ("hasValue", [], inner) => Ok(Val::Bool(inner.is_some())),
            ("value", [], Some(inner)) => Ok((**inner).clone()),
            ("value", [], None) => failed("optional.none() dereference"),
            _ => no_overload(),
        },
        _ => network::method(on, name, args).unwrap_or_else(no_overload),
    }
}

fn size<'v>(value: &Val<'v>) -> Found<'v> {
    match value {
        Val::Text(text) => Ok(int(text.chars().count())),
        Val::Bytes(_) | Val::List(_) | Val::Map(_) | Val::JsonList(..) | Val::JsonMap(..) => Ok(int(value.size())),
        _ => no_overload(),
    }
}

fn to_int<'v>(value: &Val<'v>) -> Found<'v> {
    match value {
        Val::Int(number) => Ok(Val::Int(*number)),
        Val::Uint(number) => i64::try_from(*number).map(Val::Int).map_err(|_| overflow()),
        #[expect(clippy::cast_possible_truncation, reason = "checked to fit")]
        Val::Double(number) if number.abs() < 9.2e18 => Ok(Val::Int(*number as i64)),
        Val::Double(_) => Err(overflow()),
        Val::Text(text) => match text.parse() {
            Ok(number) => Ok(Val::Int(number)),
            Err(_) => failed(format!("type conversion error from 'string' to 'int': {text}")),
        },
        Val::Time(time) => Ok(Val::Int(time.as_second())),
        Val::Span(span) => Ok(Val::Int(span.as_secs())),
        _ => no_overload(),
    }
}

fn to_uint<'v>(value: &Val<'v>) -> Found<'v> {
    match value {
        Val::Uint(number) => Ok(Val::Uint(*number)),
        Val::Int(number) => u64::try_from(*number).map(Val::Uint).map_err(|_| overflow()),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to fit")]
        Val::Double(number) if (0.0..1.8e19).contains(number) => Ok(Val::Uint(*number as u64)),
        Val::Double(_) => Err(overflow()),
        Val::Text(text) => match text.parse() {
            Ok(number) => Ok(Val::Uint(number)),
            Err(_) => failed(format!("type conversion error from 'string' to 'uint': {text}")),
        },
        _ => no_overload(),
    }
}

fn to_double<'v>(value: &Val<'v>) -> Found<'v> {
    match value {
        Val::Double(number) => Ok(Val::Double(*number)),
        #[expect(clippy::cast_precision_loss, reason = "that is what the conversion does")]
        Val::Int(number) => Ok(Val::Double(*number as f64)),
        #[expect(clippy::cast_precision_loss, reason = "that is what the conversion does")]
        Val::Uint(number) => Ok(Val::Double(*number as f64)),
        Val::Text(text) => match text.parse() {
            Ok(number) => Ok(Val::Double(number)),
            Err(_) => failed(format!("type conversion error from 'string' to 'double': {text}")),
        },
        _ => no_overload(),
    }
}

fn to_text<'v>(value: &Val<'v>) -> Found<'v> {
    Ok(match value {
        Val::Text(text) => Val::Text(Arc::clone(text)),
        Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) => Val::text(shown(value)),
        Val::Time(time) => Val::text(time.to_string()),
        #[expect(clippy::cast_precision_loss, reason = "seconds as people read them")]
        Val::Span(span) if span.subsec_nanos() != 0 => Val::text(format!("{}s", span.as_nanos() as f64 / 1e9)),
        Val::Span(span) => Val::text(format!("{}s", span.as_secs())),
        Val::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Val::text(text),
            Err(_) => return failed("invalid UTF-8 in bytes, cannot convert to string"),
        },
        Val::Ip(address) => Val::text(address.to_string()),
        Val::Cidr(address, length) => Val::text(format!("{address}/{length}")),
        Val::Quantity(quantity) => Val::text(quantity.to_string()),
        _ => return no_overload(),
    })
}
