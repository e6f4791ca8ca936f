//! Puts a granted size into force: the pod's group and the containers step by step, so that a cut at any point leaves what
//! the next pass finishes. What was granted is a fact before the first step; what is in force, after each.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodSpec, ResourceRequirements};
use longshore_api::resize::{self, Bound, Change, Group, Part, Sizes, Step};
use longshore_api::{conditions, podstatus};
use longshore_cri::v1;

use super::grants::{Held, Pending};
use super::observed::{Instance, InstanceState};
use super::plan::Role;
use super::wanted;
use super::worker::{Stage, Worker};
use crate::admit::INFEASIBLE;
use crate::journal::{PodFacts, ResizeFacts};
use crate::model::{ContainerId, DesiredPod};

const STARTED: &str = "ResizeStarted";
const COMPLETED: &str = "ResizeCompleted";
const FAILED: &str = "ResizeError";

/// The size that an instance is taken to have when it is first seen: what was granted if we made it, else what was in force
/// before a resize that is under way.
pub(super) fn first_size(facts: &PodFacts, pod: &Pod, name: &str, made: bool) -> Option<ResourceRequirements> {
    let (container, _) = wanted::find(pod, name)?;
    let granted = || container.resources.clone().unwrap_or_default();
    match &facts.resize {
        Some(resize) if !made => Some(resize.before.container(name).cloned().unwrap_or_else(granted)),
        Some(_) | None => Some(granted()),
    }
}

/// The sizes that another agent reported while it was resizing the pod: its spec asks for others. `None` when nothing says
/// so; then the spec holds.
pub(super) fn reported(pod: &Pod) -> Option<Sizes> {
    let status = pod.status.as_ref()?;
    let resizing =
        |c: &PodCondition| c.type_ == conditions::RESIZE_PENDING || c.type_ == conditions::RESIZE_IN_PROGRESS;
    if !status.conditions.iter().flatten().any(resizing) {
        return None;
    }
    let mut sizes = Sizes::of_pod(pod);
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    for container in all.filter(|container| container.state.as_ref().is_some_and(|state| state.running.is_some())) {
        if let (Some(own), Some(shown)) = (sizes.containers.get_mut(&container.name), &container.resources) {
            *own = ResourceRequirements { claims: None, ..shown.clone() };
        }
    }
    Some(sizes)
}

/// A running container that has not got its size yet.
struct Due {
    instance: Instance,
    change: Change,
    in_force: ResourceRequirements,
    wanted: ResourceRequirements,
    /// It has to start anew.
    restarts: bool,
}

impl Worker {
    /// Takes over what the table decided over the pod's size.
    pub(super) fn take_grant(&mut self) {
        if self.stage != Stage::Sync {
            // Who ends gets nothing more.
            return;
        }
        let Some(grant) = self.shown.grant_since(self.grant_seen) else { return };
        self.grant_seen = grant.version;
        let Some(held) = grant.held else { return };
        match self.facts.granted.clone() {
            Some(before) if before.same(&held.sizes) => {}
            Some(before) => self.granted(before, held),
            None => {
                self.facts.requests = held.requests;
                self.facts.granted = Some(held.sizes);
                self.unsaved = true;
            }
        }
        self.take_pending(grant.pending);
    }

    fn granted(&mut self, before: Sizes, held: Held) {
        let Held { sizes, requests, generation } = held;
        let changed = before.containers.keys().filter(|name| {
            let none = ResourceRequirements::default();
            let of = |own: &Sizes| own.container(name).cloned().unwrap_or_else(|| none.clone());
            resize::change(&of(&before), &of(&sizes)).any()
        });
        for name in changed {
            // Another size is another chance.
            if let Some(facts) = self.facts.containers.get_mut(name) {
                facts.backoff = None;
            }
        }
        // What was in force before the first of several resizes counts: none of them may have come far.
        let before = match self.facts.resize.take() {
            Some(resize) => resize.before,
            None => {
                self.cx.options.metrics.resizes.set_in_progress(true);
                before
            }
        };
        self.facts.resize = Some(ResizeFacts { generation, before, since: self.now(), error: None });
        self.desired.pod = sizes.apply(&self.desired.pod);
        self.facts.granted = Some(sizes);
        self.facts.requests = requests;
        self.unsaved = true;
        self.retries.remove("resize");
        let text = format!("Pod resize started: {}", self.summary(generation, None));
        self.events().normal(&self.target(), STARTED, text);
        tracing::info!(pod = %self.desired.key, uid = %self.desired.uid, "another size was granted");
    }

