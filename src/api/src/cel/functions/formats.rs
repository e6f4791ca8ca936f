//! `format`: values written into a text, as upstream writes them for its one language.

use super::to_text;
use crate::cel::eval::{Found, Run, failed, no_overload};
use crate::cel::value::Val;

/// Digits behind the point, unless a text says otherwise, and the most it can say.
const DIGITS: usize = 6;
const MOST_DIGITS: usize = 100;

/// Writes values into a text.
pub(super) fn format<'v>(run: &mut Run<'v, '_>, text: &str, values: &Val<'v>) -> Found<'v> {
    let Some(values) = values.items() else { return no_overload() };
    let (mut made, mut rest, mut at) = (String::new(), text, 0);
    while let Some((before, after)) = rest.split_once('%') {
        made.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            made.push('%');
            rest = after;
            continue;
        }
        let Some(value) = values.get(at) else { return failed(format!("index {at} out of range")) };
        let (digits, clause) = match precision(after) {
            Ok(found) => found,
            Err(detail) => return failed(format!("could not parse formatting clause: {detail}")),
        };
        let mut letters = clause.chars();
        let Some(letter) = letters.next() else { return failed("unexpected end of string") };
        run.pay(&[value])?;
        let written = match letter {
            's' => plain(run, value)?,
            'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o' => match number(letter, digits, value) {
                Some(written) => written,
                None => {
                    let (clause, takes) = wants(letter);
                    let kind = value.type_name();
                    return failed(format!(
                        "error during formatting: {clause} clause can only be used on {takes}, was given {kind}"
                    ));
                }
            },
            other => {
                return failed(format!(
                    "could not parse formatting clause: unrecognized formatting clause \"{other}\""
                ));
            }
        };
        run.pay(&[&Val::text(written.as_str())])?;
        made.push_str(&written);
        rest = letters.as_str();
        at += 1;
    }
    made.push_str(rest);
    Ok(Val::text(made))
}

/// Reads how many digits there shall be; returns what follows, too.
fn precision(text: &str) -> Result<(usize, &str), String> {
    let Some(text) = text.strip_prefix('.') else { return Ok((DIGITS, text)) };
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    let Some((digits, rest)) = end.and_then(|end| text.split_at_checked(end)) else {
        return Err("error while parsing precision: could not find end of precision specifier".to_owned());
    };
    match digits.parse() {
        Ok(count) if count <= MOST_DIGITS => Ok((count, rest)),
        _ => Err(format!("error while parsing precision: error while converting precision to integer: {digits:?}")),
    }
}

fn wants(letter: char) -> (&'static str, &'static str) {
    match letter {
        'd' => ("decimal", "integers"),
        'f' => ("fixed-point", "doubles"),
        'e' => ("scientific", "doubles"),
        'b' => ("binary", "integers and bools"),
        'o' => ("octal", "integers"),
        _ => ("hex", "integers, byte buffers, and strings"),
    }
}

/// Writes a value as a number; nothing if it cannot be written so.
fn number(letter: char, digits: usize, value: &Val<'_>) -> Option<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let signed = |number: i64, written: fn(u64) -> String| {
        let sign = if number < 0 { "-" } else { "" };
        format!("{sign}{}", written(number.unsigned_abs()))
    };
    let written: fn(u64) -> String = match letter {
        'b' => |number| format!("{number:b}"),
        'o' => |number| format!("{number:o}"),
        'x' | 'X' => |number| format!("{number:x}"),
        _ => |number| number.to_string(),
    };
    let made = match (letter, value) {
        ('d' | 'b' | 'x' | 'X' | 'o', Val::Int(number)) => signed(*number, written),
        ('d' | 'b' | 'x' | 'X' | 'o', Val::Uint(number)) => written(*number),
        ('b', Val::Bool(value)) => u8::from(*value).to_string(),
        ('x' | 'X', Val::Text(text)) => hex(text.as_bytes()),
        ('x' | 'X', Val::Bytes(bytes)) => hex(bytes),
        ('f' | 'e', Val::Double(number)) if number.is_nan() => "NaN".to_owned(),
        ('f' | 'e', Val::Double(number)) if number.is_infinite() => if *number < 0.0 { "-∞" } else { "∞" }.to_owned(),
        ('f', Val::Double(number)) => grouped(&format!("{number:.digits$}")),
        ('e', Val::Double(number)) => scientific(&format!("{number:.digits$e}")),
        ('f' | 'e', Val::Text(text)) => match &**text {
            "NaN" => "NaN".to_owned(),
            "Infinity" => "∞".to_owned(),
            "-Infinity" => "-∞".to_owned(),
            _ => return None,
        },
        _ => return None,
    };
    Some(if letter == 'X' { made.to_uppercase() } else { made })
}

