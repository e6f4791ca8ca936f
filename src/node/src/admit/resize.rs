//! Whether a pod that runs may have another size. What cannot ever be is infeasible; what only lacks room now is deferred
//! and judged again when room appears.

use std::cmp::{Ordering, Reverse};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use longshore_api::qos::{self, Qos};
use longshore_api::resize::{self, Part, Sizes};
use longshore_api::resources::{self, CPU, MEMORY, Side};
use longshore_api::restart::is_sidecar;

use super::{Neighbour, Node, predicates, priority, requests};
use crate::model::DesiredPod;

/// Reason of a size for which there is no room now.
pub const DEFERRED: &str = "Deferred";
/// Reason of a size that cannot be.
pub const INFEASIBLE: &str = "Infeasible";

/// Which sizes the node can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResizeRules {
    /// Those of pods as a whole (`InPlacePodLevelResourcesVerticalScaling`).
    pub pod_level: bool,
    /// Those of plain init containers (`InPlacePodVerticalScalingInitContainers`).
    pub plain_init: bool,
    /// Burstable containers share the node's swap, and their part of it cannot be changed while they run.
    pub shares_swap: bool,
    /// Guaranteed pods have cpus of their own (`cpuManagerPolicy: static`) and these cannot be changed.
    pub fixed_cpus: bool,
    /// The same for memory (`memoryManagerPolicy: Static`).
    pub fixed_memory: bool,
}

impl Default for ResizeRules {
    fn default() -> Self {
        Self { pod_level: true, plain_init: true, shares_swap: false, fixed_cpus: false, fixed_memory: false }
    }
}

/// A size that is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotGranted {
    /// [`DEFERRED`] or [`INFEASIBLE`].
    pub reason: &'static str,
    /// Why.
    pub message: String,
    /// Upstream's label for what makes it infeasible.
    pub detail: &'static str,
}

fn infeasible(detail: &'static str, message: impl Into<String>) -> NotGranted {
    NotGranted { reason: INFEASIBLE, message: message.into(), detail }
}

/// Decides over the size that a pod's spec asks for. `now` is the pod with the sizes that it holds.
pub fn resize(asked: &DesiredPod, now: &Pod, node: &Node, others: &[Neighbour]) -> Result<(), NotGranted> {
    let (empty, no_spec) = (PodSpec::default(), PodSpec::default());
    let spec = asked.pod.spec.as_ref().unwrap_or(&empty);
    let old = now.spec.as_ref().unwrap_or(&no_spec);
    if let Some(refusal) = never(asked, spec, old, node) {
        return Err(refusal);
    }
    // Giving back never fails, whatever else is short: only what grows needs room.
    let (held, wanted) = (requests(now), requests(&asked.pod));
    let short = predicates::missing(&asked.pod, node, others).into_iter().find(|missing| {
        let name = &missing.resource;
        wanted.get(name).copied().unwrap_or_default() > held.get(name).copied().unwrap_or_default()
    });
    match short {
        Some(missing) => Err(NotGranted { reason: DEFERRED, message: missing.refusal().message, detail: "" }),
        None => Ok(()),
    }
}

fn never(asked: &DesiredPod, spec: &PodSpec, old: &PodSpec, node: &Node) -> Option<NotGranted> {
    let (sizes, held) = (Sizes::of(spec), Sizes::of(old));
    if asked.source.is_static() {
        return Some(infeasible("static_pod", "In-place resize of static-pods is not supported"));
    }
    let none = Default::default();
    let whole = resize::change(held.pod.as_ref().unwrap_or(&none), sizes.pod.as_ref().unwrap_or(&none));
    if whole.any() && !node.resize.pod_level {
        return Some(infeasible("feature_gate_off", "InPlacePodLevelResourcesVerticalScaling is disabled"));
    }
    let changed =
        |name: &str| resize::change(held.container(name).unwrap_or(&none), sizes.container(name).unwrap_or(&none));
    let plain = spec.init_containers.iter().flatten().filter(|container| !is_sidecar(container));
    if !node.resize.plain_init && plain.into_iter().any(|container| changed(&container.name).any()) {
        return Some(infeasible("feature_gate_off", "InPlacePodVerticalScalingInitContainers is disabled"));
    }
    if node.resize.shares_swap && changes_swap(asked, spec, old) {
        return Some(infeasible("swap_limitation", "In-place resize of containers with swap is not supported."));
    }
    if qos::of(&asked.pod) != Qos::Guaranteed {
        return None;
    }
    let requested = |part: Part| {
        let of = |own: &Sizes, name: &str| {
            own.container(name)?
                .requests
                .as_ref()?
                .get(part.name())
                .and_then(|raw| longshore_api::quantity::Quantity::try_from(raw).ok())
        };
        sizes.containers.keys().any(|name| of(&sizes, name) != of(&held, name))
    };
    let fixed = |manager: &str, policy: &str| {
        format!("Resize is infeasible for Guaranteed Pods alongside {manager} Manager policy \"{policy}\"")
    };
    if node.resize.fixed_cpus && requested(Part::Cpu) {
        return Some(infeasible("guaranteed_pod_cpu_manager_static_policy", fixed("CPU", "static")));
    }
    if node.resize.fixed_memory && requested(Part::Memory) {
        return Some(infeasible("guaranteed_pod_memory_manager_static_policy", fixed("Memory", "Static")));
    }
    None
}

