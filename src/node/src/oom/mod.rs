//! Tells of processes that the kernel killed for memory. The runtime speaks of a container's first process alone; the
//! kernel's log names each process and the control group it was in, so that a child that died in a container that runs on
//! is not lost.
//!
//! A kill that ends its container stands in the status of that container (`OOMKilled`) and needs no event. So each is looked
//! at after a moment, when the end of its container would be known.

mod place;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use longshore_host::kmsg::{KernelLog, MemoryKill};
use longshore_util::Tasks;
use longshore_util::clock::SharedClock;
use tokio::time::Instant;

use crate::event::{EventRecorder, EventTarget};
use crate::model::{MemoryKills, ReadPods};

/// Reason of the event on a container, as the tools know it that watch the kernel's log on many nodes.
const REASON: &str = "OOMKilling";
/// Reason of the event on the node, when a process that belongs to no pod was killed.
const SYSTEM_REASON: &str = "SystemOOM";
/// After so long the end of a container is known, if the kill was its end.
const SETTLED: Duration = Duration::from_secs(5);
/// So many wait to be told of; a group that dies over and over in that time is told of by the first ones.
const WAITING: usize = 64;

/// What the watch works with.
#[derive(Debug)]
pub struct OomOptions {
    /// The node's name.
    pub node_name: String,
    /// Pods, to find the container of a control group.
    pub pods: Arc<dyn ReadPods>,
    /// Where kills are noted for the workers of pods.
    pub kills: MemoryKills,
    /// Events.
    pub events: EventRecorder,
    /// Wall-clock time.
    pub clock: SharedClock,
}

/// Watches the kernel's log until the tasks end; where it cannot be read this is said once.
pub fn watch(options: OomOptions, tasks: &Tasks) {
    let log = match KernelLog::open() {
        Ok(log) => log,
        Err(error) => {
            tracing::info!(%error, "no /dev/kmsg: of processes that are killed for memory only those are told that end their container");
            return;
        }
    };
    let token = tasks.token().clone();
    let work = async move {
        token.run_until_cancelled(Box::pin(follow(log, &options))).await;
    };
    drop(longshore_util::spawn(tasks, "oom", work));
}

async fn follow(log: KernelLog, options: &OomOptions) {
    let mut waiting: VecDeque<(Instant, MemoryKill)> = VecDeque::new();
    loop {
        let due = waiting.front().map(|(due, _)| *due);
        tokio::select! {
            biased;
            line = log.next() => match line {
                Ok(line) => {
                    let Some(kill) = MemoryKill::parse(&line) else { continue };
                    if let Some(container) = place::container(&kill.group) {
                        options.kills.add(container, options.clock.now());
                    }
                    if waiting.len() < WAITING {
                        waiting.push_back((Instant::now() + SETTLED, kill));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the kernel's log cannot be read any more: processes killed for memory are not told");
                    return;
                }
            },
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                if let Some((_, kill)) = waiting.pop_front() {
                    tell(&kill, options);
                }
            }
        }
    }
}

fn tell(kill: &MemoryKill, options: &OomOptions) {
    let pods = options.pods.pods();
    match place::find(&kill.group, &pods) {
        Some(place) if place.ended_of_it => {}
        Some(place) => {
            let message = place.text(kill);
            tracing::info!(pod = %place.pod.desired.key, container = place.container, message, "killed for memory");
            let target = EventTarget::container(&place.pod.desired, place.group, place.container);
            options.events.warning(&target, REASON, message);
        }
        None if kill.bound.is_none() => {
            let message = format!("System OOM encountered, victim process: {}, pid: {}", kill.process, kill.pid);
            options.events.warning(&EventTarget::node(&options.node_name), SYSTEM_REASON, message);
        }
        // Somebody else's group on this machine.
        None => {}
    }
}
