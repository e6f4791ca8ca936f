//! The state behind the engine: containers with their machines, and a heap of the moments at which probes are due. No IO
//! and no waiting; the caller says what time it is.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use longshore_api::hash;
use tokio::time::Instant;

use super::machine::{Machine, ProbeKind, Thresholds, Verdict};
use super::schedule::{self, Next, Timing};
use super::{Running, run};
use crate::event::{ContainerGroup, EventTarget};
use crate::model::{ContainerId, DesiredPod, PodUid};
use crate::telemetry::{ProbeMetrics, ProbeName, ProbeSeries};

/// One probe of a container.
#[derive(Debug)]
struct Slot {
    probe: Arc<Probe>,
    timing: Timing,
    series: ProbeSeries,
    /// The moment it was meant for, from which the next one is counted.
    planned: Instant,
    free: bool,
    /// Planned or running: never twice at the same time.
    busy: bool,
}

/// One running container.
#[derive(Debug)]
struct Entry {
    uid: PodUid,
    id: ContainerId,
    container: Arc<Container>,
    target: EventTarget,
    address: Arc<str>,
    started: Instant,
    machine: Machine,
    slots: [Option<Slot>; 3],
}

/// A probe that is due.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) entry: u64,
    pub(super) kind: ProbeKind,
    pub(super) id: ContainerId,
    pub(super) container: Arc<Container>,
    pub(super) probe: Arc<Probe>,
    pub(super) address: Arc<str>,
    pub(super) timeout: Duration,
}

/// What an answer led to.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Whose pod is to be told that a verdict changed.
    pub(super) changed: Option<PodUid>,
    /// Where an event goes, if this answer is worth one.
    pub(super) tell: Option<EventTarget>,
}

/// What is told of one pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) pod: &'a DesiredPod,
    pub(super) address: &'a str,
    /// Only readiness is asked for from now on.
    pub(super) ending: bool,
    pub(super) metrics: &'a ProbeMetrics,
    pub(super) now: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: HashMap<u64, Entry>,
    pods: HashMap<PodUid, Vec<u64>>,
    heap: BinaryHeap<Reverse<(Instant, u64, ProbeKind)>>,
    last: u64,
}

impl Table {
    /// Takes over which containers of a pod run. `old` says of each whether an earlier agent left it running. Returns
    /// whether anything is due sooner than before.
    pub(super) fn set(&mut self, scene: &Scene<'_>, running: &[Running], age: impl Fn(&Running) -> Age) -> bool {
        let Scene { pod, address, ending, .. } = *scene;
        let known = self.pods.remove(&pod.uid).unwrap_or_default();
        let (mut kept, gone): (Vec<u64>, Vec<u64>) =
            known.into_iter().partition(|n| self.entries.get(n).is_some_and(|e| running.iter().any(|r| r.id == e.id)));
        for number in gone {
            self.drop_entry(number, running);
        }
        let mut news = false;
        for number in &kept {
            let Some(entry) = self.entries.get_mut(number) else { continue };
            if *entry.address != *address {
                entry.address = address.into();
            }
            if ending {
                news |= entry.machine.end();
            }
        }
        for container in running {
            if kept.iter().any(|n| self.entries.get(n).is_some_and(|e| e.id == container.id)) {
                continue;
            }
            if let Some(number) = self.add(scene, container, age(container)) {
                kept.push(number);
                news = true;
            }
        }
        if !kept.is_empty() {
            self.pods.insert(pod.uid.clone(), kept);
        }
        news
    }

    fn add(&mut self, scene: &Scene<'_>, running: &Running, age: Age) -> Option<u64> {
        let Scene { pod, address, ending, metrics, now } = *scene;
        let (container, group) = find(pod, &running.name)?;
        let numbers = ProbeKind::ALL.map(|kind| kind.of(container).map(|probe| (probe, schedule::numbers(probe))));
        if numbers.iter().all(Option::is_none) {
            return None;
        }
        let thresholds: [Option<Thresholds>; 3] = numbers.map(|n| n.map(|(_, (_, thresholds))| thresholds));
        let slots = ProbeKind::ALL.map(|kind| {
            let (probe, (timing, _)) = numbers[kind.index()]?;
            let series = metrics.series(ProbeName {
                probe_type: kind.word(),
                container: running.name.clone(),
                pod: pod.key.name.to_string(),
                namespace: pod.key.namespace.to_string(),
                pod_uid: pod.uid.to_string(),
            });
            Some(Slot { probe: Arc::new(probe.clone()), timing, series, planned: now, free: false, busy: false })
        });
        let mut machine = Machine::new(thresholds, running.known);
        if ending {
            machine.end();
        }
        self.last += 1;
        let number = self.last;
        let entry = Entry {
            uid: pod.uid.clone(),
            id: running.id.clone(),
            container: Arc::new(container.clone()),
            target: EventTarget::container(pod, group, &running.name),
            address: address.into(),
            started: now.checked_sub(age.since_start).unwrap_or(now),
            machine,
            slots,
        };
        self.entries.insert(number, entry);
        for kind in ProbeKind::ALL {
            self.plan(number, kind, now, |timing| match age.found {
                true => schedule::found(timing, age.since_start, place(&running.id, kind)),
                false => schedule::first(kind, timing, age.since_start),
            });
        }
        Some(number)
    }

