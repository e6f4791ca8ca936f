//! The strategic merge itself: maps by key, lists by merge key, with the directives `$patch`, `$retainKeys`,
//! `$setElementOrder/…` and `$deleteFromPrimitiveList/…`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::PatchError;
use super::order::{Places, arrange, identity};
use super::table::Place;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";

type Object = Map<String, Value>;

/// Merges a patch into an object of the type at `place`.
pub(super) fn map(mut object: Object, mut patch: Object, place: Place) -> Result<Object, PatchError> {
    match directive(&mut patch)? {
        Some(Directive::Replace) => return Ok(clean(patch)),
        Some(Directive::Delete) => return Ok(Object::new()),
        Some(Directive::Merge) | None => {}
    }
    retain_keys(&mut object, &mut patch)?;
    ordered_lists(&mut object, &mut patch, place)?;
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(DELETE_PRIMITIVES) {
            delete_primitives(&mut object, field, &value)?;
            continue;
        }
        if value.is_null() {
            object.remove(&key);
            continue;
        }
        let rule = place.field(&key);
        let merged = match (object.remove(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) if !rule.replace => {
                Value::Object(map(old, new, rule.child)?)
            }
            (Some(Value::Array(old)), Value::Array(new)) => match rule.merge_key {
                Some(merge_key) => Value::Array(list(old, new, merge_key, rule.child)?),
                None => clean_value(Value::Array(new)),
            },
            (_, new) => clean_value(new),
        };
        object.insert(key, merged);
    }
    Ok(object)
}

enum Directive {
    Merge,
    Replace,
    Delete,
}

/// Takes the `$patch` directive out of a map.
fn directive(map: &mut Object) -> Result<Option<Directive>, PatchError> {
    match map.get(PATCH).map(Value::as_str) {
        None => return Ok(None),
        Some(Some("merge")) => drop(map.remove(PATCH)),
        Some(Some("replace")) => {
            map.remove(PATCH);
            return Ok(Some(Directive::Replace));
        }
        Some(Some("delete")) => {
            map.remove(PATCH);
            return Ok(Some(Directive::Delete));
        }
        Some(unknown) => {
            let unknown = unknown.unwrap_or_default();
            let shown = go_text(&Value::Object(map.clone()));
            return Err(PatchError::Internal(format!("unknown patch type: {unknown} in map: {shown}")));
        }
    }
    Ok(Some(Directive::Merge))
}

/// Drops what `$retainKeys` does not name; used for unions, where one member must replace the other.
fn retain_keys(object: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || PatchError::BadRequest("invalid patch format of retainKeys".to_owned());
    let keys = keys.as_array().ok_or_else(bad)?.iter().map(|key| key.as_str().ok_or_else(bad));
    let keys: Vec<&str> = keys.collect::<Result<_, _>>()?;
    let plain = |key: &&String| !key.starts_with('$');
    if patch.iter().filter(|(key, value)| plain(key) && !value.is_null()).any(|(key, _)| !keys.contains(&key.as_str()))
    {
        // "patch content doesn't match retainKeys list", which stock hides behind its general text.
        return Err(PatchError::Unprocessable);
    }
    object.retain(|key, _| keys.contains(&key.as_str()));
    Ok(())
}

/// Merges the lists for which the patch gives an order, and takes them out of the patch.
fn ordered_lists(object: &mut Object, patch: &mut Object, place: Place) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(ELEMENT_ORDER)).cloned().collect();
    for name in directives {
        let bad = || PatchError::BadRequest("invalid patch format of setElementOrder list".to_owned());
        let Some(Value::Array(wanted)) = patch.remove(&name) else { return Err(bad()) };
        let field = name.trim_start_matches(ELEMENT_ORDER);
        let rule = place.field(field);
        // Without a merge key only primitives can be put in order.
        let key = rule.merge_key.unwrap_or_default();
        let additions = match patch.get(field) {
            None => None,
            Some(Value::Array(_)) => match patch.remove(field) {
                Some(Value::Array(items)) => Some(items),
                _ => None,
            },
            // Null deletes the list; the general rule does that.
            Some(_) => continue,
        };
        if additions.as_ref().is_some_and(|items| !fits_order(items, &wanted, key)) {
            return Err(bad());
        }
        let doomed = patch.remove(&format!("{DELETE_PRIMITIVES}{field}"));
        if let Some(doomed) = doomed {
            delete_primitives(object, field, &doomed)?;
        }
        let server = match object.get(field) {
            Some(Value::Array(items)) => items.clone(),
            _ => Vec::new(),
        };
        let merged = match additions {
            None if server.is_empty() => continue,
            None => server.clone(),
            Some(items) => match rule.merge_key {
                Some(key) => list(server.clone(), items, key, rule.child)?,
                None => items,
            },
        };
        object.insert(field.to_owned(), Value::Array(arrange(merged, &wanted, &server, key)));
    }
    Ok(())
}

