//! Functions of lists.

use std::cmp::Ordering;

use super::int;
use crate::cel::eval::{Found, Run, failed, no_overload, overflow};
use crate::cel::value::Val;

pub(super) fn extreme<'v>(items: &[Val<'v>], wanted: Ordering) -> Found<'v> {
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

pub(super) fn method<'v>(run: &mut Run<'v, '_>, on: &Val<'v>, name: &str, args: &[Val<'v>]) -> Found<'v> {
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
