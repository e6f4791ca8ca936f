//! Sizes of containers and what was promised of them: a running container gets what its pod's spec asks for as soon as the
//! node has room, never anything that nobody asked for, and starts anew for it only where its policy says so
//! (behaviour section 26).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use serde_json::{Value, json};

use super::book::Book;
use super::pod::{Life, Made, PodBook};
use super::{Dice, Part, Plan, Policy, Role};

/// Microseconds of a period; a limit of one processor is all of it.
const PERIOD: u64 = 100_000;
const MIB: i64 = 1 << 20;

/// Limits of a container; it asks for half of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// Thousandths of a processor.
    pub cpu: u64,
    /// MiB.
    pub memory: u64,
}

/// Which resources a container starts anew for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartsAnew {
    /// For another share of the processors.
    pub cpu: bool,
    /// For other memory.
    pub memory: bool,
}

impl Size {
    /// Throws one.
    pub fn random(dice: &mut Dice) -> Self {
        Self { cpu: dice.pick(&[100, 200, 400, 800, 1600]), memory: dice.pick(&[32, 64, 128, 256]) }
    }

    /// One that no node of a case has room for.
    pub fn huge() -> Self {
        Self { cpu: 400_000, memory: 64 }
    }

    /// What a runtime was told, if it was told anything.
    pub fn told(quota: i64, memory_limit: i64) -> Option<Self> {
        let cpu = u64::try_from(quota).ok()? * 1000 / PERIOD;
        let memory = u64::try_from(memory_limit / MIB).ok()?;
        (cpu > 0 || memory > 0).then_some(Self { cpu, memory })
    }

    pub(super) fn object(self) -> Value {
        let amounts = |cpu: u64, memory: u64| json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")});
        json!({"requests": amounts(self.cpu / 2, self.memory / 2), "limits": amounts(self.cpu, self.memory)})
    }
}

impl StartsAnew {
    /// Throws one for a container that may come back.
    pub fn random(dice: &mut Dice) -> Self {
        Self { cpu: dice.chance(25), memory: dice.chance(35) }
    }

    pub(super) fn object(self) -> Value {
        let word = |anew: bool| if anew { "RestartContainer" } else { "NotRequired" };
        json!([
            {"resourceName": "cpu", "restartPolicy": word(self.cpu)},
            {"resourceName": "memory", "restartPolicy": word(self.memory)},
        ])
    }

    fn is_for(self, one: Size, other: Size) -> bool {
        (self.cpu && one.cpu != other.cpu) || (self.memory && one.memory != other.memory)
    }
}

impl Plan {
    /// Thousandths of processors that the pod asks for: its lasting containers together, or one that comes before them
    /// with those that run by then.
    pub fn requested(&self) -> u64 {
        let of = |part: &Part| part.size.map_or(0, |size| size.cpu / 2);
        let mut beside = 0;
        let mut most = 0;
        for part in &self.parts {
            match part.role {
                Role::Init => most = most.max(beside + of(part)),
                Role::Sidecar | Role::Main => beside += of(part),
                Role::Guest => {}
            }
        }
        most.max(beside)
    }
}

/// Everything that was ever asked for of a container, by resource: each is changed by itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    cpu: BTreeSet<u64>,
    memory: BTreeSet<u64>,
}

impl PodBook {
    /// Notes what the plan asks for, and which containers may have to start anew for it.
    pub(super) fn note_sizes(&mut self) {
        let sized: BTreeMap<String, (Size, StartsAnew)> =
            self.plan.parts.iter().filter_map(|part| Some((part.name.clone(), (part.size?, part.anew)))).collect();
        for (name, (size, _)) in &sized {
            let asked = self.asked.entry(name.clone()).or_default();
            asked.cpu.insert(size.cpu);
            asked.memory.insert(size.memory);
            self.first_sizes.entry(name.clone()).or_insert(*size);
        }
        for (_, made) in &mut self.made {
            if let Some((wanted, anew)) = sized.get(&made.name) {
                made.resized |= made.size.is_some_and(|own| anew.is_for(own, *wanted));
            }
        }
    }

    fn was_asked(&self, name: &str, size: Size) -> bool {
        self.asked.get(name).is_some_and(|asked| asked.cpu.contains(&size.cpu) && asked.memory.contains(&size.memory))
    }

