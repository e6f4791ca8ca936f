//! What is known of one pod, and what may be done to it for which reasons.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::comes_back;
use super::shown::Shown;
use super::size::Asked;
use super::{Kind, Plan, Policy, Role, Size};

/// A container's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// Made.
    Made,
    /// Its process runs.
    Runs,
    /// It ended.
    Ended {
        /// Exit code.
        code: i32,
        /// For memory.
        oom: bool,
        /// When, in milliseconds.
        at: u64,
    },
}

/// A container of the runtime, also when it is gone.
#[derive(Debug, Clone)]
pub struct Made {
    pub(super) name: String,
    pub(super) attempt: u32,
    pub(super) sandbox: String,
    pub(super) image: String,
    /// Its life.
    pub life: Life,
    pub(super) ran: bool,
    /// The agent asked for its stop.
    pub(super) asked: bool,
    pub(super) gone: bool,
    /// Somebody else than the agent removes it.
    pub(super) taken: bool,
    /// Its size, as far as the runtime was told one.
    pub(super) size: Option<Size>,
    /// It was asked to have a size for which it has to start anew.
    pub(super) resized: bool,
    /// Nobody saw with which code it ended.
    pub(super) unseen: bool,
    /// Good and bad answers of probes.
    pub(super) good: BTreeSet<Kind>,
    pub(super) bad: BTreeSet<Kind>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Home {
    pub(super) ready: bool,
    /// It must be made anew.
    pub(super) broken: bool,
    /// Init containers that are through in it, sidecars that were started in it.
    pub(super) through: BTreeSet<String>,
}

/// One pod.
#[derive(Debug, Clone)]
pub struct PodBook {
    /// As wanted now.
    pub plan: Plan,
    /// When its source said that it must end.
    pub(super) ordered: Option<u64>,
    /// When an agent heard of it.
    pub(super) told: Option<u64>,
    /// Smallest grace that was ordered, in seconds.
    pub(super) grace: Option<u64>,
    /// Wanted again while it ends.
    pub(super) again: Option<Again>,
    /// The agent has let go of it.
    pub(super) over: bool,
    pub(super) homes: BTreeMap<String, Home>,
    /// Containers by id, in the order in which they were made.
    pub(super) made: Vec<(String, Made)>,
    /// An exit asked for all containers to begin anew.
    pub(super) restart_all: bool,
    pub(super) hook_fails: bool,
    /// Sizes that were asked for, by container.
    pub(super) asked: BTreeMap<String, Asked>,
    /// Those that came first.
    pub(super) first_sizes: BTreeMap<String, Size>,
    pub(super) shown: Shown,
}

impl Made {
    /// Its name in the spec.
    pub fn name(&self) -> &String {
        &self.name
    }
}

/// The next life of a static pod, and what is known of its end before it has begun.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Again {
    pub(super) ordered: Option<u64>,
    pub(super) grace: Option<u64>,
    pub(super) told: Option<u64>,
}

