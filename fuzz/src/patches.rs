//! Patches of any object with any patch. An input is a line with the kind of the patch and of the object, and two lines of
//! JSON; what does not begin like that is dealt into an object and a patch of a kind.

use longshore_api::patch::{self, PatchError};
use longshore_api::schema::schema;
use longshore_api::shape::{MAX_DEPTH, is_deeper};
use serde_json::{Map, Value, json};

use super::deal::{Deal, size};

/// How much the copies of one patch may add, in bytes; and what the texts of its paths may.
const COPIED: usize = 3 << 20;

/// Runs the target.
pub fn run(input: &[u8]) {
    if let Some((api_version, kind, object, patch)) = read(input) {
        return all(&api_version, &kind, &object, &patch);
    }
    let mut deal = Deal::new(input);
    let id = deal.kind();
    let object = deal.object(id);
    deal.patch = true;
    let patch = if deal.byte().is_multiple_of(4) { operations(&mut deal, &object) } else { deal.object(id) };
    let found = schema().get(id);
    all(found.api_version, found.name, &object, &patch);
}

/// Reads `VERSION KIND`, an object and a patch, a line each.
fn read(input: &[u8]) -> Option<(String, String, Value, Value)> {
    let text = std::str::from_utf8(input).ok()?;
    let mut lines = text.splitn(3, '\n');
    let (version, kind) = lines.next()?.split_once(' ')?;
    let object = serde_json::from_str(lines.next()?).ok()?;
    let patch = serde_json::from_str(lines.next()?).ok()?;
    Some((version.to_owned(), kind.to_owned(), object, patch))
}

/// A JSON patch over places that are there, and some that are not.
fn operations(deal: &mut Deal<'_>, object: &Value) -> Value {
    let mut places = vec![String::new(), "/x".to_owned(), "/-".to_owned()];
    pointers(object, &mut String::new(), &mut places);
    let count = deal.below(12);
    (0..count)
        .map(|_| {
            let mut place = || {
                let place = places[deal.below(places.len())].clone();
                match deal.byte() % 4 {
                    0 => format!("{place}/-"),
                    1 => format!("{place}/x"),
                    _ => place,
                }
            };
            let (path, from) = (place(), place());
            match deal.byte() % 6 {
                0 => json!({"op": "add", "path": path, "value": deal.any(3)}),
                1 => json!({"op": "remove", "path": path}),
                2 => json!({"op": "replace", "path": path, "value": deal.any(3)}),
                3 => json!({"op": "move", "from": from, "path": path}),
                4 => json!({"op": "copy", "from": from, "path": path}),
                _ => json!({"op": "test", "path": path, "value": deal.any(1)}),
            }
        })
        .collect()
}

fn pointers(value: &Value, path: &mut String, places: &mut Vec<String>) {
    let mut below = |key: &str, value: &Value| {
        let length = path.len();
        path.push('/');
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        if places.len() < 250 {
            places.push(path.clone());
            pointers(value, path, places);
        }
        path.truncate(length);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| below(key, value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(at, value)| below(&at.to_string(), value)),
        _ => {}
    }
}

type Patched = Result<Value, PatchError>;

fn all(api_version: &str, kind: &str, object: &Value, patch: &Value) {
    let strategic = |patch: &Value| patch::strategic(api_version, kind, object, patch);
    let results: [(&str, [Patched; 2], usize); 3] = [
        ("json", [patch::json(object, patch), patch::json(object, patch)], COPIED),
        ("merge", [patch::merge(object, patch), patch::merge(object, patch)], 0),
        ("strategic", [strategic(patch), strategic(patch)], 0),
    ];
    for (name, [one, two], more) in &results {
        assert_eq!(one, two, "{name}: the same patch made two things");
        let Ok(made) = one else { continue };
        let most = size(object) + size(patch) + more;
        assert!(size(made) <= most, "{name}: {} bytes out of {most}", size(made));
        let deep = [object, patch].iter().any(|value| is_deeper(value, MAX_DEPTH));
        assert!(deep || !is_deeper(made, MAX_DEPTH), "{name}: nested deeper than what it was made of");
    }
    nothing_changes_nothing(api_version, kind, object);
    if let [_, (_, [Ok(made), _], _), _] = &results {
        assert_eq!(patch::merge(made, patch).as_ref(), Ok(made), "a merge patch twice is not the same as once");
        for (key, _) in patch.as_object().into_iter().flatten().filter(|(_, value)| value.is_null()) {
            assert!(made.get(key).is_none(), "merge: {key:?} was to go");
        }
    }
    if let [_, _, (_, [Ok(made), _], _)] = &results
        && !has_directive(object)
    {
        assert!(!has_directive(made), "a directive stays in {made}");
        let nulls =
            patch.as_object().into_iter().flatten().filter(|(key, value)| value.is_null() && !is_directive(key));
        let replaces = patch.get("$patch").is_some();
        for (key, _) in nulls.filter(|_| !replaces) {
            assert!(made.get(key).is_none(), "strategic: {key:?} was to go");
        }
    }
}

fn nothing_changes_nothing(api_version: &str, kind: &str, object: &Value) {
    assert_eq!(patch::json(object, &json!([])).as_ref(), Ok(object), "an empty JSON patch");
    if object.is_object() {
        let nothing = Value::Object(Map::new());
        assert_eq!(patch::merge(object, &nothing).as_ref(), Ok(object), "an empty merge patch");
        let made = patch::strategic(api_version, kind, object, &nothing);
        assert_eq!(made.as_ref(), Ok(object), "an empty strategic merge patch");
    }
}

fn is_directive(key: &str) -> bool {
    key == "$patch"
        || key == "$retainKeys"
        || key.starts_with("$setElementOrder/")
        || key.starts_with("$deleteFromPrimitiveList/")
}

fn has_directive(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_directive),
        Value::Object(map) => map.iter().any(|(key, value)| is_directive(key) || has_directive(value)),
        _ => false,
    }
}
