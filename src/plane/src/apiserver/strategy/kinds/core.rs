//! Volumes and claims, quotas and ranges, endpoints, templates.

use k8s_openapi::api::core::v1 as core;
use longshore_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::apiserver::error::Cause;
use crate::apiserver::object::{child, list, text};
use crate::apiserver::strategy::described::{Check, Described, Fill, Frozen};
use crate::apiserver::strategy::typed;

use Check::{OneOf, Quantities, Required, Selector};
use Fill::Set;

const ACCESS: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Endpoints.
pub(crate) static ENDPOINTS: Described = Described {
    defaults: &[Set("subsets[].ports[].protocol", "\"TCP\"")],
    checks: &[
        Required("subsets[].addresses[].ip", ""),
        Required("subsets[].notReadyAddresses[].ip", ""),
        OneOf("subsets[].ports[].protocol", &["SCTP", "TCP", "UDP"]),
    ],
    rules: Some(endpoints),
    generation: &[],
    ..Described::new(typed::<core::Endpoints>)
};

/// Templates of pods.
pub(crate) static POD_TEMPLATES: Described =
    Described { template: Some("template"), generation: &["template"], ..Described::new(typed::<core::PodTemplate>) };

/// Volumes.
pub(crate) static PERSISTENT_VOLUMES: Described = Described {
    defaults: &[
        Set("spec.persistentVolumeReclaimPolicy", "\"Retain\""),
        Set("spec.volumeMode", "\"Filesystem\""),
        Set("spec.hostPath?.type", "\"\""),
        Set("spec.iscsi?.iscsiInterface", "\"default\""),
        Set("spec.rbd?.pool", "\"rbd\""),
        Set("spec.rbd?.user", "\"admin\""),
        Set("spec.rbd?.keyring", "\"/etc/ceph/keyring\""),
    ],
    fill: Some(|object| canonical(object, &["/spec/capacity"])),
    status: Some("{\"phase\":\"Pending\"}"),
    checks: &[
        Required("spec.capacity", ""),
        Quantities("spec.capacity"),
        Required("spec.accessModes", ""),
        OneOf("spec.persistentVolumeReclaimPolicy", &["Delete", "Recycle", "Retain"]),
        OneOf("spec.volumeMode", &["Block", "Filesystem"]),
    ],
    rules: Some(volume),
    changes: Some(volume_changes),
    ..Described::new(typed::<core::PersistentVolume>)
};

/// Claims to volumes.
pub(crate) static PERSISTENT_VOLUME_CLAIMS: Described = Described {
    defaults: &[Set("spec.volumeMode", "\"Filesystem\"")],
    fill: Some(|object| canonical(object, &["/spec/resources/requests", "/spec/resources/limits"])),
    status: Some("{\"phase\":\"Pending\"}"),
    checks: &[
        Required("spec.accessModes", "at least 1 access mode is required"),
        Required("spec.resources.requests.storage", ""),
        Quantities("spec.resources.requests"),
        Selector("spec.selector"),
        OneOf("spec.volumeMode", &["Block", "Filesystem"]),
    ],
    rules: Some(access_modes),
    changes: Some(claim_changes),
    ..Described::new(typed::<core::PersistentVolumeClaim>)
};

/// Bounds of what a namespace may hold.
pub(crate) static RESOURCE_QUOTAS: Described = Described {
    fill: Some(|object| canonical(object, &["/spec/hard"])),
    status: Some("{}"),
    checks: &[Quantities("spec.hard")],
    frozen: &[Frozen::Immutable("spec.scopes"), Frozen::Immutable("spec.scopeSelector")],
    ..Described::new(typed::<core::ResourceQuota>)
};

/// Bounds and defaults of what pods in a namespace may ask for.
pub(crate) static LIMIT_RANGES: Described = Described {
    fill: Some(range_defaults),
    checks: &[
        Required("spec.limits[].type", ""),
        Quantities("spec.limits[].max"),
        Quantities("spec.limits[].min"),
        Quantities("spec.limits[].default"),
        Quantities("spec.limits[].defaultRequest"),
    ],
    rules: Some(ranges),
    ..Described::new(typed::<core::LimitRange>)
};

