//! What the API was shown of a pod, and what must never be shown.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

use super::Kind;
use super::book::Book;
use super::pod::{Life, Made, PodBook};

/// How long a change of the runtime may stay unseen, in milliseconds: the longest pause between two lists, and some.
const LAG: u64 = 30_000;

/// What was shown of a pod.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown {
    /// Succeeded or Failed, once shown.
    phase: Option<String>,
    counts: BTreeMap<String, i32>,
    /// Ends by container id: code, reason, moment.
    ends: BTreeMap<String, (i32, String, Option<i64>)>,
    /// Containers shown as ended last, by name.
    ended: BTreeMap<String, String>,
    /// Containers shown as ready, by name.
    ready: BTreeMap<String, String>,
    /// Images as wanted, by name.
    pub(super) images: BTreeMap<String, String>,
    /// The newest status.
    pub(super) last: Option<PodStatus>,
    /// Everything was said to be released.
    pub(super) done: bool,
}

impl Shown {
    /// Whether an end was shown.
    pub(super) fn is_final(&self) -> bool {
        self.phase.is_some()
    }

    /// For the second life of a static pod.
    pub(super) fn reborn(&self) -> Self {
        Self { images: self.images.clone(), ..Self::default() }
    }
}

fn all(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten()
}

fn bare(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, id)| id)
}

impl PodBook {
    /// Whether a status names a container that was made in this life.
    fn is_named_in(&self, status: &PodStatus) -> bool {
        let ids = all(status).filter_map(|container| container.container_id.as_deref());
        ids.map(bare).any(|id| self.container(id).is_some())
    }

    /// The newest status.
    pub fn status(&self) -> Option<&PodStatus> {
        self.shown.last.as_ref()
    }

    /// Whether everything was said to be released.
    pub fn is_done(&self) -> bool {
        self.shown.done
    }

    /// Whether the end of that container was shown.
    pub fn has_shown_end(&self, id: &str) -> bool {
        self.shown.ends.contains_key(id)
    }

    /// Whether an end was shown.
    pub fn is_final(&self) -> bool {
        self.shown.is_final()
    }

    /// Whether it is a static pod for which there was no room: it tries again when there is some (behaviour section 3).
    pub fn is_refused(&self) -> bool {
        let failed = self.shown.last.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Failed"));
        failed && self.plan.is_static && self.made.is_empty()
    }

    /// How the newest status differs from what the runtime has; nothing = it tells the truth.
    pub fn lie(&self) -> Option<String> {
        let status = self.shown.last.as_ref()?;
        for container in all(status) {
            let state = container.state.clone().unwrap_or_default();
            let made = container.container_id.as_deref().and_then(|id| self.container(bare(id)));
            let runs = made.is_some_and(|made| made.life == Life::Runs);
            if state.running.is_some() && !runs {
                return Some(format!("{} is shown as running, the runtime has {made:?}", container.name));
            }
            if container.ready && !runs && !matches!(made, Some(Made { life: Life::Ended { code: 0, .. }, .. })) {
                return Some(format!("{} is shown as ready, the runtime has {made:?}", container.name));
            }
            let alive = self.newest(&container.name).is_some_and(|made| made.life == Life::Runs);
            if alive && state.running.is_none() && state.waiting.is_none() {
                return Some(format!("{} runs and is shown as {state:?}", container.name));
            }
        }
        None
    }

    fn check(
        &self,
        status: &PodStatus,
        done: bool,
        at: u64,
        seen_since: Option<u64>,
        exec_trouble: bool,
    ) -> Vec<String> {
        let mut faults = Vec::new();
        let phase = status.phase.as_deref().unwrap_or_default();
        let is_final = matches!(phase, "Succeeded" | "Failed");
        if let Some(before) = &self.shown.phase
            && before != phase
        {
            faults.push(format!("phase {phase} after {before}"));
        }
        if (is_final || done) && !self.running().is_empty() {
            faults.push(format!("phase {phase}, done {done}, while {:?} run", self.running()));
        }
        if done && self.has_home() {
            faults.push("done while a sandbox is ready".to_owned());
        }
        for container in all(status) {
            let name = &container.name;
            if self.shown.counts.get(name).is_some_and(|before| *before > container.restart_count) {
                faults.push(format!(
                    "restart count of {name} went from {:?} to {}",
                    self.shown.counts.get(name),
                    container.restart_count
                ));
            }
            let state = container.state.clone().unwrap_or_default();
            let last = container.last_state.clone().unwrap_or_default();
            for end in [&state.terminated, &last.terminated].into_iter().flatten() {
                let Some(id) = end.container_id.as_deref().map(bare) else { continue };
                let told = (
                    end.exit_code,
                    end.reason.clone().unwrap_or_default(),
                    end.finished_at.as_ref().map(|t| t.0.as_second()),
                );
                if let Some(before) = self.shown.ends.get(id).filter(|before| **before != told) {
                    faults.push(format!("end of {name} ({id}) was {before:?} and is {told:?} now"));
                }
                let lost = told.1 == "ContainerStatusUnknown";
                if let Some(Made { life: Life::Ended { code, .. }, unseen: false, .. }) = self.container(id)
                    && *code != told.0
                    && !lost
                {
                    faults.push(format!("{name} ({id}) ended with {code}, {} is told", told.0));
                }
            }
            if let Some(ended) = self.shown.ended.get(name) {
                let named = |state: &k8s_openapi::api::core::v1::ContainerState| {
                    let end = state.terminated.as_ref().and_then(|end| end.container_id.as_deref());
                    end.is_some_and(|id| bare(id) == ended)
                };
                let newer = self.shown.counts.get(name).is_some_and(|count| *count < container.restart_count);
                if !named(&state) && !named(&last) && !newer && !self.restart_all {
                    faults.push(format!("the end of {name} ({ended}) is told no more: {state:?}, {last:?}"));
                }
            }
            faults.extend(self.check_life(container, at, seen_since, exec_trouble));
        }
        faults
    }

