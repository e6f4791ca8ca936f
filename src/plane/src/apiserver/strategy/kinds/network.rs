//! Who may talk to whom, and how the outside comes in.

use k8s_openapi::api::{discovery::v1 as discovery, networking::v1 as networking};
use longshore_api::names;
use serde_json::{Value, json};

use crate::apiserver::error::Cause;
use crate::apiserver::object::{child, list, text};
use crate::apiserver::strategy::described::{Check, Described, Fill, Frozen};
use crate::apiserver::strategy::typed;

use Check::{Chosen, OneOf, Required, Selector};
use Fill::Set;

/// Policies of who may talk to whom.
pub(crate) static NETWORK_POLICIES: Described = Described {
    defaults: &[
        Set("spec.podSelector", "{}"),
        Set("spec.ingress[].ports[].protocol", "\"TCP\""),
        Set("spec.egress[].ports[].protocol", "\"TCP\""),
    ],
    fill: Some(|object| {
        let egress = !list(object, "/spec/egress").is_empty();
        let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        child(object, "spec").entry("policyTypes").or_insert(types);
    }),
    checks: &[
        Selector("spec.podSelector"),
        OneOf("spec.ingress[].ports[].protocol", &["SCTP", "TCP", "UDP"]),
        OneOf("spec.egress[].ports[].protocol", &["SCTP", "TCP", "UDP"]),
        Selector("spec.ingress[].from[].podSelector"),
        Selector("spec.ingress[].from[].namespaceSelector"),
        Selector("spec.egress[].to[].podSelector"),
        Selector("spec.egress[].to[].namespaceSelector"),
        Required("spec.ingress[].from[].ipBlock?.cidr", ""),
        Required("spec.egress[].to[].ipBlock?.cidr", ""),
    ],
    rules: Some(|object, causes| {
        for (index, kind) in list(object, "/spec/policyTypes").iter().filter_map(Value::as_str).enumerate() {
            if !matches!(kind, "Ingress" | "Egress") {
                causes.push(Cause::unsupported(format!("spec.policyTypes[{index}]"), kind, &["Egress", "Ingress"]));
            }
        }
    }),
    ..Described::new(typed::<networking::NetworkPolicy>)
};

/// Ways in from outside.
pub(crate) static INGRESSES: Described = Described {
    status: Some("{\"loadBalancer\":{}}"),
    checks: &[Required("spec.rules[].http?.paths", ""), Check::Form("spec.ingressClassName", names::dns1123_subdomain)],
    rules: Some(ingress),
    ..Described::new(typed::<networking::Ingress>)
};

/// Who serves ways in.
pub(crate) static INGRESS_CLASSES: Described = Described {
    defaults: &[Set("spec.parameters?.scope", "\"Cluster\"")],
    checks: &[
        Required("spec.controller", ""),
        Required("spec.parameters?.kind", ""),
        Required("spec.parameters?.name", ""),
        OneOf("spec.parameters?.scope", &["Cluster", "Namespace"]),
    ],
    frozen: &[Frozen::Immutable("spec.controller")],
    ..Described::new(typed::<networking::IngressClass>)
};

/// Addresses behind a service.
pub(crate) static ENDPOINT_SLICES: Described = Described {
    defaults: &[Set("ports[].name", "\"\""), Set("ports[].protocol", "\"TCP\"")],
    fill: Some(|object| {
        // Both are required on the wire, so that an empty list is shown as null by the stock server.
        for key in ["endpoints", "ports"] {
            if object.get(key).is_none() {
                object[key] = Value::Null;
            }
        }
    }),
    checks: &[
        Chosen("addressType", &["FQDN", "IPv4", "IPv6"]),
        Required("endpoints[].addresses", "must contain at least 1 address"),
        OneOf("ports[].protocol", &["SCTP", "TCP", "UDP"]),
    ],
    rules: Some(slice),
    frozen: &[Frozen::Immutable("addressType")],
    generation: &["endpoints", "ports", "addressType"],
    ..Described::new(typed::<discovery::EndpointSlice>)
};

fn ingress(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    if list(spec, "/rules").is_empty() && spec.get("defaultBackend").is_none() {
        causes.push(Cause::invalid("spec", spec, "either `defaultBackend` or `rules` must be specified"));
    }
    if let Some(own) = spec.get("defaultBackend") {
        backend(own, "spec.defaultBackend", causes);
    }
    for (index, rule) in list(spec, "/rules").iter().enumerate() {
        let host = text(rule, "/host");
        let at = format!("spec.rules[{index}].host");
        if !host.is_empty() && !host.starts_with("*.") {
            let texts = names::dns1123_subdomain(host);
            causes.extend(texts.iter().map(|detail| Cause::invalid(at.as_str(), &json!(host), detail)));
        }
        for (number, path) in list(rule, "/http/paths").iter().enumerate() {
            let at = format!("spec.rules[{index}].http.paths[{number}]");
            let kind = text(path, "/pathType");
            let own = text(path, "/path");
            match kind {
                "" => causes.push(Cause::required(format!("{at}.pathType"), "pathType must be specified")),
                "Exact" | "Prefix" if !own.starts_with('/') => {
                    causes.push(Cause::invalid(format!("{at}.path"), &json!(own), "must be an absolute path"));
                }
                "Exact" | "Prefix" | "ImplementationSpecific" => {}
                other => {
                    let known = ["Exact", "ImplementationSpecific", "Prefix"];
                    causes.push(Cause::unsupported(format!("{at}.pathType"), other, &known));
                }
            }
            backend(path.get("backend").unwrap_or(&Value::Null), &format!("{at}.backend"), causes);
        }
    }
}

fn backend(backend: &Value, at: &str, causes: &mut Vec<Cause>) {
    let (service, resource) = (backend.get("service"), backend.get("resource"));
    match (service, resource) {
        (Some(_), Some(_)) => {
            causes.push(Cause::invalid(at, &json!(""), "cannot set both resource and service backends"));
        }
        (None, None) => causes.push(Cause::required(at, "either `service` or `resource` must be specified")),
        (None, Some(_)) => {}
        (Some(service), None) => {
            if text(service, "/name").is_empty() {
                causes.push(Cause::required(format!("{at}.service.name"), ""));
            }
            let named = !text(service, "/port/name").is_empty();
            let number = service.pointer("/port/number").and_then(Value::as_i64).unwrap_or(0);
            if named && number != 0 {
                let text = "cannot set both port name & port number";
                causes.push(Cause::invalid(at, &json!(""), text));
            } else if !named && number == 0 {
                causes.push(Cause::required(at, "port name or number is required"));
            }
        }
    }
}

fn slice(object: &Value, causes: &mut Vec<Cause>) {
    let kind = text(object, "/addressType");
    for (index, endpoint) in list(object, "/endpoints").iter().enumerate() {
        for (number, address) in list(endpoint, "/addresses").iter().filter_map(Value::as_str).enumerate() {
            let sound = match kind {
                "IPv4" => address.parse::<std::net::Ipv4Addr>().is_ok(),
                "IPv6" => address.parse::<std::net::Ipv6Addr>().is_ok(),
                _ => true,
            };
            if !sound {
                let text = if kind == "IPv4" { "must be an IPv4 address" } else { "must be an IPv6 address" };
                let at = format!("endpoints[{index}].addresses[{number}]");
                causes.push(Cause::invalid(at, &json!(address), text));
            }
        }
    }
}
