//! Defaults of custom kinds, and nulls that stand for nothing.

use serde_json::Value;

use super::structural::Node;

/// Takes out nulls where null is no value, then fills in what is missing.
pub fn object(node: &Node, object: &mut Value) {
    fill(node, object);
}

fn fill(node: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| !value.is_null() || node.below(key).is_none_or(|below| below.nullable));
            for (key, below) in &node.properties {
                if let Some(default) = &below.default
                    && !map.contains_key(key)
                {
                    map.insert(key.clone(), default.clone());
                }
            }
            for (key, value) in map {
                if let Some(below) = node.below(key) {
                    fill(below, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(below) = &node.items {
                items.iter_mut().for_each(|item| fill_item(below, item));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// An item that is null has its default, where there is one.
fn fill_item(node: &Node, value: &mut Value) {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        *value = default.clone();
    }
    fill(node, value);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_fill_what_is_missing_or_null_and_reach_into_each_other() {
        let node = Node::read(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "replicas": {"type": "integer", "default": 1}, "name": {"type": "string", "nullable": true, "default": "x"},
                "plain": {"type": "string"}, "list": {"type": "array", "items": {"type": "object",
                    "properties": {"a": {"type": "string", "default": "b"}}}}}},
            "absent": {"type": "object", "properties": {"a": {"type": "string", "default": "b"}}}}}));
        let filled = |mut value: Value| {
            object(&node, &mut value);
            value
        };
        assert_eq!(filled(json!({})), json!({"spec": {"replicas": 1, "name": "x"}}));
        assert_eq!(
            filled(
                json!({"spec": {"replicas": null, "name": null, "plain": null, "list": [{}, {"a": "c"}], "unknown": null}})
            ),
            json!({"spec": {"replicas": 1, "name": null, "list": [{"a": "b"}, {"a": "c"}], "unknown": null}})
        );
        let once = filled(json!({"spec": {"list": [{}]}}));
        assert_eq!(filled(once.clone()), once);
    }
}
