//! Shows a pod: fills the composer's input from what was observed and from the facts, and hands the status on when it
//! differs from the one before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use longshore_api::{conditions, podstatus, restart};

use super::observed::{Instance, InstanceState};
use super::plan::{HeldBack, later};
use super::ports::StatusUpdate;
use super::signal;
use super::worker::{Stage, Worker};
use crate::journal::Verdict;

/// How long a container's end is shown before its status says `CrashLoopBackOff`. The stock agent shows the end until its
/// next look at the pod; a fixed time keeps exit code and reason in sight and still names the loop soon.
const END_SHOWN_FOR: Duration = Duration::from_secs(8);

/// From when the status of a container that is held back says so; never later than shortly before its next start.
pub(super) fn crash_loop_shown_from(held: &HeldBack) -> Timestamp {
    later(held.since, END_SHOWN_FOR.min(held.delay * 4 / 5))
}

impl Worker {
    /// Computes the status and hands it on if it differs; `done` says that nothing is left of the pod.
    pub(super) fn publish(&mut self, done: bool) {
        self.probe();
        self.shown.set_notes(self.notes());
        let status = match &self.facts.status {
            // An end is told once and stands, also after a restart of the agent.
            Some(last) if self.facts.closed => Arc::new(PodStatus::clone(last)),
            Some(_) | None => Arc::new(self.compose()),
        };
        if self.stage == Stage::Ended && !self.facts.closed {
            self.facts.closed = true;
            self.unsaved = true;
        }
        if let Some((before, was_done)) = &self.published
            && **before == *status
            && (*was_done || !done)
        {
            if done {
                self.hand_on(status, done);
            }
            return;
        }
        self.shown.set_status(Arc::clone(&status));
        if self.facts.status.as_deref() != Some(&*status) {
            self.facts.status = Some(Box::new((*status).clone()));
            self.unsaved = true;
            self.save();
        }
        self.published = Some((Arc::clone(&status), done));
        self.hand_on(status, done);
    }

    fn hand_on(&self, status: Arc<PodStatus>, done: bool) {
        let update = StatusUpdate {
            uid: self.desired.uid.clone(),
            key: self.desired.key.clone(),
            mirror: self.shown.mirror(),
            status,
            done,
        };
        self.cx.options.statuses.put(&self.desired, update);
    }

