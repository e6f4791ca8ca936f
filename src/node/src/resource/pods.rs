//! Makes and removes pod groups. Where the process lacks the right, it says so once and goes on: containers then run in
//! groups that the runtime makes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PodSpec;
use longshore_api::qos::{self, Qos};
use longshore_api::resize::{Bound, Group};
use longshore_api::resources::{self, CPU, CpuPolicy, PodCgroup, Side};
use longshore_host::cgroup::{CgroupError, Cgroups, Limits};
use parking_lot::Mutex;

use super::{CgroupDriver, CgroupNames};
use crate::model::{ContainerId, DesiredPod, PodUid};
use crate::pod::{Failure, PodBounds, PodCgroups};

/// Reason of a bound that cannot be moved.
const RESIZE_ERROR: &str = "ResizeError";
/// Least weight, for pods that asked for nothing.
const LEAST_SHARES: i64 = 2;
/// Pauses between tries to remove a group whose last process is on its way out.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(160);

/// The tree of pod groups.
#[derive(Debug)]
pub struct CgroupTree {
    groups: Cgroups,
    names: CgroupNames,
    cpu: CpuPolicy,
    /// `podPidsLimit`; 0 or less = no bound.
    pids: i64,
    denied: AtomicBool,
    /// What burstable pods asked for, in thousandths of a cpu: together they weigh as much.
    asked: Mutex<BTreeMap<PodUid, i64>>,
}

impl CgroupTree {
    /// Works on `groups` with the given names and CPU rule.
    pub fn new(groups: Cgroups, names: CgroupNames, cpu: CpuPolicy, pids: i64) -> Self {
        Self { groups, names, cpu, pids, denied: AtomicBool::new(false), asked: Mutex::default() }
    }

    /// The naming scheme.
    pub fn names(&self) -> &CgroupNames {
        &self.names
    }

    /// Makes the groups above all pods.
    pub fn prepare(&self) -> Result<(), CgroupError> {
        if !self.is_ours() {
            return Ok(());
        }
        let made = self.make_top();
        match made {
            Err(error) if error.is_denied() => {
                self.note_denied(&error);
                Ok(())
            }
            other => other,
        }
    }

    fn make_top(&self) -> Result<(), CgroupError> {
        self.groups.create(&self.names.pods())?;
        for class in [Qos::Burstable, Qos::BestEffort] {
            self.groups.create(&self.names.class(class))?;
        }
        let limits = Limits { cpu_shares: Some(LEAST_SHARES), ..Limits::default() };
        self.groups.limit(&self.names.class(Qos::BestEffort), &limits)
    }

