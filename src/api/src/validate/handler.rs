//! Probes and hooks.

use serde_json::Value;

use super::{Faults, has, list, number, text};
use crate::names;

pub(super) fn lifecycle(container: &Value, path: &str, faults: &mut Faults) {
    let lifecycle = container.get("lifecycle").unwrap_or(&Value::Null);
    for hook in ["postStart", "preStop"] {
        if let Some(handler) = lifecycle.get(hook).filter(|handler| !handler.is_null()) {
            one_handler(
                handler,
                &format!("{path}.lifecycle.{hook}"),
                &["exec", "httpGet", "tcpSocket", "sleep"],
                faults,
            );
        }
    }
}

pub(super) fn probes(container: &Value, path: &str, faults: &mut Faults) {
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get(kind).filter(|probe| !probe.is_null()) else { continue };
        let path = format!("{path}.{kind}");
        one_handler(probe, &path, &["exec", "httpGet", "tcpSocket", "grpc"], faults);
        for key in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
            faults.not_negative(format!("{path}.{key}"), number(probe, key));
        }
        if let Some(grace) = number(probe, "terminationGracePeriodSeconds") {
            if kind == "readinessProbe" {
                let detail = "must not be set for readinessProbes";
                faults.invalid(format!("{path}.terminationGracePeriodSeconds"), &grace.into(), detail);
            } else if grace <= 0 {
                let detail = "must be greater than 0";
                faults.invalid(format!("{path}.terminationGracePeriodSeconds"), &grace.into(), detail);
            }
        }
        if kind != "readinessProbe"
            && let Some(successes) = number(probe, "successThreshold").filter(|successes| *successes > 1)
        {
            faults.invalid(format!("{path}.successThreshold"), &successes.into(), "must be 1");
        }
    }
}

fn one_handler(handler: &Value, path: &str, known: &[&str], faults: &mut Faults) {
    let given: Vec<&str> = known.iter().copied().filter(|key| has(handler, key)).collect();
    if given.is_empty() {
        faults.required(path, "must specify a handler type");
    }
    for extra in given.iter().skip(1) {
        faults.forbidden(format!("{path}.{extra}"), "may not specify more than 1 handler type");
    }
    let Some(kind) = given.first() else { return };
    let body = handler.get(*kind).unwrap_or(&Value::Null);
    let path = format!("{path}.{kind}");
    match *kind {
        "exec" if list(body, "command").is_empty() => faults.required(format!("{path}.command"), ""),
        "httpGet" => {
            if text(body, "path").is_empty() {
                faults.required(format!("{path}.path"), "");
            }
            port(body, &path, faults);
            let scheme = text(body, "scheme");
            if !scheme.is_empty() {
                faults.supported(format!("{path}.scheme"), scheme, &["HTTP", "HTTPS"]);
            }
            for (index, header) in list(body, "httpHeaders").iter().enumerate() {
                let name = text(header, "name");
                let fine = |c: char| c.is_ascii_alphanumeric() || c == '-';
                if name.is_empty() || !name.chars().all(fine) {
                    let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. \
                                  'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
                    faults.invalid_text(format!("{path}.httpHeaders[{index}]"), name, detail);
                }
            }
        }
        "tcpSocket" => port(body, &path, faults),
        "grpc" => faults.port(format!("{path}.port"), number(body, "port").unwrap_or(0)),
        "sleep" => faults.not_negative(format!("{path}.seconds"), number(body, "seconds")),
        _ => {}
    }
}

fn port(body: &Value, path: &str, faults: &mut Faults) {
    match body.get("port") {
        Some(Value::Number(number)) => faults.port(format!("{path}.port"), number.as_i64().unwrap_or(0)),
        Some(Value::String(name)) => faults.name(format!("{path}.port"), name, names::port_name),
        _ => faults.required(format!("{path}.port"), ""),
    }
}
