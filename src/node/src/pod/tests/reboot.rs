//! The machine goes down with everything on it and comes up again: the runtime keeps its records, nothing runs.

use std::sync::atomic::{AtomicBool, Ordering};

use longshore_cri::fake::ExecReply;

use super::*;

/// Ends agent, sandboxes and containers, and starts the next agent.
async fn reboot(bench: Bench) -> Bench {
    bench.tasks.cancel();
    tokio::time::sleep(Duration::from_secs(1)).await;
    for sandbox in bench.runtime.sandboxes() {
        bench.runtime.kill_sandbox(&sandbox.id);
    }
    bench.again().await
}

/// Names of the containers that were made, in order.
fn made(bench: &Bench) -> Vec<String> {
    let requests = bench.runtime.failpoints().requests::<v1::CreateContainerRequest>();
    requests.iter().map(|r| r.config.as_ref().unwrap().metadata.as_ref().unwrap().name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn after_a_reboot_each_pod_runs_again_in_one_new_sandbox_with_the_next_number() {
    let mut bench = Bench::new().await;
    let pods: Vec<DesiredPod> = (0..30).map(|number| pod(&format!("u{number}"))).collect();
    pods.iter().for_each(|pod| bench.set(pod));
    for pod in &pods {
        bench.until_ready(pod.uid.as_str()).await;
    }
    for round in 1..4 {
        bench = reboot(bench).await;
        let begin = tokio::time::Instant::now();
        pods.iter().for_each(|pod| bench.set(pod));
        for pod in &pods {
            let again = |s: &PodStatus| {
                s.container_statuses.as_ref().is_some_and(|c| c[0].ready && c[0].restart_count >= round)
            };
            let status = bench.until(pod.uid.as_str(), "ready again", again).await;
            assert_eq!(phase(&status), "Running");
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "{:?}", begin.elapsed());
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(
            bench.runtime.failpoints().count("RunPodSandbox"),
            pods.len() * (usize::try_from(round).unwrap() + 1)
        );
    }
    // Each dead sandbox was stopped, once: that gives its address back.
    let stops = bench.runtime.failpoints().requests::<v1::StopPodSandboxRequest>();
    let stopped: std::collections::BTreeSet<&str> = stops.iter().map(|r| r.pod_sandbox_id.as_str()).collect();
    assert_eq!((stops.len(), stopped.len()), (pods.len() * 3, pods.len() * 3));
    let numbers = bench.runtime.failpoints().requests::<v1::RunPodSandboxRequest>();
    let metadata = numbers.iter().map(|r| r.config.as_ref().unwrap().metadata.clone().unwrap());
    let mut attempts: Vec<u32> = metadata.filter(|m| m.uid == "u7").map(|m| m.attempt).collect();
    attempts.dedup();
    assert_eq!(attempts, [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn however_often_the_machine_restarts_no_container_waits_for_it() {
    let mut bench = Bench::new().await;
    let pod = pod("u1");
    bench.set(&pod);
    bench.until_ready("u1").await;
    for round in 1..8 {
        bench = reboot(bench).await;
        bench.set(&pod);
        let begin = tokio::time::Instant::now();
        let again =
            |s: &PodStatus| s.container_statuses.as_ref().is_some_and(|c| c[0].ready && c[0].restart_count >= round);
        bench.until("u1", "ready again", again).await;
        assert!(begin.elapsed() < Duration::from_secs(5), "restart {round}: {:?}", begin.elapsed());
    }
    // What fails while the machine runs waits, also when the agent is another one.
    for _ in 0..3 {
        bench = bench.again().await;
        bench.set(&pod);
        bench.until_ready("u1").await;
        let container =
            bench.runtime.containers().into_iter().find(|c| c.state == v1::ContainerState::ContainerRunning as i32);
        assert!(bench.runtime.exit(&container.unwrap().id, 1));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let begin = tokio::time::Instant::now();
    bench.until_ready("u1").await;
    assert!(begin.elapsed() > Duration::from_secs(15), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn after_a_reboot_the_main_container_waits_again_for_its_sidecar() {
    let bench = Bench::new().await;
    let up = Arc::new(AtomicBool::new(true));
    let answer = Arc::clone(&up);
    bench
        .runtime
        .on_exec(move |_| ExecReply { exit_code: i32::from(!answer.load(Ordering::Relaxed)), ..ExecReply::default() });
    let spec = json!({"initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always",
            "startupProbe": {"exec": {"command": ["up"]}, "periodSeconds": 1, "failureThreshold": 600}}],
        "containers": [{"name": "c", "image": "i"}]});
    let pod = pod_with("u1", spec);
    bench.set(&pod);
    bench.until_ready("u1").await;
    up.store(false, Ordering::Relaxed);
    let bench = reboot(bench).await;
    bench.set(&pod);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(made(&bench), ["side", "c", "side"]);
    up.store(true, Ordering::Relaxed);
    bench.until("u1", "restarted", |s| s.container_statuses.as_ref().is_some_and(|c| c[0].restart_count == 1)).await;
    bench.until_ready("u1").await;
    assert_eq!(made(&bench), ["side", "c", "side", "c"]);
}

/// Field report O-052: the clock was a day ahead when sandboxes and containers were made, and was set right.
#[tokio::test(start_paused = true)]
async fn sandboxes_from_the_future_are_kept() {
    let clock: SharedClock = Arc::new(fakes::TokioClock::start());
    let ahead = clock.now() + jiff::SignedDuration::from_hours(24);
    let options =
        FakeOptions { clock: Arc::new(longshore_util::clock::ManualClock::new(ahead)), ..FakeOptions::default() };
    let runtime = FakeRuntime::new(options);
    runtime.add_image("sha256:1");
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let mut bench = Bench::start(runtime, folder, clock, Arc::new(FakeNode::new())).await;
    let pods: Vec<DesiredPod> = (0..3).map(|number| pod(&format!("u{number}"))).collect();
    for _agent in 0..2 {
        pods.iter().for_each(|pod| bench.set(pod));
        for pod in &pods {
            bench.until_ready(pod.uid.as_str()).await;
        }
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let made = |rpc| bench.runtime.failpoints().count(rpc);
        assert_eq!((made("RunPodSandbox"), made("StopPodSandbox"), made("StartContainer")), (3, 0, 3));
        bench = bench.again().await;
    }
    // Nor does the end of such a container hold its restart back for a day.
    pods.iter().for_each(|pod| bench.set(pod));
    bench.until_ready("u1").await;
    let begin = tokio::time::Instant::now();
    let id = bench.runtime.container_id("u1", "c").unwrap();
    assert!(bench.runtime.exit(&id, 1));
    let again = |s: &PodStatus| s.container_statuses.as_ref().is_some_and(|c| c[0].ready && c[0].restart_count == 1);
    bench.until("u1", "ready again", again).await;
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}