/// Puts a comma before each three digits.
fn grouped(number: &str) -> String {
    let (sign, number) = number.strip_prefix('-').map_or(("", number), |number| ("-", number));
    let (whole, fraction) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut made = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            made.push(',');
        }
        made.push(digit);
    }
    made + fraction
}

/// Writes `1.5e3` as 1.5 × 10⁰³.
fn scientific(number: &str) -> String {
    let (number, power) = number.split_once('e').unwrap_or((number, "0"));
    let (sign, power) = power.strip_prefix('-').map_or(("", power), |power| ("\u{207b}", power));
    let raised = |digit: char| match digit {
        '1' => '\u{b9}',
        '2' => '\u{b2}',
        '3' => '\u{b3}',
        other => other.to_digit(10).and_then(|digit| char::from_u32(0x2070 + digit)).unwrap_or(other),
    };
    let power: String = format!("{power:0>2}").chars().map(raised).collect();
    format!("{number}\u{202f}\u{d7}\u{202f}10{sign}{power}")
}

/// Writes a value as it reads.
fn plain<'v>(run: &mut Run<'v, '_>, value: &Val<'v>) -> Result<String, crate::cel::CelError> {
    Ok(match value {
        Val::Null => "null".to_owned(),
        Val::Type(name) => (*name).to_owned(),
        Val::List(_) | Val::JsonList(..) | Val::Map(_) | Val::JsonMap(..) => literal(run, value)?,
        Val::Text(_) | Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) => super::shown(value),
        Val::Bytes(_) | Val::Time(_) | Val::Span(_) => match to_text(value)? {
            Val::Text(text) => text.to_string(),
            _ => return no_overload(),
        },
        other => {
            let detail = "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                          durations, and timestamps, was given";
            return failed(format!("error during formatting: {detail} {}", other.type_name()));
        }
    })
}

/// Writes a value as an expression would have it.
fn literal<'v>(run: &mut Run<'v, '_>, value: &Val<'v>) -> Result<String, crate::cel::CelError> {
    run.pay(&[value])?;
    if let Some(items) = value.items() {
        let items = items.iter().map(|item| literal(run, item)).collect::<Result<Vec<_>, _>>()?;
        return Ok(format!("[{}]", items.join(", ")));
    }
    if let Some(entries) = value.entries() {
        let mut written = Vec::with_capacity(entries.len());
        for (key, value) in &entries {
            written.push(format!("{}:{}", literal(run, key)?, literal(run, value)?));
        }
        written.sort();
        return Ok(format!("{{{}}}", written.join(", ")));
    }
    Ok(match value {
        Val::Text(text) => format!("{text:?}"),
        Val::Bytes(_) => format!("b{:?}", plain(run, value)?),
        Val::Double(number) => format!("{number:.DIGITS$}"),
        Val::Time(_) => format!("timestamp({:?})", plain(run, value)?),
        Val::Span(_) => format!("duration({:?})", plain(run, value)?),
        other => plain(run, other)?,
    })
}