    /// Bounds all pods together to what the machine has beyond what is kept for others: thousandths of a cpu, bytes.
    /// Returns whether there is a group to bound.
    pub fn enforce(&self, cpu_milli: i64, memory: i64) -> Result<bool, CgroupError> {
        if !self.is_ours() {
            return Ok(false);
        }
        let limits = Limits {
            cpu_shares: Some(resources::cpu_shares(cpu_milli)),
            memory: (memory > 0).then_some(memory),
            ..Limits::default()
        };
        match self.groups.limit(&self.names.pods(), &limits) {
            Ok(()) => Ok(true),
            Err(error) if error.is_denied() => {
                self.note_denied(&error);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Notes what a burstable pod asks for, or that it has gone, and weighs their class anew.
    fn weigh(&self, uid: &PodUid, asked: Option<i64>) {
        let mut all = self.asked.lock();
        let before = match asked {
            Some(milli) => all.insert(uid.clone(), milli),
            None => all.remove(uid),
        };
        if before == asked {
            return;
        }
        let sum = all.values().fold(0_i64, |sum, milli| sum.saturating_add(*milli));
        let limits = Limits { cpu_shares: Some(resources::cpu_shares(sum)), ..Limits::default() };
        // Under the lock: of two changes the later one is written last.
        if let Err(error) = self.groups.limit(&self.names.class(Qos::Burstable), &limits)
            && !error.is_denied()
        {
            tracing::warn!(%error, "burstable pods cannot be weighed");
        }
    }

    /// Uids that have a group here.
    pub fn uids(&self) -> Vec<(PodUid, Qos)> {
        if !self.is_ours() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for class in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
            for child in self.groups.children(&self.names.class(class)) {
                found.extend(self.names.uid_of(&child).map(|uid| (PodUid::from(uid), class)));
            }
        }
        found
    }

    /// Removes the group of a pod that is not known any more.
    pub fn remove_orphan(&self, uid: &PodUid, class: Qos) -> Result<(), CgroupError> {
        if !self.is_ours() {
            return Ok(());
        }
        self.groups.remove(&self.names.pod(uid.as_str(), class))
    }

    /// With systemd the slices belong to it: they come and go with the scopes that the runtime starts in them.
    fn is_ours(&self) -> bool {
        self.names.per_qos() && self.names.driver() == CgroupDriver::Cgroupfs
    }

    fn wanted(&self, pod: &DesiredPod, class: Qos) -> PodCgroup {
        let empty = PodSpec::default();
        resources::pod_cgroup(pod.pod.spec.as_ref().unwrap_or(&empty), class, self.cpu)
    }

    fn make(&self, group: &str, pod: &DesiredPod, class: Qos) -> Result<(), CgroupError> {
        self.groups.create(group)?;
        let wanted = self.wanted(pod, class);
        self.groups.limit(
            group,
            &Limits {
                cpu_shares: Some(wanted.cpu_shares),
                cpu_quota: wanted.cpu_quota,
                cpu_period: wanted.cpu_quota.map(|_| wanted.cpu_period),
                memory: wanted.memory_limit,
                pids: (self.pids > 0).then_some(self.pids),
            },
        )
    }

    fn note_denied(&self, error: &CgroupError) {
        if !self.denied.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "no right to make control groups: pods run without limits of their own; run as root, or delegate the group named by --cgroup-root");
        }
    }
}

#[async_trait]
impl PodCgroups for CgroupTree {
    async fn ensure(&self, pod: &DesiredPod, moving: bool) -> Result<(), Failure> {
        if !self.is_ours() {
            return Ok(());
        }
        let class = qos::of(&pod.pod);
        let group = self.names.pod(pod.uid.as_str(), class);
        let made = if moving && self.groups.exists(&group) { Ok(()) } else { self.make(&group, pod, class) };
        match made {
            Ok(()) => {
                if class == Qos::Burstable {
                    self.weigh(&pod.uid, Some(cpu_of(pod)));
                }
                Ok(())
            }
            Err(error) if error.is_denied() => {
                self.note_denied(&error);
                Ok(())
            }
            Err(error) => Err(Failure::new(
                "FailedCreatePodContainer",
                format!("unable to ensure pod container exists: failed to create container for {group} : {error}"),
            )),
        }
    }

    fn bounds(&self, pod: &DesiredPod) -> Result<Option<PodBounds>, Failure> {
        let class = qos::of(&pod.pod);
        let group = self.names.pod(pod.uid.as_str(), class);
        if !self.is_ours() || !self.groups.exists(&group) {
            return Ok(None);
        }
        let own = self.groups.bounds(&group).map_err(|error| Failure::new(RESIZE_ERROR, error.to_string()))?;
        let wanted = self.wanted(pod, class);
        Ok(Some(PodBounds {
            now: Group {
                shares: own.cpu_shares.unwrap_or(wanted.cpu_shares),
                quota: own.cpu_quota,
                period: own.cpu_period.unwrap_or(wanted.cpu_period),
                memory: own.memory,
            },
            wanted: Group {
                shares: wanted.cpu_shares,
                quota: wanted.cpu_quota,
                period: wanted.cpu_period,
                memory: wanted.memory_limit,
            },
        }))
    }

