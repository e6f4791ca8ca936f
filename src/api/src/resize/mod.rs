//! In-place resize, the pure part: what of a pod can be given another size, what a new size changes, and in which order it
//! is put into effect. A pod has three sizes: what is asked for (its spec), what it was granted, and what is in force.

mod steps;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Raw;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::resources::{self, Amounts, CPU, MEMORY, Side};

pub use steps::{Bound, Group, Step, steps};
pub use summary::summary;

/// Word of `resizePolicy` for a resource whose change needs a new start of the container.
const RESTART: &str = "RestartContainer";

/// Requests and limits of a pod and of its containers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sizes {
    /// Those of the pod as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ResourceRequirements>,
    /// Those of app and init containers, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub containers: BTreeMap<String, ResourceRequirements>,
}

/// Which resources differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Request or limit of cpu.
    pub cpu: bool,
    /// Request or limit of memory.
    pub memory: bool,
}

/// A resource that can be given another size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Processors.
    Cpu,
    /// Memory.
    Memory,
}

impl Part {
    /// The resource's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => CPU,
            Self::Memory => MEMORY,
        }
    }
}

impl Change {
    /// Says whether anything differs.
    pub const fn any(self) -> bool {
        self.cpu || self.memory
    }

    /// Says whether a resource differs.
    pub const fn of(self, part: Part) -> bool {
        match part {
            Part::Cpu => self.cpu,
            Part::Memory => self.memory,
        }
    }

    /// What differs here or there.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self { cpu: self.cpu || other.cpu, memory: self.memory || other.memory }
    }
}

/// The containers that can be resized: all but ephemeral ones.
pub fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

fn has_amounts(own: &ResourceRequirements) -> bool {
    let some = |side: &Option<BTreeMap<String, Raw>>| side.as_ref().is_some_and(|side| !side.is_empty());
    some(&own.requests) || some(&own.limits)
}

impl Sizes {
    /// The sizes that a spec asks for.
    pub fn of(spec: &PodSpec) -> Self {
        let own = containers(spec).map(|c| (c.name.clone(), c.resources.clone().unwrap_or_default()));
        Self { pod: spec.resources.clone().filter(has_amounts), containers: own.collect() }
    }

    /// The sizes that a pod asks for.
    pub fn of_pod(pod: &Pod) -> Self {
        pod.spec.as_ref().map(Self::of).unwrap_or_default()
    }

    /// Says whether the amounts are the same, however they are written.
    pub fn same(&self, other: &Self) -> bool {
        let none = ResourceRequirements::default();
        let names = || self.containers.keys().chain(other.containers.keys());
        same(self.pod.as_ref().unwrap_or(&none), other.pod.as_ref().unwrap_or(&none))
            && names().all(|name| same(self.container(name).unwrap_or(&none), other.container(name).unwrap_or(&none)))
    }

    /// Those of one container.
    pub fn container(&self, name: &str) -> Option<&ResourceRequirements> {
        self.containers.get(name)
    }

    /// What differs anywhere.
    pub fn change(&self, other: &Self) -> Change {
        let none = ResourceRequirements::default();
        let whole = change(self.pod.as_ref().unwrap_or(&none), other.pod.as_ref().unwrap_or(&none));
        self.containers.keys().chain(other.containers.keys()).fold(whole, |all, name| {
            all.or(change(self.container(name).unwrap_or(&none), other.container(name).unwrap_or(&none)))
        })
    }

    /// Writes the sizes into a spec; a container that has none here keeps its own.
    pub fn put_into(&self, spec: &mut PodSpec) {
        spec.resources.clone_from(&self.pod);
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            if let Some(own) = self.container(&container.name) {
                let claims = container.resources.as_mut().and_then(|old| old.claims.take());
                container.resources = Some(ResourceRequirements { claims, ..own.clone() });
            }
        }
    }

    /// The pod with these sizes; the very same one if it has them.
    pub fn apply(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        if Self::of_pod(pod).same(self) {
            return Arc::clone(pod);
        }
        let mut sized = Pod::clone(pod);
        if let Some(spec) = &mut sized.spec {
            self.put_into(spec);
        }
        Arc::new(sized)
    }
}

fn same(a: &ResourceRequirements, b: &ResourceRequirements) -> bool {
    let both = |side: fn(&ResourceRequirements) -> Amounts| side(a) == side(b);
    both(|own| resources::amounts(own.requests.as_ref())) && both(|own| resources::amounts(own.limits.as_ref()))
}

/// What differs between two sizes.
pub fn change(a: &ResourceRequirements, b: &ResourceRequirements) -> Change {
    let amount = |side: &Option<BTreeMap<String, Raw>>, name: &str| {
        side.as_ref().and_then(|side| side.get(name)).and_then(|raw| Quantity::try_from(raw).ok())
    };
    let differs = |name: &str| {
        amount(&a.requests, name).unwrap_or_default() != amount(&b.requests, name).unwrap_or_default()
            || amount(&a.limits, name).unwrap_or_default() != amount(&b.limits, name).unwrap_or_default()
    };
    Change { cpu: differs(CPU), memory: differs(MEMORY) }
}

/// Says whether a container has to start anew for a change.
pub fn restarts(container: &Container, change: Change) -> bool {
    let wants = |part: Part| {
        let policy = container.resize_policy.iter().flatten().find(|policy| policy.resource_name == part.name());
        change.of(part) && policy.is_some_and(|policy| policy.restart_policy == RESTART)
    };
    wants(Part::Cpu) || wants(Part::Memory)
}

/// The sizes in force once one resource has its new size: each resource is changed by itself.
pub fn mixed(in_force: &ResourceRequirements, wanted: &ResourceRequirements, part: Part) -> ResourceRequirements {
    let mix = |old: &Option<BTreeMap<String, Raw>>, new: &Option<BTreeMap<String, Raw>>| {
        let mut side = old.clone().unwrap_or_default();
        match new.as_ref().and_then(|new| new.get(part.name())) {
            Some(amount) => side.insert(part.name().to_owned(), amount.clone()),
            None => side.remove(part.name()),
        };
        (!side.is_empty()).then_some(side)
    };
    ResourceRequirements {
        claims: in_force.claims.clone(),
        limits: mix(&in_force.limits, &wanted.limits),
        requests: mix(&in_force.requests, &wanted.requests),
    }
}

/// The limit of memory in bytes; nothing and zero are no limit.
pub fn memory_limit(own: &ResourceRequirements) -> Option<i64> {
    let limit = own.limits.as_ref().and_then(|side| side.get(MEMORY)).and_then(|raw| Quantity::try_from(raw).ok())?;
    Some(limit.value()).filter(|bytes| *bytes > 0)
}

/// Says whether the pod would hold more of the node.
pub fn grows(now: &PodSpec, then: &PodSpec) -> bool {
    let (now, then) = (resources::pod(now, Side::Requests), resources::pod(then, Side::Requests));
    [CPU, MEMORY]
        .iter()
        .any(|name| then.get(*name).copied().unwrap_or_default() > now.get(*name).copied().unwrap_or_default())
}