    fn compose(&self) -> PodStatus {
        let pod = &*self.desired.pod;
        let now = self.now();
        // A static pod is not called ended merely because it was taken away; what ended by itself is.
        let is_static = self.desired.source.is_static() && (self.facts.end.is_none() || self.facts.left);
        if let Some(Verdict::Rejected { reason, message }) = &self.facts.admission {
            let start = self.facts.start_time.unwrap_or(now);
            return podstatus::rejected(pod, reason, message, start);
        }
        let containers: Vec<podstatus::ContainerFact> =
            self.observed.containers.iter().map(|c| self.fact(c, now)).collect();
        let failures = self.failures(now);
        let probes = self.probe_facts();
        let sandbox = self.observed.newest_sandbox();
        let sandbox_ready = self.observed.sandboxes.iter().filter(|s| s.ready).count() == 1
            && sandbox.is_some_and(|s| s.ready && (self.wanted.host_network || !s.ips.is_empty()));
        let down = self.stage != Stage::Sync
            && !self.observed.has_live_containers()
            && self.observed.sandboxes.iter().all(|s| !s.ready);
        let verdict = self.facts.end.as_ref().and_then(|end| {
            Some(podstatus::Verdict {
                reason: end.reason.clone()?,
                message: end.message.clone().unwrap_or_default(),
                disruption: end.disruption,
            })
        });
        let host_ips = self.cx.options.host_ips.load();
        let resize = self.resize_shown();
        let mut status = podstatus::compose(&podstatus::Input {
            pod,
            previous: self.facts.status.as_deref(),
            containers: &containers,
            failures: &failures,
            probes: &probes,
            sandbox_ready,
            pod_ips: &self.facts.ips,
            host_ips: host_ips.as_slice(),
            runtime_name: &self.cx.options.runtime_name,
            is_static,
            is_terminal: down,
            may_run: !down,
            verdict: verdict.as_ref(),
            recursive_read_only: self.cx.options.prepare.recursive_read_only(&self.desired),
            resize: &resize,
            now,
        });
        if status.start_time.is_none() {
            status.start_time = self.facts.start_time.map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time);
        }
        self.show_restart_of_all(&mut status, now);
        self.show_what_holds_it_up(&mut status, now);
        self.keep_counts(&mut status);
        podstatus::bound_messages(pod, &mut status);
        if self.stage == Stage::Ended { podstatus::finish(pod, status, is_static) } else { status }
    }

    fn fact(&self, instance: &Instance, now: Timestamp) -> podstatus::ContainerFact {
        let known = self.facts.containers.get(&instance.name).and_then(|c| c.instance(&instance.id));
        let stop_signal = instance.stop_signal.filter(|_| self.cx.options.stop_signals).and_then(signal::shown);
        let in_force = known.and_then(|k| k.in_force.clone());
        podstatus::ContainerFact { in_force, stop_signal, ..fact(instance, now) }
    }

    /// A restart that was told once was one, also when its container was taken away before it ran.
    fn keep_counts(&self, status: &mut PodStatus) {
        let Some(before) = &self.facts.status else { return };
        let lists = [&before.init_container_statuses, &before.container_statuses];
        let told: BTreeMap<&str, i32> =
            lists.into_iter().flatten().flatten().map(|told| (told.name.as_str(), told.restart_count)).collect();
        let now = [&mut status.init_container_statuses, &mut status.container_statuses];
        for container in now.into_iter().flatten().flatten() {
            let told = told.get(container.name.as_str()).copied().unwrap_or(0);
            container.restart_count = container.restart_count.max(told);
        }
    }

    /// Pods with a rule that restarts them wholly say whether that is under way.
    fn show_restart_of_all(&self, status: &mut PodStatus, now: Timestamp) {
        if !self.wanted.may_restart_all() {
            return;
        }
        let mut shown = [conditions::all_restarting(self.restarts_all)];
        let before = self.facts.status.as_ref().and_then(|status| status.conditions.as_deref());
        let api = self.desired.pod.status.as_ref().and_then(|status| status.conditions.as_deref());
        let known = before.or(api).unwrap_or_default();
        conditions::stamp(&mut shown, known, status.observed_generation, now);
        status.conditions.get_or_insert_default().extend(shown);
    }

    /// Containers that wait for the pod as a whole say what it waits for, once that has lasted.
    fn show_what_holds_it_up(&self, status: &mut PodStatus, now: Timestamp) {
        let Some(message) = self.stuck_message(now) else { return };
        let lists = [&mut status.init_container_statuses, &mut status.container_statuses];
        let states = lists.into_iter().flatten().flatten().filter_map(|container| container.state.as_mut());
        for waiting in states.filter_map(|state| state.waiting.as_mut()).filter(|waiting| waiting.message.is_none()) {
            if matches!(waiting.reason.as_deref(), Some("ContainerCreating" | "PodInitializing")) {
                waiting.message = Some(message.to_owned());
            }
        }
    }

    /// Why containers wait: failed tries, and restart delays that have lasted a while.
    fn failures(&self, now: Timestamp) -> BTreeMap<String, podstatus::Waiting> {
        let mut failures: BTreeMap<String, podstatus::Waiting> = self
            .waiting
            .iter()
            .map(|(name, w)| {
                (name.clone(), podstatus::Waiting { reason: w.reason.clone(), message: w.message.clone() })
            })
            .collect();
        let key = &self.desired.key;
        let pod = restart::pod_text(&key.name, &key.namespace, self.desired.uid.as_str());
        for held in self.held_back.iter().filter(|held| crash_loop_shown_from(held) <= now) {
            let message = restart::crash_loop_message(held.delay, &held.name, &pod);
            failures.insert(held.name.clone(), podstatus::Waiting { reason: "CrashLoopBackOff".to_owned(), message });
        }
        failures
    }
}

fn moment(nanos: i64) -> Option<Timestamp> {
    if nanos <= 0 { None } else { Timestamp::from_nanosecond(i128::from(nanos)).ok() }
}

fn fact(instance: &Instance, now: Timestamp) -> podstatus::ContainerFact {
    let state = match instance.state {
        InstanceState::Created => podstatus::ContainerFactState::Created,
        InstanceState::Running => {
            podstatus::ContainerFactState::Running { started_at: moment(instance.started_at).unwrap_or(now) }
        }
        InstanceState::Exited => podstatus::ContainerFactState::Exited {
            started_at: moment(instance.started_at),
            finished_at: moment(instance.finished_at),
            exit_code: instance.exit_code,
            reason: instance.reason.clone(),
            message: instance.message.clone(),
        },
        InstanceState::Unknown => podstatus::ContainerFactState::Unknown,
    };
    podstatus::ContainerFact {
        name: instance.name.clone(),
        id: instance.id.to_string(),
        restart_count: i32::try_from(instance.attempt).unwrap_or(i32::MAX),
        created_at: moment(instance.created_at).unwrap_or(Timestamp::UNIX_EPOCH),
        state,
        image: instance.image.clone(),
        image_id: instance.image_ref.clone(),
        user: instance.user.as_ref().map(|user| podstatus::UserFact {
            uid: user.uid,
            gid: user.gid,
            groups: user.groups.clone(),
        }),
        stop_signal: None,
        in_force: None,
        actual: instance.actual,
    }
}
