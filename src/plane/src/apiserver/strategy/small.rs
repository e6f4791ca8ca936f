//! Kinds with a handful of rules.

use k8s_openapi::api::{
    coordination::v1 as coordination, core::v1 as core, node::v1 as node, scheduling::v1 as scheduling,
    storage::v1 as storage,
};
use serde_json::{Map, Value, json};

use super::Strategy;
use crate::apiserver::error::Cause;
use crate::apiserver::object::{child, default, list, meta, text};
use longshore_api::names;

/// Leases need nothing beyond their types.
#[derive(Debug)]
pub(crate) struct Leases;

impl Strategy for Leases {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<coordination::Lease>(object)
    }
}

/// Scales are views.
#[derive(Debug)]
pub(crate) struct Scales;

impl Strategy for Scales {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<k8s_openapi::api::autoscaling::v1::Scale>(object)
    }
}

/// Service accounts need nothing beyond their types.
#[derive(Debug)]
pub(crate) struct ServiceAccounts;

impl Strategy for ServiceAccounts {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<core::ServiceAccount>(object)
    }
}

/// Total size of a ConfigMap's or Secret's values.
const MAX_DATA: usize = 1 << 20;

fn data_causes(object: &Value, maps: &[&str]) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut total = 0;
    for map in maps {
        for (key, value) in object.get(map).and_then(Value::as_object).into_iter().flatten() {
            for text in names::config_key(key) {
                causes.push(Cause::invalid(format!("{map}[{key}]"), &json!(key), &text));
            }
            total += value.as_str().map_or(0, str::len);
        }
    }
    if total > MAX_DATA * 4 / 3 {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {MAX_DATA} bytes"),
            field: maps.first().copied().unwrap_or_default().to_owned(),
        });
    }
    causes
}

fn immutable_causes(object: &Value, old: &Value, fields: &[&str]) -> Vec<Cause> {
    if old.get("immutable") != Some(&json!(true)) {
        return Vec::new();
    }
    let changed = |field: &&&str| object.get(**field) != old.get(**field);
    let mut causes: Vec<Cause> = fields
        .iter()
        .filter(changed)
        .map(|field| Cause::forbidden(*field, "field is immutable when `immutable` is set"))
        .collect();
    if object.get("immutable") != Some(&json!(true)) {
        causes.insert(0, Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
    }
    causes
}

#[derive(Debug)]
pub(crate) struct ConfigMaps;

impl Strategy for ConfigMaps {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<core::ConfigMap>(object)
    }

    fn validate(&self, object: &Value) -> Vec<Cause> {
        data_causes(object, &["data", "binaryData"])
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<Cause> {
        immutable_causes(object, old, &["data", "binaryData"])
    }
}

#[derive(Debug)]
pub(crate) struct Secrets;

impl Strategy for Secrets {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<core::Secret>(object)
    }

    fn defaults(&self, object: &mut Value) {
        // `stringData` is write-only: it is folded into `data`, encoded.
        let plain = object.as_object_mut().and_then(|map| map.remove("stringData"));
        if let Some(Value::Object(plain)) = plain {
            let data = child(object, "data");
            for (key, value) in plain {
                let encoded = base64::Engine::encode(
                    &base64::engine::general_purpose::STANDARD,
                    value.as_str().unwrap_or_default(),
                );
                data.insert(key, encoded.into());
            }
        }
        if let Some(map) = object.as_object_mut() {
            default(map, "type", || json!("Opaque"));
        }
    }

    fn validate(&self, object: &Value) -> Vec<Cause> {
        let mut causes = data_causes(object, &["data"]);
        let needed: &[&str] = match text(object, "/type") {
            "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
            "kubernetes.io/dockercfg" => &[".dockercfg"],
            "kubernetes.io/tls" => &["tls.crt", "tls.key"],
            "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
            _ => &[],
        };
        for key in needed.iter().filter(|key| object.pointer("/data").and_then(|data| data.get(**key)).is_none()) {
            causes.push(Cause::required(format!("data[{key}]"), ""));
        }
        causes
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<Cause> {
        let mut causes = immutable_causes(object, old, &["data"]);
        if object.get("type") != old.get("type") {
            causes.push(Cause::invalid("type", object.get("type").unwrap_or(&Value::Null), "field is immutable"));
        }
        causes
    }
}

#[derive(Debug)]
pub(crate) struct Services;

impl Strategy for Services {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<core::Service>(object)
    }

    fn defaults(&self, object: &mut Value) {
        let spec = child(object, "spec");
        default(spec, "type", || json!("ClusterIP"));
        default(spec, "sessionAffinity", || json!("None"));
        if spec.get("type") != Some(&json!("ExternalName")) {
            default(spec, "internalTrafficPolicy", || json!("Cluster"));
            default(spec, "ipFamilies", || json!(["IPv4"]));
            default(spec, "ipFamilyPolicy", || json!("SingleStack"));
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(port) = port.as_object_mut() else { continue };
            default(port, "protocol", || json!("TCP"));
            let number = port.get("port").cloned().unwrap_or_else(|| json!(0));
            default(port, "targetPort", || number);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"loadBalancer": {}});
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        // An update that leaves the address out keeps it.
        if text(object, "/spec/type") != "ExternalName" && text(object, "/spec/clusterIP").is_empty() {
            let spec = child(object, "spec");
            for key in ["clusterIP", "clusterIPs"] {
                crate::apiserver::object::copy(spec, old.get("spec"), key);
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        let headless = matches!(text(object, "/spec/clusterIP"), "None");
        let external = text(object, "/spec/type") == "ExternalName";
        let ports = list(object, "/spec/ports");
        if ports.is_empty() && !headless && !external {
            causes.push(Cause::required("spec.ports", ""));
        }
        for (index, port) in ports.iter().enumerate() {
            let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
            if !(1..=65535).contains(&number) {
                let field = format!("spec.ports[{index}].port");
                causes.push(Cause::invalid(field, &json!(number), "must be between 1 and 65535, inclusive"));
            }
            if ports.len() > 1 && text(port, "/name").is_empty() {
                causes.push(Cause::required(format!("spec.ports[{index}].name"), ""));
            }
        }
        causes
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<Cause> {
        let (new, old) = (text(object, "/spec/clusterIP"), text(old, "/spec/clusterIP"));
        if old.is_empty() || new == old || text(object, "/spec/type") == "ExternalName" {
            return Vec::new();
        }
        vec![Cause::invalid("spec.clusterIPs[0]", &json!([new]), "may not change once set")]
    }
}

#[derive(Debug)]
pub(crate) struct CsiNodes;

impl Strategy for CsiNodes {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<storage::CSINode>(object)
    }

    fn defaults(&self, object: &mut Value) {
        let spec = child(object, "spec");
        // Required on the wire, so that an empty list is shown as null by the stock server.
        spec.entry("drivers").or_insert_with(|| json!([]));
    }
}

#[derive(Debug)]
pub(crate) struct CsiDrivers;

impl Strategy for CsiDrivers {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<storage::CSIDriver>(object)
    }

    fn defaults(&self, object: &mut Value) {
        let spec = child(object, "spec");
        default(spec, "attachRequired", || json!(true));
        default(spec, "podInfoOnMount", || json!(false));
        default(spec, "storageCapacity", || json!(false));
        default(spec, "fsGroupPolicy", || json!("ReadWriteOnceWithFSType"));
        default(spec, "volumeLifecycleModes", || json!(["Persistent"]));
        default(spec, "requiresRepublish", || json!(false));
        default(spec, "seLinuxMount", || json!(false));
    }
}

