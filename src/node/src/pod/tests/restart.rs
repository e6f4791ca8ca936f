//! The agent is killed at any moment and started again.

use longshore_cri::fake::{OnTerm, Program};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_restarted_agent_leaves_running_containers_alone() {
    let bench = Bench::new().await;
    let pod = pod("u1");
    bench.set(&pod);
    let before = bench.until_ready("u1").await;
    let bench = bench.again().await;
    bench.set(&pod);
    let after = bench.until_ready("u1").await;
    assert_eq!(before, after);
    assert_eq!(bench.runtime.failpoints().changes(), ["RunPodSandbox", "CreateContainer", "StartContainer"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_in_the_journal_before_anything_of_it_is_on_the_machine() {
    let bench = Bench::new().await;
    *bench.hands.journal.lock() = Some(bench.folder.path().join("longshore/journal"));
    bench.set(&pod("u1"));
    bench.until_ready("u1").await;
    assert!(bench.hands.log.lock().contains(&"u1 is in the journal".to_owned()), "{:?}", bench.hands.log.lock());
}

#[tokio::test(start_paused = true)]
async fn an_exit_code_outlives_the_container_and_the_agent() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program::exits(9, Duration::from_millis(10)));
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let pod = pod_with("u1", spec);
    bench.set(&pod);
    let before = bench.until("u1", "failed", |s| phase(s) == "Failed").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let bench = bench.again().await;
    for sandbox in bench.runtime.sandboxes() {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox.id };
        bench.runtime.remove_pod_sandbox(request).await.unwrap();
    }
    bench.set(&pod);
    let after = bench.until("u1", "failed", |s| phase(s) == "Failed").await;
    // As the API shows it: times there have whole seconds.
    let shown = |status: &PodStatus| serde_json::to_value(&status.container_statuses).unwrap();
    assert_eq!(shown(&before), shown(&after));
    assert_eq!(bench.runtime.failpoints().count("RunPodSandbox"), 1);
}

/// What the runtime does when the caller goes away in the middle of a start.
async fn break_off(bench: &Bench, id: String) {
    bench.runtime.start_container(v1::StartContainerRequest { container_id: id.clone() }).await.unwrap();
    assert!(bench.runtime.exit(&id, 128));
}

