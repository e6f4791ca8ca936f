//! Pods as the API shows them, for tests that wait for what becomes of them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::env::eventually;

impl Cluster<'_> {
    /// A pod of the namespace `default`; null while there is none.
    pub fn pod(&self, name: &str) -> Value {
        let text = self.kubectl(&["get", "pod", name, "-o", "json"]).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Waits until a pod passes the test and returns it. The error tells its status and all events.
    pub fn until_pod(&self, name: &str, what: &str, within: Duration, test: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = Value::Null;
        let seen = eventually(what, within, || {
            last = self.pod(name);
            test(&last)
        });
        seen.with_context(|| {
            let events = self.kubectl(&["get", "events"]).unwrap_or_default();
            format!("{name}\n{:#}\n{events}", last["status"])
        })?;
        Ok(last)
    }

    /// Waits until the events of a pod hold a text.
    pub fn until_told(&self, name: &str, text: &str, within: Duration) -> Result<()> {
        let selector = format!("involvedObject.name={name}");
        let mut last = String::new();
        let seen = eventually("told", within, || {
            last = self.kubectl(&["get", "events", "--field-selector", &selector]).unwrap_or_default();
            last.contains(text)
        });
        seen.with_context(|| format!("{name} is not told {text:?}:\n{last}"))
    }
}

/// A condition of a pod; null when it has none of that type.
pub fn condition<'a>(pod: &'a Value, kind: &str) -> &'a Value {
    let all = pod["status"]["conditions"].as_array();
    all.into_iter().flatten().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}