/// Writes the quantities of some maps in their one canonical form.
fn canonical(object: &mut Value, pointers: &[&str]) {
    for pointer in pointers {
        for value in object.pointer_mut(pointer).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
            canonical_one(value);
        }
    }
}

fn canonical_one(value: &mut Value) {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Ok(quantity) = Quantity::parse(&text) {
        *value = json!(quantity.to_string());
    }
}

fn endpoints(object: &Value, causes: &mut Vec<Cause>) {
    for (index, subset) in list(object, "/subsets").iter().enumerate() {
        let at = format!("subsets[{index}]");
        if list(subset, "/addresses").is_empty() && list(subset, "/notReadyAddresses").is_empty() {
            causes.push(Cause::required(at.as_str(), "must specify `addresses` or `notReadyAddresses`"));
        }
        for key in ["addresses", "notReadyAddresses"] {
            for (index, address) in list(subset, &format!("/{key}")).iter().enumerate() {
                let ip = text(address, "/ip");
                if !ip.is_empty() && ip.parse::<std::net::IpAddr>().is_err() {
                    let text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                    causes.push(Cause::invalid(format!("{at}.{key}[{index}].ip"), &json!(ip), text));
                }
            }
        }
        for (index, port) in list(subset, "/ports").iter().enumerate() {
            let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
            if !(1..=65535).contains(&number) {
                let text = "must be between 1 and 65535, inclusive";
                causes.push(Cause::invalid(format!("{at}.ports[{index}].port"), &json!(number), text));
            }
        }
    }
}

fn access_modes(object: &Value, causes: &mut Vec<Cause>) {
    let modes: Vec<&str> = list(object, "/spec/accessModes").iter().filter_map(Value::as_str).collect();
    for mode in modes.iter().filter(|mode| !ACCESS.contains(mode)) {
        causes.push(Cause::unsupported("spec.accessModes", mode, ACCESS));
    }
    if modes.len() > 1 && modes.contains(&"ReadWriteOncePod") {
        let text = "may not use ReadWriteOncePod with other access modes";
        causes.push(Cause::forbidden("spec.accessModes", text));
    }
}

/// What a volume's specification has beside its source.
const BESIDE_SOURCE: [&str; 10] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
    "dataSource",
];

fn sources(object: &Value) -> Vec<(&String, &Value)> {
    let spec = object.get("spec").and_then(Value::as_object).into_iter().flatten();
    spec.filter(|(key, _)| !BESIDE_SOURCE.contains(&key.as_str())).collect()
}

fn volume(object: &Value, causes: &mut Vec<Cause>) {
    access_modes(object, causes);
    let capacity = object.pointer("/spec/capacity").and_then(Value::as_object);
    if let Some(capacity) = capacity
        && (!capacity.contains_key("storage") || capacity.len() > 1)
    {
        causes.push(Cause::unsupported("spec.capacity", &json!(capacity).to_string(), &["storage"]));
    }
    match sources(object).as_slice() {
        [] => causes.push(Cause::required("spec", "must specify a volume type")),
        [_] => {}
        [_, more @ ..] => causes.extend(
            more.iter()
                .map(|(key, _)| Cause::forbidden(format!("spec.{key}"), "may not specify more than 1 volume type")),
        ),
    }
}

fn volume_changes(object: &Value, old: &Value, causes: &mut Vec<Cause>) {
    if sources(object) != sources(old) {
        let text = "spec.persistentvolumesource is immutable after creation";
        causes.push(Cause::forbidden("spec.persistentvolumesource", text));
    }
    let mode = "/spec/volumeMode";
    if object.pointer(mode) != old.pointer(mode) {
        let now = object.pointer(mode).unwrap_or(&Value::Null);
        causes.push(Cause::invalid("spec.volumeMode", now, "field is immutable"));
    }
}