/// Says whether a container that goes on running would ask for another part of the node's memory, and so of its swap.
fn changes_swap(asked: &DesiredPod, spec: &PodSpec, old: &PodSpec) -> bool {
    let critical = super::is_critical(&asked.pod, false);
    resize::containers(spec).any(|container| {
        let Some(held) = resize::containers(old).find(|held| held.name == container.name) else { return false };
        let request = |of: &Container| resources::of_container(of, Side::Requests).get(MEMORY).copied();
        let policies = held.resize_policy.iter().flatten();
        let restarts =
            policies.into_iter().any(|own| own.resource_name == MEMORY && own.restart_policy == "RestartContainer");
        let swaps = |of: &Container| resources::may_swap(&asked.pod, of, critical);
        request(container) != request(held) && !restarts && (swaps(container) || swaps(held))
    })
}

/// A pod that asks for another size, as far as its turn goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    grows: bool,
    priority: i32,
    guaranteed: bool,
    since: Option<Timestamp>,
}

impl Rank {
    /// Ranks a pod; `since` is when it was first told to wait.
    pub fn of(asked: &Pod, now: &Pod, since: Option<Timestamp>) -> Self {
        let (held, wanted) = (requests(now), requests(asked));
        let more =
            |name: &str| wanted.get(name).copied().unwrap_or_default() > held.get(name).copied().unwrap_or_default();
        Self {
            grows: more(CPU) || more(MEMORY),
            priority: priority(asked).unwrap_or(0),
            guaranteed: qos::of(asked) == Qos::Guaranteed,
            since,
        }
    }

    fn key(&self) -> (bool, Reverse<i32>, bool, bool, Option<Timestamp>) {
        (self.grows, Reverse(self.priority), !self.guaranteed, self.since.is_none(), self.since)
    }
}

