//! Garbage: dead containers and sandboxes beyond what is kept for `lastState`, and everything of pods that no source
//! wants. Strangers are touched only after every source has spoken, never without the pod labels, and only as far as
//! [`Cleaning`] says.

mod files;
mod runtime;
mod shims;
#[cfg(test)]
mod tests;
mod told;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_cri::SharedRuntime;
use longshore_util::Tasks;

use self::shims::Shims;
pub use self::told::Told;
use crate::journal::Journal;
use crate::model::PodUid;
use crate::pod::{PodTable, Prepare};
use crate::resource::CgroupTree;

/// Pause between collections, as upstream's.
const PERIOD: Duration = Duration::from_secs(60);
/// First pause after something could not be removed.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Which pods that no source wants are removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Cleaning {
    /// All with the pod labels, and all that pods have left on the machine: the node is the agent's alone.
    #[default]
    Everything,
    /// All in the runtime; on the machine only what belongs to a pod that is there or in the journal.
    OwnRuntime,
    /// Only those in the journal: others keep pods in the runtime, too.
    OwnPods,
}

/// What the collector works on.
#[derive(Debug, Clone)]
pub struct Collector {
    /// The runtime.
    pub runtime: SharedRuntime,
    /// The pods that are wanted or on their way out.
    pub table: PodTable,
    /// Folders of pods.
    pub prepare: Arc<dyn Prepare>,
    /// Groups of pods.
    pub cgroups: Option<Arc<CgroupTree>>,
    /// Facts of pods that are gone are dropped here.
    pub journal: Journal,
    /// `/var/log/pods`.
    pub pod_logs: PathBuf,
    /// `/var/log/containers`.
    pub legacy_logs: PathBuf,
    /// `<root>/pods`.
    pub pods_folder: PathBuf,
    /// How far it goes.
    pub cleaning: Cleaning,
    /// The runtime's endpoint, as its own processes name it.
    pub endpoint: String,
    /// What could not be removed.
    pub told: Told,
}

impl Collector {
    /// Starts collecting once every source has spoken.
    pub fn start(self, tasks: &Tasks) {
        let token = tasks.token().clone();
        let run = async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                () = self.run() => {}
            }
        };
        tasks.essential("gc", Box::pin(run));
    }

    async fn run(self) {
        self.table.sources_ready().await;
        let mut pause = FIRST_RETRY;
        let mut own = BTreeSet::new();
        let mut shims = Shims::new(Arc::clone(&self.runtime), &self.endpoint);
        loop {
            if self.collect(&mut own).await {
                pause = FIRST_RETRY;
                tokio::time::sleep(self.end_shims(&mut shims).await.unwrap_or(PERIOD)).await;
            } else {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PERIOD);
            }
        }
    }

    /// Collects once; returns whether nothing is left to try again. `own` are the pods that are known to be this agent's.
    async fn collect(&self, own: &mut BTreeSet<PodUid>) -> bool {
        let unclaimed = self.table.unclaimed();
        own.extend(unclaimed.iter().cloned());
        let stuck = match self.collect_runtime(own).await {
            Ok(stuck) => stuck,
            Err(error) => {
                tracing::warn!(%error, "the runtime cannot be cleaned");
                return false;
            }
        };
        self.collect_files(own, &stuck).await;
        self.told.round_is_over();
        own.retain(|uid| self.pods_folder.join(uid.as_str()).exists());
        // Last: an agent that is killed before leaves the facts to the next one, which could not know the rest as its own.
        // A pod that ends in the ordinary way is the table's by now, with its facts.
        let is_gone = |uid: &PodUid| !self.table.knows(uid) && !stuck.contains(uid) && !own.contains(uid);
        for uid in unclaimed.into_iter().filter(is_gone) {
            drop(self.journal.forget(&uid));
            self.table.drop_unclaimed(&uid);
        }
        stuck.is_empty()
    }

    /// Ends what the runtime forgot; returns in what time to look again before the next collection.
    async fn end_shims(&self, shims: &mut Shims) -> Option<Duration> {
        // Where others use the runtime, too, a shim may be theirs.
        if self.cleaning == Cleaning::OwnPods {
            return None;
        }
        match shims.end_forgotten().await {
            Ok(again) => again,
            Err(error) => {
                tracing::debug!(%error, "the runtime does not say what it runs");
                None
            }
        }
    }

    /// Says whether what a pod has left on the machine may be removed: not while the runtime still has something of it that
    /// may run and use that.
    fn may_remove(&self, uid: &PodUid, own: &BTreeSet<PodUid>, stuck: &BTreeSet<PodUid>) -> bool {
        !self.table.knows(uid) && !stuck.contains(uid) && (self.cleaning == Cleaning::Everything || own.contains(uid))
    }
}
