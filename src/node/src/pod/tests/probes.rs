//! What probes make of a pod.

use longshore_cri::fake::{ExecReply, OnTerm, Program};
use parking_lot::Mutex;

use super::*;

/// Lets commands answer by name: 0 unless the name is in the set.
fn answers(bench: &Bench) -> Arc<Mutex<Vec<&'static str>>> {
    let bad: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let set = Arc::clone(&bad);
    bench.runtime.on_exec(move |request| {
        let fails = set.lock().iter().any(|name| request.cmd == [*name]);
        ExecReply { exit_code: i32::from(fails), stderr: b"no".to_vec(), ..ExecReply::default() }
    });
    bad
}

fn probe(command: &str, period: i32, failures: i32) -> Value {
    json!({"exec": {"command": [command]}, "periodSeconds": period, "failureThreshold": failures})
}

fn with(probes: Value) -> DesiredPod {
    let mut container = json!({"name": "c", "image": "i"});
    container.as_object_mut().unwrap().extend(probes.as_object().unwrap().clone());
    pod_with("u1", json!({"terminationGracePeriodSeconds": 5, "containers": [container]}))
}

fn first(status: &PodStatus) -> &k8s_openapi::api::core::v1::ContainerStatus {
    &status.container_statuses.as_ref().unwrap()[0]
}

fn execs(bench: &Bench) -> usize {
    bench.runtime.failpoints().count("ExecSync")
}

