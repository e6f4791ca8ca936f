//! Probes of one pod: says which of its containers run, and takes over what the probes say of them as facts, so that it
//! outlives the agent.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use longshore_api::podstatus::ProbeFact;

use super::observed::{Instance, InstanceState};
use super::plan::Probed;
use super::wanted;
use super::worker::{Stage, Worker};
use crate::model::ContainerId;
use crate::probe::{Known, ProbeKind, Running};

impl Worker {
    /// Tells the probes what runs and notes what they say; returns whether that is news.
    pub(super) fn probe(&mut self) -> bool {
        if !self.wanted.has_probes {
            return false;
        }
        let probes = self.cx.options.probes.clone();
        let uid = &self.desired.uid;
        if self.stage == Stage::Ended {
            probes.forget(uid);
            return false;
        }
        let mut news = false;
        // Before the hook is through a container does not count as started.
        let through = self.running().filter(|c| !self.owes_hook(c));
        let running: Vec<Running> = through.map(|c| self.probe_request(c)).collect();
        probes.set(&self.desired, &self.address(), &running, self.stage != Stage::Sync);
        for container in running {
            let Some(verdict) = probes.verdict(&self.desired.uid, &container.id) else { continue };
            let facts = self.facts.containers.get_mut(&container.name);
            let Some(facts) = facts.and_then(|c| c.instance_mut(&container.id)) else { continue };
            if (facts.started, facts.ready) != (verdict.started, verdict.ready) {
                (facts.started, facts.ready) = (verdict.started, verdict.ready);
                self.unsaved = true;
                news = true;
            }
        }
        news
    }

    fn running(&self) -> impl Iterator<Item = &Instance> {
        self.observed.containers.iter().filter(|c| c.state == InstanceState::Running)
    }

    fn probe_request(&self, instance: &Instance) -> Running {
        let facts = self.facts.containers.get(&instance.name).and_then(|c| c.instance(&instance.id));
        Running {
            id: instance.id.clone(),
            name: instance.name.clone(),
            started_at: Some(instance.started_at)
                .filter(|nanos| *nanos > 0)
                .and_then(|nanos| Timestamp::from_nanosecond(i128::from(nanos)).ok()),
            known: facts.map_or_else(Known::default, |f| Known { started: f.started, ready: f.ready }),
        }
    }

    /// The address that probes and hooks of the pod go to.
    pub(super) fn address(&self) -> String {
        if self.wanted.host_network {
            return self.cx.options.host_ips.load().first().cloned().unwrap_or_default();
        }
        self.facts.ips.first().cloned().unwrap_or_default()
    }

    /// For the plan: which containers have started and which must be killed.
    pub(super) fn probed(&self) -> BTreeMap<ContainerId, Probed> {
        if !self.wanted.has_probes {
            return BTreeMap::new();
        }
        let probes = &self.cx.options.probes;
        self.running()
            .map(|c| {
                // The verdict of this moment: the facts follow when the status is composed, after the plan.
                let probed = match probes.verdict(&self.desired.uid, &c.id) {
                    Some(verdict) => Probed { started: verdict.started, failed: verdict.failed },
                    None => Probed { started: self.probe_request(c).known.started, failed: None },
                };
                (c.id.clone(), probed)
            })
            .collect()
    }

    /// For the status: which containers have started and are ready.
    pub(super) fn probe_facts(&self) -> BTreeMap<String, ProbeFact> {
        let mut facts = BTreeMap::new();
        for instance in self.running() {
            let known = self.probe_request(instance).known;
            // Newest first: an older instance that still runs says nothing of the present one.
            facts.entry(instance.name.clone()).or_insert_with(|| ProbeFact {
                started: Some(known.started),
                ready: Some(known.ready),
                hook_pending: self.owes_hook(instance),
            });
        }
        facts
    }
}

/// What counts of a container that is seen running for the first time: what another agent reported of it, else the state
/// before any probe.
pub(super) fn first_known(pod: &Pod, instance: &Instance) -> Known {
    if let Some(reported) = reported(pod, instance) {
        return Known { started: reported.started.unwrap_or(false), ready: reported.ready };
    }
    let has = |kind: ProbeKind| wanted::find(pod, &instance.name).is_some_and(|(c, _)| kind.of(c).is_some());
    Known { started: !has(ProbeKind::Startup), ready: !has(ProbeKind::Readiness) }
}

/// What the API shows of this very instance.
fn reported<'a>(pod: &'a Pod, instance: &Instance) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let id = |status: &ContainerStatus| {
        status
            .container_id
            .as_deref()
            .and_then(|id| id.split_once("://"))
            .is_some_and(|(_, id)| id == instance.id.as_str())
    };
    // Before it ran there was nothing to say of it: a start that was tried again must not inherit that.
    let ran = |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.running.is_some());
    all.filter(|status| status.name == instance.name).find(|status| id(status) && ran(status))
}