    fn take_pending(&mut self, pending: Option<Pending>) {
        let facts = pending.as_ref().map(|pending| pending.facts.clone());
        if facts == self.facts.pending {
            return;
        }
        if let Some(pending) = pending {
            let reason = if pending.facts.reason == INFEASIBLE { "ResizeInfeasible" } else { "ResizeDeferred" };
            let text = format!("Pod resize {}: {}", pending.facts.reason, pending.summary);
            self.events().warning(&self.target(), reason, text);
        }
        self.facts.pending = facts;
        self.unsaved = true;
    }

    /// The object with the sizes that the pod was granted: what its spec asks for may be more.
    pub(super) fn as_granted(&self, desired: DesiredPod) -> DesiredPod {
        match &self.facts.granted {
            Some(sizes) => DesiredPod { pod: sizes.apply(&desired.pod), ..desired },
            None => desired,
        }
    }

    fn summary(&self, generation: Option<i64>, error: Option<&str>) -> String {
        let empty = PodSpec::default();
        resize::summary(self.desired.pod.spec.as_ref().unwrap_or(&empty), generation.unwrap_or(0), error)
    }

    /// What the status tells of it.
    pub(super) fn resize_shown(&self) -> podstatus::Resize {
        let facts = &self.facts;
        podstatus::Resize {
            pending: facts.pending.as_ref().map(|pending| podstatus::ResizePending {
                reason: pending.reason.clone(),
                message: pending.message.clone(),
                generation: pending.generation,
            }),
            progress: facts
                .resize
                .as_ref()
                .map(|resize| podstatus::ResizeProgress { generation: resize.generation, error: resize.error.clone() }),
            in_force: facts.resize.as_ref().and_then(|resize| {
                let mut spec = self.desired.pod.spec.clone()?;
                resize.before.put_into(&mut spec);
                Some(spec)
            }),
            undecided_since: facts
                .status
                .as_ref()
                .and_then(|s| s.observed_generation)
                .filter(|_| self.shown.undecided()),
        }
    }

    /// Running containers that have to start anew in their size.
    pub(super) fn resized(&self) -> BTreeSet<ContainerId> {
        self.due().into_iter().filter(|due| due.restarts).map(|due| due.instance.id).collect()
    }

    fn due(&self) -> Vec<Due> {
        let (Some(_), Some(sandbox)) = (&self.facts.resize, self.observed.newest_sandbox()) else { return Vec::new() };
        let spec = self.desired.pod.spec.iter();
        let all = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
        all.filter_map(|container| {
            let name = &container.name;
            let instance = self.observed.newest_in(name, &sandbox.id)?;
            let known = self.facts.containers.get(name)?.instance(&instance.id)?.in_force.clone();
            let in_force = known.or_else(|| first_size(&self.facts, &self.desired.pod, name, false))?;
            let wanted = container.resources.clone().unwrap_or_default();
            let change = resize::change(&in_force, &wanted);
            let role = wanted::role(&self.desired.pod, name)?;
            let restarts = role != Role::Init && resize::restarts(container, change);
            let runs = instance.state == InstanceState::Running && change.any();
            runs.then(|| Due { instance: instance.clone(), change, in_force, wanted, restarts })
        })
        .collect()
    }

