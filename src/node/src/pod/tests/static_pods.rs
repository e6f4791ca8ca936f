//! Static pods: names, uids and manifests that go, come back and change, with and without an agent that sees it.

use longshore_cri::fake::{OnTerm, Program};

use super::*;
use crate::model::annotations::CONFIG_REVISION;

/// A static pod named `st`.
fn static_pod(uid: &str) -> DesiredPod {
    DesiredPod { source: SourceKind::File, key: PodKey::new("default", "st"), ..pod(uid) }
}

/// The same of a manifest that gives the uid.
fn revised(uid: &str, revision: &str) -> DesiredPod {
    let mut pod = static_pod(uid);
    let annotations = Arc::make_mut(&mut pod.pod).metadata.annotations.get_or_insert_default();
    annotations.insert(CONFIG_REVISION.to_owned(), revision.to_owned());
    pod
}

fn job(uid: &str) -> DesiredPod {
    let spec = json!({"restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "i"}]});
    DesiredPod { source: SourceKind::File, key: PodKey::new("default", "st"), ..pod_with(uid, spec) }
}

/// Takes two seconds to end.
fn slow(bench: &Bench) {
    let program = Program { on_term: OnTerm::Exit { code: 0, after: Duration::from_secs(2) }, ..Program::default() };
    bench.runtime.set_program("c", program);
}

fn live(bench: &Bench) -> usize {
    let running = |c: &v1::ContainerStatus| c.state() == v1::ContainerState::ContainerRunning;
    bench.runtime.containers().iter().filter(|c| running(c)).count()
}

/// When, among all changes, the first pod was down and the last one began.
fn one_after_the_other(bench: &Bench) -> bool {
    let changes = bench.runtime.failpoints().changes();
    let end = changes.iter().position(|c| *c == "StopPodSandbox").unwrap();
    let start = changes.iter().rposition(|c| *c == "RunPodSandbox").unwrap();
    end < start
}

#[tokio::test(start_paused = true)]
async fn a_completed_pod_with_a_given_uid_runs_again_when_its_file_comes_back() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program::exits(0, Duration::from_secs(1)));
    for round in 1..4 {
        bench.set(&job("fixed"));
        bench.until("fixed", "Succeeded", |s| phase(s) == "Succeeded").await;
        assert_eq!(bench.runtime.failpoints().count("StartContainer"), round);
        bench.table.apply(PodChange::Remove("fixed".into()));
        bench.until_gone("fixed").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_completed_pod_is_not_run_again_by_the_next_agent() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program::exits(0, Duration::from_secs(1)));
    bench.set(&job("fixed"));
    bench.until("fixed", "Succeeded", |s| phase(s) == "Succeeded").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let bench = bench.again().await;
    bench.set(&job("fixed"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(phase(&bench.status("fixed").unwrap()), "Succeeded");
    assert_eq!(bench.runtime.failpoints().count("StartContainer"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_moves_out_and_in_at_any_moment_ends_in_one_running_pod() {
    let bench = Bench::new().await;
    slow(&bench);
    for wait in [0, 1, 50, 300, 900, 1500, 2500, 4000, 10, 2000, 90_000, 7] {
        bench.set(&static_pod("u1"));
        tokio::time::sleep(Duration::from_millis(wait)).await;
        bench.table.apply(PodChange::Remove("u1".into()));
        tokio::time::sleep(Duration::from_millis(wait / 2)).await;
    }
    bench.set(&static_pod("u1"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    bench.until_ready("u1").await;
    assert_eq!(live(&bench), 1);
}

#[tokio::test(start_paused = true)]
async fn of_quick_edits_only_the_last_one_runs() {
    let bench = Bench::new().await;
    slow(&bench);
    bench.set(&static_pod("u1"));
    bench.until_ready("u1").await;
    for edit in 2..9 {
        bench.table.apply(PodChange::Remove(format!("u{}", edit - 1).into()));
        bench.set(&static_pod(&format!("u{edit}")));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bench.until_ready("u8").await;
    assert_eq!(bench.table.pods().len(), 1);
    assert_eq!(bench.runtime.failpoints().count("RunPodSandbox"), 2);
    assert!(one_after_the_other(&bench));
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_changed_while_no_agent_ran_waits_for_the_old_pod() {
    let bench = Bench::new().await;
    slow(&bench);
    bench.set(&static_pod("u1"));
    bench.until_ready("u1").await;
    let bench = bench.again().await;
    // No source but this one ever speaks: the apiserver may be this very pod.
    bench.set(&static_pod("u2"));
    bench.until_ready("u2").await;
    assert!(bench.table.by_uid("u1").is_none());
    assert!(one_after_the_other(&bench));
    assert_eq!((live(&bench), bench.runtime.sandboxes().len()), (1, 1));
    assert!(bench.table.unclaimed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_source_or_name_is_no_predecessor() {
    let bench = Bench::new().await;
    bench.set(&pod("api"));
    bench.set(&DesiredPod { source: SourceKind::Http, ..static_pod("http") });
    bench.set(&DesiredPod { key: PodKey::new("default", "other"), ..static_pod("other") });
    for uid in ["api", "http", "other"] {
        bench.until_ready(uid).await;
    }
    let bench = bench.again().await;
    bench.set(&static_pod("u2"));
    bench.until_ready("u2").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(live(&bench), 4);
    assert_eq!(bench.table.unclaimed().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_manifest_with_a_given_uid_that_changed_while_no_agent_ran_makes_the_pod_anew() {
    let bench = Bench::new().await;
    slow(&bench);
    bench.set(&revised("fixed", "1"));
    bench.until_ready("fixed").await;
    let bench = bench.again().await;
    bench.set(&revised("fixed", "1"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.runtime.failpoints().count("RunPodSandbox"), 1);
    let bench = bench.again().await;
    bench.set(&revised("fixed", "2"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    bench.until_ready("fixed").await;
    assert_eq!(bench.runtime.failpoints().count("RunPodSandbox"), 2);
    assert!(one_after_the_other(&bench));
    assert_eq!(live(&bench), 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_comes_back_runs_again_also_when_the_agent_was_killed_while_the_pod_ended() {
    let bench = Bench::new().await;
    slow(&bench);
    bench.set(&static_pod("u1"));
    bench.until_ready("u1").await;
    bench.table.apply(PodChange::Remove("u1".into()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let bench = bench.killed().await;
    bench.set(&static_pod("u1"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    bench.until_ready("u1").await;
    assert_eq!(live(&bench), 1);
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_whose_file_went_while_no_agent_ran_ends_with_its_grace() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program::stubborn());
    bench.set(&static_pod("u1"));
    bench.until_ready("u1").await;
    let bench = bench.again().await;
    let begin = tokio::time::Instant::now();
    bench.table.end_unwanted(static_pod("u1"));
    bench.until_gone("u1").await;
    assert!(begin.elapsed() >= Duration::from_secs(5), "{:?}", begin.elapsed());
    assert!(bench.runtime.sandboxes().is_empty());
    assert!(bench.table.unclaimed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_mirror_of_a_pod_that_ended_is_told_the_true_state() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program::exits(0, Duration::from_secs(1)));
    bench.set(&job("u1"));
    bench.until("u1", "Succeeded", |s| phase(s) == "Succeeded").await;
    bench.statuses.all.lock().clear();
    bench.table.set_mirror(&"u1".into(), Some("m2".into()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let last = bench.statuses.all.lock().last().cloned().unwrap();
    assert_eq!((last.mirror.unwrap().as_str(), phase(&last.status)), ("m2", "Succeeded"));
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_stands_before_its_pod_or_while_it_comes_back_is_told_the_state() {
    let bench = Bench::new().await;
    bench.table.set_mirror(&"u1".into(), Some("m1".into()));
    bench.set(&static_pod("u1"));
    bench.until_ready("u1").await;
    let last = |bench: &Bench| bench.statuses.all.lock().last().cloned().unwrap();
    assert_eq!(last(&bench).mirror.as_ref().map(|m| m.as_str()), Some("m1"));
    bench.table.apply(PodChange::Remove("u1".into()));
    bench.set(&static_pod("u1"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    bench.until_ready("u1").await;
    assert_eq!((last(&bench).mirror.as_ref().map(|m| m.as_str()), bench.table.pods().len()), (Some("m1"), 1));
    bench.table.set_mirror(&"u1".into(), None);
    assert_eq!(bench.table.by_uid("u1").unwrap().mirror, None);
}
