//! Functions: CEL's own and those that Kubernetes adds for texts, lists, sets, quantities, addresses and URLs.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::eval::{Found, Run, failed, no_overload, overflow};
use super::network;
use super::value::Val;
use crate::custom::{format, pattern};
use crate::quantity::Quantity;

/// Words before the dot in names of functions.
pub(super) const PLACES: [&str; 4] = ["optional", "sets", "math", "cel"];

/// Functions and methods that there are, for checks before anything runs.
pub(super) const KNOWN: [&str; 98] = [
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
        _ => network::function(name, args).unwrap_or_else(no_overload),
    }
}

/// A function with a place in front, `sets.contains(a, b)`.
pub(super) fn placed<'v>(run: &mut Run<'v, '_>, place: &str, name: &str, args: &[Val<'v>]) -> Found<'v> {
    run.pay(&args.iter().collect::<Vec<_>>())?;
    match (place, name, args) {
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
            extreme(&items, if name == "greatest" { Ordering::Greater } else { Ordering::Less })
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
        Val::Text(text) => text_method(run, text, name, args),
        Val::List(_) | Val::JsonList(..) => list_method(run, on, name, args),
        Val::Time(time) => time_method(*time, name, args),
        Val::Span(span) => match (name, args) {
            ("getHours", []) => Ok(Val::Int(span.as_secs() / 3600)),
            ("getMinutes", []) => Ok(Val::Int(span.as_secs() / 60)),
            ("getSeconds", []) => Ok(Val::Int(span.as_secs())),
            ("getMilliseconds", []) => Ok(Val::Int(i64::from(span.subsec_millis()))),
            _ => no_overload(),
        },
        Val::Quantity(quantity) => quantity_method(quantity, name, args),
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

/// Returns the place of a character as a place of a byte; the end counts.
fn byte_at(text: &str, at: i64) -> Option<usize> {
    let at = usize::try_from(at).ok()?;
    text.char_indices().map(|(byte, _)| byte).chain(std::iter::once(text.len())).nth(at)
}

fn char_at(text: &str, byte: usize) -> Val<'static> {
    int(text.get(..byte).unwrap_or_default().chars().count())
}

fn text_method<'v>(run: &mut Run<'v, '_>, text: &Arc<str>, name: &str, args: &[Val<'v>]) -> Found<'v> {
    let outside = |at: i64| failed(format!("index out of range: {at}"));
    match (name, args) {
        ("contains", [Val::Text(part)]) => Ok(Val::Bool(text.contains(&**part))),
        ("startsWith", [Val::Text(part)]) => Ok(Val::Bool(text.starts_with(&**part))),
        ("endsWith", [Val::Text(part)]) => Ok(Val::Bool(text.ends_with(&**part))),
        ("matches" | "find" | "findAll", [Val::Text(expression), rest @ ..]) => {
            // Reading an expression costs more than looking at a text.
            for _ in 0..10 {
                run.pay(&[&Val::Text(Arc::clone(expression))])?;
            }
            let regex = match pattern::compile(expression) {
                Ok(regex) => regex,
                Err(error) => return failed(format!("error parsing regexp: {error}")),
            };
            let found = |found: regex::Match<'_>| Val::text(found.as_str());
            match (name, rest) {
                ("matches", []) => Ok(Val::Bool(regex.is_match(text))),
                ("find", []) => Ok(regex.find(text).map_or_else(|| Val::text(""), found)),
                ("findAll", []) => Ok(Val::list(regex.find_iter(text).map(found).collect())),
                ("findAll", [Val::Int(most)]) => {
                    let most = usize::try_from(*most).unwrap_or(usize::MAX);
                    Ok(Val::list(regex.find_iter(text).take(most).map(found).collect()))
                }
                _ => no_overload(),
            }
        }
        ("charAt", [Val::Int(at)]) => match byte_at(text, *at) {
            Some(byte) => {
                let letter = text.get(byte..).unwrap_or_default().chars().next();
                Ok(Val::text(letter.map(String::from).unwrap_or_default()))
            }
            None => outside(*at),
        },
        ("indexOf", [Val::Text(part), from @ ..]) => {
            let from = match from {
                [] => 0,
                [Val::Int(at)] => match byte_at(text, *at) {
                    Some(byte) => byte,
                    None => return outside(*at),
                },
                _ => return no_overload(),
            };
            let found = text.get(from..).and_then(|rest| rest.find(&**part));
            Ok(found.map_or(Val::Int(-1), |byte| char_at(text, from + byte)))
        }
        ("lastIndexOf", [Val::Text(part)]) => Ok(text.rfind(&**part).map_or(Val::Int(-1), |byte| char_at(text, byte))),
        ("lowerAscii", []) => Ok(Val::text(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Val::text(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Val::text(text.trim())),
        ("reverse", []) => Ok(Val::text(text.chars().rev().collect::<String>())),
        ("quote", []) => Ok(Val::text(format!("{text:?}"))),
        ("replace", [Val::Text(old), Val::Text(new), most @ ..]) => {
            let times = text.matches(&**old).count();
            let times = match most {
                [] => times,
                [Val::Int(most)] if *most < 0 => times,
                [Val::Int(most)] => times.min(usize::try_from(*most).unwrap_or(usize::MAX)),
                _ => return no_overload(),
            };
            // The new text may be much longer than what was paid for so far.
            for _ in 0..times {
                run.pay(&[&Val::Text(Arc::clone(new))])?;
            }
            Ok(Val::text(text.replacen(&**old, new, times)))
        }
        ("split", [Val::Text(by), most @ ..]) => {
            let parts: Vec<Val<'v>> = match most {
                [] => text.split(&**by).map(Val::text).collect(),
                [Val::Int(0)] => Vec::new(),
                [Val::Int(most)] if *most > 0 => {
                    text.splitn(usize::try_from(*most).unwrap_or(usize::MAX), &**by).map(Val::text).collect()
                }
                [Val::Int(_)] => text.split(&**by).map(Val::text).collect(),
                _ => return no_overload(),
            };
            // Between empty marks Rust sees two more parts than Go: one at each end.
            let inner = by.is_empty() && most.is_empty() && parts.len() >= 2;
            Ok(Val::list(if inner { parts.get(1..parts.len() - 1).unwrap_or_default().to_vec() } else { parts }))
        }
        ("substring", [Val::Int(from)]) => match byte_at(text, *from) {
            Some(byte) => Ok(Val::text(text.get(byte..).unwrap_or_default())),
            None => outside(*from),
        },
        ("substring", [Val::Int(from), Val::Int(to)]) => match (byte_at(text, *from), byte_at(text, *to)) {
            (Some(start), Some(end)) if start <= end => Ok(Val::text(text.get(start..end).unwrap_or_default())),
            (Some(_), Some(_)) => failed(format!("invalid substring range. start: {from}, end: {to}")),
            (None, _) => outside(*from),
            (_, None) => outside(*to),
        },
        _ => no_overload(),
    }
}

