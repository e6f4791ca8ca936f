//! Sums of requests and limits and what the kernel is told: cpu shares and quota, memory limits, OOM scores.
//! All maths in integers: thousandths of a cpu and bytes.

mod actual;
mod oom;
mod swap;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Raw;

use crate::qos::Qos;
use crate::quantity::Quantity;
use crate::restart::is_sidecar;

pub use actual::Actual;
pub use oom::oom_score_adj;
pub use swap::{NodeSwap, may_swap, swap_limit};

/// Resource name of processors.
pub const CPU: &str = "cpu";
/// Resource name of memory.
pub const MEMORY: &str = "memory";
/// The least cpu weight the kernel takes on cgroup v1.
pub const SHARES_MIN: i64 = 2;
/// The highest.
pub const SHARES_MAX: i64 = 262_144;
/// The least quota the kernel takes, in microseconds.
pub const QUOTA_MIN: i64 = 1_000;
/// The usual period, in microseconds.
pub const PERIOD: i64 = 100_000;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// Parses amounts; ones that cannot be read are left out (validation names them).
pub fn amounts(raw: Option<&BTreeMap<String, Raw>>) -> Amounts {
    raw.into_iter().flatten().filter_map(|(name, raw)| Some((name.clone(), Quantity::try_from(raw).ok()?))).collect()
}

/// Adds `more` to `sum`, name by name.
pub fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        sum.entry(name.clone()).and_modify(|present| *present = present.plus(amount)).or_insert(*amount);
    }
}

fn raise(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        sum.entry(name.clone()).and_modify(|present| *present = (*present).max(*amount)).or_insert(*amount);
    }
}

/// Which side of the resources is summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What is set aside.
    Requests,
    /// What bounds.
    Limits,
}

impl Side {
    fn of(self, resources: Option<&ResourceRequirements>) -> Amounts {
        let resources = resources.map(|resources| match self {
            Self::Requests => &resources.requests,
            Self::Limits => &resources.limits,
        });
        amounts(resources.and_then(Option::as_ref))
    }
}

/// Returns what one container asks for or is bound to.
pub fn of_container(container: &Container, side: Side) -> Amounts {
    side.of(container.resources.as_ref())
}

/// Says whether a resource can be asked for by a pod as a whole.
pub fn is_pod_level(name: &str) -> bool {
    name == CPU || name == MEMORY || name.starts_with("hugepages-")
}

/// Sums the containers of a pod: app containers and sidecars add up; a plain init container counts with the sidecars that
/// run beside it, where that is more.
pub fn of_containers(spec: &PodSpec, side: Side) -> Amounts {
    let mut sum = Amounts::new();
    for container in &spec.containers {
        add(&mut sum, &of_container(container, side));
    }
    let mut sidecars = Amounts::new();
    let mut init = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let mut own = of_container(container, side);
        if is_sidecar(container) {
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            own.clone_from(&sidecars);
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut init, &own);
    }
    raise(&mut sum, &init);
    sum
}

/// Sums a pod without its overhead. Cpu, memory and huge pages set on the pod itself take the place of the containers' sum.
pub fn pod(spec: &PodSpec, side: Side) -> Amounts {
    let mut sum = of_containers(spec, side);
    sum.extend(side.of(spec.resources.as_ref()).into_iter().filter(|(name, _)| is_pod_level(name)));
    sum
}

/// Sums a pod with the overhead of its runtime class. A limit that is not there stays so: overhead alone is no limit.
pub fn pod_with_overhead(spec: &PodSpec, side: Side) -> Amounts {
    let mut sum = pod(spec, side);
    for (name, amount) in amounts(spec.overhead.as_ref()) {
        match side {
            Side::Requests => add(&mut sum, &Amounts::from([(name, amount)])),
            Side::Limits => {
                sum.entry(name).and_modify(|present| *present = present.plus(&amount));
            }
        }
    }
    sum
}

/// How the node limits cpu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuPolicy {
    /// Whether limits become quotas (`cpuCFSQuota`).
    pub quota: bool,
    /// The period in microseconds (`cpuCFSQuotaPeriod`).
    pub period: i64,
}

impl Default for CpuPolicy {
    fn default() -> Self {
        Self { quota: true, period: PERIOD }
    }
}

