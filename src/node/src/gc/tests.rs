//! What is left of pods that no source wants goes, whenever the agent is killed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_cri::fake::{Failure, On};
use longshore_cri::{ErrorKind, SharedRuntime};

use super::{Cleaning, Collector};
use crate::model::{PodChange, PodSink as _};
use crate::pod::tests::{Bench, pod};

/// Starts a collector that has to know its pods from the journal, with a folder of the pod `u1`.
fn collect(bench: &Bench) {
    let pods_folder = bench.folder.path().join("pods");
    std::fs::create_dir_all(pods_folder.join("u1")).unwrap();
    let runtime: SharedRuntime = Arc::new(bench.runtime.clone());
    Collector {
        runtime,
        table: bench.table.clone(),
        prepare: bench.hands.clone(),
        cgroups: None,
        journal: bench.journal.clone(),
        pod_logs: bench.folder.path().join("logs"),
        legacy_logs: bench.folder.path().join("links"),
        pods_folder,
        cleaning: Cleaning::OwnRuntime,
        endpoint: String::new(),
        told: Default::default(),
    }
    .start(&bench.tasks);
    bench.table.apply(PodChange::AllSourcesReady);
}

fn forgotten(bench: &Bench) -> bool {
    bench.hands.log.lock().contains(&"forget u1".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_one_agent_could_not_remove_is_removed_by_the_next() {
    let bench = Bench::new().await;
    bench.set(&pod("u1"));
    bench.until_ready("u1").await;
    // Its API object goes while no agent runs.
    let bench = bench.again().await;
    bench.hands.no_removal.store(true, Ordering::Relaxed);
    collect(&bench);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(bench.runtime.containers().is_empty());
    let bench = bench.killed().await;
    collect(&bench);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(forgotten(&bench));
}

/// Found by the fuzzer: its volumes were taken away below it.
#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_stopped_keeps_its_files() {
    let bench = Bench::new().await;
    bench.set(&pod("u1"));
    bench.until_ready("u1").await;
    let bench = bench.again().await;
    let logs = bench.folder.path().join("logs/default_u1_u1");
    std::fs::create_dir_all(&logs).unwrap();
    let refuses = Failure::Error(ErrorKind::InvalidArgument, "no".to_owned());
    let refusal = bench.runtime.failpoints().set(On::rpc("StopContainer"), refuses);
    collect(&bench);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(bench.runtime.failpoints().count("StopContainer") > 1);
    assert!(!forgotten(&bench) && logs.exists());
    bench.runtime.failpoints().clear(refusal);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(bench.runtime.containers().is_empty() && forgotten(&bench) && !logs.exists());
}
