//! Reading of flag values into the JSON form that the configuration has.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::{FlagError, Kind};
use crate::duration::GoDuration;
use crate::names;
use crate::quantity::Quantity;

/// Why a value does not fit.
#[derive(Debug)]
pub(super) struct BadValue(pub(super) String);

fn bad(why: impl Into<String>) -> BadValue {
    BadValue(why.into())
}

/// Go's `ParseBool`.
pub(super) fn truth(text: &str) -> Result<bool, BadValue> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => Err(bad(format!("strconv.ParseBool: parsing {other:?}: invalid syntax"))),
    }
}

pub(super) fn integer(text: &str) -> Result<i64, BadValue> {
    let digits = text.trim_start_matches(['-', '+']);
    let parsed = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).map(|value| if text.starts_with('-') { -value } else { value }),
        None => text.parse(),
    };
    parsed.map_err(|_| bad(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
}

pub(super) fn scalar(kind: Kind, text: &str) -> Result<Value, BadValue> {
    match kind {
        Kind::Bool => truth(text).map(Value::from),
        Kind::Int => integer(text).map(Value::from),
        Kind::Duration => match GoDuration::parse(text) {
            Ok(duration) => Ok(Value::String(duration.to_string())),
            Err(error) => Err(bad(error.to_string())),
        },
        Kind::Ip => match text.trim().parse::<IpAddr>() {
            Ok(address) => Ok(Value::String(address.to_string())),
            Err(_) => Err(bad("failed to parse IP")),
        },
        Kind::Quantity => match Quantity::parse(text) {
            Ok(quantity) => Ok(Value::String(quantity.to_string())),
            Err(error) => Err(bad(error.to_string())),
        },
        Kind::Text
        | Kind::Texts
        | Kind::Map
        | Kind::Pairs
        | Kind::Gates
        | Kind::Evictions
        | Kind::Headers
        | Kind::Taints
        | Kind::NumaMemory
        | Kind::Levels
        | Kind::Version => Ok(Value::String(text.to_owned())),
    }
}

/// Parts separated by commas, blanks around them and empty ones dropped.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

pub(super) fn list(kind: Kind, text: &str) -> Result<Vec<Value>, BadValue> {
    match kind {
        Kind::Taints => parts(text).map(taint).collect(),
        Kind::Levels => parts(text)
            .map(|part| {
                let (pattern, level) =
                    part.split_once('=').ok_or_else(|| bad(format!("{part:?} does not have the pattern=N format")))?;
                Ok(json!({"filePattern": pattern, "verbosity": integer(level)?}))
            })
            .collect(),
        Kind::NumaMemory => text.split(';').filter(|part| !part.trim().is_empty()).map(numa_memory).collect(),
        _ => Ok(parts(text).map(Value::from).collect()),
    }
}

/// `key=value:Effect` or `key:Effect`.
fn taint(text: &str) -> Result<Value, BadValue> {
    let (rest, effect) = text.rsplit_once(':').ok_or_else(|| bad(format!("invalid taint spec: {text}")))?;
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        return Err(bad(format!("invalid taint effect: {effect}, unsupported taint effect")));
    }
    let mut why = names::qualified_name(key);
    why.extend(names::label_value(value));
    if !why.is_empty() {
        return Err(bad(format!("invalid taint spec: {text}, {}", why.join("; "))));
    }
    Ok(json!({"key": key, "value": value, "effect": effect}))
}

/// `0:memory=1Gi,hugepages-1Gi=2Gi`
fn numa_memory(text: &str) -> Result<Value, BadValue> {
    let (node, amounts) =
        text.trim().split_once(':').ok_or_else(|| bad(format!("invalid format {text:?}, wanted N:type=quantity")))?;
    let node = integer(node)?;
    let mut limits = Map::new();
    for part in parts(amounts) {
        let (name, amount) =
            part.split_once('=').ok_or_else(|| bad(format!("invalid format {part:?}, wanted type=quantity")))?;
        if name != "memory" && !name.starts_with("hugepages-") {
            return Err(bad(format!("memory type conversion error, unknown type: {name:?}")));
        }
        let amount = Quantity::parse(amount).map_err(|error| bad(error.to_string()))?;
        limits.insert(name.to_owned(), Value::String(amount.to_string()));
    }
    Ok(json!({"numaNode": node, "limits": limits}))
}

pub(super) fn map(kind: Kind, text: &str, entries: &mut Map<String, Value>) -> Result<(), BadValue> {
    let separator = match kind {
        Kind::Evictions => '<',
        Kind::Headers => ':',
        _ => '=',
    };
    for part in parts(text) {
        let Some((key, value)) = part.split_once(separator) else {
            return Err(bad(format!("malformed pair, expect string{separator}string: {part}")));
        };
        let (key, value) = (key.trim(), value.trim());
        match kind {
            Kind::Gates => {
                let value = truth(value)
                    .map_err(|_| bad(format!("invalid value of {key}={value}, err: wanted true or false")))?;
                entries.insert(key.to_owned(), Value::Bool(value));
            }
            Kind::Headers => match entries.entry(key).or_insert_with(|| json!([])) {
                Value::Array(values) => values.push(Value::from(value)),
                other => *other = json!([value]),
            },
            _ => drop(entries.insert(key.to_owned(), Value::from(value))),
        }
    }
    Ok(())
}

/// Labels outside the names a node may claim for itself are refused, like upstream.
pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), FlagError> {
    const ALLOWED: [&str; 11] = [
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    ];
    let is_in = |namespace: &str, domain: &str| {
        namespace == domain || namespace.strip_suffix(domain).is_some_and(|prefix| prefix.ends_with('.'))
    };
    let mut refused = Vec::new();
    for (key, value) in labels {
        let mut why = names::qualified_name(key);
        why.extend(names::label_value(value));
        if let [first, ..] = why.as_slice() {
            return Err(FlagError::BadValue {
                name: "node-labels",
                value: format!("{key}={value}"),
                why: first.clone(),
            });
        }
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        let is_reserved = is_in(namespace, "kubernetes.io") || is_in(namespace, "k8s.io");
        let is_nodes_own = is_in(namespace, "kubelet.kubernetes.io") || is_in(namespace, "node.kubernetes.io");
        if is_reserved && !is_nodes_own && !ALLOWED.contains(&key.as_str()) {
            refused.push(key.as_str());
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(FlagError::Labels(refused.join(", "))) }
}