/// Every item of the patch that stays must be named by the order, in the same sequence.
fn fits_order(items: &[Value], wanted: &[Value], key: &str) -> bool {
    let wanted = Places::of(wanted, key);
    let staying = items.iter().filter(|item| item.get(PATCH).is_none());
    let places: Vec<Option<usize>> = staying.map(|item| wanted.find(item)).collect();
    places.iter().all(Option::is_some) && places.is_sorted()
}

fn delete_primitives(object: &mut Object, field: &str, doomed: &Value) -> Result<(), PatchError> {
    let Value::Array(doomed) = doomed else {
        return Err(PatchError::BadRequest("invalid patch format of primitive list".to_owned()));
    };
    if let Some(Value::Array(items)) = object.get_mut(field) {
        let doomed = Places::of(doomed, "");
        items.retain(|item| doomed.find(item).is_none());
    }
    Ok(())
}

/// Merges two lists by key (empty: unites primitives).
fn list(mut old: Vec<Value>, new: Vec<Value>, key: &str, place: Place) -> Result<Vec<Value>, PatchError> {
    if old.iter().chain(&new).any(Value::is_array) {
        return Err(PatchError::Unprocessable);
    }
    if key.is_empty() {
        let mut kinds = old.iter().chain(&new).map(std::mem::discriminant);
        let first = kinds.next();
        if kinds.any(|kind| Some(kind) != first) {
            return Err(not_identical());
        }
        let mut seen = HashSet::new();
        let united = old.iter().chain(&new).filter(|item| seen.insert(identity(item, key))).cloned().collect();
        return Ok(arrange(united, &new, &old, key));
    }
    let mut items = Vec::with_capacity(new.len());
    let (mut replace, mut doomed) = (false, HashSet::new());
    for item in new {
        let Value::Object(mut item) = item else {
            return Err(not_identical());
        };
        if item.get(PATCH).and_then(Value::as_str) == Some("merge") {
            return Err(PatchError::Internal("merging lists cannot yet be specified in the patch".to_owned()));
        }
        match directive(&mut item)? {
            Some(Directive::Replace) => replace = true,
            Some(Directive::Delete) => drop(doomed.insert(identity(&keyed(item, key)?, key))),
            Some(Directive::Merge) | None => items.push(item),
        }
    }
    if replace {
        return Ok(items.into_iter().map(|item| Value::Object(clean(item))).collect());
    }
    if !doomed.is_empty() {
        old.retain(|other| !doomed.contains(&identity(other, key)));
    }
    let server = old.clone();
    let mut places = Places::of(&old, key);
    let mut merged = old;
    let mut named = Vec::with_capacity(items.len());
    for item in items {
        let item = keyed(item, key)?;
        match (places.find(&item), item) {
            (Some(at), Value::Object(new)) => {
                named.push(Value::Object(Object::from_iter([(
                    key.to_owned(),
                    new.get(key).cloned().unwrap_or_default(),
                )])));
                if let Value::Object(old) = std::mem::take(&mut merged[at]) {
                    merged[at] = Value::Object(map(old, new, place)?);
                }
            }
            (_, item) => {
                named.push(item.clone());
                let item = clean_value(item);
                places.push(&item);
                merged.push(item);
            }
        }
    }
    Ok(arrange(merged, &named, &server, key))
}

fn not_identical() -> PatchError {
    PatchError::Internal("list element types are not identical".to_owned())
}

/// Demands that an item has its merge key.
fn keyed(item: Object, key: &str) -> Result<Value, PatchError> {
    if item.contains_key(key) {
        return Ok(Value::Object(item));
    }
    let shown = go_text(&Value::Object(item));
    Err(PatchError::Internal(format!("map: {shown} does not contain declared merge key: {key}")))
}

/// Takes directives and nulls out of content that is added as it is.
fn clean(object: Object) -> Object {
    let plain = object.into_iter().filter(|(key, value)| {
        let is_directive =
            key == PATCH || key == RETAIN_KEYS || key.starts_with(ELEMENT_ORDER) || key.starts_with(DELETE_PRIMITIVES);
        !is_directive && !value.is_null()
    });
    plain.map(|(key, value)| (key, clean_value(value))).collect()
}

fn clean_value(value: Value) -> Value {
    let is_deletion = |item: &Value| item.get(PATCH).and_then(Value::as_str) == Some("delete");
    match value {
        Value::Object(object) if object.get(PATCH).and_then(Value::as_str) == Some("delete") => {
            Value::Object(Object::new())
        }
        Value::Object(object) => Value::Object(clean(object)),
        Value::Array(items) => {
            // `{$patch: replace}` alone is a sign, not an item.
            let is_sign = |item: &Value| item.as_object().is_some_and(|map| map.len() == 1 && map.contains_key(PATCH));
            Value::Array(
                items.into_iter().filter(|item| !is_deletion(item) && !is_sign(item)).map(clean_value).collect(),
            )
        }
        other => other,
    }
}

/// A value as Go prints it with `%v`.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let mut entries: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
            entries.sort();
            format!("map[{}]", entries.join(" "))
        }
    }
}
