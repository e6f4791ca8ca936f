//! What the agent writes on a container so that it is understood again after a restart.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerPort, HTTPGetAction, LifecycleHandler, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use longshore_api::hash;
use serde_json::Value;

const HASH: &str = "io.kubernetes.container.hash";
const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
pub(in crate::pod) const TERMINATION_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub(in crate::pod) const TERMINATION_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
pub(in crate::pod) const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
const PORTS: &str = "io.kubernetes.container.ports";
const POD_DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";
pub(in crate::pod) const POD_TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";

pub(super) fn of_container(pod: &Pod, container: &Container, attempt: u32) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut put = |key: &str, value: String| {
        out.insert(key.to_owned(), value);
    };
    put(HASH, hash::container(&container.name, container.image.as_deref().unwrap_or_default()));
    put(RESTART_COUNT, attempt.to_string());
    put(TERMINATION_PATH, container.termination_message_path.clone().unwrap_or_default());
    put(TERMINATION_POLICY, container.termination_message_policy.clone().unwrap_or_default());
    if let Some(grace) = pod.metadata.deletion_grace_period_seconds {
        put(POD_DELETION_GRACE, grace.to_string());
    }
    if let Some(grace) = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds) {
        put(POD_TERMINATION_GRACE, grace.to_string());
    }
    if let Some(hook) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()) {
        put(PRE_STOP, handler(hook));
    }
    let ports: Vec<String> = container.ports.iter().flatten().map(port).collect();
    if !ports.is_empty() {
        put(PORTS, format!("[{}]", ports.join(",")));
    }
    out
}

/// JSON as Go writes it, which also escapes what HTML would take for markup.
fn json_text(value: &Value) -> String {
    value.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

/// A JSON object whose fields keep this order: the stock agent's readers and tests compare text.
#[derive(Default)]
struct Object(Vec<String>);

impl Object {
    fn text(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.raw(key, &json_text(&Value::from(value)));
        }
    }

    fn number(&mut self, key: &str, value: i64) {
        if value != 0 {
            self.raw(key, &value.to_string());
        }
    }

    fn raw(&mut self, key: &str, json: &str) {
        self.0.push(format!("\"{key}\":{json}"));
    }

    fn end(&self) -> String {
        format!("{{{}}}", self.0.join(","))
    }
}

fn port(port: &ContainerPort) -> String {
    let mut out = Object::default();
    out.text("name", port.name.as_deref());
    out.number("hostPort", port.host_port.unwrap_or_default().into());
    out.raw("containerPort", &port.container_port.to_string());
    out.text("protocol", port.protocol.as_deref());
    out.text("hostIP", port.host_ip.as_deref());
    out.end()
}

fn number_or_name(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => json_text(&Value::from(name.as_str())),
    }
}

fn handler(hook: &LifecycleHandler) -> String {
    let mut out = Object::default();
    if let Some(exec) = &hook.exec {
        let mut inner = Object::default();
        if let Some(command) = &exec.command {
            inner.raw("command", &json_text(&Value::from(command.clone())));
        }
        out.raw("exec", &inner.end());
    }
    if let Some(get) = &hook.http_get {
        out.raw("httpGet", &http_get(get));
    }
    if let Some(socket) = &hook.tcp_socket {
        let mut inner = Object::default();
        inner.raw("port", &number_or_name(&socket.port));
        inner.text("host", socket.host.as_deref());
        out.raw("tcpSocket", &inner.end());
    }
    if let Some(sleep) = &hook.sleep {
        out.raw("sleep", &format!("{{\"seconds\":{}}}", sleep.seconds));
    }
    out.end()
}

fn http_get(get: &HTTPGetAction) -> String {
    let mut out = Object::default();
    out.text("path", get.path.as_deref());
    out.raw("port", &number_or_name(&get.port));
    out.text("host", get.host.as_deref());
    out.text("scheme", get.scheme.as_deref());
    let headers: Vec<String> = get
        .http_headers
        .iter()
        .flatten()
        .map(|header| {
            let mut one = Object::default();
            one.raw("name", &json_text(&Value::from(header.name.as_str())));
            one.raw("value", &json_text(&Value::from(header.value.as_str())));
            one.end()
        })
        .collect();
    if !headers.is_empty() {
        out.raw("httpHeaders", &format!("[{}]", headers.join(",")));
    }
    out.end()
}
