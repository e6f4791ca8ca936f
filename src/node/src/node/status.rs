//! What a Node's status says, and which of it must be written. Pure.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeDaemonEndpoints, NodeFeatures, NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures, NodeStatus, NodeSwapStatus, NodeSystemInfo,
};
use longshore_host::facts::MachineFacts;
use serde_json::{Map, Value, json};

use super::conditions::{self, Pressure};
use super::register::{architecture, platform_labels};
use super::{Capacity, KUBELET_VERSION, NodeOptions, RuntimeState};

/// Everything that a status is made of.
#[derive(Debug)]
pub(super) struct Inputs<'a> {
    pub(super) options: &'a NodeOptions,
    pub(super) machine: &'a MachineFacts,
    pub(super) capacity: &'a Capacity,
    pub(super) runtime: &'a RuntimeState,
    pub(super) addresses: &'a [IpAddr],
    pub(super) images: Vec<ContainerImage>,
    pub(super) pressure: Pressure,
    /// Errors of further checks.
    pub(super) errors: Vec<String>,
    pub(super) now: Timestamp,
}

/// Returns the status, and the events that its changes against `previous` earn.
pub(super) fn compute(inputs: Inputs<'_>, previous: Option<&NodeStatus>) -> (NodeStatus, Vec<&'static str>) {
    let mut not_ready = inputs.runtime.errors();
    not_ready.extend(inputs.errors);
    let missing = inputs.capacity.missing();
    if !missing.is_empty() {
        not_ready.push(format!("missing node capacity for resources: {}", missing.join(", ")));
    }
    let old = previous.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let (conditions, events) = conditions::compute(old, inputs.pressure, &not_ready, inputs.now);
    let status = NodeStatus {
        addresses: addresses(inputs.options, inputs.addresses, previous),
        allocatable: Some(inputs.capacity.allocatable()),
        capacity: Some(inputs.capacity.total()),
        conditions: Some(conditions),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: inputs.options.port.into() }),
        }),
        declared_features: (!inputs.options.declared_features.is_empty())
            .then(|| inputs.options.declared_features.clone()),
        features: inputs
            .runtime
            .supplemental_groups_policy
            .map(|policy| NodeFeatures { supplemental_groups_policy: Some(policy) }),
        images: Some(inputs.images).filter(|images| !images.is_empty()),
        node_info: Some(info(inputs.machine, inputs.runtime)),
        runtime_handlers: handlers(inputs.runtime),
        ..NodeStatus::default()
    };
    (status, events)
}

/// With an external cloud the controller's addresses stay; only the host name is ours while nobody has set one.
fn addresses(options: &NodeOptions, found: &[IpAddr], previous: Option<&NodeStatus>) -> Option<Vec<NodeAddress>> {
    let address = |kind: &str, address: String| NodeAddress { type_: kind.to_owned(), address };
    let hostname = address("Hostname", options.name.clone());
    if options.external_cloud {
        let old = previous.and_then(|status| status.addresses.clone()).unwrap_or_default();
        return Some(if old.is_empty() { vec![hostname] } else { old });
    }
    let internal = found.iter().map(|ip| address("InternalIP", ip.to_string()));
    Some(internal.chain([hostname]).collect())
}

fn info(machine: &MachineFacts, runtime: &RuntimeState) -> NodeSystemInfo {
    let version = runtime.version.as_ref();
    NodeSystemInfo {
        machine_id: machine.machine_id.clone(),
        system_uuid: machine.system_uuid.clone(),
        boot_id: machine.boot_id.clone(),
        kernel_version: machine.kernel.clone(),
        os_image: machine.os_image.clone(),
        operating_system: "linux".to_owned(),
        architecture: architecture().to_owned(),
        container_runtime_version: version.map(|v| format!("{}://{}", v.name, v.version)).unwrap_or_default(),
        kubelet_version: KUBELET_VERSION.to_owned(),
        kube_proxy_version: String::new(),
        swap: (machine.swap > 0).then(|| NodeSwapStatus { capacity: i64::try_from(machine.swap).ok() }),
    }
}

fn handlers(runtime: &RuntimeState) -> Option<Vec<NodeRuntimeHandler>> {
    let list: Vec<NodeRuntimeHandler> = runtime
        .handlers
        .iter()
        .map(|handler| NodeRuntimeHandler {
            name: Some(handler.name.clone()),
            features: Some(NodeRuntimeHandlerFeatures {
                recursive_read_only_mounts: Some(handler.recursive_read_only_mounts),
                user_namespaces: Some(handler.user_namespaces),
            }),
        })
        .collect();
    (!list.is_empty()).then_some(list)
}

/// The patch that turns the status of `old` into `new`. Says as well whether it is more than heartbeats.
pub(super) fn patch(old: &Node, new: &NodeStatus) -> (Value, bool) {
    let empty = NodeStatus::default();
    let have = old.status.as_ref().unwrap_or(&empty);
    let mut status = Map::new();
    let conditions = new.conditions.as_deref().unwrap_or_default();
    status.insert("conditions".to_owned(), json!(conditions));
    let mut put = |name: &str, differs: bool, value: Value| {
        if differs {
            status.insert(name.to_owned(), value);
        }
        differs
    };
    let mut changed = conditions::differ(have.conditions.as_deref().unwrap_or_default(), conditions);
    if new.addresses != have.addresses {
        // Two addresses of one kind would be merged into one: the list is replaced as a whole.
        let mut list = json!(new.addresses);
        if let Value::Array(list) = &mut list {
            list.push(json!({"$patch": "replace"}));
        }
        changed |= put("addresses", true, list);
    }
    changed |= put("capacity", !covers(have.capacity.as_ref(), new.capacity.as_ref()), json!(new.capacity));
    changed |= put("allocatable", !covers(have.allocatable.as_ref(), new.allocatable.as_ref()), json!(new.allocatable));
    changed |= put("daemonEndpoints", new.daemon_endpoints != have.daemon_endpoints, json!(new.daemon_endpoints));
    changed |= put("nodeInfo", new.node_info != have.node_info, json!(new.node_info));
    changed |= put("images", new.images != have.images, json!(new.images));
    changed |= put("runtimeHandlers", new.runtime_handlers != have.runtime_handlers, json!(new.runtime_handlers));
    changed |= put("features", new.features != have.features, json!(new.features));
    changed |= put("declaredFeatures", new.declared_features != have.declared_features, json!(new.declared_features));
    let mut patch = Map::from_iter([("status".to_owned(), Value::Object(status))]);
    let labels = old.metadata.labels.as_ref();
    let missing: Map<String, Value> = platform_labels()
        .into_iter()
        .filter(|(key, value)| labels.and_then(|labels| labels.get(*key)).map(String::as_str) != Some(*value))
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect();
    if !missing.is_empty() {
        patch.insert("metadata".to_owned(), json!({ "labels": missing }));
        changed = true;
    }
    (Value::Object(patch), changed)
}

/// Whether all of `new` stands in `old`; entries that others put there (extended resources) are theirs.
fn covers(old: Option<&super::capacity::Resources>, new: Option<&super::capacity::Resources>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return old == new };
    new.iter().all(|(name, value)| old.get(name) == Some(value))
}
