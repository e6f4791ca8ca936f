//! Garbage: dead containers and sandboxes beyond what is kept for `lastState`, and everything of pods that no source
//! wants. Strangers are touched only after every source has spoken, and never without the pod labels.

mod files;
mod runtime;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_cri::SharedRuntime;
use longshore_util::Tasks;

use crate::journal::Journal;
use crate::pod::{PodTable, Prepare};
use crate::resource::CgroupTree;

/// Pause between collections, as upstream's.
const PERIOD: Duration = Duration::from_secs(60);
/// First pause after something could not be removed.
const FIRST_RETRY: Duration = Duration::from_secs(1);

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
        loop {
            if self.collect().await {
                pause = FIRST_RETRY;
                tokio::time::sleep(PERIOD).await;
            } else {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PERIOD);
            }
        }
    }

    /// Collects once; returns whether nothing is left to try again.
    pub async fn collect(&self) -> bool {
        let clean = match self.collect_runtime().await {
            Ok(clean) => clean,
            Err(error) => {
                tracing::warn!(%error, "the runtime cannot be cleaned");
                return false;
            }
        };
        for uid in self.table.unclaimed() {
            drop(self.journal.forget(&uid));
            self.table.drop_unclaimed(&uid);
        }
        self.collect_files().await;
        clean
    }
}