fn extreme<'v>(items: &[Val<'v>], wanted: Ordering) -> Found<'v> {
    let Some((first, rest)) = items.split_first() else { return failed("min/max called on empty list") };
    let mut best = first;
    for item in rest {
        match item.order(best) {
            Some(order) if order == wanted => best = item,
            Some(_) => {}
            None => return no_overload(),
        }
    }
    Ok(best.clone())
}

fn list_method<'v>(run: &mut Run<'v, '_>, on: &Val<'v>, name: &str, args: &[Val<'v>]) -> Found<'v> {
    let items = on.items().unwrap_or_default();
    match (name, args) {
        ("isSorted", []) => {
            let mut sorted = true;
            for pair in items.windows(2) {
                let [a, b] = pair else { continue };
                match a.order(b) {
                    Some(order) => sorted &= order != Ordering::Greater,
                    None => return no_overload(),
                }
            }
            Ok(Val::Bool(sorted))
        }
        ("sum", []) => {
            let mut items = items.into_iter();
            let Some(first) = items.next() else { return Ok(Val::Int(0)) };
            items.try_fold(first, |sum, item| match (&sum, &item) {
                (Val::Int(a), Val::Int(b)) => a.checked_add(*b).map(Val::Int).ok_or_else(overflow),
                (Val::Uint(a), Val::Uint(b)) => a.checked_add(*b).map(Val::Uint).ok_or_else(overflow),
                (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a + b)),
                (Val::Span(a), Val::Span(b)) => a.checked_add(*b).map(Val::Span).ok_or_else(overflow),
                _ => no_overload(),
            })
        }
        ("min", []) => extreme(&items, Ordering::Less),
        ("max", []) => extreme(&items, Ordering::Greater),
        ("indexOf", [wanted]) => {
            for (at, item) in items.iter().enumerate() {
                if run.equal(item, wanted)? {
                    return Ok(int(at));
                }
            }
            Ok(Val::Int(-1))
        }
        ("lastIndexOf", [wanted]) => {
            for (at, item) in items.iter().enumerate().rev() {
                if run.equal(item, wanted)? {
                    return Ok(int(at));
                }
            }
            Ok(Val::Int(-1))
        }
        ("join", separator) => {
            let separator = match separator {
                [] => "",
                [Val::Text(text)] => text,
                _ => return no_overload(),
            };
            let mut parts = Vec::with_capacity(items.len());
            for item in &items {
                let Val::Text(text) = item else { return no_overload() };
                run.pay(&[item])?;
                parts.push(&**text);
            }
            for _ in 0..parts.len() {
                run.pay(&[&Val::text(separator)])?;
            }
            Ok(Val::text(parts.join(separator)))
        }
        ("slice", [Val::Int(from), Val::Int(to)]) => {
            let range = usize::try_from(*from).ok().zip(usize::try_from(*to).ok());
            match range.and_then(|(from, to)| items.get(from..to)) {
                Some(part) => Ok(Val::list(part.to_vec())),
                None => failed(format!("cannot slice({from}, {to}), list is length {}", items.len())),
            }
        }
        ("reverse", []) => Ok(Val::list(items.into_iter().rev().collect())),
        ("flatten", []) => {
            let mut flat = Vec::new();
            for item in items {
                run.pay(&[&item])?;
                match item.items() {
                    Some(inner) => flat.extend(inner),
                    None => flat.push(item),
                }
            }
            Ok(Val::list(flat))
        }
        ("distinct", []) => {
            let mut kept: Vec<Val<'v>> = Vec::new();
            for item in items {
                let mut is_new = true;
                for own in &kept {
                    if run.equal(own, &item)? {
                        is_new = false;
                        break;
                    }
                }
                if is_new {
                    kept.push(item);
                }
            }
            Ok(Val::list(kept))
        }
        ("sort", []) => {
            let mut sorted = items;
            if sorted.windows(2).any(|pair| matches!(pair, [a, b] if a.order(b).is_none())) {
                return no_overload();
            }
            sorted.sort_by(|a, b| a.order(b).unwrap_or(Ordering::Equal));
            Ok(Val::list(sorted))
        }
        _ => no_overload(),
    }
}