/// Who does not ask for more comes first, then the higher priority, then guaranteed pods, then who waits longest.
impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_api::quantity::Quantity;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{PodKey, SourceKind};

    fn pod(uid: &str, resources: Value) -> DesiredPod {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": uid, "namespace": "d", "uid": uid},
            "spec": {"priority": 0, "containers": [{"name": "c", "resources": resources}]}}))
        .unwrap();
        DesiredPod {
            uid: uid.into(),
            key: PodKey::new("d", uid),
            pod: Arc::new(pod),
            source: SourceKind::Api,
            seen: Timestamp::UNIX_EPOCH,
        }
    }

    fn cpu(uid: &str, amount: &str) -> DesiredPod {
        pod(uid, json!({"requests": {"cpu": amount}}))
    }

    fn guaranteed(cpu: &str, memory: &str) -> DesiredPod {
        let own = json!({"cpu": cpu, "memory": memory});
        pod("g", json!({"requests": own, "limits": own}))
    }

    fn node() -> Node {
        let amount = |name: &str, text: &str| (name.to_owned(), Quantity::parse(text).unwrap());
        Node {
            allocatable: [amount("cpu", "2"), amount("memory", "4Gi"), amount("pods", "2")].into(),
            pod_resources: true,
            ..Node::default()
        }
    }

    fn judged(asked: &DesiredPod, now: &DesiredPod, node: &Node, others: &[DesiredPod]) -> (String, String) {
        let others: Vec<Neighbour> = others.iter().map(Neighbour::of).collect();
        match resize(asked, &now.pod, node, &others) {
            Ok(()) => ("granted".to_owned(), String::new()),
            Err(not) => (not.reason.to_owned(), not.message),
        }
    }

    #[test]
    fn what_fits_is_granted_and_what_lacks_room_waits_also_above_the_nodes_size() {
        let now = cpu("p", "500m");
        let other = [cpu("o", "1")];
        assert_eq!(judged(&cpu("p", "1"), &now, &node(), &other).0, "granted");
        let (reason, message) = judged(&cpu("p", "1500m"), &now, &node(), &other);
        assert_eq!(reason, "Deferred");
        assert_eq!(message, "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000");
        assert_eq!(judged(&cpu("p", "900"), &now, &node(), &[]).0, "Deferred");
    }

    #[test]
    fn giving_back_never_fails() {
        let full = [cpu("o", "3"), cpu("n", "3")];
        assert_eq!(judged(&cpu("p", "400m"), &cpu("p", "500m"), &node(), &full).0, "granted");
    }

    #[test]
    fn some_sizes_can_never_be() {
        let file = DesiredPod { source: SourceKind::File, ..cpu("p", "1") };
        let static_pod = ("Infeasible".to_owned(), "In-place resize of static-pods is not supported".to_owned());
        assert_eq!(judged(&file, &cpu("p", "2"), &node(), &[]), static_pod);
        let rules = ResizeRules { fixed_cpus: true, fixed_memory: true, ..ResizeRules::default() };
        let fixed = Node { resize: rules, ..node() };
        let (now, larger) = (guaranteed("1", "1Gi"), guaranteed("1500m", "1Gi"));
        assert_eq!(
            judged(&larger, &now, &fixed, &[]).1,
            "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\""
        );
        assert_eq!(
            judged(&guaranteed("1", "2Gi"), &now, &fixed, &[]).1,
            "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\""
        );
        assert_eq!(judged(&larger, &now, &node(), &[]).0, "granted");
        assert_eq!(judged(&cpu("p", "1"), &cpu("p", "2"), &fixed, &[]).0, "granted", "burstable pods share");
    }

    #[test]
    fn a_container_that_shares_swap_keeps_its_memory_unless_it_restarts_for_it() {
        let rules = ResizeRules { shares_swap: true, ..ResizeRules::default() };
        let node = Node { resize: rules, ..node() };
        let memory = |amount: &str| pod("p", json!({"requests": {"memory": amount}}));
        let refused = "In-place resize of containers with swap is not supported.";
        assert_eq!(judged(&memory("2Gi"), &memory("1Gi"), &node, &[]).1, refused);
        assert_eq!(judged(&memory("2Gi"), &memory("1Gi"), &self::node(), &[]).0, "granted");
        assert_eq!(judged(&guaranteed("1", "2Gi"), &guaranteed("1", "1Gi"), &node, &[]).0, "granted");
        assert_eq!(judged(&cpu("p", "1"), &cpu("p", "2"), &node, &[]).0, "granted");
        let restarted = |amount: &str| {
            let mut pod = memory(amount);
            let spec = Arc::make_mut(&mut pod.pod).spec.as_mut().unwrap();
            let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
            spec.containers[0].resize_policy = serde_json::from_value(policy).unwrap();
            pod
        };
        assert_eq!(judged(&restarted("2Gi"), &restarted("1Gi"), &node, &[]).0, "granted");
    }

    #[test]
    fn sizes_behind_gates_that_are_off_can_never_be() {
        let with = |spec: Value| {
            let mut pod = cpu("p", "1");
            let object = json!({"metadata": {"name": "p", "namespace": "d", "uid": "p"}, "spec": spec});
            pod.pod = Arc::new(serde_json::from_value(object).unwrap());
            pod
        };
        let rules = ResizeRules { pod_level: false, plain_init: false, ..ResizeRules::default() };
        let node = Node { resize: rules, ..node() };
        let whole = |cpu: &str| with(json!({"resources": {"requests": {"cpu": cpu}}, "containers": [{"name": "c"}]}));
        assert_eq!(
            judged(&whole("1"), &whole("2"), &node, &[]).1,
            "InPlacePodLevelResourcesVerticalScaling is disabled"
        );
        let init = |cpu: &str| {
            with(json!({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": cpu}}}],
                "containers": [{"name": "c"}]}))
        };
        assert_eq!(judged(&init("1"), &init("2"), &node, &[]).0, "Infeasible");
    }

    #[test]
    fn turns_go_by_growth_priority_class_and_waiting_time() {
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let rank = |grows, priority, guaranteed, since| Rank { grows, priority, guaranteed, since };
        let order = [
            rank(false, 0, false, None),
            rank(true, 9, false, None),
            rank(true, 0, true, None),
            rank(true, 0, false, at(1)),
            rank(true, 0, false, at(2)),
            rank(true, 0, false, None),
        ];
        let mut shuffled: Vec<Rank> = order.iter().rev().cloned().collect();
        shuffled.sort();
        assert_eq!(shuffled, order);
        assert!(Rank::of(&cpu("p", "2").pod, &cpu("p", "1").pod, None).grows);
        assert!(!Rank::of(&cpu("p", "1").pod, &cpu("p", "1").pod, None).grows);
    }
}