    /// Takes the steps that can be taken now of a resize under way. What has to start anew follows with the plan, and the
    /// rest after that.
    pub(super) async fn put_into_force(&mut self) {
        let Some(resize) = &self.facts.resize else { return };
        if self.stage != Stage::Sync {
            return;
        }
        let changed = resize.before.change(&Sizes::of_pod(&self.desired.pod));
        let (again, due): (Vec<Due>, Vec<Due>) = self.due().into_iter().partition(|due| due.restarts);
        let bounds = match self.cx.options.cgroups.bounds(&self.desired) {
            Ok(bounds) => bounds,
            Err(failure) => return self.resize_failed(failure.message),
        };
        let may_shrink = again.is_empty();
        let wanted = bounds.map_or(Group { shares: 0, quota: None, period: 0, memory: None }, |bounds| bounds.wanted);
        let own: Vec<(String, Change)> = due.iter().map(|d| (d.instance.name.clone(), d.change)).collect();
        let steps = resize::steps(bounds.map(|bounds| bounds.now).as_ref(), &wanted, changed, &own, may_shrink);
        if !steps.is_empty() {
            if let Some(message) = self.too_small(&steps, &due).await {
                return self.resize_failed(message);
            }
            self.save_and_wait().await;
        }
        let mut group = bounds.map(|bounds| bounds.now);
        let mut due = due;
        for step in steps {
            let result = match step {
                Step::Group(bound) => self.bind(&mut group, bound).await,
                Step::Container { name, part } => match due.iter_mut().find(|d| d.instance.name == name) {
                    Some(due) => self.give(due, part).await,
                    None => Ok(()),
                },
            };
            if let Err(message) = result {
                return self.resize_failed(message);
            }
        }
        if may_shrink && self.due().is_empty() {
            self.resize_done();
        }
    }

    /// Says what would be bound to less memory than it has in use. The kernel would refuse that, or kill.
    async fn too_small(&self, steps: &[Step], due: &[Due]) -> Option<String> {
        let mut faults = Vec::new();
        for step in steps {
            match step {
                Step::Group(Bound::Memory(Some(limit))) => {
                    let usage = self.cx.options.cgroups.memory_usage(&self.desired);
                    if let Some(usage) = usage.filter(|usage| usage >= limit) {
                        faults.push(format!(
                            "attempting to set pod memory limit ({limit}) below current usage ({usage})"
                        ));
                    }
                }
                Step::Container { name, part: Part::Memory } => {
                    let Some(due) = due.iter().find(|due| due.instance.name == *name) else { continue };
                    let Some(limit) = resize::memory_limit(&due.wanted) else { continue };
                    if resize::memory_limit(&due.in_force).is_some_and(|now| now <= limit) {
                        continue;
                    }
                    let usage = self.memory_usage(&due.instance.id).await;
                    if let Some(usage) = usage.filter(|usage| *usage >= limit) {
                        faults.push(format!(
                            "attempting to set container {name:?} memory limit ({limit}) below current usage ({usage})"
                        ));
                    }
                }
                Step::Group(_) | Step::Container { .. } => {}
            }
        }
        match faults.as_slice() {
            [] => None,
            [one] => Some(format!("cannot decrease memory limits: {one}")),
            more => Some(format!("cannot decrease memory limits: [{}]", more.join(", "))),
        }
    }

    async fn memory_usage(&self, id: &ContainerId) -> Option<i64> {
        let request = v1::ContainerStatsRequest { container_id: id.to_string() };
        let memory = self.cx.options.runtime.container_stats(request).await.ok()?.stats?.memory?;
        let usage = memory.usage_bytes.or(memory.working_set_bytes)?;
        i64::try_from(usage.value).ok()
    }

