//! Watches the runtime and tells pods' workers that something of theirs ended or is gone.
//! Owns the event stream and the relist; it never decides anything about a pod and never changes the runtime.
//!
//! ```text
//! runtime ── events ──────────┐
//!                             ├─> table of known states ── ended ──> PodControl::wake(uid)
//! runtime ── relist (pace) ───┘            │
//!                                     health: age of the last relist
//! ```
//! With the event stream the relist is a slow safety net; without it, or when events turn out to be lost, it is the
//! source, once a second and more often where something is about to happen.

mod health;
mod metrics;
mod pace;
mod table;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;

use longshore_cri::SharedRuntime;
use longshore_util::Tasks;
use longshore_util::clock::{SharedClock, SystemClock};
use tokio::sync::Notify;

pub use metrics::ObserverMetrics;

use self::health::Health;
use crate::model::PodControl;

/// What the observer works with besides the runtime and the pods.
#[derive(Debug, Clone)]
pub struct ObserverOptions {
    /// Wall clock, for metrics.
    pub clock: SharedClock,
    /// Where its work is counted.
    pub metrics: ObserverMetrics,
}

impl Default for ObserverOptions {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), metrics: ObserverMetrics::default() }
    }
}

/// Handle of the running observer.
#[derive(Debug, Clone)]
pub struct Observer {
    health: Arc<Health>,
    expected: Arc<Notify>,
}

impl Observer {
    /// Starts watching the runtime. Every pod of which the runtime has something is woken once by the first look.
    pub fn start(runtime: SharedRuntime, pods: Arc<dyn PodControl>, options: ObserverOptions, tasks: &Tasks) -> Self {
        let observer = Self { health: Arc::default(), expected: Arc::default() };
        let watch = watch::Watch::new(runtime, pods, options, observer.clone());
        let token = tasks.token().clone();
        tasks.essential("observe", async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                () = watch.run() => {}
            }
        });
        observer
    }

    /// Says that something is about to change in the runtime (a container was started, a stop was ordered), so that
    /// the runtime is looked at sooner where it sends no events. Cheap and never blocks.
    pub fn expect(&self) {
        self.expected.notify_one();
    }

    /// Says why the node is not Ready, if the runtime could not be listed for too long; upstream's words.
    pub fn check(&self) -> Result<(), String> {
        self.health.check()
    }
}
