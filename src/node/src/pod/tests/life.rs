//! Starting, restarting, ending.

use longshore_cri::ErrorKind;
use longshore_cri::fake::{Failure as Fault, On, OnTerm, Program};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_pod_starts_and_is_deleted_with_the_calls_of_the_recording() {
    let bench = Bench::new().await;
    let pod = pod("u1");
    bench.set(&pod);
    let status = bench.until_ready("u1").await;
    assert_eq!(phase(&status), "Running");
    assert_eq!(status.host_ip.as_deref(), Some("192.168.0.1"));
    assert_eq!(bench.runtime.failpoints().changes(), ["RunPodSandbox", "CreateContainer", "StartContainer"]);
    bench.delete(&pod, 5);
    let status = bench.until_done("u1").await;
    assert_eq!(phase(&status), "Succeeded");
    assert_eq!(
        bench.runtime.failpoints().changes(),
        ["RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox"]
    );
    let log = bench.hands.log.lock().clone();
    assert!(log.contains(&"release u1".to_owned()) && log.contains(&"no cgroup u1".to_owned()), "{log:?}");
    bench.table.apply(PodChange::Remove("u1".into()));
    bench.until_gone("u1").await;
    assert!(bench.runtime.sandboxes().is_empty() && bench.runtime.containers().is_empty());
    assert_eq!(*bench.statuses.forgotten.lock(), ["u1".into()]);
}

#[tokio::test(start_paused = true)]
async fn the_first_restart_is_at_once_and_the_next_is_held_back() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program::exits(3, Duration::from_millis(10)));
    bench.set(&pod("u1"));
    let begin = tokio::time::Instant::now();
    let looping = |s: &PodStatus| {
        let state = s.container_statuses.as_ref().and_then(|c| c[0].state.clone()).unwrap_or_default();
        state.waiting.is_some_and(|w| w.reason.as_deref() == Some("CrashLoopBackOff"))
    };
    let status = bench.until("u1", "in a crash loop", looping).await;
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(container.restart_count, 1);
    assert_eq!(container.last_state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 3);
    assert_eq!(phase(&status), "Running");
    let status = bench
        .until("u1", "twice restarted", |s| s.container_statuses.as_ref().is_some_and(|c| c[0].restart_count == 2))
        .await;
    assert!((9..12).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert_eq!(phase(&status), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_never_restarts_ends_with_its_exit_codes() {
    let bench = Bench::new().await;
    bench.runtime.set_program("a", Program::exits(3, Duration::from_millis(10)));
    bench.runtime.set_program("b", Program::exits(0, Duration::from_secs(2)));
    let spec =
        json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]});
    bench.set(&pod_with("u1", spec));
    let status = bench.until("u1", "failed", |s| phase(s) == "Failed").await;
    let codes: Vec<i32> = status
        .container_statuses
        .iter()
        .flatten()
        .map(|c| c.state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code)
        .collect();
    assert_eq!(codes, [3, 0]);
    assert_eq!(bench.runtime.failpoints().count("StopPodSandbox"), 1);
    assert_eq!(bench.runtime.failpoints().count("StopContainer"), 0);
}