#[tokio::test(start_paused = true)]
async fn readiness_follows_the_probe() {
    let bench = Bench::new().await;
    let bad = answers(&bench);
    bad.lock().push("ready");
    bench.set(&with(json!({"readinessProbe": probe("ready", 10, 2)})));
    let status = bench.until("u1", "running", |s| phase(s) == "Running").await;
    assert_eq!((first(&status).ready, first(&status).started), (false, Some(true)));
    assert_eq!(condition(&status, "ContainersReady"), "False");
    tokio::time::sleep(Duration::from_secs(30)).await;
    bad.lock().clear();
    bench.until_ready("u1").await;
    bad.lock().push("ready");
    let begin = tokio::time::Instant::now();
    let status = bench.until("u1", "not ready", |s| condition(s, "Ready") == "False").await;
    assert!((10..=20).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert_eq!(first(&status).restart_count, 0);
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_liveness_fails_is_killed_and_comes_back() {
    let bench = Bench::new().await;
    let bad = answers(&bench);
    bench.set(&with(json!({"livenessProbe": probe("live", 10, 2)})));
    bench.until_ready("u1").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    bad.lock().push("live");
    let begin = tokio::time::Instant::now();
    let status = bench.until("u1", "restarted", |s| first(s).restart_count == 1).await;
    assert!((10..=20).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert_eq!(phase(&status), "Running");
    assert_eq!(bench.runtime.failpoints().requests::<v1::StopContainerRequest>()[0].timeout, 5);
    // No state in between was shown.
    let states: Vec<String> = bench.statuses.all.lock().iter().map(|u| phase(&u.status).to_owned()).collect();
    assert!(states.iter().rposition(|phase| phase == "Pending") < states.iter().position(|phase| phase == "Running"));
    assert!(bench.statuses.all.lock().iter().all(|u| {
        u.status.container_statuses.iter().flatten().all(|c| c.state.as_ref().unwrap().terminated.is_none())
    }));
    // Asked anew, from nothing.
    bad.lock().clear();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(first(&bench.status("u1").unwrap()).restart_count, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_but_startup_is_asked_until_it_succeeds_also_after_a_restart() {
    let bench = Bench::new().await;
    let bad = answers(&bench);
    bad.lock().push("up");
    let spec = json!({"startupProbe": probe("up", 5, 100), "livenessProbe": probe("live", 1, 1), "readinessProbe": probe("ready", 1, 1)});
    bench.set(&with(spec));
    let commands = || bench.runtime.failpoints().requests::<v1::ExecSyncRequest>();
    for attempt in 0..2 {
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(commands().iter().all(|request| request.cmd == ["up"]), "{attempt}");
        let status = bench.status("u1").unwrap();
        assert_eq!((first(&status).started, first(&status).ready), (Some(false), false));
        bad.lock().clear();
        bench.until_ready("u1").await;
        bench.runtime.failpoints().forget_calls();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(commands().iter().all(|request| request.cmd != ["up"]), "{attempt}");
        // The next instance begins with the startup probe again.
        *bad.lock() = vec!["live", "up"];
        bench.until("u1", "restarted", |s| first(s).restart_count == attempt + 1).await;
        bench.runtime.failpoints().forget_calls();
    }
}

#[tokio::test(start_paused = true)]
async fn the_grace_of_the_probe_counts_and_the_hook_is_run() {
    let bench = Bench::new().await;
    let bad = answers(&bench);
    bad.lock().push("up");
    let mut startup = probe("up", 1, 1);
    startup["terminationGracePeriodSeconds"] = json!(3);
    bench.runtime.set_program("c", Program { on_term: OnTerm::Ignore, ..Program::default() });
    let hook = json!({"preStop": {"exec": {"command": ["bye"]}}});
    let mut pod = with(json!({"startupProbe": startup, "lifecycle": hook}));
    Arc::make_mut(&mut pod.pod).spec.as_mut().unwrap().termination_grace_period_seconds = Some(300);
    bench.set(&pod);
    let begin = tokio::time::Instant::now();
    bench.until("u1", "restarted", |s| s.container_statuses.is_some() && first(s).restart_count == 1).await;
    assert!((3..=5).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    let hooks = bench.runtime.failpoints().requests::<v1::ExecSyncRequest>();
    assert!(hooks.iter().any(|request| request.cmd == ["bye"]));
}

#[tokio::test(start_paused = true)]
async fn a_ready_pod_stays_ready_through_a_restart_of_the_agent() {
    let bench = Bench::new().await;
    let bad = answers(&bench);
    let pod = with(json!({"startupProbe": probe("up", 1, 1), "readinessProbe": probe("ready", 60, 1)}));
    bench.set(&pod);
    bench.until_ready("u1").await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    let bench = bench.again().await;
    bench.runtime.failpoints().forget_calls();
    // From now on it would say no; until it is asked, what is known stands.
    bad.lock().extend(["ready", "up"]);
    bench.set(&pod);
    let begin = tokio::time::Instant::now();
    bench.until("u1", "not ready", |s| condition(s, "Ready") == "False").await;
    assert_eq!(execs(&bench), 1, "the startup probe is not asked again");
    assert!(begin.elapsed() < Duration::from_secs(61));
    let all = bench.statuses.all.lock();
    let ready: Vec<&str> = all.iter().map(|u| condition(&u.status, "Ready")).collect();
    assert_eq!(ready.first(), Some(&"True"), "{ready:?}");
}

#[tokio::test(start_paused = true)]
async fn what_another_agent_reported_of_a_container_stands() {
    let bench = Bench::new().await;
    answers(&bench).lock().extend(["up", "ready"]);
    let plain = pod("u1");
    bench.set(&plain);
    bench.until_ready("u1").await;
    let id = bench.runtime.container_id("u1", "c").unwrap();
    let Bench { runtime, clock, tasks, node, .. } = bench;
    tasks.cancel();
    // Its journal is not ours.
    let bench = Bench::start(runtime, Arc::new(tempfile::tempdir().unwrap()), clock, node).await;
    let mut taken = with(json!({"startupProbe": probe("up", 60, 1), "readinessProbe": probe("ready", 60, 1)}));
    let status = json!({"phase": "Running", "containerStatuses": [{"name": "c", "containerID": format!("containerd://{id}"),
        "ready": true, "started": true, "restartCount": 0, "image": "i", "imageID": "i", "state": {"running": {}}}]});
    Arc::make_mut(&mut taken.pod).status = Some(serde_json::from_value(status).unwrap());
    bench.set(&taken);
    let status = bench.until("u1", "shown", |s| s.container_statuses.is_some()).await;
    assert_eq!((first(&status).ready, first(&status).started), (true, Some(true)));
    bench.until("u1", "not ready once it is asked", |s| condition(s, "Ready") == "False").await;
}

#[tokio::test(start_paused = true)]
async fn while_a_pod_ends_only_readiness_is_asked_for() {
    let bench = Bench::new().await;
    let bad = answers(&bench);
    let on_term = OnTerm::Exit { code: 0, after: Duration::from_secs(20) };
    bench.runtime.set_program("c", Program { on_term, ..Program::default() });
    let pod = with(json!({"livenessProbe": probe("live", 1, 1), "readinessProbe": probe("ready", 1, 1)}));
    bench.set(&pod);
    bench.until_ready("u1").await;
    bench.delete(&pod, 30);
    tokio::time::sleep(Duration::from_secs(2)).await;
    bad.lock().extend(["live", "ready"]);
    bench.runtime.failpoints().forget_calls();
    let status = bench.until("u1", "not ready", |s| condition(s, "Ready") == "False").await;
    assert!(first(&status).state.as_ref().unwrap().running.is_some());
    let status = bench.until_done("u1").await;
    let asked = bench.runtime.failpoints().requests::<v1::ExecSyncRequest>();
    assert!(asked.len() > 5 && asked.iter().all(|request| request.cmd == ["ready"]), "{asked:?}");
    assert_eq!(first(&status).restart_count, 0);
    // Nothing is asked of what is gone.
    bench.runtime.failpoints().forget_calls();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(execs(&bench), 0);
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_starts_the_next_one_when_its_startup_probe_says_so() {
    let bench = Bench::new().await;
    let bad = answers(&bench);
    bad.lock().push("up");
    let side = json!({"name": "s", "image": "i", "restartPolicy": "Always", "startupProbe": probe("up", 1, 60), "livenessProbe": probe("live", 1, 1)});
    bench.set(&pod_with("u1", json!({"initContainers": [side], "containers": [{"name": "c", "image": "i"}]})));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(bench.runtime.containers().len(), 1);
    assert_eq!(condition(&bench.status("u1").unwrap(), "Initialized"), "False");
    bad.lock().clear();
    bench.until_ready("u1").await;
    bad.lock().push("live");
    bench
        .until("u1", "sidecar restarted", |s| {
            s.init_container_statuses.as_ref().is_some_and(|c| c[0].restart_count == 1)
        })
        .await;
    assert_eq!(first(&bench.status("u1").unwrap()).restart_count, 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_stop_of_one_container_does_not_hide_what_the_others_say() {
    let bench = Bench::new().await;
    let bad = answers(&bench);
    bench.runtime.set_program("a", Program::stubborn());
    let spec = json!({"terminationGracePeriodSeconds": 60, "containers": [
        {"name": "a", "image": "i", "livenessProbe": probe("live", 1, 1)},
        {"name": "b", "image": "i", "readinessProbe": probe("ready", 1, 1)}]});
    bench.set(&pod_with("u1", spec));
    bench.until_ready("u1").await;
    bad.lock().push("live");
    while bench.runtime.failpoints().count("StopContainer") == 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bad.lock().push("ready");
    let begin = tokio::time::Instant::now();
    let status = bench.until("u1", "not ready", |s| !s.container_statuses.as_ref().unwrap()[1].ready).await;
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_eq!(first(&status).restart_count, 0);
    bad.lock().clear();
    bench.until("u1", "restarted", |s| first(s).restart_count == 1).await;
}
