//! Pods that get another size while they run.

use longshore_api::qos::Qos;
use longshore_cri::ErrorKind;
use longshore_cri::fake::{Failure as Fault, On};

use super::*;

/// A pod of one container; sizes are cpu and memory of requests, then of limits.
fn sized(uid: &str, generation: i64, sizes: [&str; 4], more: Value) -> DesiredPod {
    let [cpu, memory, cpu_limit, memory_limit] = sizes;
    let mut container = json!({"name": "c", "image": "i", "resources": {
        "requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu_limit, "memory": memory_limit}}});
    container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut pod = pod_with(uid, json!({"terminationGracePeriodSeconds": 1, "containers": [container]}));
    Arc::make_mut(&mut pod.pod).metadata.generation = Some(generation);
    pod
}

fn cpu(uid: &str, generation: i64, cpu: &str) -> DesiredPod {
    sized(uid, generation, [cpu, "32Mi", "2", "64Mi"], json!({}))
}

fn prioritized(mut pod: DesiredPod, priority: i32) -> DesiredPod {
    Arc::make_mut(&mut pod.pod).spec.as_mut().unwrap().priority = Some(priority);
    pod
}

async fn ready() -> Bench {
    let bench = Bench::new().await;
    bench.table.apply(PodChange::AllSourcesReady);
    bench
}

fn of<'a>(status: &'a PodStatus, kind: &str) -> Option<&'a k8s_openapi::api::core::v1::PodCondition> {
    status.conditions.iter().flatten().find(|c| c.type_ == kind)
}

fn reason<'a>(status: &'a PodStatus, kind: &str) -> &'a str {
    of(status, kind).and_then(|c| c.reason.as_deref()).unwrap_or_default()
}

fn message<'a>(status: &'a PodStatus, kind: &str) -> &'a str {
    of(status, kind).and_then(|c| c.message.as_deref()).unwrap_or_default()
}

fn shown(status: &PodStatus) -> Value {
    let own = &status.container_statuses.as_ref().unwrap()[0];
    json!({"resources": own.resources, "allocated": own.allocated_resources})
}

/// The newest spec was looked at, and nothing of it is left to be done.
fn settled(generation: i64) -> impl Fn(&PodStatus) -> bool {
    move |s| {
        s.observed_generation == Some(generation)
            && of(s, "PodResizePending").is_none()
            && of(s, "PodResizeInProgress").is_none()
            && condition(s, "Ready") == "True"
    }
}

impl Bench {
    fn steps(&self) -> Vec<String> {
        let log = self.hands.log.lock();
        log.iter().filter_map(|line| line.strip_prefix("bind ")).map(str::to_owned).collect()
    }