#[tokio::test(start_paused = true)]
async fn init_containers_come_first_and_a_failed_one_fails_the_pod() {
    let bench = Bench::new().await;
    bench.runtime.set_program("i", Program::exits(0, Duration::from_millis(10)));
    bench.runtime.set_program("j", Program::exits(7, Duration::from_millis(10)));
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "i", "image": "i"}, {"name": "j", "image": "i"}],
        "containers": [{"name": "c", "image": "i"}]
    });
    bench.set(&pod_with("u1", spec));
    bench.until("u1", "failed", |s| phase(s) == "Failed").await;
    let made: Vec<String> = bench
        .runtime
        .failpoints()
        .requests::<v1::CreateContainerRequest>()
        .iter()
        .map(|r| r.config.as_ref().unwrap().metadata.as_ref().unwrap().name.clone())
        .collect();
    assert_eq!(made, ["i", "j"]);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_pod() {
    let bench = Bench::new().await;
    let spec = json!({"activeDeadlineSeconds": 4, "containers": [{"name": "c", "image": "i"}]});
    bench.set(&pod_with("u1", spec));
    bench.until_ready("u1").await;
    let status = bench.until("u1", "failed", |s| phase(s) == "Failed").await;
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(bench.runtime.failpoints().count("StopContainer"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_grace_cuts_the_wait_and_a_longer_one_does_not_extend_it() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program { on_term: OnTerm::Ignore, ..Program::default() });
    let pod = pod("u1");
    bench.set(&pod);
    bench.until_ready("u1").await;
    let begin = tokio::time::Instant::now();
    bench.delete(&pod, 300);
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.delete(&pod, 5);
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.delete(&pod, 500);
    let status = bench.until_done("u1").await;
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert_eq!(phase(&status), "Failed");
    let asked: Vec<i64> =
        bench.runtime.failpoints().requests::<v1::StopContainerRequest>().iter().map(|r| r.timeout).collect();
    assert_eq!(asked, [300, 4]);
}

#[tokio::test(start_paused = true)]
async fn an_end_with_the_pods_own_grace_is_not_drawn_out_by_a_later_delete_and_another_agent() {
    let bench = Bench::new().await;
    bench.runtime.set_program("c", Program { on_term: OnTerm::Ignore, ..Program::default() });
    let spec = json!({
        "activeDeadlineSeconds": 2, "terminationGracePeriodSeconds": 20, "containers": [{"name": "c", "image": "i"}]
    });
    let pod = pod_with("u1", spec);
    bench.set(&pod);
    bench.until_ready("u1").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.delete(&pod, 300);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let bench = bench.again().await;
    bench.delete(&pod, 300);
    bench.until_done("u1").await;
    let asked: Vec<i64> =
        bench.runtime.failpoints().requests::<v1::StopContainerRequest>().iter().map(|r| r.timeout).collect();
    assert!(asked.len() > 1 && asked.iter().all(|timeout| *timeout <= 20), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn one_pod_whose_calls_hang_leaves_the_others_alone() {
    let bench = Bench::new().await;
    bench.runtime.failpoints().set(On::any().pod("u0"), Fault::Hang);
    bench.set(&pod("u0"));
    let pods: Vec<DesiredPod> = (1..20).map(|n| pod(&format!("u{n}"))).collect();
    for pod in &pods {
        bench.set(pod);
    }
    let begin = tokio::time::Instant::now();
    for pod in &pods {
        bench.until_ready(pod.uid.as_str()).await;
    }
    for pod in &pods {
        bench.delete(pod, 5);
        bench.until_done(pod.uid.as_str()).await;
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_is_adopted_not_repeated() {
    for rpc in ["RunPodSandbox", "CreateContainer", "StartContainer"] {
        let bench = Bench::new().await;
        bench.runtime.failpoints().set(On::rpc(rpc).once(), Fault::DropReply);
        bench.set(&pod("u1"));
        bench.until_ready("u1").await;
        let count = bench.runtime.failpoints().count(rpc);
        assert_eq!(count, 1, "{rpc}");
        assert_eq!((bench.runtime.sandboxes().len(), bench.runtime.containers().len()), (1, 1), "{rpc}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_create_is_told_and_tried_again() {
    let bench = Bench::new().await;
    let fault = Fault::Error(ErrorKind::Other(longshore_cri::Code::Unknown), "no space".into());
    bench.runtime.failpoints().set(On::rpc("CreateContainer").times(2), fault);
    bench.set(&pod("u1"));
    let waits = |s: &PodStatus| {
        let state = s.container_statuses.as_ref().and_then(|c| c[0].state.clone()).unwrap_or_default();
        state.waiting.is_some_and(|w| w.reason.as_deref() == Some("CreateContainerError"))
    };
    bench.until("u1", "told", waits).await;
    bench.until_ready("u1").await;
    assert_eq!(bench.runtime.failpoints().count("CreateContainer"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_never_ran_is_deleted_without_waiting() {
    let bench = Bench::new().await;
    *bench.hands.no_volumes.lock() = Some(Failure::new("FailedMount", "configmap \"nope\" not found"));
    let pod = pod("u1");
    bench.set(&pod);
    bench.until("u1", "pending", |s| phase(s) == "Pending").await;
    bench.delete(&pod, 5);
    let status = bench.until_done("u1").await;
    assert_eq!(phase(&status), "Failed");
    let state = status.container_statuses.as_ref().unwrap()[0].state.clone().unwrap();
    assert_eq!(state.terminated.unwrap().reason.as_deref(), Some("ContainerStatusUnknown"));
    assert!(bench.runtime.failpoints().changes().is_empty());
}

/// Nothing of it is in the runtime, so no event comes that would wake its worker once more.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_removed_before_anything_ran_is_gone() {
    let bench = Bench::new().await;
    *bench.hands.no_volumes.lock() = Some(Failure::new("FailedMount", "configmap \"nope\" not found"));
    let pod = DesiredPod { source: SourceKind::File, ..pod("u1") };
    bench.set(&pod);
    bench.until("u1", "pending", |s| phase(s) == "Pending").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    bench.table.apply(PodChange::Remove("u1".into()));
    bench.until_gone("u1").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_while_its_sandbox_is_made_leaves_nothing() {
    let bench = Bench::new().await;
    bench.runtime.failpoints().set(On::rpc("RunPodSandbox"), Fault::Delay(Duration::from_secs(2)));
    let pod = pod("u1");
    bench.set(&pod);
    tokio::time::sleep(Duration::from_millis(100)).await;
    bench.delete(&pod, 5);
    bench.until_done("u1").await;
    assert_eq!(bench.runtime.failpoints().changes(), ["RunPodSandbox", "StopPodSandbox"]);
    bench.table.apply(PodChange::Remove("u1".into()));
    bench.until_gone("u1").await;
    assert!(bench.runtime.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_removed_static_pod_ends_and_its_successor_of_the_same_name_waits() {
    let bench = Bench::new().await;
    let one = DesiredPod { source: SourceKind::File, key: PodKey::new("default", "st"), ..pod("u1") };
    let two = DesiredPod { source: SourceKind::File, key: PodKey::new("default", "st"), ..pod("u2") };
    bench.runtime.set_program(
        "c",
        Program { on_term: OnTerm::Exit { code: 0, after: Duration::from_secs(2) }, ..Program::default() },
    );
    bench.set(&one);
    bench.until_ready("u1").await;
    bench.set(&two);
    bench.table.apply(PodChange::Remove("u1".into()));
    bench.until_ready("u2").await;
    assert!(bench.table.by_uid("u1").is_none());
    let changes = bench.runtime.failpoints().changes();
    let first_end = changes.iter().position(|c| *c == "StopPodSandbox").unwrap();
    let second_start = changes.iter().rposition(|c| *c == "RunPodSandbox").unwrap();
    assert!(first_end < second_start, "{changes:?}");
    // The same uid again while it is ending: ends first, then starts anew.
    bench.table.apply(PodChange::Remove("u2".into()));
    bench.set(&two);
    tokio::time::sleep(Duration::from_secs(10)).await;
    bench.until_ready("u2").await;
    assert_eq!(bench.runtime.failpoints().count("RunPodSandbox"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_dead_sandbox_is_made_anew_with_its_containers() {
    let bench = Bench::new().await;
    bench.set(&pod("u1"));
    bench.until_ready("u1").await;
    bench.runtime.kill_sandbox(&bench.runtime.sandboxes()[0].id);
    bench.table.wake(&"u1".into());
    let status = bench
        .until("u1", "restarted", |s| s.container_statuses.as_ref().is_some_and(|c| c[0].restart_count == 1))
        .await;
    assert_eq!(phase(&status), "Running");
    let live: Vec<v1::ContainerStatus> =
        bench.runtime.containers().into_iter().filter(|c| c.state() == v1::ContainerState::ContainerRunning).collect();
    assert_eq!(live.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_pod_makes_no_calls() {
    let bench = Bench::new().await;
    bench.set(&pod("u1"));
    bench.until_ready("u1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = bench.runtime.failpoints().calls().len();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(bench.runtime.failpoints().calls().len(), before);
}

#[tokio::test(start_paused = true)]
async fn no_sandbox_is_tried_while_the_node_has_no_network_and_the_hosts_own_needs_none() {
    let bench = Bench::new().await;
    bench.set(&pod("old"));
    bench.until_ready("old").await;
    bench.table.set_network(NetworkState::NotReady("no plugin".to_owned()));
    bench.set(&pod("new"));
    bench.set(&pod_with("host", json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]})));
    bench.until_ready("host").await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(phase(&bench.status("new").unwrap()), "Pending");
    assert_eq!(bench.runtime.failpoints().count("RunPodSandbox"), 2, "old and host alone");
    // A container of a pod that has its network is restarted as ever.
    let running = bench.runtime.containers().into_iter().find(|c| c.labels[labels::POD_UID] == "old").unwrap();
    assert!(bench.runtime.exit(&running.id, 1));
    bench.until("old", "restarted", |s| s.container_statuses.as_ref().is_some_and(|c| c[0].restart_count == 1)).await;
    // It comes back: at once, not at the next try.
    let begin = tokio::time::Instant::now();
    bench.table.set_network(NetworkState::Ready);
    bench.until_ready("new").await;
    assert!(begin.elapsed() < Duration::from_millis(500), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_debug_container_joins_the_running_pod_once() {
    let bench = Bench::new().await;
    let plain = json!({"terminationGracePeriodSeconds": 5, "containers": [{"name": "c", "image": "i"}]});
    bench.set(&pod_with("u1", plain.clone()));
    bench.until_ready("u1").await;
    let target = bench.runtime.container_id("u1", "c").unwrap();
    let mut spec = plain;
    spec["ephemeralContainers"] = json!([{"name": "dbg", "image": "i", "targetContainerName": "c"}]);
    let pod = pod_with("u1", spec);
    bench.set(&pod);
    let runs = |status: &PodStatus| {
        status
            .ephemeral_container_statuses
            .iter()
            .flatten()
            .any(|c| c.state.as_ref().is_some_and(|s| s.running.is_some()))
    };
    bench.until("u1", "debugged", runs).await;
    assert!(bench.hands.log.lock().contains(&format!("dbg looks into {target}")));
    let id = bench.runtime.container_id("u1", "dbg").unwrap();
    bench.runtime.exit(&id, 3);
    let ended = |status: &PodStatus| {
        status
            .ephemeral_container_statuses
            .iter()
            .flatten()
            .any(|c| c.state.as_ref().and_then(|s| s.terminated.as_ref()).is_some_and(|end| end.exit_code == 3))
    };
    bench.until("u1", "looked around", ended).await;
    // Removed behind the agent's back: it stays what it was.
    bench.runtime.remove_container(v1::RemoveContainerRequest { container_id: id }).await.unwrap();
    bench.table.wake(&"u1".into());
    tokio::time::sleep(Duration::from_secs(600)).await;
    bench.until("u1", "looked around", ended).await;
    let bench = bench.again().await;
    bench.set(&pod);
    bench.until_ready("u1").await;
    bench.until("u1", "looked around", ended).await;
    assert_eq!(bench.runtime.failpoints().count("CreateContainer"), 2);
}

#[tokio::test(start_paused = true)]
async fn all_containers_begin_anew_in_the_same_sandbox_when_an_exit_code_says_so() {
    let bench = Bench::new().await;
    let spec = json!({"restartPolicy": "Never", "initContainers": [{"name": "i", "image": "i"}],
        "containers": [
            {"name": "a", "image": "i", "restartPolicy": "Never",
                "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]},
            {"name": "b", "image": "i"}]});
    bench.runtime.set_program("i", longshore_cri::fake::Program::exits(0, Duration::from_millis(10)));
    bench.set(&pod_with("u1", spec));
    let status = bench.until_ready("u1").await;
    assert_eq!(condition(&status, "AllContainersRestarting"), "False");
    let id = bench.runtime.container_id("u1", "a").unwrap();
    bench.runtime.exit(&id, 88);
    let again = |status: &PodStatus| {
        condition(status, "Ready") == "True" && status.container_statuses.iter().flatten().all(|c| c.restart_count == 1)
    };
    let status = bench.until("u1", "begun anew", again).await;
    assert_eq!(status.init_container_statuses.as_ref().unwrap()[0].restart_count, 1);
    assert_eq!(condition(&status, "AllContainersRestarting"), "False");
    assert_eq!(bench.runtime.failpoints().count("RunPodSandbox"), 1);
    let told = bench.statuses.all.lock().iter().any(|u| condition(&u.status, "AllContainersRestarting") == "True");
    assert!(told, "it is said while it lasts");
}

#[tokio::test(start_paused = true)]
async fn what_holds_a_pod_up_for_long_stands_in_its_status() {
    let bench = Bench::new().await;
    let failure = Failure::new("FailedMount", "MountVolume.SetUp failed for volume \"v\" : no such thing");
    *bench.hands.no_volumes.lock() = Some(failure);
    bench.set(&pod("u1"));
    let waiting = |status: &PodStatus| {
        let state = status.container_statuses.as_ref().and_then(|c| c.first()?.state.clone());
        state.and_then(|state| state.waiting).unwrap_or_default()
    };
    let shown = bench.until("u1", "waiting", |s| waiting(s).reason.is_some()).await;
    assert_eq!(waiting(&shown).message, None, "what passes is not told");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(waiting(&bench.status("u1").unwrap()).message, None);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let shown = waiting(&bench.status("u1").unwrap());
    assert_eq!(shown.reason.as_deref(), Some("ContainerCreating"));
    assert!(shown.message.as_deref().is_some_and(|text| text.contains("volume \"v\" : no such thing")), "{shown:?}");
    *bench.hands.no_volumes.lock() = None;
    bench.until_ready("u1").await;
}
