//! An applied object over a live one, and taking out what nobody owns any more.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::set::Set;
use super::walk::{Place, item_element};
use crate::schema::Schema;

/// Puts what is applied over what is there.
pub(super) fn over(schema: &Schema, place: Place<'_>, live: Value, applied: &Value) -> Value {
    match (place, live, applied) {
        (place, Value::Object(mut live), Value::Object(applied)) if place.is_keyed() => {
            for (key, value) in applied {
                let merged = match live.remove(key) {
                    Some(old) => over(schema, place.below(schema, key), old, value),
                    None => value.clone(),
                };
                live.insert(key.clone(), merged);
            }
            live.into()
        }
        (Place::List(..), Value::Array(live), Value::Array(applied)) => lists(schema, place, live, applied).into(),
        _ => applied.clone(),
    }
}

/// Merges lists by their keys. Applied items are in the order of the applied list; live ones keep their place among them.
fn lists(schema: &Schema, place: Place<'_>, live: Vec<Value>, applied: &[Value]) -> Vec<Value> {
    let Place::List(field, inner) = place else { return applied.to_vec() };
    let element = |item: &Value| item_element(schema, field, item).ok();
    let wanted: Vec<Option<String>> = applied.iter().map(element).collect();
    let present: Vec<Option<String>> = live.iter().map(element).collect();
    // Looked up, not searched: lists may be as long as a request allows.
    let known: HashSet<&str> = wanted.iter().flatten().map(String::as_str).collect();
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(present.len());
    for (at, element) in present.iter().enumerate() {
        if let Some(element) = element {
            places.entry(element).or_insert(at);
        }
    }
    let is_wanted = |at: usize| present[at].as_deref().is_some_and(|element| known.contains(element));
    let mut live: Vec<Option<Value>> = live.into_iter().map(Some).collect();
    let mut merged = Vec::with_capacity(live.len() + applied.len());
    let mut next = 0;
    for (item, key) in applied.iter().zip(&wanted) {
        let at = key.as_ref().and_then(|key| places.get(key.as_str()).copied());
        // Live items that are not applied come first, up to this item's place or to the next shared one.
        while next < live.len() && at.is_none_or(|at| next < at) {
            if is_wanted(next) {
                if at.is_none() {
                    break;
                }
            } else {
                merged.extend(live[next].take());
            }
            next += 1;
        }
        match at.and_then(|at| live[at].take()) {
            Some(old) => {
                next = next.max(at.map_or(0, |at| at + 1));
                merged.push(over(schema, inner.place(), old, item));
            }
            None => merged.push(item.clone()),
        }
    }
    for (at, left) in live.iter_mut().enumerate().skip(next) {
        if !is_wanted(at) {
            merged.extend(left.take());
        }
    }
    merged
}

/// Takes the fields and items of a set out of an object. Returns nothing if nothing is left of it.
pub(super) fn take_out(schema: &Schema, place: Place<'_>, value: Value, doomed: &Set) -> Option<Value> {
    match (place, value) {
        (place, Value::Object(map)) if place.is_keyed() => {
            let mut kept = Map::new();
            for (key, value) in map {
                let element = format!("f:{key}");
                if doomed.has(&[&element]) {
                    continue;
                }
                let left = match doomed.below(&element) {
                    Some(below) if !below.is_empty() => take_out(schema, place.below(schema, &key), value, below),
                    _ => Some(value),
                };
                kept.extend(left.map(|value| (key, value)));
            }
            (!kept.is_empty()).then(|| kept.into())
        }
        (Place::List(field, inner), Value::Array(items)) => {
            let keep = |item: Value| {
                let Ok(element) = item_element(schema, field, &item) else { return Some(item) };
                if doomed.has(&[&element]) {
                    return None;
                }
                match doomed.below(&element) {
                    Some(below) if !below.is_empty() => take_out(schema, inner.place(), item, below),
                    _ => Some(item),
                }
            };
            let kept: Vec<Value> = items.into_iter().filter_map(keep).collect();
            (!kept.is_empty()).then(|| kept.into())
        }
        (_, value) => Some(value),
    }
}