    fn calls(&self, rpc: &str) -> usize {
        self.runtime.failpoints().count(rpc)
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_container_gets_its_new_size_without_a_new_start() {
    let bench = ready().await;
    bench.set(&sized("u1", 1, ["100m", "32Mi", "200m", "64Mi"], json!({})));
    bench.until_ready("u1").await;
    bench.set(&sized("u1", 2, ["150m", "32Mi", "300m", "128Mi"], json!({})));
    let status = bench.until("u1", "resized", settled(2)).await;
    let want = json!({"resources": {"requests": {"cpu": "150m", "memory": "32Mi"},
        "limits": {"cpu": "300m", "memory": "128Mi"}}, "allocated": {"cpu": "150m", "memory": "32Mi"}});
    assert_eq!(shown(&status), want);
    assert_eq!(status.resources.as_ref().unwrap().limits.as_ref().unwrap()["cpu"].0, "300m");
    assert_eq!(status.container_statuses.as_ref().unwrap()[0].restart_count, 0);
    assert_eq!(bench.steps(), ["Memory(Some(134217728))", "Quota(Some(30000))", "Shares(153)"]);
    let updates = bench.runtime.failpoints().requests::<v1::UpdateContainerResourcesRequest>();
    let told: Vec<(i64, i64)> =
        updates.iter().filter_map(|u| u.linux.as_ref()).map(|l| (l.memory_limit_in_bytes, l.cpu_quota)).collect();
    assert_eq!(told, [(134_217_728, 20_000), (134_217_728, 30_000)], "memory first, each by itself");
    let shown = bench.statuses.all.lock();
    let progress = shown.iter().find_map(|u| of(&u.status, "PodResizeInProgress").cloned()).unwrap();
    assert_eq!((progress.observed_generation, progress.reason), (Some(2), None));
}

#[tokio::test(start_paused = true)]
async fn on_the_way_down_the_pod_shrinks_after_its_containers() {
    let bench = ready().await;
    bench.set(&sized("u1", 1, ["150m", "64Mi", "300m", "128Mi"], json!({})));
    bench.until_ready("u1").await;
    bench.set(&sized("u1", 2, ["100m", "32Mi", "200m", "64Mi"], json!({})));
    bench.until("u1", "resized", settled(2)).await;
    assert_eq!(bench.steps(), ["Memory(Some(67108864))", "Shares(102)", "Quota(Some(20000))"]);
    let changes = bench.runtime.failpoints().changes();
    let at = |rpc: &str| changes.iter().position(|call| *call == rpc).unwrap();
    assert!(at("UpdateContainerResources") < at("UpdatePodSandboxResources"), "{changes:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_alone_come_to_an_end() {
    let bench = ready().await;
    let open = |generation, cpu: &str, memory: &str| {
        let own = json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}});
        sized("u1", generation, ["1", "1", "1", "1"], own)
    };
    bench.set(&open(1, "200m", "200Mi"));
    bench.until_ready("u1").await;
    bench.set(&open(2, "300m", "200Mi"));
    bench.until("u1", "resized", settled(2)).await;
    bench.set(&open(3, "300m", "400Mi"));
    let status = bench.until("u1", "resized", settled(3)).await;
    assert_eq!(shown(&status)["allocated"], json!({"cpu": "300m", "memory": "400Mi"}));
    assert_eq!(bench.steps(), ["Shares(307)"]);
}