fn claim_changes(object: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let bound = text(old, "/status/phase") == "Bound";
    let fixed = |claim: &Value| {
        let mut spec = claim.get("spec").cloned().unwrap_or_default();
        if bound {
            if let Some(requests) = spec.pointer_mut("/resources/requests").and_then(Value::as_object_mut) {
                requests.remove("storage");
            }
            child(&mut spec, "resources");
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("volumeAttributesClassName");
            }
        } else if let Some(spec) = spec.as_object_mut()
            && text(old, "/spec/volumeName").is_empty()
        {
            // The one who binds it writes the volume's name.
            spec.remove("volumeName");
        }
        spec
    };
    if fixed(object) != fixed(old) {
        let text = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
                    claims";
        causes.push(Cause::forbidden("spec", text));
    }
    let storage = |claim: &Value| {
        let text = claim.pointer("/spec/resources/requests/storage").and_then(Value::as_str)?;
        Quantity::parse(text).ok()
    };
    let status = old.pointer("/status/capacity/storage").and_then(Value::as_str);
    let floor = status.and_then(|text| Quantity::parse(text).ok()).or_else(|| storage(old));
    if let (Some(now), Some(floor)) = (storage(object), floor)
        && bound
        && now < floor
    {
        let text = "field can not be less than status.capacity";
        causes.push(Cause::forbidden("spec.resources.requests.storage", text));
    }
}

/// A range without defaults has its greatest as limit, and its limit or least as request.
fn range_defaults(object: &mut Value) {
    for limit in object.pointer_mut("/spec/limits").and_then(Value::as_array_mut).into_iter().flatten() {
        canonical(limit, &["/max", "/min", "/default", "/defaultRequest", "/maxLimitRequestRatio"]);
        if text(limit, "/type") != "Container" {
            continue;
        }
        for (to, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
            let Some(from) = limit.get(from).and_then(Value::as_object).cloned() else { continue };
            let to = child(limit, to);
            for (name, value) in from {
                to.entry(name).or_insert(value);
            }
        }
    }
}

fn ranges(object: &Value, causes: &mut Vec<Cause>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, limit) in list(object, "/spec/limits").iter().enumerate() {
        let at = format!("spec.limits[{index}]");
        let kind = text(limit, "/type");
        if seen.contains(&kind) {
            causes.push(Cause::duplicate(format!("{at}.type"), &json!(kind)));
        }
        seen.push(kind);
        if kind == "Pod" {
            for key in ["default", "defaultRequest"] {
                if limit.get(key).is_some() {
                    let text = "may not be specified when `type` is 'Pod'";
                    causes.push(Cause::forbidden(format!("{at}.{key}"), text));
                }
            }
        }
        // Each pair must stand in this order.
        let order = [
            ("min", "max"),
            ("min", "defaultRequest"),
            ("defaultRequest", "max"),
            ("defaultRequest", "default"),
            ("default", "max"),
        ];
        for (low, high) in order {
            let read =
                |key: &str, name: &str| limit.get(key)?.get(name)?.as_str().and_then(|text| Quantity::parse(text).ok());
            for name in limit.get(low).and_then(Value::as_object).into_iter().flat_map(Map::keys) {
                if let (Some(small), Some(large)) = (read(low, name), read(high, name))
                    && small > large
                {
                    let words = |key: &str| {
                        match key {
                            "defaultRequest" => "default request",
                            "default" => "default",
                            other => {
                                if other == "min" {
                                    "min"
                                } else {
                                    "max"
                                }
                            }
                        }
                        .to_owned()
                    };
                    let text = format!("{} value {small} is greater than {} value {large}", words(low), words(high));
                    causes.push(Cause::invalid(format!("{at}.{low}[{name}]"), &json!(small.to_string()), &text));
                }
            }
        }
    }
}