    /// Sets a bound of the pod's group and tells the runtime, where it wants to know.
    async fn bind(&mut self, group: &mut Option<Group>, bound: Bound) -> Result<(), String> {
        self.cx.options.cgroups.bind(&self.desired, bound).map_err(|failure| failure.message)?;
        let Some(now) = group else { return Ok(()) };
        *now = now.with(bound);
        let Some(sandbox) = self.observed.newest_sandbox().filter(|sandbox| sandbox.ready) else { return Ok(()) };
        let config = self.cx.options.prepare.sandbox_config(&self.desired, sandbox.attempt, false).await;
        let request = v1::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: sandbox.id.to_string(),
            overhead: config.ok().and_then(|config| config.linux?.overhead),
            resources: Some(v1::LinuxContainerResources {
                cpu_period: now.period,
                cpu_quota: now.quota.unwrap_or(0),
                cpu_shares: now.shares,
                memory_limit_in_bytes: now.memory.unwrap_or(0),
                ..v1::LinuxContainerResources::default()
            }),
        };
        // For runtimes that keep pods in machines of their own; the others do not know the call or need not.
        if let Err(error) = self.cx.options.runtime.update_pod_sandbox_resources(request).await {
            tracing::debug!(pod = %self.desired.key, %error, "the runtime does not take the sandbox's new size");
        }
        Ok(())
    }

    /// Gives a container its new size in one resource.
    async fn give(&mut self, due: &mut Due, part: Part) -> Result<(), String> {
        let (id, name) = (due.instance.id.clone(), due.instance.name.clone());
        let mixed = resize::mixed(&due.in_force, &due.wanted, part);
        let mut sizes = Sizes::of_pod(&self.desired.pod);
        sizes.containers.insert(name.clone(), mixed.clone());
        let pod = DesiredPod { pod: sizes.apply(&self.desired.pod), ..self.desired.clone() };
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_string(),
            linux: self.cx.options.prepare.container_size(&pod, &name),
            ..v1::UpdateContainerResourcesRequest::default()
        };
        let result = Arc::clone(&self.cx.options.runtime).update_container_resources(request).await;
        self.see(&id).await;
        if let Err(error) = result {
            let runs = |c: &Instance| c.id == id && c.state == InstanceState::Running;
            if self.observed.containers.iter().any(runs) {
                return Err(error.message);
            }
            // It ended in the meantime, and the next instance is made in the new size.
            self.inbox.nudge();
            return Ok(());
        }
        due.in_force = mixed;
        if let Some(facts) = self.facts.containers.get_mut(&name).and_then(|c| c.instance_mut(&id)) {
            facts.in_force = Some(due.in_force.clone());
            self.unsaved = true;
        }
        tracing::info!(pod = %self.desired.key, container = %name, %id, resource = part.name(), "container resized");
        self.save();
        Ok(())
    }

    /// Nothing of the pod runs any more: its size is nobody's business.
    pub(super) fn drop_resize(&mut self) {
        if self.facts.resize.take().is_some() {
            self.cx.options.metrics.resizes.set_in_progress(false);
            self.unsaved = true;
        }
        if self.facts.pending.take().is_some() {
            self.unsaved = true;
        }
    }

    fn resize_done(&mut self) {
        let Some(resize) = self.facts.resize.take() else { return };
        self.unsaved = true;
        self.succeeded("resize");
        let text = format!("Pod resize completed: {}", self.summary(resize.generation, None));
        self.events().normal(&self.target(), COMPLETED, text);
        let metrics = &self.cx.options.metrics.resizes;
        metrics.set_in_progress(false);
        metrics.lasted(true, self.now().duration_since(resize.since));
        self.save();
    }

    /// Tells what is in the way, once, and tries again later.
    fn resize_failed(&mut self, message: String) {
        let at = self.retry_at("resize", None);
        self.wake_by(at);
        let now = self.now();
        let Some(resize) = &mut self.facts.resize else { return };
        // How much is in use changes with every look, and is no news.
        let words = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
        if resize.error.as_deref().is_some_and(|told| words(told) == words(&message)) {
            return;
        }
        let (generation, since) = (resize.generation, resize.since);
        resize.error = Some(message.clone());
        self.unsaved = true;
        tracing::warn!(pod = %self.desired.key, error = %message, "resize cannot go on");
        let text = format!("Pod resize error: {}", self.summary(generation, Some(&message)));
        self.events().warning(&self.target(), FAILED, text);
        self.cx.options.metrics.resizes.lasted(false, now.duration_since(since));
    }
}
