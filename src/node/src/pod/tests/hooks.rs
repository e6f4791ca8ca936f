//! Hooks, and the order and deadline of stops.

use longshore_cri::fake::{ExecReply, Failure as Fault, On, OnTerm, Program};
use tokio::time::Instant;

use super::*;

fn hooked(lifecycle: Value) -> DesiredPod {
    let container = json!({"name": "c", "image": "i", "lifecycle": lifecycle});
    pod_with("u1", json!({"terminationGracePeriodSeconds": 30, "containers": [container]}))
}

fn exec(word: &str) -> Value {
    json!({"exec": {"command": [word]}})
}

fn commands(bench: &Bench) -> Vec<String> {
    let requests = bench.runtime.failpoints().requests::<v1::ExecSyncRequest>();
    requests.into_iter().map(|request| request.cmd.join(" ")).collect()
}

/// Calls of that name with the container they name, and how long after `begin` they came.
fn stops(bench: &Bench, begin: Instant) -> Vec<(String, u64)> {
    let name = |id: &str| {
        let all = bench.runtime.containers();
        all.iter().find(|c| c.id == id).and_then(|c| c.metadata.clone()).map(|m| m.name).unwrap_or_default()
    };
    let calls = bench.runtime.failpoints().calls();
    calls
        .iter()
        .filter_map(|call| {
            let request = call.request::<v1::StopContainerRequest>()?;
            Some((name(&request.container_id), call.at.duration_since(begin).as_secs()))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_failed_hook_after_the_start_kills_the_container_and_says_why() {
    let bench = Bench::new().await;
    bench.runtime.on_exec(|_| ExecReply { exit_code: 9, stderr: b"no luck\n".to_vec(), ..ExecReply::default() });
    bench.set(&hooked(json!({"postStart": exec("post")})));
    let failed = |s: &PodStatus| {
        let state = s.container_statuses.as_ref().and_then(|c| c[0].state.clone()).unwrap_or_default();
        state.waiting.filter(|w| w.reason.as_deref() == Some("PostStartHookError"))
    };
    let status = bench.until("u1", "failed", |s| failed(s).is_some()).await;
    assert_eq!(
        failed(&status).unwrap().message.unwrap(),
        "Exec lifecycle hook ([post]) for Container \"c\" in Pod \"u1_default(u1)\" failed - error: command 'post' exited with 9: no luck\n, message: \"no luck\\n\""
    );
    assert_eq!(bench.runtime.failpoints().count("StopContainer"), 1);
    bench.until("u1", "tried again", |s| s.container_statuses.as_ref().unwrap()[0].restart_count == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_the_end_of_an_agent_cut_off_is_run_again_before_the_pod_is_ready() {
    let bench = Bench::new().await;
    let pod = hooked(json!({"postStart": exec("post")}));
    let hang = bench.runtime.failpoints().set(On::rpc("ExecSync"), Fault::Hang);
    bench.set(&pod);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(commands(&bench), ["post"]);
    let bench = bench.killed().await;
    bench.set(&pod);
    let status = bench.until("u1", "running", |s| phase(s) == "Running").await;
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!((container.started, container.ready), (Some(false), false));
    bench.runtime.failpoints().clear(hang);
    bench.until_ready("u1").await;
    assert_eq!(commands(&bench), ["post", "post"]);
    // Once through it is never run again for this instance.
    let bench = bench.again().await;
    bench.set(&pod);
    bench.until_ready("u1").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(commands(&bench).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn hook_and_stop_share_one_deadline() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program::stubborn());
    bench.runtime.failpoints().set(On::rpc("ExecSync"), Fault::Delay(Duration::from_secs(600)));
    let pod = hooked(json!({"preStop": exec("bye")}));
    bench.set(&pod);
    bench.until_ready("u1").await;
    bench.delete(&pod, 30);
    let begin = Instant::now();
    bench.until_done("u1").await;
    assert!((30..=33).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert_eq!(stops(&bench, begin), [("c".to_owned(), 30)]);
}

#[tokio::test(start_paused = true)]
async fn a_second_deletion_with_less_grace_cuts_the_hook_short() {
    let bench = Bench::new().await;
    bench.runtime.failpoints().set(On::rpc("ExecSync"), Fault::Delay(Duration::from_secs(600)));
    let pod = hooked(json!({"preStop": exec("bye")}));
    bench.set(&pod);
    bench.until_ready("u1").await;
    bench.delete(&pod, 600);
    tokio::time::sleep(Duration::from_secs(20)).await;
    bench.delete(&pod, 25);
    let begin = Instant::now();
    bench.until_done("u1").await;
    assert!((4..=6).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_hook_goes_off_the_time_of_the_stop() {
    let bench = Bench::new().await;
    let pod = hooked(json!({"preStop": {"sleep": {"seconds": 10}}}));
    bench.set(&pod);
    bench.until_ready("u1").await;
    bench.delete(&pod, 30);
    bench.until_done("u1").await;
    assert_eq!(bench.runtime.failpoints().requests::<v1::StopContainerRequest>()[0].timeout, 20);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_run_in_a_container_that_has_exited() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program::exits(0, Duration::from_secs(5)));
    let mut pod = hooked(json!({"preStop": exec("bye")}));
    Arc::make_mut(&mut pod.pod).spec.as_mut().unwrap().restart_policy = Some("Never".into());
    bench.set(&pod);
    bench.until("u1", "succeeded", |s| phase(s) == "Succeeded").await;
    bench.delete(&pod, 30);
    bench.until_done("u1").await;
    assert_eq!(commands(&bench), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn hooks_of_sidecars_begin_with_the_others_and_their_stops_wait_their_turn() {
    let bench = Bench::new().await;
    let slow = |seconds| Program {
        on_term: OnTerm::Exit { code: 0, after: Duration::from_secs(seconds) },
        ..Program::default()
    };
    bench.runtime.set_program("c", slow(5));
    bench.runtime.set_program("s2", slow(3));
    let side = |name: &str| json!({"name": name, "image": "i", "restartPolicy": "Always", "lifecycle": {"preStop": exec(name)}});
    let pod = pod_with(
        "u1",
        json!({"terminationGracePeriodSeconds": 30, "initContainers": [side("s1"), side("s2")], "containers": [{"name": "c", "image": "i"}]}),
    );
    bench.set(&pod);
    bench.until_ready("u1").await;
    bench.delete(&pod, 30);
    let begin = Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut hooks = commands(&bench);
    hooks.sort();
    assert_eq!(hooks, ["s1", "s2"]);
    bench.until_done("u1").await;
    assert_eq!(stops(&bench, begin), [("c".to_owned(), 0), ("s2".to_owned(), 5), ("s1".to_owned(), 8)]);
}

#[tokio::test(start_paused = true)]
async fn sidecars_that_wait_in_vain_are_stopped_when_the_grace_is_over() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program::stubborn());
    let side = json!({"name": "s", "image": "i", "restartPolicy": "Always"});
    let spec = json!({"terminationGracePeriodSeconds": 10, "initContainers": [side], "containers": [{"name": "c", "image": "i"}]});
    let pod = pod_with("u1", spec);
    bench.set(&pod);
    bench.until_ready("u1").await;
    bench.delete(&pod, 10);
    let begin = Instant::now();
    bench.until_done("u1").await;
    assert!(begin.elapsed() < Duration::from_secs(13), "{:?}", begin.elapsed());
    assert_eq!(bench.runtime.failpoints().requests::<v1::StopContainerRequest>().last().unwrap().timeout, 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_by_force_is_killed_within_seconds() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program::stubborn());
    let spec = json!({"terminationGracePeriodSeconds": 600, "containers": [{"name": "c", "image": "i"}]});
    let pod = pod_with("u1", spec);
    bench.set(&pod);
    bench.until_ready("u1").await;
    bench.table.apply(PodChange::Remove("u1".into()));
    let begin = Instant::now();
    bench.until_gone("u1").await;
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    assert!(bench.runtime.sandboxes().is_empty() && bench.runtime.containers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn force_also_shortens_an_end_under_way() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program::stubborn());
    let pod = hooked(json!({"preStop": {"sleep": {"seconds": 500}}}));
    bench.set(&pod);
    bench.until_ready("u1").await;
    bench.delete(&pod, 600);
    tokio::time::sleep(Duration::from_secs(20)).await;
    bench.table.apply(PodChange::Remove("u1".into()));
    let begin = Instant::now();
    bench.until_gone("u1").await;
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_pod_can_be_deleted_in_every_phase() {
    for case in ["pull", "hook", "init", "back-off"] {
        let bench = Bench::new().await;
        let pod = match case {
            "pull" => {
                bench.hands.slow_images.store(true, std::sync::atomic::Ordering::Relaxed);
                pod("u1")
            }
            "hook" => {
                bench.runtime.failpoints().set(On::rpc("ExecSync"), Fault::Hang);
                hooked(json!({"postStart": exec("post")}))
            }
            "init" => pod_with(
                "u1",
                json!({"initContainers": [{"name": "i", "image": "i"}], "containers": [{"name": "c", "image": "i"}]}),
            ),
            _ => {
                bench.runtime.set_program("c", Program::exits(1, Duration::from_millis(10)));
                pod("u1")
            }
        };
        bench.set(&pod);
        tokio::time::sleep(Duration::from_secs(7)).await;
        bench.delete(&pod, 3);
        let begin = Instant::now();
        let status = bench.until_done("u1").await;
        assert!(begin.elapsed() < Duration::from_secs(5), "{case}: {:?}", begin.elapsed());
        let lists = [&status.init_container_statuses, &status.container_statuses];
        let all = lists.iter().flat_map(|l| l.iter().flatten());
        let ended = all.filter(|c| c.state.as_ref().is_some_and(|s| s.terminated.is_some())).count();
        assert!(ended >= 1 && bench.runtime.failpoints().count("StopPodSandbox") == 1, "{case}: {status:?}");
        assert!(matches!(phase(&status), "Failed" | "Succeeded"), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_run_once_also_when_the_stop_fails_at_first() {
    let bench = Bench::new().await;
    let pod = hooked(json!({"preStop": exec("bye")}));
    bench.set(&pod);
    bench.until_ready("u1").await;
    let refused = Fault::Error(longshore_cri::ErrorKind::InvalidArgument, "not now".into());
    bench.runtime.failpoints().set(On::rpc("StopContainer").times(3), refused);
    bench.delete(&pod, 30);
    bench.until_done("u1").await;
    assert_eq!(bench.runtime.failpoints().count("StopContainer"), 4);
    assert_eq!(commands(&bench), ["bye"]);
}