/// What a runtime is told; zero means "not set".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinuxResources {
    /// Weight.
    pub cpu_shares: i64,
    /// Microseconds per period.
    pub cpu_quota: i64,
    /// Period in microseconds.
    pub cpu_period: i64,
    /// Bytes.
    pub memory_limit: i64,
}

/// Converts thousandths of a cpu to a weight.
pub fn cpu_shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX)
}

/// Converts thousandths of a cpu to microseconds per period; zero stays "no quota".
pub fn cpu_quota(milli: i64, period: i64) -> i64 {
    if milli == 0 { 0 } else { (milli.saturating_mul(period) / 1000).max(QUOTA_MIN) }
}

fn linux(requests: &Amounts, limits: &Amounts, policy: CpuPolicy) -> LinuxResources {
    let limit = limits.get(CPU).map_or(0, Quantity::milli_value);
    let mut out = LinuxResources {
        cpu_shares: cpu_shares(requests.get(CPU).map_or(limit, Quantity::milli_value)),
        memory_limit: limits.get(MEMORY).map_or(0, Quantity::value),
        ..LinuxResources::default()
    };
    if policy.quota {
        out.cpu_quota = cpu_quota(limit, policy.period);
        out.cpu_period = policy.period;
    }
    out
}

/// Returns what the runtime is told of one container. A container without a limit of its own is bound like the whole pod.
pub fn container_linux(spec: &PodSpec, container: &Container, policy: CpuPolicy) -> LinuxResources {
    let mut limits = of_container(container, Side::Limits);
    for (name, limit) in Side::Limits.of(spec.resources.as_ref()) {
        let own = limits.get(&name).is_some_and(|own| !own.is_zero());
        if !own && (name == CPU || name == MEMORY) {
            limits.insert(name, limit);
        }
    }
    linux(&of_container(container, Side::Requests), &limits, policy)
}

/// Returns what the runtime is told of the whole pod; the overhead travels apart.
pub fn sandbox_linux(spec: &PodSpec, policy: CpuPolicy) -> LinuxResources {
    linux(&pod(spec, Side::Requests), &pod(spec, Side::Limits), policy)
}

/// Returns what the runtime is told of the runtime class's overhead; all zero without one.
pub fn overhead_linux(spec: &PodSpec, policy: CpuPolicy) -> LinuxResources {
    let overhead = amounts(spec.overhead.as_ref());
    if overhead.is_empty() { LinuxResources::default() } else { linux(&overhead, &overhead, policy) }
}

/// Limits of a pod's own cgroup; `None` leaves a bound open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodCgroup {
    /// Weight.
    pub cpu_shares: i64,
    /// Microseconds per period.
    pub cpu_quota: Option<i64>,
    /// Period in microseconds.
    pub cpu_period: i64,
    /// Bytes.
    pub memory_limit: Option<i64>,
}

/// Computes the limits of a pod's cgroup: a bound holds only where every container (or the pod itself) is bound.
pub fn pod_cgroup(spec: &PodSpec, class: Qos, policy: CpuPolicy) -> PodCgroup {
    let requests = pod_with_overhead(spec, Side::Requests);
    let limits = pod_with_overhead(spec, Side::Limits);
    let milli = |amounts: &Amounts| amounts.get(CPU).map(Quantity::milli_value);
    let open = PodCgroup { cpu_shares: SHARES_MIN, cpu_quota: None, cpu_period: policy.period, memory_limit: None };
    if class == Qos::BestEffort {
        return open;
    }
    let own = Side::Limits.of(spec.resources.as_ref());
    let bound =
        |name: &str| {
            own.contains_key(name)
                || spec.init_containers.iter().flatten().chain(&spec.containers).all(|container| {
                    of_container(container, Side::Limits).get(name).is_some_and(|limit| !limit.is_zero())
                })
        };
    let quota = milli(&limits).filter(|limit| policy.quota && *limit > 0 && bound(CPU));
    PodCgroup {
        cpu_shares: cpu_shares(milli(&requests).or_else(|| milli(&limits)).unwrap_or(0)),
        cpu_quota: quota.map(|limit| cpu_quota(limit, policy.period)),
        memory_limit: limits.get(MEMORY).map(Quantity::value).filter(|bytes| *bytes > 0 && bound(MEMORY)),
        ..open
    }
}
