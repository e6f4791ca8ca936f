//! Pods as the API shows them, for tests that wait for what becomes of them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use longshore_cri::{CriClient, RuntimeService as _, v1};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::env::eventually;

impl Cluster<'_> {
    /// A pod of the namespace `default`; null while there is none.
    pub fn pod(&self, name: &str) -> Value {
        let text = self.kubectl(&["get", "pod", name, "-o", "json"]).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Of each pod of the namespace `default` its first container: id, restarts, and whether it is ready.
    pub fn first_containers(&self) -> Result<BTreeMap<String, (String, u64, bool)>> {
        let list: Value = serde_json::from_str(&self.kubectl(&["get", "pods", "-o", "json"])?)?;
        let row = |pod: &Value| {
            let status = &pod["status"]["containerStatuses"][0];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let restarts = status["restartCount"].as_u64().unwrap_or(u64::MAX);
            (text(&pod["metadata"]["name"]), (text(&status["containerID"]), restarts, status["ready"] == true))
        };
        Ok(list["items"].as_array().into_iter().flatten().map(row).collect())
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

/// Whether a pod shows that it is Ready.
pub fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready")["status"] == "True"
}

/// A sandbox that the runtime lists as ready.
#[derive(Debug)]
pub struct ReadySandbox {
    /// The runtime's id.
    pub id: String,
    /// Name and uid of its pod.
    pub pod: v1::PodSandboxMetadata,
    /// Its address; none on the node's network, or when it was gone before it could be asked.
    pub address: Option<String>,
}

/// All sandboxes that are ready, with their addresses.
pub async fn ready_sandboxes(runtime: &CriClient) -> Result<Vec<ReadySandbox>> {
    let mut found = Vec::new();
    for sandbox in runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.items {
        if sandbox.state() != v1::PodSandboxState::SandboxReady {
            continue;
        }
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: sandbox.id.clone(), verbose: false };
        let status = runtime.pod_sandbox_status(request).await.ok().and_then(|answer| answer.status);
        let status = status.filter(|status| status.state() == v1::PodSandboxState::SandboxReady);
        let address = status.and_then(|status| status.network).map(|network| network.ip);
        found.push(ReadySandbox {
            id: sandbox.id,
            pod: sandbox.metadata.unwrap_or_default(),
            address: address.filter(|address| !address.is_empty()),
        });
    }
    Ok(found)
}