/// The container comes up under the number that it had, and alone.
async fn is_made_anew(bench: &Bench) {
    let status = bench.until_ready("u1").await;
    assert_eq!(status.container_statuses.as_ref().unwrap()[0].restart_count, 0);
    assert_eq!(bench.runtime.containers().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_was_cut_off_is_undone_and_made_anew_under_its_number() {
    let bench = Bench::new().await;
    let hang = longshore_cri::fake::Failure::Hang;
    let number = bench.runtime.failpoints().set(longshore_cri::fake::On::rpc("StartContainer"), hang);
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let pod = pod_with("u1", spec);
    bench.set(&pod);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let id = bench.runtime.container_id("u1", "c").unwrap();
    let bench = bench.killed().await;
    bench.runtime.failpoints().clear(number);
    break_off(&bench, id).await;
    bench.set(&pod);
    is_made_anew(&bench).await;
}

/// The first agent dies after it made the container, the second one in the middle of its start.
#[tokio::test(start_paused = true)]
async fn a_start_that_a_second_agents_end_cut_off_is_undone_too() {
    let hang = longshore_cri::fake::Failure::Hang;
    let bench = Bench::new().await;
    let starts = bench.runtime.failpoints().set(longshore_cri::fake::On::rpc("StartContainer"), hang);
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let pod = pod_with("u1", spec);
    bench.set(&pod);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let id = bench.runtime.container_id("u1", "c").unwrap();
    let bench = bench.killed().await;
    bench.set(&pod);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.runtime.failpoints().count("CreateContainer"), 1);
    let bench = bench.killed().await;
    bench.runtime.failpoints().clear(starts);
    break_off(&bench, id).await;
    bench.set(&pod);
    is_made_anew(&bench).await;
}

/// The runtime takes its time to break off the start: the next agent finds the container created and may not start it.
#[tokio::test(start_paused = true)]
async fn a_start_that_is_still_being_cut_off_is_undone_when_it_has_ended() {
    use longshore_cri::fake::{Failure, On};
    let bench = Bench::new().await;
    bench.runtime.failpoints().set(On::rpc("StartContainer").once(), Failure::Hang);
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let pod = pod_with("u1", spec);
    bench.set(&pod);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let id = bench.runtime.container_id("u1", "c").unwrap();
    let bench = bench.killed().await;
    let refusal = Failure::Error(
        longshore_cri::ErrorKind::Other(longshore_cri::Code::Unknown),
        "container is already in starting state".to_owned(),
    );
    let refused = bench.runtime.failpoints().set(On::rpc("StartContainer"), refusal);
    bench.set(&pod);
    tokio::time::sleep(Duration::from_secs(3)).await;
    bench.runtime.failpoints().clear(refused);
    break_off(&bench, id).await;
    is_made_anew(&bench).await;
}

#[tokio::test(start_paused = true)]
async fn an_exit_while_no_agent_ran_is_reported_as_it_was() {
    let bench = Bench::new().await;
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let pod = pod_with("u1", spec);
    bench.set(&pod);
    bench.until_ready("u1").await;
    let id = bench.runtime.container_id("u1", "c").unwrap();
    bench.tasks.cancel();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(bench.runtime.exit(&id, 3));
    let bench = bench.again().await;
    bench.set(&pod);
    let status = bench.until("u1", "failed", |s| phase(s) == "Failed").await;
    let state = status.container_statuses.as_ref().unwrap()[0].state.clone().unwrap();
    assert_eq!(state.terminated.unwrap().exit_code, 3);
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_while_no_agent_ran_ends() {
    let bench = Bench::new().await;
    let pod = pod("u1");
    bench.set(&pod);
    bench.until_ready("u1").await;
    let bench = bench.again().await;
    bench.delete(&pod, 5);
    bench.until_done("u1").await;
    assert_eq!(bench.runtime.failpoints().count("StopPodSandbox"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_grace_that_was_asked_for_while_no_agent_ran_counts() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program { on_term: OnTerm::Ignore, ..Program::default() });
    let pod = pod("u1");
    bench.set(&pod);
    bench.until_ready("u1").await;
    bench.delete(&pod, 300);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let bench = bench.killed().await;
    bench.delete(&pod, 3);
    bench.until_done("u1").await;
    let asked: Vec<i64> =
        bench.runtime.failpoints().requests::<v1::StopContainerRequest>().iter().map(|r| r.timeout).collect();
    assert_eq!(asked, [300, 3]);
}

/// xorshift, so that a failure can be repeated from the printed seed.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[tokio::test(start_paused = true)]
async fn killed_at_random_moments_nothing_is_doubled_or_left() {
    let seed: u64 = std::env::var("LONGSHORE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_1234);
    println!("LONGSHORE_SEED={seed}");
    let mut state = seed | 1;
    let mut bench = Bench::new().await;
    let delay = longshore_cri::fake::Failure::Delay(Duration::from_millis(40));
    for rpc in ["RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox"] {
        bench.runtime.failpoints().set(longshore_cri::fake::On::rpc(rpc), delay.clone());
    }
    let mut ids: HashMap<String, String> = HashMap::new();
    for round in 0..40 {
        let uids: Vec<String> = (0..4).map(|n| format!("r{round}-{n}")).collect();
        let pods: Vec<DesiredPod> = uids.iter().map(|uid| pod(uid)).collect();
        pods.iter().for_each(|pod| bench.set(pod));
        tokio::time::sleep(Duration::from_millis(random(&mut state) % 250)).await;
        bench = bench.again().await;
        pods.iter().for_each(|pod| bench.set(pod));
        for uid in &uids {
            let status = bench.until_ready(uid).await;
            let container = &status.container_statuses.as_ref().unwrap()[0];
            assert_eq!(container.restart_count, 0, "{uid}");
            ids.insert(uid.clone(), container.container_id.clone().unwrap());
        }
        bench = bench.again().await;
        pods.iter().for_each(|pod| bench.set(pod));
        for uid in &uids {
            let status = bench.until_ready(uid).await;
            assert_eq!(status.container_statuses.as_ref().unwrap()[0].container_id.as_ref(), ids.get(uid), "{uid}");
        }
        let live =
            bench.runtime.containers().iter().filter(|c| c.state() == v1::ContainerState::ContainerRunning).count();
        assert_eq!(live, uids.len(), "round {round}");
        pods.iter().for_each(|pod| bench.delete(pod, 5));
        tokio::time::sleep(Duration::from_millis(random(&mut state) % 200)).await;
        bench = bench.again().await;
        pods.iter().for_each(|pod| bench.delete(pod, 5));
        for uid in &uids {
            bench.until_done(uid).await;
            bench.table.apply(PodChange::Remove(PodUid::from(uid.as_str())));
        }
        for uid in &uids {
            bench.until_gone(uid).await;
        }
        assert!(bench.runtime.sandboxes().is_empty(), "round {round}: {:?}", bench.runtime.sandboxes());
    }
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_whose_address_the_runtime_forgot_is_left_alone() {
    let bench = Bench::new().await;
    let pod = pod("u1");
    bench.set(&pod);
    let before = bench.until_ready("u1").await;
    let bench = bench.again().await;
    let sandbox = bench.runtime.sandboxes().remove(0).id;
    bench.runtime.lose_address(&sandbox);
    bench.set(&pod);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let after = bench.until_ready("u1").await;
    assert_eq!(before.pod_ips, after.pod_ips);
    assert_eq!(bench.runtime.failpoints().count("RunPodSandbox"), 1);
}

/// Names of the containers that were made, in order.
fn made(bench: &Bench) -> Vec<String> {
    let requests = bench.runtime.failpoints().requests::<v1::CreateContainerRequest>();
    requests.iter().map(|r| r.config.as_ref().unwrap().metadata.as_ref().unwrap().name.clone()).collect()
}

/// Removes all dead containers behind the agent's back.
async fn prune(bench: &Bench) {
    for container in bench.runtime.containers() {
        if container.state() == v1::ContainerState::ContainerExited {
            let request = v1::RemoveContainerRequest { container_id: container.id };
            bench.runtime.remove_container(request).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn init_containers_are_not_run_again_when_their_dead_ones_were_removed() {
    let bench = Bench::new().await;
    bench.runtime.set_program("i", Program::exits(0, Duration::from_millis(10)));
    let spec = json!({"initContainers": [{"name": "i", "image": "i"}], "containers": [{"name": "c", "image": "i"}]});
    bench.set(&pod_with("u1", spec.clone()));
    bench.until_ready("u1").await;
    prune(&bench).await;
    let bench = bench.again().await;
    bench.set(&pod_with("u1", spec));
    bench.until_ready("u1").await;
    let main =
        bench.runtime.containers().into_iter().find(|c| c.state() == v1::ContainerState::ContainerRunning).unwrap();
    assert!(bench.runtime.exit(&main.id, 1));
    bench.until("u1", "restarted", |s| s.container_statuses.as_ref().is_some_and(|c| c[0].restart_count == 1)).await;
    bench.until_ready("u1").await;
    assert_eq!(made(&bench), ["i", "c", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_main_container_that_ended_while_no_agent_ran_starts_again_beside_its_sidecar() {
    let bench = Bench::new().await;
    let spec = json!({"initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always"}],
        "containers": [{"name": "c", "image": "i"}]});
    bench.set(&pod_with("u1", spec.clone()));
    bench.until_ready("u1").await;
    let main = bench.runtime.containers().into_iter().find(|c| c.metadata.as_ref().unwrap().name == "c").unwrap();
    let bench = bench.again().await;
    assert!(bench.runtime.exit(&main.id, 0));
    bench.set(&pod_with("u1", spec));
    bench.until("u1", "restarted", |s| s.container_statuses.as_ref().is_some_and(|c| c[0].restart_count == 1)).await;
    bench.until_ready("u1").await;
    assert_eq!(made(&bench), ["side", "c", "c"]);
}

#[tokio::test(start_paused = true)]
async fn late_answers_of_the_runtime_never_make_a_second_container_of_a_name() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program::exits(1, Duration::from_millis(200)));
    let late = longshore_cri::fake::Failure::Delay(Duration::from_millis(500));
    bench.runtime.failpoints().set(longshore_cri::fake::On::rpc("ContainerStatus"), late);
    for index in 0..30 {
        bench.set(&pod(&format!("u{index}")));
    }
    let mut most = 0;
    for _ in 0..3000 {
        tokio::time::sleep(Duration::from_millis(40)).await;
        let mut running: HashMap<String, usize> = HashMap::new();
        for container in bench.runtime.containers() {
            if container.state() == v1::ContainerState::ContainerRunning {
                *running.entry(container.labels[labels::POD_UID].clone()).or_default() += 1;
            }
        }
        most = most.max(running.values().copied().max().unwrap_or_default());
    }
    assert_eq!(most, 1);
    assert!(made(&bench).len() > 90, "{}", made(&bench).len());
}
