//! The model: what the runtime did, what it was asked for, and what of that must never be. One line per broken promise.

use std::collections::{BTreeMap, BTreeSet};

use super::pod::{Again, Home, Life, Made, PodBook};
use super::rules::restarts_all;
use super::{Kind, Plan, Role};

/// How long a worker may take to take notice of an order that was delivered, in milliseconds, where time is the test's.
const NOTICE: u64 = 50;
/// Least seconds between stop signal and kill.
const LEAST_STOP: u64 = 2;

/// Everything that was seen.
#[derive(Debug)]
pub struct Book {
    pub(super) pods: BTreeMap<String, PodBook>,
    owners: BTreeMap<String, String>,
    faults: Vec<String>,
    log: Vec<String>,
    /// Commands in containers may fail without a reason of the plan.
    pub exec_trouble: bool,
    /// Pods may have to make room for others.
    pub scarce: bool,
    /// How long a worker may take to take notice of an order that was delivered, in milliseconds.
    pub notice: u64,
    /// Since when the agent sees what happens in the runtime, in milliseconds; nothing while it does not.
    pub sees_since: Option<u64>,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            pods: BTreeMap::new(),
            owners: BTreeMap::new(),
            faults: Vec::new(),
            log: Vec::new(),
            exec_trouble: false,
            scarce: false,
            notice: NOTICE,
            sees_since: None,
        }
    }
}

impl Book {
    /// Broken promises so far.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// Everything that happened, in order.
    pub fn log(&self) -> &[String] {
        &self.log
    }

    /// Notes a broken promise, once.
    pub fn fault(&mut self, text: impl Into<String>) {
        let text = text.into();
        if self.faults.contains(&text) {
            return;
        }
        self.log.push(format!("  FAULT {text}"));
        self.faults.push(text);
    }

    /// Notes what happened.
    pub fn note(&mut self, at: u64, text: &str) {
        self.log.push(format!("{:>9.3} {text}", std::time::Duration::from_millis(at).as_secs_f64()));
    }

    /// The pod of that uid.
    pub fn pod(&self, uid: &str) -> Option<&PodBook> {
        self.pods.get(uid)
    }

    /// The pod to which a container or sandbox belongs.
    pub fn owner(&self, id: &str) -> Option<&str> {
        self.owners.get(id).map(String::as_str)
    }

    /// Pods whose sources have said that they must end and to whose agent nobody has said so yet.
    pub fn untold(&self) -> Vec<String> {
        let untold = self.pods.iter().filter(|(_, pod)| pod.ordered.is_some() && pod.told.is_none());
        untold.map(|(uid, _)| uid.clone()).collect()
    }

    /// Pods whose sources have said that they must end.
    pub fn ordered(&self) -> Vec<String> {
        let ordered = self.pods.iter().filter(|(_, pod)| pod.ordered.is_some() && !pod.over);
        ordered.map(|(uid, _)| uid.clone()).collect()
    }

    /// Looks for containers that still run so long after their pods' grace was over; returns their ids.
    pub fn overdue(&mut self, at: u64, slack: u64) -> Vec<String> {
        let mut ids = Vec::new();
        let mut late = Vec::new();
        for (uid, pod) in &self.pods {
            let (Some(told), Some(grace)) = (pod.told, pod.grace) else { continue };
            let end = told + grace.max(LEAST_STOP) * 1000 + slack;
            let running = pod.running();
            if at > end && self.sees_since.is_some_and(|since| at > since + slack) && !running.is_empty() {
                late.push(format!("{running:?} of {uid} run, it was told at {told} ms to end within {grace} s"));
                ids.extend(running);
            }
        }
        late.into_iter().for_each(|text| self.fault(text));
        ids
    }

    /// A source wants a pod, or wants it differently.
    pub fn want(&mut self, uid: &str, plan: &Plan, image_of: impl Fn(u64) -> String) {
        let pod = self.pods.entry(uid.to_owned()).or_insert_with(|| PodBook::new(plan.clone()));
        pod.plan = plan.clone();
        pod.shown.images = plan.parts.iter().map(|part| (part.name.clone(), image_of(part.image))).collect();
        if pod.ordered.is_some() && plan.is_static {
            pod.again = Some(Again::default());
        }
        pod.note_sizes();
    }