    fn check_life(
        &self,
        container: &ContainerStatus,
        at: u64,
        seen_since: Option<u64>,
        exec_trouble: bool,
    ) -> Option<String> {
        let name = &container.name;
        let id = bare(container.container_id.as_deref()?);
        let made = self.container(id)?;
        let running = container.state.as_ref().is_some_and(|state| state.running.is_some());
        if (running || (container.ready && self.plan.part(name)?.role != super::Role::Init))
            && let (Life::Ended { at: ended, .. }, Some(since)) = (made.life, seen_since)
            && at > ended.max(since) + LAG
        {
            return Some(format!("{name} ({id}) is shown as alive long after its end"));
        }
        let part = self.plan.part(name)?;
        if running && container.ready && part.probe(Kind::Readiness).is_some() && !made.good.contains(&Kind::Readiness)
        {
            return Some(format!("{name} ({id}) is shown as ready, no probe said so"));
        }
        let started = container.started.unwrap_or(false);
        if running && started && part.probe(Kind::Startup).is_some() && !made.good.contains(&Kind::Startup) {
            return Some(format!("{name} ({id}) is shown as started, no probe said so"));
        }
        let was_ready = self.shown.ready.get(name).is_some_and(|before| before == id);
        let excused = self.ends() || exec_trouble || made.bad.contains(&Kind::Readiness);
        if was_ready && !container.ready && made.life == Life::Runs && running && !excused {
            return Some(format!("{name} ({id}) is shown as ready no more, and nothing happened"));
        }
        None
    }

    fn take(&mut self, status: &PodStatus, done: bool) {
        let refused = self.plan.is_static && self.made.is_empty();
        let phase = status.phase.as_deref().filter(|phase| matches!(*phase, "Succeeded" | "Failed"));
        if let Some(phase) = phase.filter(|_| !refused) {
            self.shown.phase.get_or_insert_with(|| phase.to_owned());
        }
        for container in all(status) {
            let name = container.name.clone();
            self.shown.counts.insert(name.clone(), container.restart_count);
            let state = container.state.clone().unwrap_or_default();
            let last = container.last_state.clone().unwrap_or_default();
            for end in [&state.terminated, &last.terminated].into_iter().flatten() {
                if let Some(id) = end.container_id.as_deref().map(bare) {
                    let told = (
                        end.exit_code,
                        end.reason.clone().unwrap_or_default(),
                        end.finished_at.as_ref().map(|t| t.0.as_second()),
                    );
                    self.shown.ends.insert(id.to_owned(), told);
                }
            }
            self.shown.ended.remove(&name);
            if let Some(id) = state.terminated.as_ref().and_then(|end| end.container_id.as_deref()) {
                self.shown.ended.insert(name.clone(), bare(id).to_owned());
            }
            self.shown.ready.remove(&name);
            if container.ready
                && let Some(id) = container.container_id.as_deref()
            {
                self.shown.ready.insert(name, bare(id).to_owned());
            }
        }
        self.shown.done |= done;
        self.shown.last = Some(status.clone());
    }
}

impl Book {
    /// A status was shown, with what it says of the pod's release.
    pub fn show(&mut self, uid: &str, status: &PodStatus, done: bool, at: u64) {
        let (since, exec_trouble) = (self.sees_since, self.exec_trouble);
        let Some(pod) = self.pods.get_mut(uid) else { return };
        // That everything is released is the last word of a life, and one that names its containers is of that life, too.
        if !done && !pod.is_named_in(status) {
            pod.reborn_if_due();
        }
        let faults = pod.check(status, done, at, since, exec_trouble);
        pod.take(status, done);
        faults.into_iter().for_each(|text| self.fault(format!("{uid}: {text}")));
    }
}
