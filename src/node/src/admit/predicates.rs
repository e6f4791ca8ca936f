//! What the node must have for a pod: the right system, enough of every resource, the labels it asks for, free ports.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use longshore_api::placement;
use longshore_api::quantity::{Format, Quantity};
use longshore_api::resources::{self, Amounts, CPU};
use longshore_api::restart::is_sidecar;

use super::{NODE_AFFINITY, Neighbour, Node, Refusal, STRICT, requests};
use crate::model::DesiredPod;

const OS: &str = "linux";
const OS_LABEL: &str = "kubernetes.io/os";
const PODS: &str = "pods";

/// A resource of which there is too little left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) resource: String,
    pub(super) requested: Quantity,
    pub(super) used: Quantity,
    pub(super) capacity: Quantity,
}

impl Missing {
    pub(super) fn refusal(&self) -> Refusal {
        let name = &self.resource;
        let [requested, used, capacity] = [self.requested, self.used, self.capacity].map(|amount| shown(name, &amount));
        Refusal::new(
            format!("OutOf{name}"),
            format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        )
    }

    /// How much is lacking.
    pub(super) fn lacking(&self) -> Quantity {
        self.requested.plus(&self.used).minus(&self.capacity)
    }
}

/// Processors are counted in thousandths, all else in whole units.
pub(super) fn shown(name: &str, amount: &Quantity) -> i64 {
    if name == CPU { amount.milli_value() } else { amount.value() }
}

/// What has nothing to do with other pods.
pub(super) fn of_node(spec: &PodSpec, node: &Node) -> Option<Refusal> {
    let selected = spec.node_selector.as_ref().and_then(|selector| selector.get(OS_LABEL));
    if selected.is_some_and(|selected| selected != node.labels.get(OS_LABEL).map_or(OS, String::as_str)) {
        return Some(Refusal::new(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ));
    }
    if spec.os.as_ref().is_some_and(|os| os.name != OS) {
        return Some(Refusal::new("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"));
    }
    let policy = spec.security_context.as_ref().and_then(|security| security.supplemental_groups_policy.as_deref());
    (policy == Some(STRICT) && !node.strict_groups).then(|| {
        Refusal::new(
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        )
    })
}

/// Everything there is too little of: places first, then processors, memory, storage, the rest by name.
pub(super) fn missing(pod: &Pod, node: &Node, others: &[Neighbour]) -> Vec<Missing> {
    let mut used = Amounts::new();
    for other in others {
        resources::add(&mut used, &other.requests);
    }
    let count = |number: usize| Quantity::from_value(i64::try_from(number).unwrap_or(i64::MAX), Format::DecimalSi);
    used.insert(PODS.to_owned(), count(others.len()));
    let mut wanted: Vec<(String, Quantity)> = requests(pod)
        .into_iter()
        .filter(|(name, amount)| !amount.is_zero() && (node.allocatable.contains_key(name) || !is_extended(name)))
        .collect();
    wanted.push((PODS.to_owned(), count(1)));
    wanted.sort_by_key(|(name, _)| {
        let rank = [PODS, CPU, "memory", "ephemeral-storage"].iter().position(|first| *first == name);
        (rank.unwrap_or(usize::MAX), name.clone())
    });
    let of = |amounts: &Amounts, name: &str| amounts.get(name).copied().unwrap_or(Quantity::ZERO);
    wanted
        .into_iter()
        .map(|(name, requested)| Missing {
            used: of(&used, &name),
            capacity: of(&node.allocatable, &name),
            requested,
            resource: name,
        })
        // A node without local storage accounting tells none and bounds none.
        .filter(|entry| entry.resource != "ephemeral-storage" || node.allocatable.contains_key("ephemeral-storage"))
        .filter(|entry| entry.lacking() > Quantity::ZERO)
        .collect()
}

/// What a plug-in or the cluster gives, and what therefore may be none of this node's business.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

/// The first thing besides resources that does not fit.
pub(super) fn mismatch(pod: &DesiredPod, spec: &PodSpec, node: &Node, others: &[Neighbour]) -> Option<Refusal> {
    let failed = |name: &str, why: &str| Some(Refusal::new(name, format!("Predicate {name} failed: {why}")));
    if !placement::wants_node(spec, &node.name, &node.labels) {
        return failed(NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector");
    }
    if spec.node_name.as_deref().is_some_and(|wanted| !wanted.is_empty() && wanted != node.name) {
        return failed("NodeName", "node(s) didn't match the requested node name");
    }
    let taken: Vec<HostPort> =
        others.iter().filter_map(|other| other.pod.as_ref()?.spec.as_ref()).flat_map(host_ports).collect();
    if host_ports(spec).iter().any(|port| taken.iter().any(|other| port.meets(other))) {
        return failed("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    if !pod.source.is_static() && placement::untolerated(&node.taints, tolerations, "NoExecute").is_some() {
        return failed("TaintToleration", "node(s) had taints that the pod didn't tolerate");
    }
    None
}

/// A port of the node's own.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostPort {
    address: String,
    protocol: String,
    port: i32,
}

impl HostPort {
    /// An address of zeros stands for all.
    fn meets(&self, other: &Self) -> bool {
        const ANY: [&str; 3] = ["", "0.0.0.0", "::"];
        let any = |port: &Self| ANY.contains(&port.address.as_str());
        self.port == other.port
            && self.protocol == other.protocol
            && (any(self) || any(other) || self.address == other.address)
    }
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some(HostPort {
                port: port.host_port.filter(|number| *number > 0)?,
                address: port.host_ip.clone().unwrap_or_default(),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            })
        })
        .collect()
}