    /// Puts a probe into the heap if it is wanted and not there already.
    fn plan(&mut self, number: u64, kind: ProbeKind, from: Instant, when: impl FnOnce(Timing) -> Next) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        if !entry.machine.wants(kind) {
            return;
        }
        let Some(slot) = entry.slots[kind.index()].as_mut().filter(|slot| !slot.busy) else { return };
        let next = when(slot.timing);
        slot.planned = from + next.wait;
        slot.free = next.free;
        slot.busy = true;
        self.heap.push(Reverse((slot.planned, number, kind)));
    }

    /// Ends all probes of a pod.
    pub(super) fn forget(&mut self, uid: &PodUid) {
        for number in self.pods.remove(uid).unwrap_or_default() {
            self.drop_entry(number, &[]);
        }
    }

    /// Drops a container. Its series stay while an instance of the same name runs.
    fn drop_entry(&mut self, number: u64, running: &[Running]) {
        let Some(entry) = self.entries.remove(&number) else { return };
        if !running.iter().any(|r| r.name == entry.container.name) {
            entry.slots.iter().flatten().for_each(|slot| slot.series.remove());
        }
    }

    pub(super) fn verdict(&self, uid: &PodUid, id: &ContainerId) -> Option<Verdict> {
        let numbers = self.pods.get(uid)?.iter();
        numbers.filter_map(|n| self.entries.get(n)).find(|e| e.id == *id).map(|e| e.machine.verdict())
    }

    /// Takes out one probe that is due; what is not wanted any more is dropped on the way.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Due> {
        while let Some(Reverse((at, number, kind))) = self.heap.peek().copied() {
            if at > now {
                return None;
            }
            self.heap.pop();
            let Some(entry) = self.entries.get_mut(&number) else { continue };
            let wanted = entry.machine.wants(kind);
            let Some(slot) = entry.slots[kind.index()].as_mut() else { continue };
            if !wanted {
                slot.busy = false;
                continue;
            }
            return Some(Due {
                entry: number,
                kind,
                id: entry.id.clone(),
                container: Arc::clone(&entry.container),
                probe: Arc::clone(&slot.probe),
                address: Arc::clone(&entry.address),
                timeout: slot.timing.timeout,
            });
        }
        None
    }

    /// When the next probe is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Takes the answer to a probe that was popped, counts it and plans what comes after it.
    pub(super) fn answered(
        &mut self,
        number: u64,
        kind: ProbeKind,
        answer: &run::Answer,
        took: Duration,
        now: Instant,
    ) -> Outcome {
        let nothing = Outcome { changed: None, tell: None };
        let Some(entry) = self.entries.get_mut(&number) else { return nothing };
        let Some(slot) = entry.slots[kind.index()].as_mut() else { return nothing };
        slot.busy = false;
        let good = match answer {
            run::Answer::Success | run::Answer::Warning(_) => Some(true),
            run::Answer::Failure(_) => Some(false),
            run::Answer::Unknown(_) => None,
        };
        match good {
            Some(good) => slot.series.answered(good, took.as_secs_f64()),
            None => slot.series.unknown(),
        }
        let (was_free, timing) = (slot.free, slot.timing);
        let planned = slot.planned;
        // An answer to a question that nobody has any more is no news, nor is what an early look did not find.
        let is_news = entry.machine.wants(kind) && !(was_free && good == Some(false));
        let was_started = entry.machine.verdict().started;
        let changed = is_news && good.is_some_and(|good| entry.machine.take(kind, good));
        let outcome = Outcome {
            changed: changed.then(|| entry.uid.clone()),
            tell: (is_news && *answer != run::Answer::Success).then(|| entry.target.clone()),
        };
        let started_now = !was_started && entry.machine.verdict().started;
        let age = now.saturating_duration_since(entry.started);
        // One that took longer than its period goes on at once, without catching up.
        let next = (planned + schedule::next(kind, timing, was_free)).saturating_duration_since(now);
        self.plan(number, kind, now, |_| Next { wait: next, free: false });
        if started_now {
            for kind in [ProbeKind::Liveness, ProbeKind::Readiness] {
                self.plan(number, kind, now, |timing| schedule::after_startup(kind, timing, age));
            }
        }
        outcome
    }
}

/// How long a container has run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Age {
    pub(super) since_start: Duration,
    /// An earlier agent started it.
    pub(super) found: bool,
}

/// A number that is the same for the same probe of the same container.
fn place(id: &ContainerId, kind: ProbeKind) -> u64 {
    hash::fnv64(format!("{id}{}", kind.word()).as_bytes())
}

fn find<'a>(pod: &'a DesiredPod, name: &str) -> Option<(&'a Container, ContainerGroup)> {
    let spec = pod.pod.spec.as_ref()?;
    let main = spec.containers.iter().map(|c| (c, ContainerGroup::Main));
    let init = spec.init_containers.iter().flatten().map(|c| (c, ContainerGroup::Init));
    main.chain(init).find(|(container, _)| container.name == name)
}
