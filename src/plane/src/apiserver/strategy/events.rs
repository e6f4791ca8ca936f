//! Events and their two faces: stored as the core group has them, shown in the words of either group.

use k8s_openapi::api::{core::v1 as core, events::v1 as events};
use serde_json::{Value, json};

use super::Strategy;
use crate::apiserver::error::Cause;
use crate::apiserver::object::{default, meta, text};

/// Fields that both have under another name: in the core group, in `events.k8s.io`.
const WORDS: [(&str, &str); 8] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

/// Events as the core group has them.
#[derive(Debug)]
pub(crate) struct Events;

impl Strategy for Events {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<core::Event>(object)
    }

    fn defaults(&self, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            default(map, "reportingComponent", || json!(""));
            default(map, "reportingInstance", || json!(""));
        }
    }

    fn validate(&self, object: &Value) -> Vec<Cause> {
        let (about, own) = (text(object, "/involvedObject/namespace"), meta(object, "namespace"));
        // Events about things outside namespaces live in `default`.
        if about == own || (about.is_empty() && own == "default") {
            return Vec::new();
        }
        vec![Cause::invalid("involvedObject.namespace", &json!(about), "does not match event.namespace")]
    }
}

/// Events as `events.k8s.io` has them.
#[derive(Debug)]
pub(crate) struct EventsFace;

impl Strategy for EventsFace {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<events::Event>(object)
    }

    /// The new face asks for more than the old one.
    fn validate(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        if text(object, "/eventTime").is_empty() {
            causes.push(Cause::required("eventTime", ""));
        }
        for (field, length) in
            [("reportingController", 128), ("reportingInstance", 128), ("action", 128), ("reason", 128)]
        {
            let value = text(object, &format!("/{field}"));
            if value.is_empty() {
                causes.push(Cause::required(field, ""));
            } else if value.len() > length {
                causes.push(Cause::invalid(field, &json!(""), &format!("can have at most {length} characters")));
            }
        }
        if !matches!(text(object, "/type"), "Normal" | "Warning") {
            causes.push(Cause::invalid("type", &json!(""), "has invalid value: "));
        }
        if text(object, "/note").len() > 1024 {
            causes.push(Cause::invalid("message", &json!(""), "can have at most 1024 characters"));
        }
        for field in ["deprecatedSource", "deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount"] {
            let set = match object.get(field) {
                None | Some(Value::Null) => false,
                Some(Value::Object(map)) => !map.is_empty(),
                Some(Value::Number(number)) => number.as_i64() != Some(0),
                Some(_) => true,
            };
            if set {
                let old = WORDS.iter().find(|(_, new)| *new == field).map_or(field, |(old, _)| old);
                causes.push(Cause::invalid(old, &json!(""), "needs to be unset"));
            }
        }
        causes
    }

    fn shown(&self, object: Value) -> Value {
        renamed(object, "events.k8s.io/v1", |key| WORDS.iter().find(|(old, _)| *old == key).map(|(_, new)| *new))
    }

    fn kept(&self, object: Value) -> Value {
        renamed(object, "v1", |key| WORDS.iter().find(|(_, new)| *new == key).map(|(old, _)| *old))
    }
}

fn renamed(object: Value, api_version: &str, word: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(map) = object else { return object };
    let renamed = map.into_iter().map(|(key, value)| match key.as_str() {
        "apiVersion" => (key, json!(api_version)),
        other => match word(other) {
            Some(new) => (new.to_owned(), value),
            None => (key, value),
        },
    });
    Value::Object(renamed.collect())
}
