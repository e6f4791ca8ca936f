//! What a typed decoder and encoder would do to a pod in passing: nulls and empty collections go, quantities get their
//! canonical text.

use serde_json::Value;

use super::Object;
use crate::quantity::Quantity;

/// Booleans that are left out when false, because upstream's type has no third state for them.
const PLAIN_BOOLEANS: [&str; 7] = ["hostNetwork", "hostPID", "hostIPC", "stdin", "stdinOnce", "tty", "readOnly"];

/// Maps that are left out when empty.
const PLAIN_MAPS: [&str; 7] =
    ["labels", "annotations", "nodeSelector", "overhead", "limits", "requests", "matchLabels"];

pub(super) fn pod(pod: &mut Value) {
    for key in ["metadata", "spec"] {
        if let Some(part) = pod.get_mut(key) {
            tidy(part);
        }
    }
}

fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| !is_dropped(key, value));
            for (key, value) in map.iter_mut() {
                tidy(value);
                match key.as_str() {
                    "limits" | "requests" | "overhead" => quantities(value),
                    "divisor" | "sizeLimit" => quantity(value),
                    _ => {}
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_dropped(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty() && key != "containers",
        Value::Object(map) => map.is_empty() && PLAIN_MAPS.contains(&key),
        Value::Bool(on) => !on && PLAIN_BOOLEANS.contains(&key),
        Value::Number(_) | Value::String(_) => false,
    }
}

fn quantities(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        let map: &mut Object = map;
        map.values_mut().for_each(quantity);
    }
}

/// Writes a quantity in its canonical text; what is no quantity stays for validation to name.
fn quantity(value: &mut Value) {
    // YAML writers leave quotes off plain numbers; the API shows text.
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return,
    };
    if let Ok(quantity) = Quantity::parse(&text) {
        *value = Value::String(quantity.to_string());
    }
}