    /// Hooks of the pod may fail from now on.
    pub fn hooks_fail(&mut self, uid: &str) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.hook_fails = true;
        }
    }

    /// The pod must end, for whatever reason; the smallest grace counts.
    pub fn end(&mut self, uid: &str, grace: Option<u64>, at: u64) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        // The end is the next life's where one is due: an agent that hears of it late may have begun that.
        let (ordered, known) = match &mut pod.again {
            Some(again) => (&mut again.ordered, &mut again.grace),
            None => (&mut pod.ordered, &mut pod.grace),
        };
        ordered.get_or_insert(at);
        *known = match (*known, grace) {
            (Some(old), Some(new)) => Some(old.min(new)),
            (old, new) => old.or(new),
        };
    }

    /// An agent was told so.
    pub fn told(&mut self, uid: &str, at: u64) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let (ordered, told) = match &mut pod.again {
            Some(again) => (again.ordered, &mut again.told),
            None => (pod.ordered, &mut pod.told),
        };
        if ordered.is_some() {
            told.get_or_insert(at);
        }
    }

    /// The agent has let go of the pod.
    pub fn over(&mut self, uid: &str) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.over = true;
        }
    }

    /// A sandbox is ready.
    pub fn home_made(&mut self, uid: &str, id: &str) {
        self.owners.insert(id.to_owned(), uid.to_owned());
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let other = pod.homes.iter().find(|(_, home)| home.ready).map(|(other, _)| other.clone());
        pod.homes.insert(id.to_owned(), Home { ready: true, ..Home::default() });
        if let Some(other) = other {
            self.fault(format!("two ready sandboxes of {uid}: {other} and {id}"));
        }
    }

    /// A sandbox is bad: its pause process ended, or it lost its address.
    pub fn home_broken(&mut self, id: &str) {
        if let Some(home) = self.home(id) {
            home.broken = true;
        }
    }

    /// A sandbox is down or gone.
    pub fn home_down(&mut self, id: &str) {
        if let Some(home) = self.home(id) {
            home.ready = false;
        }
    }

    fn home(&mut self, id: &str) -> Option<&mut Home> {
        let owner = self.owners.get(id)?;
        self.pods.get_mut(owner)?.homes.get_mut(id)
    }

    /// A container was made.
    pub fn container_made(&mut self, uid: &str, sandbox: &str, id: &str, name: &str, attempt: u32, image: &str) {
        self.owners.insert(id.to_owned(), uid.to_owned());
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let used = pod.made.iter().map(|(_, made)| made).filter(|made| made.name == name && made.ran);
        let used = used.map(|made| made.attempt).max();
        let made = Made {
            name: name.to_owned(),
            attempt,
            sandbox: sandbox.to_owned(),
            image: image.to_owned(),
            life: Life::Made,
            ran: false,
            asked: false,
            gone: false,
            taken: false,
            size: None,
            resized: false,
            unseen: false,
            good: BTreeSet::new(),
            bad: BTreeSet::new(),
        };
        pod.made.push((id.to_owned(), made));
        if used.is_some_and(|used| used >= attempt) {
            self.fault(format!("number {attempt} of {name} in {uid} was used before"));
        }
    }

    /// A container's process began.
    pub fn container_runs(&mut self, id: &str) {
        let exec_trouble = self.exec_trouble;
        let Some(uid) = self.owners.get(id).cloned() else { return };
        let Some(pod) = self.pods.get_mut(&uid) else { return };
        let Some(now) = pod.container(id).cloned() else { return };
        let mut faults = Vec::new();
        let name = &now.name;
        let twin = pod.made.iter().find(|(other, made)| other != id && made.name == *name && made.life == Life::Runs);
        if let Some((twin, _)) = twin {
            faults.push(format!("two live containers {name} of {uid}: {twin} and {id}"));
        } else if let Some(before) = pod.newest(name)
            && !pod.may_follow(before, &now, exec_trouble)
        {
            faults.push(format!("{name} of {uid} runs again after {:?}", before.life));
        }
        let through = pod.homes.get(&now.sandbox).map(|home| home.through.clone()).unwrap_or_default();
        let is_guest = pod.plan.guests.iter().any(|guest| guest.name == *name);
        let before = pod.plan.parts.iter().take_while(|part| part.name != *name);
        let missing = before.filter(|part| part.role != Role::Main && !through.contains(&part.name));
        if !is_guest && let Some(part) = missing.last() {
            faults.push(format!("{name} of {uid} runs before {} is through", part.name));
        }
        let first = pod.plan.part(name).is_some_and(|p| p.role == Role::Sidecar && p.probe(Kind::Startup).is_none());
        if first && let Some(home) = pod.homes.get_mut(&now.sandbox) {
            home.through.insert(name.clone());
        }
        if let Some(made) = pod.container_mut(id) {
            made.life = Life::Runs;
            made.ran = true;
        }
        faults.into_iter().for_each(|text| self.fault(text));
    }

    /// A container's process ended.
    pub fn container_ended(&mut self, id: &str, code: i32, reason: &str, at: u64) {
        let (exec_trouble, scarce) = (self.exec_trouble, self.scarce);
        let Some(pod) = self.owners.get(id).and_then(|uid| self.pods.get_mut(uid)) else { return };
        let oom = reason == "OOMKilled";
        // Its hook before the stop may be under way: it is as good as stopped then.
        let part = pod.container(id).and_then(|made| pod.plan.part(&made.name));
        let stopped = part.is_some_and(|part| part.pre_stop.is_some());
        let stopped = stopped && pod.excuse(id, exec_trouble, scarce).is_some();
        let Some(made) = pod.container_mut(id) else { return };
        if !made.ran {
            return;
        }
        made.asked |= stopped;
        made.life = Life::Ended { code, oom, at };
        // The runtime broke its start off: nothing of the user's ran in it.
        if reason == "StartError" {
            made.ran = false;
        }
        let (name, sandbox) = (made.name.clone(), made.sandbox.clone());
        let Some(part) = pod.plan.part(&name).cloned() else { return };
        if part.role == Role::Init
            && code == 0
            && !oom
            && let Some(home) = pod.homes.get_mut(&sandbox)
        {
            home.through.insert(name);
        }
        pod.restart_all |= restarts_all(&part, code) && matches!(part.role, Role::Init | Role::Main);
    }

    /// A container that ran is gone, and nobody saw with which code it ended.
    pub fn container_vanished(&mut self, id: &str, at: u64) {
        if let Some(pod) = self.owners.get(id).and_then(|uid| self.pods.get_mut(uid))
            && let Some(made) = pod.container_mut(id)
        {
            made.life = Life::Ended { code: 0, oom: false, at };
            made.unseen = true;
        }
    }

    /// Somebody else than the agent is about to remove a container.
    pub fn taken_away(&mut self, id: &str) {
        if let Some(made) =
            self.owners.get(id).and_then(|uid| self.pods.get_mut(uid)).and_then(|pod| pod.container_mut(id))
        {
            made.taken = true;
        }
    }

    /// A container was removed.
    pub fn container_gone(&mut self, id: &str) {
        let Some(pod) = self.owners.get(id).and_then(|uid| self.pods.get_mut(uid)) else { return };
        let Some(made) = pod.container_mut(id) else { return };
        made.gone = true;
        if made.taken {
            return;
        }
        let (name, sandbox) = (made.name.clone(), made.sandbox.clone());
        let newest = pod.made.iter().rev().find(|(_, made)| made.name == name && made.sandbox == sandbox);
        if pod.restart_all
            && newest.is_some_and(|(newest, _)| newest == id)
            && let Some(home) = pod.homes.get_mut(&sandbox)
        {
            // The pod is taken back to its beginning.
            home.through.remove(&name);
        }
    }

    /// A probe's command answered.
    pub fn probed(&mut self, id: &str, kind: Kind, good: bool) {
        let Some(pod) = self.owners.get(id).and_then(|uid| self.pods.get_mut(uid)) else { return };
        let Some(made) = pod.container_mut(id) else { return };
        if good {
            made.good.insert(kind)
        } else {
            made.bad.insert(kind)
        };
        let (name, sandbox) = (made.name.clone(), made.sandbox.clone());
        if kind == Kind::Startup
            && good
            && let Some(home) = pod.homes.get_mut(&sandbox)
        {
            home.through.insert(name);
        }
    }

    /// The probe of a container of that name may have answered so, if the id is one of its.
    pub fn probed_by_name(&mut self, id: &str, name: &str, kind: Kind, good: bool) {
        let pod = self.owner(id).and_then(|uid| self.pod(uid));
        if pod.and_then(|pod| pod.container(id)).is_some_and(|made| made.name == name) {
            self.probed(id, kind, good);
        }
    }

    /// The agent asked the runtime to make or start something of a pod.
    pub fn asked_to_start(&mut self, uid: &str, what: &str, at: u64) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.reborn_if_due();
        if let Some(told) = pod.told.filter(|told| at > told + self.notice) {
            self.fault(format!("{what} for {uid} at {at} ms, which was told to end at {told} ms"));
        } else if pod.shown.is_final() {
            self.fault(format!("{what} for {uid}, which was shown as ended"));
        }
    }

    /// The agent asked for the stop of a container.
    pub fn asked_to_stop(&mut self, id: &str, seconds: u64, at: u64) {
        let Some(uid) = self.owners.get(id).cloned() else { return };
        let Some(pod) = self.pods.get_mut(&uid) else { return };
        let excuse = pod.excuse(id, self.exec_trouble, self.scarce);
        let limit = pod.grace.filter(|_| pod.told.is_some_and(|told| at > told + self.notice));
        let Some(made) = pod.container_mut(id) else { return };
        // An end in the same moment could not be known.
        made.asked |= matches!(made.life, Life::Ended { at: ended, .. } if ended == at);
        if made.life != Life::Runs {
            return;
        }
        made.asked = true;
        let name = made.name.clone();
        if excuse.is_none() {
            self.fault(format!("{name} of {uid} is stopped without a reason"));
        }
        if let Some(limit) = limit.filter(|limit| seconds > (*limit).max(LEAST_STOP)) {
            self.fault(format!("{name} of {uid} gets {seconds} s to end, {limit} s were ordered"));
        }
    }

    /// Whether the agent has a reason to stop a container.
    pub fn may_be_stopped(&self, id: &str) -> bool {
        let pod = self.owner(id).and_then(|uid| self.pod(uid));
        pod.is_some_and(|pod| pod.excuse(id, self.exec_trouble, self.scarce).is_some())
    }

    /// The agent asked for the end or removal of a sandbox.
    pub fn asked_to_stop_home(&mut self, id: &str) {
        let scarce = self.scarce;
        let Some(uid) = self.owners.get(id).cloned() else { return };
        let Some(pod) = self.pods.get_mut(&uid) else { return };
        let Some(home) = pod.homes.get(id) else { return };
        if scarce
            || !home.ready
            || home.broken
            || pod.plan.deadline.is_some()
            || pod.ordered.is_some()
            || pod.is_finished()
            || pod.shown.is_final()
        {
            return;
        }
        self.fault(format!("sandbox {id} of {uid} is stopped without a reason"));
    }

    /// The agent asked for the removal of a container.
    pub fn asked_to_remove(&mut self, id: &str) {
        let Some(uid) = self.owners.get(id).cloned() else { return };
        let runs = self.pods.get(&uid).and_then(|pod| pod.container(id)).is_some_and(|made| made.life == Life::Runs);
        if runs {
            self.fault(format!("{id} of {uid} is removed while it runs"));
        }
    }

    /// Volumes, folders or control group of a pod are taken away.
    pub fn released(&mut self, uid: &str, what: &str) {
        if self.pods.get(uid).is_some_and(|pod| !pod.running().is_empty()) {
            self.fault(format!("{what} of {uid} is taken away while it runs"));
        }
    }
}