fn time_method<'v>(time: Timestamp, name: &str, args: &[Val<'v>]) -> Found<'v> {
    let zone = match args {
        [] => TimeZone::UTC,
        [Val::Text(zone)] => match TimeZone::get(zone) {
            Ok(zone) => zone,
            Err(_) => return failed(format!("unknown time zone {zone}")),
        },
        _ => return no_overload(),
    };
    let at = time.to_zoned(zone);
    Ok(Val::Int(match name {
        "getFullYear" => i64::from(at.year()),
        "getMonth" => i64::from(at.month()) - 1,
        "getDate" => i64::from(at.day()),
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(at.day_of_year()) - 1,
        "getHours" => i64::from(at.hour()),
        "getMinutes" => i64::from(at.minute()),
        "getSeconds" => i64::from(at.second()),
        "getMilliseconds" => i64::from(at.millisecond()),
        _ => return no_overload(),
    }))
}

fn quantity_method<'v>(quantity: &Quantity, name: &str, args: &[Val<'v>]) -> Found<'v> {
    let zero = Quantity::default();
    let made = |quantity: Quantity| Ok(Val::Quantity(Arc::new(quantity)));
    let sign = |order: Ordering| match order {
        Ordering::Less => Val::Int(-1),
        Ordering::Equal => Val::Int(0),
        Ordering::Greater => Val::Int(1),
    };
    match (name, args) {
        ("sign", []) => Ok(sign(quantity.cmp(&zero))),
        ("isInteger", []) => Ok(Val::Bool(quantity.is_whole())),
        ("asInteger", []) if quantity.is_whole() => Ok(Val::Int(quantity.value())),
        ("asInteger", []) => failed("cannot convert value to integer"),
        #[expect(clippy::cast_precision_loss, reason = "approximate by name")]
        ("asApproximateFloat", []) => Ok(Val::Double(quantity.milli_value() as f64 / 1000.0)),
        ("compareTo", [Val::Quantity(other)]) => Ok(sign(quantity.cmp(other))),
        ("isGreaterThan", [Val::Quantity(other)]) => Ok(Val::Bool(quantity > &**other)),
        ("isLessThan", [Val::Quantity(other)]) => Ok(Val::Bool(quantity < &**other)),
        ("add", [Val::Quantity(other)]) => made(quantity.plus(other)),
        ("sub", [Val::Quantity(other)]) => made(quantity.minus(other)),
        ("add", [Val::Int(number)]) => {
            Quantity::parse(&number.to_string()).map_or_else(|_| no_overload(), |other| made(quantity.plus(&other)))
        }
        ("sub", [Val::Int(number)]) => {
            Quantity::parse(&number.to_string()).map_or_else(|_| no_overload(), |other| made(quantity.minus(&other)))
        }
        _ => no_overload(),
    }
}
