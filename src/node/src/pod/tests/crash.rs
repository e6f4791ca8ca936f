//! Containers that fail over and over: what is kept, what is told, and what ends the wait.

use longshore_cri::fake::Program;

use super::*;
use crate::model::LocalPods as _;

fn state(status: &PodStatus) -> k8s_openapi::api::core::v1::ContainerStatus {
    status.container_statuses.as_ref().unwrap()[0].clone()
}

fn is_held_back(status: &PodStatus) -> bool {
    let waiting = state(status).state.and_then(|state| state.waiting);
    waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
}

/// Has the container of the pod fail with 1, 2, 3 … until it has failed that often.
async fn fails(bench: &Bench, times: i32) {
    for code in 1..=times {
        bench
            .until("u1", "running", |s| state(s).restart_count == code - 1 && state(s).state.unwrap().running.is_some())
            .await;
        let id = bench.runtime.container_id("u1", "c").unwrap();
        assert!(bench.runtime.exit(&id, code));
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_failure_is_kept_beside_the_last_and_outlives_the_agent() {
    let bench = Bench::new().await;
    let pod = pod("u1");
    bench.set(&pod);
    fails(&bench, 10).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let bench = bench.again().await;
    bench.set(&pod);
    let status = bench.until("u1", "held back", is_held_back).await;
    let last = state(&status).last_state.unwrap().terminated.unwrap();
    assert_eq!(last.exit_code, 10);
    let notes = bench.table.notes(&"u1".into());
    let first = notes["c"].first_failure.clone().unwrap();
    assert_eq!((first.restarts, first.code), (0, 1));
    let next = notes["c"].next_try.unwrap();
    assert!(next > bench.clock.now(), "{next}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_after_failures_is_tried_at_once_when_asked_for() {
    let bench = Bench::new().await;
    bench.set(&pod("u1"));
    fails(&bench, 8).await;
    bench.until("u1", "held back", is_held_back).await;
    let asked = bench.clock.now();
    bench.table.retry(&"u1".into());
    bench.until("u1", "running", |s| state(s).state.unwrap().running.is_some()).await;
    let took = bench.clock.now().duration_since(asked);
    assert!(took.as_secs() < 2, "{took}");
    // The delays begin anew.
    let id = bench.runtime.container_id("u1", "c").unwrap();
    let runs = state(&bench.status("u1").unwrap()).restart_count;
    assert!(bench.runtime.exit(&id, 1));
    let ended = bench.clock.now();
    bench.until("u1", "again", |s| state(s).restart_count == runs + 1).await;
    let took = bench.clock.now().duration_since(ended);
    assert!(took.as_secs() < 12, "{took}");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_is_tried_at_once_when_asked_for() {
    let bench = Bench::new().await;
    *bench.hands.no_volumes.lock() = Some(Failure::new("FailedMount", "secret \"late\" not found"));
    bench.set(&pod("u1"));
    tokio::time::sleep(Duration::from_secs(120)).await;
    *bench.hands.no_volumes.lock() = None;
    let asked = bench.clock.now();
    bench.table.retry(&"u1".into());
    bench.until_ready("u1").await;
    let took = bench.clock.now().duration_since(asked);
    assert!(took.as_secs() < 1, "{took}");
}

#[tokio::test(start_paused = true)]
async fn an_end_at_the_pods_memory_bound_is_called_what_it_was() {
    for (told, reason) in [(true, "OOMKilled"), (false, "Error")] {
        let bench = Bench::new().await;
        let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
        bench.set(&pod_with("u1", spec));
        bench.until_ready("u1").await;
        let id = bench.runtime.container_id("u1", "c").unwrap();
        if told {
            bench.table.context().options.kills.add(id.as_str().into(), bench.clock.now());
        }
        assert!(bench.runtime.exit(&id, 137));
        let status = bench.until("u1", "failed", |s| phase(s) == "Failed").await;
        let end = state(&status).state.unwrap().terminated.unwrap();
        assert_eq!(end.reason.as_deref(), Some(reason));
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ended_well_has_no_first_failure() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program::exits(0, Duration::from_millis(10)));
    bench.set(&pod_with("u1", json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]})));
    bench.until("u1", "through", |s| phase(s) == "Succeeded").await;
    assert!(bench.table.notes(&"u1".into()).is_empty());
}
