//! Probes and lifecycle hooks.

use serde_json::Value;

use super::report::Report;
use super::{items, number, part, text};
use crate::{names, signals};

pub(super) fn probes(container: &Value, path: &str, out: &mut Report) {
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = part(container, key) else { continue };
        let at = format!("{path}.{key}");
        handler(probe, &at, &["exec", "httpGet", "tcpSocket", "grpc"], out);
        for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            out.not_negative(format!("{at}.{field}"), number(probe, field));
        }
        if let Some(seconds) = number(probe, "terminationGracePeriodSeconds") {
            let field = format!("{at}.terminationGracePeriodSeconds");
            if key == "readinessProbe" {
                out.invalid(field, seconds, "must not be set for readinessProbes");
            } else if seconds <= 0 {
                out.invalid(field, seconds, "must be greater than 0");
            }
        }
        if key != "readinessProbe"
            && let Some(threshold) = number(probe, "successThreshold").filter(|threshold| *threshold != 1)
        {
            out.invalid(format!("{at}.successThreshold"), threshold, "must be 1");
        }
    }
}

pub(super) fn hooks(container: &Value, path: &str, pod: &Value, out: &mut Report) {
    let Some(lifecycle) = part(container, "lifecycle") else { return };
    for key in ["postStart", "preStop"] {
        if let Some(hook) = part(lifecycle, key) {
            handler(hook, &format!("{path}.lifecycle.{key}"), &["exec", "httpGet", "tcpSocket", "sleep"], out);
        }
    }
    let signal = text(lifecycle, "stopSignal");
    if signal.is_empty() {
        return;
    }
    let at = format!("{path}.lifecycle.stopSignal");
    match part(pod, "os").map_or("", |os| text(os, "name")) {
        "" => out.forbidden(at, "may not be set for containers with empty `spec.os.name`"),
        "windows" if !["SIGTERM", "SIGKILL"].contains(&signal) => out.unsupported(at, signal, &["SIGTERM", "SIGKILL"]),
        _ if !signals::is_known(signal) => out.invalid(at, signal, "is not the name of a signal"),
        _ => {}
    }
}

fn handler(handler: &Value, at: &str, kinds: &[&str], out: &mut Report) {
    let mut given = kinds.iter().filter(|kind| part(handler, kind).is_some());
    let Some(first) = given.next() else {
        out.required(at, "must specify a handler type");
        return;
    };
    for more in given {
        out.forbidden(format!("{at}.{more}"), "may not specify more than 1 handler type");
    }
    let path = format!("{at}.{first}");
    let Some(action) = part(handler, first) else { return };
    match *first {
        "exec" if items(action, &path, "command").next().is_none() => {
            out.required(format!("{path}.command"), "");
        }
        "httpGet" => {
            if text(action, "path").is_empty() {
                out.required(format!("{path}.path"), "");
            }
            port(action, &path, out);
            let scheme = text(action, "scheme");
            if !["HTTP", "HTTPS"].contains(&scheme) {
                out.unsupported(format!("{path}.scheme"), scheme, &["HTTP", "HTTPS"]);
            }
            for (path, header) in items(action, &path, "httpHeaders") {
                let name = text(header, "name");
                if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
                    let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. \
                                  'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
                    out.invalid(format!("{path}.name"), name, detail);
                }
            }
        }
        "tcpSocket" | "grpc" => port(action, &path, out),
        "sleep" => out.not_negative(format!("{path}.seconds"), number(action, "seconds")),
        _ => {}
    }
}

fn port(action: &Value, at: &str, out: &mut Report) {
    let at = format!("{at}.port");
    match action.get("port") {
        Some(Value::String(name)) => out.texts(&at, name, names::port_name(name)),
        Some(Value::Number(port)) => {
            let port = port.as_i64().unwrap_or(0);
            for detail in names::port_number(port) {
                out.invalid(at.as_str(), port, &detail);
            }
        }
        _ => out.invalid(at, 0, "must be between 1 and 65535, inclusive"),
    }
}