#[tokio::test(start_paused = true)]
async fn a_policy_has_the_container_start_anew_between_growth_and_shrinking() {
    let bench = ready().await;
    let policy = json!({"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]});
    bench.set(&sized("u1", 1, ["100m", "64Mi", "200m", "128Mi"], policy.clone()));
    bench.until_ready("u1").await;
    bench.set(&sized("u1", 2, ["150m", "32Mi", "300m", "64Mi"], policy.clone()));
    let status = bench.until("u1", "resized", settled(2)).await;
    let own = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(own.restart_count, 1);
    assert_eq!(bench.steps(), ["Quota(Some(30000))", "Shares(153)", "Memory(Some(67108864))"]);
    assert_eq!(bench.calls("UpdateContainerResources"), 0);
    assert_eq!((bench.calls("StopContainer"), bench.calls("CreateContainer")), (1, 2));
    // Cpu alone needs no new start.
    bench.set(&sized("u1", 3, ["100m", "32Mi", "300m", "64Mi"], policy));
    let status = bench.until("u1", "resized", settled(3)).await;
    assert_eq!(status.container_statuses.as_ref().unwrap()[0].restart_count, 1);
    assert_eq!(bench.calls("UpdateContainerResources"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_is_resized_and_starts_anew_where_it_asks_for_it() {
    let bench = ready().await;
    let pod = |generation, cpu: &str, memory: &str| {
        let spec = json!({"initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always",
            "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
            "resources": {"requests": {"cpu": cpu, "memory": memory}}}], "containers": [{"name": "c", "image": "i"}]});
        let mut pod = pod_with("u1", spec);
        Arc::make_mut(&mut pod.pod).metadata.generation = Some(generation);
        pod
    };
    bench.set(&pod(1, "100m", "32Mi"));
    bench.until_ready("u1").await;
    bench.set(&pod(2, "200m", "32Mi"));
    let status = bench.until("u1", "resized", settled(2)).await;
    assert_eq!(status.init_container_statuses.as_ref().unwrap()[0].restart_count, 0);
    bench.set(&pod(3, "200m", "64Mi"));
    let status = bench.until("u1", "resized", settled(3)).await;
    assert_eq!(status.init_container_statuses.as_ref().unwrap()[0].restart_count, 1);
    assert_eq!(status.container_statuses.as_ref().unwrap()[0].restart_count, 0);
}

#[tokio::test(start_paused = true)]
async fn an_init_container_that_runs_gets_its_new_size_and_one_that_is_still_to_come_is_made_in_it() {
    let bench = ready().await;
    let pod = |generation, cpu: &str| {
        let own = |name: &str| json!({"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}});
        let mut pod = pod_with("u1", json!({"initContainers": [own("i")], "containers": [own("c")]}));
        Arc::make_mut(&mut pod.pod).metadata.generation = Some(generation);
        pod
    };
    bench.runtime.set_program("i", longshore_cri::fake::Program::exits(0, Duration::from_secs(60)));
    bench.set(&pod(1, "100m"));
    let runs = |s: &PodStatus| {
        let init = s.init_container_statuses.as_ref().and_then(|all| all[0].state.clone());
        init.is_some_and(|state| state.running.is_some())
    };
    bench.until("u1", "at its init container", runs).await;
    bench.set(&pod(2, "200m"));
    let status = bench
        .until("u1", "resized", |s| s.observed_generation == Some(2) && of(s, "PodResizeInProgress").is_none())
        .await;
    let init = &status.init_container_statuses.as_ref().unwrap()[0];
    assert_eq!((init.restart_count, bench.calls("UpdateContainerResources")), (0, 1));
    assert_eq!(init.allocated_resources.as_ref().unwrap()["cpu"].0, "200m");
    let status = bench.until_ready("u1").await;
    assert_eq!(shown(&status)["resources"]["requests"]["cpu"], "200m");
    assert_eq!(bench.calls("UpdateContainerResources"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_waits_and_goes_on_when_another_pod_has_gone() {
    let bench = ready().await;
    let other = cpu("other", 1, "1500m");
    bench.set(&other);
    bench.set(&cpu("u1", 1, "500m"));
    bench.until_ready("other").await;
    bench.until_ready("u1").await;
    bench.set(&cpu("u1", 2, "1"));
    let status = bench.until("u1", "deferred", |s| reason(s, "PodResizePending") == "Deferred").await;
    assert_eq!(
        message(&status, "PodResizePending"),
        "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000"
    );
    assert_eq!(of(&status, "PodResizePending").unwrap().observed_generation, Some(2));
    assert_eq!(shown(&status)["allocated"]["cpu"], "500m");
    assert!(bench.steps().is_empty());
    bench.delete(&other, 1);
    let status = bench.until("u1", "resized", settled(2)).await;
    assert_eq!(shown(&status)["allocated"]["cpu"], "1");
}

#[tokio::test(start_paused = true)]
async fn a_size_that_is_taken_back_is_no_longer_waited_for() {
    let bench = ready().await;
    bench.set(&cpu("u1", 1, "500m"));
    bench.until_ready("u1").await;
    bench.set(&cpu("u1", 2, "5"));
    bench.until("u1", "deferred", |s| reason(s, "PodResizePending") == "Deferred").await;
    bench.set(&cpu("u1", 3, "500m"));
    bench.until("u1", "settled", settled(3)).await;
    assert_eq!(bench.calls("UpdateContainerResources"), 0);
}

#[tokio::test(start_paused = true)]
async fn room_goes_to_the_higher_priority_first_and_a_shrinking_pod_makes_some() {
    let bench = ready().await;
    let big = |generation, amount: &str| cpu("big", generation, amount);
    bench.set(&big(1, "1"));
    for (uid, priority) in [("low", 1), ("high", 10)] {
        bench.set(&prioritized(cpu(uid, 1, "500m"), priority));
    }
    for uid in ["big", "low", "high"] {
        bench.until_ready(uid).await;
    }
    for (uid, priority) in [("low", 1), ("high", 10)] {
        bench.set(&prioritized(cpu(uid, 2, "1"), priority));
        bench.until(uid, "deferred", |s| reason(s, "PodResizePending") == "Deferred").await;
    }
    bench.set(&big(2, "500m"));
    bench.until("high", "resized", settled(2)).await;
    bench.until("big", "resized", settled(2)).await;
    let low = bench.status("low").unwrap();
    assert_eq!(reason(&low, "PodResizePending"), "Deferred");
}

#[tokio::test(start_paused = true)]
async fn others_are_judged_by_what_is_held_not_by_what_is_asked_for() {
    let bench = ready().await;
    bench.set(&cpu("u1", 1, "500m"));
    bench.until_ready("u1").await;
    bench.set(&cpu("u1", 2, "5"));
    bench.until("u1", "deferred", |s| reason(s, "PodResizePending") == "Deferred").await;
    bench.set(&cpu("fits", 1, "1500m"));
    bench.until_ready("fits").await;
    bench.set(&cpu("not", 1, "100m"));
    let status = bench.until("not", "refused", |s| phase(s) == "Failed").await;
    assert!(status.message.as_deref().unwrap().contains("used: 2000"), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_size_that_can_never_be_is_infeasible() {
    let bench = ready().await;
    bench.node.0.lock().resize.fixed_cpus = true;
    let guaranteed = |generation, cpu: &str| sized("u1", generation, [cpu, "64Mi", cpu, "64Mi"], json!({}));
    assert_eq!(longshore_api::qos::of(&guaranteed(1, "1").pod), Qos::Guaranteed);
    bench.set(&guaranteed(1, "1"));
    bench.until_ready("u1").await;
    bench.set(&guaranteed(2, "1500m"));
    let status = bench.until("u1", "infeasible", |s| reason(s, "PodResizePending") == "Infeasible").await;
    assert_eq!(
        message(&status, "PodResizePending"),
        "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\""
    );
    assert_eq!(condition(&status, "Ready"), "True");
}

#[tokio::test(start_paused = true)]
async fn memory_is_never_bound_below_what_is_in_use() {
    let bench = ready().await;
    bench.set(&sized("u1", 1, ["100m", "64Mi", "200m", "128Mi"], json!({})));
    bench.until_ready("u1").await;
    *bench.hands.memory_usage.lock() = Some(100 << 20);
    bench.set(&sized("u1", 2, ["100m", "32Mi", "200m", "64Mi"], json!({})));
    let status = bench.until("u1", "in trouble", |s| reason(s, "PodResizeInProgress") == "Error").await;
    assert_eq!(
        message(&status, "PodResizeInProgress"),
        "cannot decrease memory limits: attempting to set pod memory limit (67108864) below current usage (104857600)"
    );
    assert_eq!(shown(&status)["resources"]["limits"]["memory"], "128Mi");
    assert_eq!(shown(&status)["allocated"]["memory"], "32Mi");
    assert_eq!(bench.calls("UpdateContainerResources"), 0);
    *bench.hands.memory_usage.lock() = Some(10 << 20);
    bench.until("u1", "resized", settled(2)).await;
    assert_eq!(bench.steps(), ["Memory(Some(67108864))"]);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_refuses_is_told_and_asked_again() {
    let bench = ready().await;
    bench.set(&cpu("u1", 1, "100m"));
    bench.until_ready("u1").await;
    let refused = Fault::Error(ErrorKind::Unavailable, "no way".into());
    bench.runtime.failpoints().set(On::rpc("UpdateContainerResources").times(2), refused);
    bench.set(&cpu("u1", 2, "200m"));
    let status = bench.until("u1", "in trouble", |s| reason(s, "PodResizeInProgress") == "Error").await;
    assert_eq!(message(&status, "PodResizeInProgress"), "no way");
    bench.until("u1", "resized", settled(2)).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_dies_in_the_middle_leaves_the_grant_and_the_next_one_finishes() {
    let bench = ready().await;
    bench.set(&cpu("u1", 1, "500m"));
    bench.until_ready("u1").await;
    let hang = bench.runtime.failpoints().set(On::rpc("UpdateContainerResources"), Fault::Hang);
    bench.set(&cpu("u1", 2, "1500m"));
    bench.until("u1", "in progress", |s| of(s, "PodResizeInProgress").is_some()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let bench = bench.killed().await;
    // Before its source has named it, it holds what it was granted.
    bench.set(&cpu("late", 1, "1"));
    let status = bench.until("late", "refused", |s| phase(s) == "Failed").await;
    assert!(status.message.as_deref().unwrap().contains("used: 1500"), "{status:?}");
    bench.runtime.failpoints().clear(hang);
    bench.table.apply(PodChange::AllSourcesReady);
    bench.set(&cpu("u1", 2, "1500m"));
    let status = bench.until("u1", "resized", settled(2)).await;
    assert_eq!(shown(&status)["allocated"]["cpu"], "1500m");
    assert_eq!(status.container_statuses.as_ref().unwrap()[0].restart_count, 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_deferred_stays_so_through_a_restart_of_the_agent() {
    let bench = ready().await;
    bench.set(&cpu("u1", 1, "500m"));
    bench.until_ready("u1").await;
    bench.set(&cpu("u1", 2, "5"));
    let before = bench.until("u1", "deferred", |s| reason(s, "PodResizePending") == "Deferred").await;
    let bench = bench.again().await;
    bench.set(&cpu("u1", 2, "5"));
    bench.table.apply(PodChange::AllSourcesReady);
    let after = bench.until("u1", "deferred", |s| reason(s, "PodResizePending") == "Deferred").await;
    // As the API shows it: times there have whole seconds.
    let pending = |status: &PodStatus| serde_json::to_value(of(status, "PodResizePending")).unwrap();
    assert_eq!(pending(&before), pending(&after));
    assert_eq!(shown(&after)["allocated"]["cpu"], "500m");
    assert_eq!(bench.calls("UpdateContainerResources"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_changed_while_no_agent_ran_is_decided_over() {
    let bench = ready().await;
    bench.set(&cpu("u1", 1, "500m"));
    bench.until_ready("u1").await;
    let bench = bench.again().await;
    bench.set(&cpu("u1", 2, "1"));
    let status = bench.until_ready("u1").await;
    assert_eq!(status.observed_generation, Some(1), "nobody has looked at the newer one");
    bench.table.apply(PodChange::AllSourcesReady);
    let status = bench.until("u1", "resized", settled(2)).await;
    assert_eq!(shown(&status)["allocated"]["cpu"], "1");
}

#[tokio::test(start_paused = true)]
async fn sizes_of_the_pod_as_a_whole_move_its_group_alone() {
    let bench = ready().await;
    bench.node.0.lock().pod_resources = true;
    let pod = |generation, cpu: &str| {
        let own = json!({"cpu": cpu, "memory": "1Gi"});
        let spec = json!({"resources": {"requests": own, "limits": own}, "containers": [{"name": "c", "image": "i"}]});
        let mut pod = pod_with("u1", spec);
        Arc::make_mut(&mut pod.pod).metadata.generation = Some(generation);
        pod
    };
    bench.set(&pod(1, "500m"));
    bench.until_ready("u1").await;
    bench.set(&pod(2, "1"));
    let status = bench.until("u1", "resized", settled(2)).await;
    assert_eq!(bench.steps(), ["Quota(Some(100000))", "Shares(1024)"]);
    assert_eq!(status.allocated_resources.as_ref().unwrap()["cpu"].0, "1");
    bench.set(&pod(3, "3"));
    bench.until("u1", "deferred", |s| reason(s, "PodResizePending") == "Deferred").await;
}

#[tokio::test(start_paused = true)]
async fn room_that_is_made_for_a_critical_pod_goes_to_nobody_else() {
    let bench = ready().await;
    let slow = pod_with(
        "victim",
        json!({"terminationGracePeriodSeconds": 3,
            "containers": [{"name": "stubborn", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}]}),
    );
    bench.runtime.set_program("stubborn", longshore_cri::fake::Program::stubborn());
    bench.set(&slow);
    bench.set(&cpu("u1", 1, "500m"));
    bench.until_ready("victim").await;
    bench.until_ready("u1").await;
    bench.set(&cpu("u1", 2, "1"));
    bench.until("u1", "deferred", |s| reason(s, "PodResizePending") == "Deferred").await;
    let critical = pod_with(
        "critical",
        json!({"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1200m"}}}]}),
    );
    bench.set(&DesiredPod { source: SourceKind::File, ..critical });
    bench.until_ready("critical").await;
    let status = bench.status("u1").unwrap();
    assert_eq!(reason(&status, "PodResizePending"), "Deferred");
    assert_eq!(shown(&status)["allocated"]["cpu"], "500m");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_ended_tells_nothing_of_its_size() {
    let bench = ready().await;
    bench.set(&sized("u1", 1, ["100m", "64Mi", "200m", "128Mi"], json!({})));
    bench.until_ready("u1").await;
    *bench.hands.memory_usage.lock() = Some(100 << 20);
    let smaller = sized("u1", 2, ["100m", "32Mi", "200m", "64Mi"], json!({}));
    bench.set(&smaller);
    bench.until("u1", "in trouble", |s| reason(s, "PodResizeInProgress") == "Error").await;
    bench.delete(&smaller, 1);
    let status = bench.until_done("u1").await;
    assert!(of(&status, "PodResizeInProgress").is_none() && of(&status, "PodResizePending").is_none());
}

/// At each call that a resize makes an agent ends, and the next one goes on from there.
#[tokio::test(start_paused = true)]
async fn a_resize_that_is_cut_at_any_call_is_finished_by_the_next_agent() {
    let (small, large) = (["100m", "32Mi", "200m", "64Mi"], ["150m", "64Mi", "300m", "128Mi"]);
    for (from, to) in [(small, large), (large, small)] {
        for rpc in ["UpdateContainerResources", "UpdatePodSandboxResources", "ContainerStats"] {
            for skip in 0..3 {
                let bench = ready().await;
                bench.set(&sized("u1", 1, from, json!({})));
                bench.until_ready("u1").await;
                let hang = bench.runtime.failpoints().set(On::rpc(rpc).skip(skip), Fault::Hang);
                bench.set(&sized("u1", 2, to, json!({})));
                tokio::time::sleep(Duration::from_secs(1)).await;
                let bench = bench.killed().await;
                bench.runtime.failpoints().clear(hang);
                bench.table.apply(PodChange::AllSourcesReady);
                bench.set(&sized("u1", 2, to, json!({})));
                let status = bench.until("u1", "resized", settled(2)).await;
                let want = sized("u1", 2, to, json!({}));
                let own = want.pod.spec.as_ref().unwrap().containers[0].resources.clone();
                let container = &status.container_statuses.as_ref().unwrap()[0];
                assert_eq!((&container.resources, container.restart_count), (&own, 0), "{rpc} {skip}");
                assert_eq!(bench.hands.groups.of("u1"), Some(fakes::Groups::wanted(&want)), "{rpc} {skip}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_resize_that_another_agent_left_open_is_taken_over() {
    let bench = ready().await;
    bench.set(&sized("u1", 1, ["100m", "32Mi", "200m", "64Mi"], json!({})));
    bench.set(&cpu("other", 1, "1500m"));
    let mut status = PodStatus::clone(&*bench.until_ready("u1").await);
    bench.until_ready("other").await;
    // The other agent shows that it has not granted what is asked for; of ours there is no record.
    let (runtime, clock, node) = (bench.runtime.clone(), Arc::clone(&bench.clock), Arc::clone(&bench.node));
    bench.tasks.cancel();
    drop(bench);
    let pending = json!({"type": "PodResizePending", "status": "True", "reason": "Deferred"});
    status.conditions.as_mut().unwrap().push(serde_json::from_value(pending).unwrap());
    let bench = Bench::start(runtime, Arc::new(tempfile::tempdir().unwrap()), clock, node).await;
    let mut asked = sized("u1", 2, ["1", "32Mi", "1", "64Mi"], json!({}));
    Arc::make_mut(&mut asked.pod).status = Some(status);
    bench.set(&cpu("other", 1, "1500m"));
    bench.set(&asked);
    bench.table.apply(PodChange::AllSourcesReady);
    let status = bench.until("u1", "deferred", |s| reason(s, "PodResizePending") == "Deferred").await;
    assert_eq!(shown(&status)["allocated"]["cpu"], "100m");
    bench.delete(&cpu("other", 1, "1500m"), 1);
    let status = bench.until("u1", "resized", settled(2)).await;
    assert_eq!(shown(&status)["resources"]["limits"]["cpu"], "1");
    assert!(bench.calls("UpdateContainerResources") > 0);
}
