//! Functions of texts.

use std::sync::Arc;

use super::int;
use crate::cel::eval::{Found, Run, failed, no_overload};
use crate::cel::value::Val;

/// Returns the place of a character as a place of a byte; the end counts.
fn byte_at(text: &str, at: i64) -> Option<usize> {
    let at = usize::try_from(at).ok()?;
    text.char_indices().map(|(byte, _)| byte).chain(std::iter::once(text.len())).nth(at)
}

fn char_at(text: &str, byte: usize) -> Val<'static> {
    int(text.get(..byte).unwrap_or_default().chars().count())
}

pub(super) fn method<'v>(run: &mut Run<'v, '_>, text: &Arc<str>, name: &str, args: &[Val<'v>]) -> Found<'v> {
    let outside = |at: i64| failed(format!("index out of range: {at}"));
    match (name, args) {
        ("contains", [Val::Text(part)]) => Ok(Val::Bool(text.contains(&**part))),
        ("startsWith", [Val::Text(part)]) => Ok(Val::Bool(text.starts_with(&**part))),
        ("endsWith", [Val::Text(part)]) => Ok(Val::Bool(text.ends_with(&**part))),
        ("matches" | "find" | "findAll", [Val::Text(expression), rest @ ..]) => {
            let regex = run.regex(expression)?;
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
        ("format", [values]) => super::formats::format(run, text, values),
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