    /// Whether the plan asks for something that is never granted: plain init containers keep their size.
    fn asks_in_vain(&self) -> bool {
        let changed = |part: &Part| part.size.is_some() && part.size.as_ref() != self.first_sizes.get(&part.name);
        self.plan.parts.iter().any(|part| part.role == Role::Init && changed(part))
    }
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> Option<&'a PodCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// Thousandths of processors that a status says are set aside for its pod.
fn held(status: &PodStatus) -> u64 {
    let amount = status.allocated_resources.as_ref().and_then(|all| all.get("cpu")).map_or("0", |raw| raw.0.as_str());
    let parsed = amount.strip_suffix('m').map_or_else(|| amount.parse().map(|whole: u64| whole * 1000), str::parse);
    parsed.unwrap_or(u64::MAX)
}

impl Book {
    /// A container has a size: it was made with it, or is to be given it.
    pub fn sized(&mut self, id: &str, size: Option<Size>) {
        let Some(size) = size else { return };
        let Some(uid) = self.owner(id).map(str::to_owned) else { return };
        let Some(pod) = self.pods.get_mut(&uid) else { return };
        let Some(name) = pod.container(id).map(|made| made.name.clone()) else { return };
        let good = pod.was_asked(&name, size);
        if let Some(made) = pod.container_mut(id) {
            made.size = Some(size);
        }
        pod.note_sizes();
        if !good {
            self.fault(format!("{name} of {uid} gets {size:?}, which nobody asked for"));
        }
    }

    /// Why the sizes of a pod have not come to rest, on a node with so many thousandths of processors. `actual` says what
    /// the runtime has of a container.
    pub fn unrest_of_sizes(&self, uid: &str, node: u64, actual: &dyn Fn(&str) -> Option<Size>) -> Option<String> {
        let pod = self.pod(uid)?;
        let status = pod.status()?;
        if pod.is_final() || pod.is_refused() || pod.first_sizes.is_empty() {
            return None;
        }
        if condition(status, "PodResizeInProgress").is_some() {
            return Some("its resize is under way".to_owned());
        }
        let pending = condition(status, "PodResizePending").and_then(|pending| pending.reason.as_deref());
        let others = self
            .pods
            .iter()
            .filter(|(other, book)| *other != uid && !(book.is_released() || book.is_final() || book.is_refused()));
        let others: u64 = others.filter_map(|(_, book)| book.status()).map(held).sum();
        let wanted = pod.plan.requested();
        let fits = wanted <= held(status) || others + wanted <= node;
        match (pending, pod.asks_in_vain()) {
            (None, true) => return Some("it asks in vain, and nothing says so".to_owned()),
            (Some("Infeasible"), true) => return None,
            (Some("Deferred"), false) if fits => return Some(format!("{wanted} would fit, and it waits")),
            (Some("Deferred"), false) => return None,
            (Some(other), _) => return Some(format!("its resize is {other}")),
            (None, false) => {}
        }
        if held(status) != wanted {
            return Some(format!("{} is set aside for it, it asks for {wanted}", held(status)));
        }
        if others + wanted > node {
            return Some(format!("{others} and {wanted} are given away of {node}"));
        }
        for part in pod.plan.parts.iter().filter(|part| part.role != Role::Init && part.size.is_some()) {
            let runs = |(_, made): &&(String, Made)| made.name == part.name && made.life == Life::Runs;
            let Some((id, _)) = pod.made.iter().rev().find(runs) else { continue };
            if actual(id) != part.size {
                return Some(format!("{} has {:?} and asks for {:?}", part.name, actual(id), part.size));
            }
        }
        None
    }
}

impl Part {
    /// Whether it may have a policy that has it start anew.
    pub(super) fn may_start_anew(&self, pod: Policy) -> bool {
        let plain = self.policy.is_none_or(|own| own != Policy::Never);
        matches!(self.role, Role::Main | Role::Sidecar) && pod != Policy::Never && plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pod_asks_for_is_its_largest_moment() {
        let mut plan = Plan::random(&mut Dice::new(1), "p", false);
        let mut part = plan.parts[0].clone();
        plan.parts.clear();
        for (role, cpu) in [(Role::Sidecar, 100), (Role::Init, 1000), (Role::Main, 300), (Role::Main, 100)] {
            (part.role, part.size) = (role, Some(Size { cpu, memory: 64 }));
            plan.parts.push(part.clone());
        }
        assert_eq!(plan.requested(), 550);
        plan.parts[1].size = None;
        assert_eq!(plan.requested(), 250);
    }

    #[test]
    fn sizes_are_read_from_what_the_runtime_is_told() {
        assert_eq!(Size::told(40_000, 128 << 20), Some(Size { cpu: 400, memory: 128 }));
        assert_eq!(Size::told(0, 0), None);
        let (one, other) = (Size { cpu: 100, memory: 64 }, Size { cpu: 200, memory: 64 });
        assert!(StartsAnew { cpu: true, memory: false }.is_for(one, other));
        assert!(!StartsAnew { cpu: false, memory: true }.is_for(one, other));
    }
}