#[derive(Debug)]
pub(crate) struct RuntimeClasses;

impl Strategy for RuntimeClasses {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<node::RuntimeClass>(object)
    }

    fn validate(&self, object: &Value) -> Vec<Cause> {
        let handler = text(object, "/handler");
        names::dns1123_label(handler).iter().map(|detail| Cause::invalid("handler", &json!(handler), detail)).collect()
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<Cause> {
        if object.get("handler") == old.get("handler") {
            return Vec::new();
        }
        vec![Cause::invalid("handler", object.get("handler").unwrap_or(&Value::Null), "field is immutable")]
    }
}

/// The classes that every cluster has, with their priorities.
pub(crate) const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// The highest priority that others may have.
const MAX_PRIORITY: i64 = 1_000_000_000;

#[derive(Debug)]
pub(crate) struct PriorityClasses;

impl Strategy for PriorityClasses {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<scheduling::PriorityClass>(object)
    }

    fn defaults(&self, object: &mut Value) {
        let mut none = Map::new();
        let map = object.as_object_mut().unwrap_or(&mut none);
        default(map, "preemptionPolicy", || json!("PreemptLowerPriority"));
        default(map, "value", || json!(0));
    }

    fn validate(&self, object: &Value) -> Vec<Cause> {
        let (name, value) = (meta(object, "name"), object.get("value").and_then(Value::as_i64).unwrap_or(0));
        let system = SYSTEM_PRIORITIES.iter().find(|(own, _)| *own == name);
        if let Some((_, priority)) = system {
            if *priority == value {
                return Vec::new();
            }
            let text = format!("value of {name:?} must be {priority}");
            return vec![Cause::forbidden("value", &text)];
        }
        let mut causes = Vec::new();
        if name.starts_with("system-") {
            let text = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name:?} is not \
                 a known system priority class"
            );
            causes.push(Cause::forbidden("metadata.name", &text));
        }
        if value > MAX_PRIORITY {
            let text = format!("maximum allowed value of a user defined priority is {MAX_PRIORITY}");
            causes.push(Cause::forbidden("value", &text));
        }
        causes
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<Cause> {
        ["value", "preemptionPolicy"]
            .into_iter()
            .filter(|field| object.get(*field) != old.get(*field))
            .map(|field| Cause::forbidden(field, "may not be changed in an update."))
            .collect()
    }
}
