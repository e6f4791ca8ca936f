//! What the pod fuzzer has found, each as small as it can be told.

use longshore_cri::ErrorKind;
use longshore_cri::fake::{ExecReply, Failure as Fault, On, OnTerm, Program};

use super::*;

fn refusal() -> Fault {
    Fault::Error(ErrorKind::Other(longshore_cri::Code::Unknown), "told to fail".into())
}

fn waits(status: &PodStatus) -> bool {
    let state = status.container_statuses.as_ref().and_then(|all| all[0].state.clone()).unwrap_or_default();
    state.waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("RunContainerError"))
}

/// A container that was made for a restart but never ran goes with its sandbox; the restart was told all the same.
#[tokio::test(start_paused = true)]
async fn a_restart_count_never_shrinks() {
    let bench = Bench::new().await;
    bench.set(&pod("u1"));
    bench.until_ready("u1").await;
    bench.runtime.failpoints().set(On::rpc("StartContainer").times(2), refusal());
    bench.runtime.exit(&bench.runtime.container_id("u1", "c").unwrap(), 1);
    bench.until("u1", "waiting", waits).await;
    bench.runtime.kill_sandbox(&bench.runtime.sandboxes()[0].id);
    bench.table.wake(&"u1".into());
    bench.until_ready("u1").await;
    let all = bench.statuses.all.lock();
    let counts: Vec<i32> =
        all.iter().filter_map(|u| u.status.container_statuses.as_ref().map(|all| all[0].restart_count)).collect();
    assert!(counts.is_sorted(), "{counts:?}");
}

/// The API shows the container that could not be started, as not ready; that says nothing of the time when it runs.
#[tokio::test(start_paused = true)]
async fn a_container_whose_start_is_tried_again_becomes_ready() {
    let bench = Bench::new().await;
    bench.runtime.failpoints().set(On::rpc("StartContainer").once(), refusal());
    let mut pod = pod("u1");
    bench.set(&pod);
    let shown = bench.until("u1", "waiting", waits).await;
    Arc::make_mut(&mut pod.pod).status = Some(PodStatus::clone(&shown));
    bench.table.apply(PodChange::Status(pod));
    bench.until_ready("u1").await;
}

/// The runtime lost the event of its end, so it is taken to run when its image changes.
#[tokio::test(start_paused = true)]
async fn a_container_that_never_restarts_does_not_run_again_because_its_end_was_not_seen() {
    let bench = Bench::new().await;
    let spec = |image: &str| json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": image}]});
    bench.set(&pod_with("u1", spec("i")));
    bench.until_ready("u1").await;
    bench.runtime.mute_events(true);
    bench.runtime.exit(&bench.runtime.container_id("u1", "c").unwrap(), 3);
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.set(&pod_with("u1", spec("other")));
    bench.until("u1", "failed", |status| phase(status) == "Failed").await;
    assert_eq!(bench.runtime.failpoints().count("CreateContainer"), 1);
}

/// Its sandbox is gone and it never restarts anything: it has ended, and says so.
#[tokio::test(start_paused = true)]
async fn a_static_pod_that_cannot_go_on_is_shown_as_failed() {
    let bench = Bench::new().await;
    let spec = json!({
        "restartPolicy": "Never", "initContainers": [{"name": "i", "image": "i"}],
        "containers": [{"name": "c", "image": "i"}]
    });
    bench.set(&DesiredPod { source: SourceKind::File, ..pod_with("u1", spec) });
    bench.until("u1", "initializing", |_| bench.runtime.container_id("u1", "i").is_some()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.runtime.kill_sandbox(&bench.runtime.sandboxes()[0].id);
    bench.table.wake(&"u1".into());
    bench.until("u1", "failed", |status| phase(status) == "Failed").await;
}

/// Its file went and came back while it was ending, and the agent was killed in between.
#[tokio::test(start_paused = true)]
async fn a_static_pod_that_is_put_back_while_it_ends_begins_anew_under_the_next_agent() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program { on_term: OnTerm::Ignore, ..Program::default() });
    let pod = DesiredPod { source: SourceKind::File, ..pod("u1") };
    bench.set(&pod);
    bench.until_ready("u1").await;
    bench.table.apply(PodChange::Remove("u1".into()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let bench = bench.killed().await;
    bench.set(&pod);
    tokio::time::sleep(Duration::from_secs(20)).await;
    bench.until_ready("u1").await;
    assert_eq!(bench.runtime.failpoints().count("RunPodSandbox"), 2);
}

/// One container does not listen while it is stopped for its probe; what becomes of the other one is told meanwhile.
#[tokio::test(start_paused = true)]
async fn an_exit_is_shown_while_another_container_of_the_pod_is_stopped() {
    let bench = Bench::new().await;
    bench.runtime.set_program("deaf", Program { on_term: OnTerm::Ignore, ..Program::default() });
    bench.runtime.on_exec(|_| ExecReply { exit_code: 1, ..ExecReply::default() });
    let probe = json!({"exec": {"command": ["live"]}, "periodSeconds": 1, "failureThreshold": 1});
    let containers = json!([{"name": "deaf", "image": "i", "livenessProbe": probe}, {"name": "c", "image": "i"}]);
    bench.set(&pod_with("u1", json!({"terminationGracePeriodSeconds": 300, "containers": containers})));
    bench.until("u1", "running", |status| phase(status) == "Running").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(bench.runtime.failpoints().count("StopContainer"), 1);
    bench.runtime.exit(&bench.runtime.container_id("u1", "c").unwrap(), 3);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let state = |name: &str| {
        let status = bench.status("u1").unwrap();
        let found = status.container_statuses.iter().flatten().find(|c| c.name == name).unwrap();
        found.state.clone().unwrap()
    };
    assert_eq!(state("c").terminated.map(|end| end.exit_code), Some(3));
    assert!(state("deaf").running.is_some());
    // The end of the one that is stopped is not shown: its successor follows in the same step.
    bench.until("u1", "restarted", |s| s.container_statuses.iter().flatten().all(|c| c.restart_count == 1)).await;
    assert!(bench.statuses.all.lock().iter().all(|update| {
        let shown = update.status.container_statuses.iter().flatten().filter(|c| c.name == "deaf");
        shown.filter_map(|c| c.state.as_ref()).all(|state| state.terminated.is_none())
    }));
}