impl PodBook {
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            plan,
            ordered: None,
            told: None,
            grace: None,
            again: None,
            over: false,
            homes: BTreeMap::new(),
            made: Vec::new(),
            restart_all: false,
            hook_fails: false,
            asked: BTreeMap::new(),
            first_sizes: BTreeMap::new(),
            shown: Shown::default(),
        }
    }

    /// A static pod that was taken away and is wanted again begins a second life once the first is over: the agent has let
    /// go of it, or nothing of it is left in the runtime.
    pub(super) fn reborn_if_due(&mut self) {
        let is_gone = || self.made.iter().all(|(_, made)| made.gone) && !self.has_home();
        // A successor that waited for its name has no life to end before it is taken away again.
        let never_was = self.told.is_none() || !self.made.is_empty() || self.shown.last.is_none();
        if (self.over || (never_was && is_gone()))
            && let Some(Again { ordered, grace, told }) = self.again.take()
        {
            let shown = self.shown.reborn();
            *self = Self { shown, ordered, grace, told, ..Self::new(self.plan.clone()) };
            self.note_sizes();
        }
    }

    /// The container of that id.
    pub fn container(&self, id: &str) -> Option<&Made> {
        self.made.iter().find(|(own, _)| own == id).map(|(_, made)| made)
    }

    pub(super) fn container_mut(&mut self, id: &str) -> Option<&mut Made> {
        self.made.iter_mut().find(|(own, _)| own == id).map(|(_, made)| made)
    }

    /// The newest container of a name that ever ran.
    pub fn newest(&self, name: &str) -> Option<&Made> {
        self.made.iter().rev().map(|(_, made)| made).find(|made| made.name == name && made.ran)
    }

    /// Ids of what runs.
    pub fn running(&self) -> Vec<String> {
        let runs = self.made.iter().filter(|(_, made)| made.life == Life::Runs);
        runs.map(|(id, _)| id.clone()).collect()
    }

    /// Whether any sandbox is ready.
    pub fn has_home(&self) -> bool {
        self.homes.values().any(|home| home.ready)
    }

    /// Whether it holds nothing of the node any more.
    pub(super) fn is_released(&self) -> bool {
        // One that was deleted by force while no agent ran is cleaned up without a last word.
        let is_gone = || !self.has_home() && self.made.iter().all(|(_, made)| made.gone);
        self.over || self.is_done() || (self.ordered.is_some() && is_gone())
    }

    /// Whether it was told within which time to end.
    pub fn has_grace(&self) -> bool {
        self.grace.is_some()
    }

    /// Whether its source wants it to end.
    pub fn ends(&self) -> bool {
        self.ordered.is_some()
    }

    /// Whether the part ended and stays so.
    pub fn is_over(&self, name: &str) -> bool {
        let Some(part) = self.plan.part(name) else { return false };
        self.newest(name).is_some_and(|made| match made.life {
            Life::Ended { code, oom, .. } => !comes_back(&self.plan, part, code, oom),
            Life::Made | Life::Runs => false,
        })
    }

    /// Whether nothing more can come of the pod: all main containers are over, or an init container is for good.
    pub fn is_finished(&self) -> bool {
        let of = |role: Role| self.plan.parts.iter().filter(move |part| part.role == role);
        let failed = |made: &Made| matches!(made.life, Life::Ended { code, oom, .. } if code != 0 || oom);
        let init = of(Role::Init).any(|part| self.is_over(&part.name) && self.newest(&part.name).is_some_and(failed));
        init || of(Role::Main).all(|part| self.is_over(&part.name))
    }

    /// Why a running container may be stopped; nothing = it must not be touched.
    pub(super) fn excuse(&self, id: &str, exec_trouble: bool, scarce: bool) -> Option<&'static str> {
        let made = self.container(id)?;
        if self.ordered.is_some() {
            return Some("the pod ends");
        }
        if self.is_finished() || self.shown.is_final() {
            return Some("the pod is finished");
        }
        if self.plan.deadline.is_some() {
            return Some("its time may be up");
        }
        if scarce {
            return Some("others need its room");
        }
        if self.restart_all {
            return Some("all containers begin anew");
        }
        if self.homes.get(&made.sandbox).is_none_or(|home| home.broken || !home.ready) {
            return Some("its sandbox is bad");
        }
        let part = self.plan.part(&made.name)?;
        if part.role != Role::Init
            && part.role != Role::Guest
            && self.shown.images.get(&made.name).is_some_and(|now| *now != made.image)
        {
            return Some("its definition changed");
        }
        if made.resized {
            return Some("it gets another size");
        }
        let kills = |kind: &Kind| *kind != Kind::Readiness && part.probe(*kind).is_some();
        if Kind::ALL.iter().any(|kind| kills(kind) && (made.bad.contains(kind) || exec_trouble)) {
            return Some("a probe failed");
        }
        if part.post_start.is_some() && (self.hook_fails || exec_trouble) {
            return Some("its hook failed");
        }
        None
    }

    /// Why a container may run although one of its name ran before.
    pub(super) fn may_follow(&self, before: &Made, now: &Made, exec_trouble: bool) -> bool {
        let Some(part) = self.plan.part(&before.name) else { return false };
        let Life::Ended { code, oom, .. } = before.life else { return false };
        if before.unseen {
            return true;
        }
        let new_home = before.sandbox != now.sandbox;
        if part.role == Role::Init && new_home {
            return true;
        }
        // It was ended because its sandbox had gone bad, not because it was through: only what never comes back after any
        // exit has had its turn (behaviour 5.1: what had not succeeded by then is started in the new one).
        let never = self.plan.policy_of(part) == Policy::Never && (part.policy.is_none() || part.rules.is_empty());
        let by_home = before.asked && new_home && !never;
        let by_probe = before.asked
            && self.plan.policy_of(part) != Policy::Never
            && (exec_trouble || before.bad.iter().any(|kind| *kind != Kind::Readiness));
        comes_back(&self.plan, part, code, oom)
            || self.restart_all
            || by_probe
            || by_home
            || (before.asked && (before.resized || before.image != now.image))
    }
}