    fn bind(&self, pod: &DesiredPod, bound: Bound) -> Result<(), Failure> {
        let class = qos::of(&pod.pod);
        let group = self.names.pod(pod.uid.as_str(), class);
        let open = |bound: Option<i64>| Some(bound.unwrap_or(-1));
        let limits = match bound {
            Bound::Shares(shares) => Limits { cpu_shares: Some(shares), ..Limits::default() },
            Bound::Quota(quota) => {
                Limits { cpu_quota: open(quota), cpu_period: Some(self.cpu.period), ..Limits::default() }
            }
            Bound::Memory(bytes) => Limits { memory: open(bytes), ..Limits::default() },
        };
        match self.groups.limit(&group, &limits) {
            Ok(()) => {}
            Err(error) if error.is_denied() => self.note_denied(&error),
            Err(error) => {
                // With version 1 no group may have less time than one below it, and what a start that was cut off has left
                // behind would hold the pod's for ever. The next try finds it gone.
                let empty = self.groups.remove_empty_below(&group);
                tracing::debug!(pod = %pod.key, empty, "groups without processes were removed");
                return Err(Failure::new(RESIZE_ERROR, error.to_string()));
            }
        }
        if class == Qos::Burstable && matches!(bound, Bound::Shares(_)) {
            self.weigh(&pod.uid, Some(cpu_of(pod)));
        }
        Ok(())
    }

    fn memory_usage(&self, pod: &DesiredPod) -> Option<i64> {
        self.groups.memory_usage(&self.names.pod(pod.uid.as_str(), qos::of(&pod.pod)))
    }

    async fn clear(&self, pod: &DesiredPod, container: &ContainerId) {
        if !self.is_ours() {
            return;
        }
        let group = format!("{}/{container}", self.names.pod(pod.uid.as_str(), qos::of(&pod.pod)));
        if self.groups.exists(&group)
            && let Err(error) = self.groups.remove(&group)
        {
            tracing::warn!(pod = %pod.key, %container, %error, "what is left of a container cannot be removed");
        }
    }

    async fn remove(&self, pod: &DesiredPod) -> Result<(), Failure> {
        if !self.is_ours() {
            return Ok(());
        }
        let group = self.names.pod(pod.uid.as_str(), qos::of(&pod.pod));
        self.weigh(&pod.uid, None);
        // The runtime has answered, but the kernel may still be taking the last process out of the group.
        let mut pause = FIRST_PAUSE;
        loop {
            match self.groups.remove(&group) {
                Ok(()) => return Ok(()),
                Err(error) if error.is_denied() => return Ok(()),
                Err(_) if pause <= LAST_PAUSE => tokio::time::sleep(pause).await,
                Err(error) => return Err(Failure::new("FailedKillPod", error.to_string())),
            }
            pause *= 2;
        }
    }
}

/// Thousandths of a cpu that a pod asks for.
fn cpu_of(pod: &DesiredPod) -> i64 {
    let requests = pod.pod.spec.as_ref().map(|spec| resources::pod_with_overhead(spec, Side::Requests));
    requests.and_then(|requests| Some(requests.get(CPU)?.milli_value())).unwrap_or(0)
}

/// For machines without control groups: containers run in what the runtime gives them.
#[derive(Debug)]
pub struct NoCgroups;

#[async_trait]
impl PodCgroups for NoCgroups {
    async fn ensure(&self, _pod: &DesiredPod, _moving: bool) -> Result<(), Failure> {
        Ok(())
    }

    fn bounds(&self, _pod: &DesiredPod) -> Result<Option<PodBounds>, Failure> {
        Ok(None)
    }

    fn bind(&self, _pod: &DesiredPod, _bound: Bound) -> Result<(), Failure> {
        Ok(())
    }

    fn memory_usage(&self, _pod: &DesiredPod) -> Option<i64> {
        None
    }

    async fn clear(&self, _pod: &DesiredPod, _container: &ContainerId) {}

    async fn remove(&self, _pod: &DesiredPod) -> Result<(), Failure> {
        Ok(())
    }
}
