//! Who gets a place on the node, and who gives one back.

use super::*;

fn asking(uid: &str, cpu: &str) -> DesiredPod {
    pod_with(
        uid,
        json!({"terminationGracePeriodSeconds": 5,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}),
    )
}

fn manifest(uid: &str, cpu: &str) -> DesiredPod {
    DesiredPod { source: SourceKind::File, ..asking(uid, cpu) }
}

fn reason(status: &PodStatus) -> &str {
    status.reason.as_deref().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn pods_are_judged_in_the_order_in_which_they_come() {
    let bench = Bench::new().await;
    for (uid, cpu) in [("a", "1"), ("b", "1500m"), ("c", "1"), ("d", "100m")] {
        bench.set(&asking(uid, cpu));
    }
    bench.until_ready("a").await;
    bench.until_ready("c").await;
    for uid in ["b", "d"] {
        let status = bench.until(uid, "refused", |s| phase(s) == "Failed").await;
        assert_eq!(reason(&status), "OutOfcpu");
    }
    let status = bench.status("d").unwrap();
    let message = "Pod was rejected: Node didn't have enough resource: cpu, requested: 100, used: 2000, capacity: 2000";
    assert_eq!(status.message.as_deref(), Some(message));
    assert_eq!(bench.runtime.failpoints().count("RunPodSandbox"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_place_is_free_once_its_pod_is_gone() {
    let bench = Bench::new().await;
    let first = asking("a", "2");
    bench.set(&first);
    bench.until_ready("a").await;
    bench.delete(&first, 1);
    bench.until_done("a").await;
    bench.set(&asking("b", "2"));
    bench.until_ready("b").await;
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_is_never_refused_because_the_agent_restarts() {
    let bench = Bench::new().await;
    bench.set(&asking("a", "1"));
    bench.set(&asking("b", "1"));
    bench.until_ready("a").await;
    bench.until_ready("b").await;
    let bench = bench.again().await;
    // The node gives less now, and a stranger comes before those that run are named again.
    let half = longshore_api::quantity::Quantity::parse("500m").unwrap();
    bench.node.0.lock().allocatable.insert("cpu".into(), half);
    bench.set(&asking("new", "100m"));
    let status = bench.until("new", "refused", |s| phase(s) == "Failed").await;
    assert!(status.message.as_deref().unwrap().contains("used: 2000"), "{status:?}");
    bench.set(&asking("a", "1"));
    bench.set(&asking("b", "1"));
    for uid in ["a", "b"] {
        bench.until_ready(uid).await;
    }
    assert_eq!(bench.runtime.failpoints().count("RunPodSandbox"), 2);
}

#[tokio::test(start_paused = true)]
async fn what_another_agent_runs_is_admitted_without_a_record() {
    let bench = Bench::new().await;
    bench.set(&asking("a", "2"));
    bench.until_ready("a").await;
    let (runtime, clock, node) = (bench.runtime.clone(), Arc::clone(&bench.clock), Arc::clone(&bench.node));
    bench.tasks.cancel();
    drop(bench);
    node.0.lock().taints = vec![k8s_openapi::api::core::v1::Taint {
        key: "k".into(),
        value: None,
        effect: "NoExecute".into(),
        time_added: None,
    }];
    let bench = Bench::start(runtime, Arc::new(tempfile::tempdir().unwrap()), clock, node).await;
    bench.set(&asking("a", "2"));
    bench.until_ready("a").await;
    bench.set(&asking("b", "0"));
    assert_eq!(reason(&*bench.until("b", "refused", |s| phase(s) == "Failed").await), "TaintToleration");
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_has_others_make_room_and_they_say_so() {
    let bench = Bench::new().await;
    bench.set(&asking("big", "1500m"));
    bench.set(&asking("small", "500m"));
    bench.until_ready("big").await;
    bench.until_ready("small").await;
    bench.set(&manifest("static", "1"));
    // Comes while room is being made: it must not take it.
    bench.set(&asking("late", "1"));
    bench.until_ready("static").await;
    let victim = bench.until_done("big").await;
    assert_eq!((phase(&victim), reason(&victim)), ("Failed", "Preempting"));
    assert_eq!(condition(&victim, "DisruptionTarget"), "True");
    assert_eq!(reason(&*bench.until("late", "refused", |s| phase(s) == "Failed").await), "OutOfcpu");
    assert_eq!(condition(&bench.status("small").unwrap(), "Ready"), "True");
}

#[tokio::test(start_paused = true)]
async fn a_refused_static_pod_runs_once_there_is_room() {
    let bench = Bench::new().await;
    let first = DesiredPod { source: SourceKind::File, ..asking("a", "2") };
    bench.set(&first);
    bench.until_ready("a").await;
    bench.set(&manifest("b", "1"));
    let refused = bench.until("b", "refused", |s| phase(s) == "Failed").await;
    assert_eq!(reason(&refused), "UnexpectedAdmissionError");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(phase(&bench.status("b").unwrap()), "Failed");
    bench.table.apply(PodChange::Remove("a".into()));
    bench.until_ready("b").await;
    let status = bench.status("b").unwrap();
    assert_eq!((phase(&status), reason(&status)), ("Running", ""));
}

#[tokio::test(start_paused = true)]
async fn a_refused_static_pod_is_judged_again_by_the_next_agent_and_an_api_pod_is_not() {
    let bench = Bench::new().await;
    bench.set(&manifest("s", "3"));
    bench.set(&asking("p", "3"));
    for uid in ["s", "p"] {
        bench.until(uid, "refused", |s| phase(s) == "Failed").await;
    }
    let bench = bench.again().await;
    bench.node.0.lock().allocatable.insert("cpu".into(), longshore_api::quantity::Quantity::parse("8").unwrap());
    bench.set(&manifest("s", "3"));
    bench.set(&asking("p", "3"));
    bench.until_ready("s").await;
    assert_eq!(phase(&bench.status("p").unwrap()), "Failed");
}

#[tokio::test(start_paused = true)]
async fn a_refused_static_pod_whose_manifest_goes_leaves_nothing() {
    let bench = Bench::new().await;
    bench.set(&manifest("s", "3"));
    bench.until("s", "refused", |s| phase(s) == "Failed").await;
    bench.table.apply(PodChange::Remove("s".into()));
    bench.until_gone("s").await;
    assert_eq!(bench.runtime.failpoints().count("RunPodSandbox"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_unjudged_holds_up_nobody() {
    let bench = Bench::new().await;
    let gone = asking("gone", "1");
    bench.delete(&gone, 1);
    bench.until_done("gone").await;
    let bench = bench.again().await;
    bench.delete(&gone, 1);
    bench.set(&asking("next", "1"));
    bench.until_ready("next").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_while_it_waits_for_room_to_be_made_lets_the_next_one_come() {
    let bench = Bench::new().await;
    let slow = pod_with(
        "slow",
        json!({"terminationGracePeriodSeconds": 600,
            "containers": [{"name": "stubborn", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}]}),
    );
    bench.runtime.set_program("stubborn", longshore_cri::fake::Program::stubborn());
    bench.set(&slow);
    bench.until_ready("slow").await;
    bench.set(&manifest("static", "1"));
    bench.set(&asking("behind", "100m"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.status("behind"), None, "it waits its turn");
    bench.table.apply(PodChange::Remove("static".into()));
    bench.until_ready("behind").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_should_make_room_and_does_not_end_in_time_is_told_of() {
    let bench = Bench::new().await;
    bench.set(&asking("a", "2"));
    bench.until_ready("a").await;
    bench.runtime.failpoints().set(longshore_cri::fake::On::rpc("StopContainer"), longshore_cri::fake::Failure::Hang);
    bench.set(&manifest("s", "1"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let told = bench.told();
    let exceeded: Vec<_> = told.iter().filter(|(reason, ..)| reason == "ExceededGracePeriod").collect();
    assert_eq!(exceeded.len(), 1, "{told:?}");
    let (_, object, message) = exceeded[0];
    assert_eq!(
        (object.as_str(), message.as_str()),
        ("a", "Container runtime did not kill the pod within specified grace period.")
    );
    assert!(told.iter().any(|(reason, object, _)| reason == "Preempting" && object == "a"), "{told:?}");
}
