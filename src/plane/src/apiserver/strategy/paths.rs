//! Fields by their path in messages: `spec.ports[].protocol`. A `[]` stands for each item of a list, a `?` behind a name
//! for "only where this is there".

use serde_json::{Map, Value};

/// Returns the value at a path without lists.
pub(crate) fn get<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, name| value.get(name))
}

/// Returns the value at a path without lists.
pub(crate) fn get_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').try_fold(value, |value, name| value.get_mut(name))
}

/// Returns the text at a path without lists, or an empty one.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    get(value, path).and_then(Value::as_str).unwrap_or("")
}

/// Sets what is missing, null or an empty text at a path to a JSON text.
pub(crate) fn fill(value: &mut Value, path: &str, json: &str) {
    let (head, rest) = path.split_once('.').unwrap_or((path, ""));
    let (name, each) = head.strip_suffix("[]").map_or((head, false), |name| (name, true));
    let (name, only) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
    let Some(map) = value.as_object_mut() else { return };
    if rest.is_empty() {
        let empty = match map.get(name) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(_) => false,
        };
        if empty && let Ok(value) = serde_json::from_str(json) {
            map.insert(name.to_owned(), value);
        }
        return;
    }
    if each {
        for item in map.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten() {
            fill(item, rest, json);
        }
        return;
    }
    if only && !map.contains_key(name) {
        return;
    }
    fill(map.entry(name).or_insert_with(|| Value::Object(Map::new())), rest, json);
}

/// Returns each value that a path finds with its path in words; a missing last part is found as nothing.
pub(crate) fn each<'a>(value: &'a Value, path: &str) -> Vec<(String, Option<&'a Value>)> {
    let mut found = vec![(String::new(), Some(value))];
    for part in path.split('.') {
        let (name, list) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
        let (name, only) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
        let mut next = Vec::new();
        for (at, value) in found {
            let at = if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
            let below = value.and_then(|value| value.get(name)).filter(|value| !value.is_null());
            if list {
                let items = below.and_then(Value::as_array).into_iter().flatten().enumerate();
                next.extend(items.map(|(index, item)| (format!("{at}[{index}]"), Some(item))));
            } else if below.is_some() || !only {
                next.push((at, below));
            }
        }
        found = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_go_into_lists_and_make_their_parents() {
        let mut object = json!({"spec": {"ports": [{"port": 1}, {"port": 2, "protocol": "UDP"}], "type": ""}});
        fill(&mut object, "spec.ports[].protocol", "\"TCP\"");
        fill(&mut object, "spec.type", "\"A\"");
        fill(&mut object, "spec.more.deep", "3");
        fill(&mut object, "spec.absent?.deep", "3");
        fill(&mut object, "spec.none[].deep", "3");
        assert_eq!(
            object,
            json!({"spec": {"ports": [{"port": 1, "protocol": "TCP"}, {"port": 2, "protocol": "UDP"}], "type": "A",
                "more": {"deep": 3}}})
        );
    }

    #[test]
    fn paths_are_told_as_messages_have_them() {
        let object = json!({"a": [{"b": 1}, {}], "c": {"d": 2}});
        let found = |path: &str| -> Vec<(String, bool)> {
            each(&object, path).into_iter().map(|(at, value)| (at, value.is_some())).collect()
        };
        assert_eq!(found("a[].b"), [("a[0].b".to_owned(), true), ("a[1].b".to_owned(), false)]);
        assert_eq!(found("c.d"), [("c.d".to_owned(), true)]);
        assert_eq!(found("x.y"), [("x.y".to_owned(), false)]);
        assert_eq!(found("x?.y"), []);
    }
}
