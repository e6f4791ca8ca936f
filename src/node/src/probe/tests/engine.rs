use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_cri::fake::{ExecReply, Failure, FakeOptions, FakeRuntime, On};
use longshore_cri::{RuntimeService as _, v1};
use longshore_util::Tasks;
use longshore_util::clock::ManualClock;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::event::{EventOptions, EventRecorder};
use crate::model::{ContainerId, DesiredPod, PodControl, PodKey, PodUid, SourceKind, Terminate};
use crate::probe::{Known, Probes, ProbesOptions, Running};
use crate::telemetry::{EventMetrics, ProbeMetrics};
use crate::test_api::TestApi;

#[derive(Debug, Default)]
struct Told(Mutex<Vec<(PodUid, Instant)>>);

impl PodControl for Told {
    fn wake(&self, _: &PodUid) {}

    fn verdict(&self, uid: &PodUid) {
        self.0.lock().push((uid.clone(), Instant::now()));
    }

    fn terminate(&self, _: &PodUid, _: Terminate) {}
}

struct Scene {
    runtime: FakeRuntime,
    probes: Probes,
    told: Arc<Told>,
    metrics: ProbeMetrics,
    clock: Arc<ManualClock>,
    _tasks: Tasks,
}

const EPOCH: i64 = 1_800_000_000;

fn scene() -> Scene {
    let clock = Arc::new(ManualClock::new(Timestamp::from_second(EPOCH).unwrap()));
    scene_that_tells(EventRecorder::log_only(clock.clone()), clock)
}

fn scene_that_tells(events: EventRecorder, clock: Arc<ManualClock>) -> Scene {
    let runtime = FakeRuntime::new(FakeOptions::default());
    runtime.add_image("i");
    let tasks = Tasks::new();
    let metrics = ProbeMetrics::new();
    let probes = Probes::start(
        ProbesOptions {
            runtime: Arc::new(runtime.clone()),
            events,
            metrics: metrics.clone(),
            clock: clock.clone(),
            node_name: "n1".into(),
            processors: 2,
        },
        &tasks,
    );
    let told = Arc::new(Told::default());
    probes.connect(told.clone());
    Scene { runtime, probes, told, metrics, clock, _tasks: tasks }
}

fn pod(uid: &str, containers: Value) -> DesiredPod {
    let object = json!({"metadata": {"name": uid, "namespace": "n", "uid": uid}, "spec": {"containers": containers}});
    DesiredPod {
        uid: uid.into(),
        key: PodKey::new("n", uid),
        pod: Arc::new(serde_json::from_value::<Pod>(object).unwrap()),
        source: SourceKind::Api,
        seen: Timestamp::UNIX_EPOCH,
    }
}

fn readiness(period: i32) -> Value {
    json!([{"name": "c", "readinessProbe": {"exec": {"command": ["r"]}, "periodSeconds": period, "timeoutSeconds": 2}}])
}

impl Scene {
    /// Makes a container run in the fake and tells the probes.
    async fn run(&self, pod: &DesiredPod, started: i64) -> Running {
        let sandbox = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: pod.uid.to_string(),
                uid: pod.uid.to_string(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let request = v1::RunPodSandboxRequest { config: Some(sandbox.clone()), ..Default::default() };
        let sandbox_id = self.runtime.run_pod_sandbox(request).await.unwrap().pod_sandbox_id;
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "c".into(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: "i".into(), ..Default::default() }),
            ..Default::default()
        };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox_id,
            config: Some(config),
            sandbox_config: Some(sandbox),
        };
        let id = self.runtime.create_container(request).await.unwrap().container_id;
        self.runtime.start_container(v1::StartContainerRequest { container_id: id.clone() }).await.unwrap();
        let running = Running {
            id: ContainerId::from(id),
            name: "c".into(),
            started_at: Some(Timestamp::from_second(started).unwrap()),
            known: Known::default(),
        };
        self.probes.set(pod, "127.0.0.1", std::slice::from_ref(&running), false);
        running
    }

    fn asked(&self) -> Vec<Instant> {
        let calls = self.runtime.failpoints().calls();
        calls.iter().filter(|call| call.rpc == "ExecSync").map(|call| call.at).collect()
    }

    fn ready(&self, uid: &str, running: &Running) -> bool {
        self.probes.verdict(&uid.into(), &running.id).unwrap().ready
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_keeps_its_beat_and_tells_only_of_changes() {
    let scene = scene();
    let begin = Instant::now();
    let running = scene.run(&pod("u1", readiness(10)), EPOCH).await;
    assert!(!scene.ready("u1", &running));
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(scene.ready("u1", &running));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let seconds: Vec<u64> = scene.asked().iter().map(|at| at.duration_since(begin).as_secs()).collect();
    assert_eq!(seconds, [0, 1, 11, 21, 31, 41, 51]);
    assert_eq!(scene.told.0.lock().len(), 1);
    let text = scene.metrics.encode().unwrap();
    assert!(
        text.contains("result=\"successful\",container=\"c\",pod=\"u1\",namespace=\"n\",pod_uid=\"u1\"} 7"),
        "{text}"
    );
    scene.probes.forget(&"u1".into());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.asked().len(), 7);
    assert!(!scene.metrics.encode().unwrap().contains("u1"));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_an_earlier_agent_started_waits_for_its_place() {
    let scene = scene();
    let running = scene.run(&pod("u1", readiness(600)), EPOCH - 3600).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(scene.asked().len(), 0);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(scene.ready("u1", &running));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_command_fails_in_time_and_holds_up_no_other() {
    let scene = scene();
    scene.runtime.failpoints().set(On::rpc("ExecSync").pod("u1"), Failure::Hang);
    let slow = pod(
        "u1",
        json!([{"name": "c", "livenessProbe":
        {"exec": {"command": ["r"]}, "periodSeconds": 10, "timeoutSeconds": 4, "failureThreshold": 1}}]),
    );
    let stuck = scene.run(&slow, EPOCH).await;
    let good = scene.run(&pod("u2", readiness(1)), EPOCH).await;
    let begin = Instant::now();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(scene.probes.verdict(&"u1".into(), &stuck.id).unwrap().failed, None);
    assert!(scene.ready("u2", &good));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let failed =
        scene.told.0.lock().iter().find(|(uid, _)| uid.as_str() == "u1").map(|(_, at)| at.duration_since(begin));
    // Three quarters of the period, the timeout, and the second that the runtime may be late.
    assert!((12_500..12_600).contains(&failed.unwrap().as_millis()), "{failed:?}");
    assert!(scene.probes.verdict(&"u1".into(), &stuck.id).unwrap().failed.is_some());
    let mine = |uid: &str| {
        scene
            .runtime
            .failpoints()
            .calls()
            .iter()
            .filter(|c| c.rpc == "ExecSync" && c.pod.as_deref() == Some(uid))
            .count()
    };
    assert!(mine("u2") >= 12, "{}", mine("u2"));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_is_tried_three_times_and_changes_nothing() {
    let scene = scene();
    let running = scene.run(&pod("u1", readiness(10)), EPOCH).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(scene.ready("u1", &running));
    let down = Failure::Error(longshore_cri::ErrorKind::Unavailable, "away".to_owned());
    scene.runtime.failpoints().set(On::rpc("ExecSync"), down);
    scene.runtime.failpoints().forget_calls();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.asked().len(), 18);
    assert!(scene.ready("u1", &running));
    assert!(scene.metrics.encode().unwrap().contains("result=\"unknown\""));
}

#[tokio::test(start_paused = true)]
async fn many_commands_at_once_are_bounded() {
    let scene = scene();
    scene.runtime.failpoints().set(On::rpc("ExecSync"), Failure::Hang);
    for n in 0..100 {
        scene.run(&pod(&format!("u{n}"), readiness(10)), EPOCH).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(scene.asked().len(), 64);
    // Those that hang give their places back when their time is over.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let pods: std::collections::BTreeSet<_> =
        scene.runtime.failpoints().calls().iter().filter(|c| c.rpc == "ExecSync").map(|c| c.pod.clone()).collect();
    assert_eq!(pods.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn the_node_tells_once_that_commands_of_probes_are_a_heavy_load() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_second(EPOCH).unwrap()));
    let (api, tasks) = (TestApi::default(), Tasks::new());
    let options = EventOptions { node: "n1".into(), qps: 0, burst: 0 };
    let events = EventRecorder::start(Some(api.client()), options, clock.clone(), EventMetrics::default(), &tasks);
    let scene = scene_that_tells(events, clock);
    // Each second one that takes half a second, on two processors: a quarter of what there is.
    scene.runtime.failpoints().set(On::rpc("ExecSync"), Failure::Delay(Duration::from_millis(500)));
    scene.run(&pod("u1", readiness(1)), EPOCH).await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    let told = api.under("/api/v1/namespaces/default/events/");
    let told: Vec<_> = told.iter().filter(|event| event["reason"] == "ProbeLoad").collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((&told[0]["involvedObject"]["kind"], &told[0]["type"]), (&json!("Node"), &json!("Warning")));
    assert_eq!(told[0]["count"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_instance_begins_anew_and_the_old_ones_answer_is_dropped() {
    let scene = scene();
    scene.runtime.on_exec(|_| ExecReply::default());
    scene.runtime.failpoints().set(On::rpc("ExecSync").once(), Failure::Delay(Duration::from_secs(1)));
    let desired = pod("u1", readiness(10));
    let old = scene.run(&desired, EPOCH).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let new = Running { id: "other".into(), ..old.clone() };
    scene.probes.set(&desired, "127.0.0.1", std::slice::from_ref(&new), false);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(scene.probes.verdict(&"u1".into(), &old.id), None);
    assert!(!scene.ready("u1", &new), "the fake does not know the other id, so it cannot be asked");
    scene.clock.advance(Duration::from_secs(1));
}

/// What the probes of a busy node cost; `docs/performance.md` holds the figure. Ignored: it takes a while and means
/// something on a quiet machine only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: run it alone with --run-ignored and the quick profile"]
async fn five_hundred_http_probes_a_second_cost_below_a_tenth_of_a_core() {
    let server = super::http::server_in_another_process();
    let scene = scene();
    let port = server.port;
    for n in 0..100 {
        let containers: Vec<Value> = (0..5)
            .map(|c| json!({"name": format!("c{c}"), "readinessProbe": {"httpGet": {"path": "/", "port": port}, "periodSeconds": 1}}))
            .collect();
        let desired = pod(&format!("u{n}"), json!(containers));
        let running: Vec<Running> = (0..5)
            .map(|c| Running {
                id: format!("u{n}c{c}").into(),
                name: format!("c{c}"),
                started_at: Some(Timestamp::from_second(EPOCH - 60).unwrap()),
                known: Known::default(),
            })
            .collect();
        scene.probes.set(&desired, "127.0.0.1", &running, false);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let count = || {
        let text = scene.metrics.encode().unwrap();
        let counts = text
            .lines()
            .filter(|l| l.starts_with("prober_probe_total"))
            .filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok());
        (counts.sum::<u64>(), text.contains("result=\"failed\""))
    };
    let cpu = || {
        let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
        let main: u64 = stat.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let all: u64 = tasks
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
            .filter_map(|stat| stat.split(' ').next()?.parse::<u64>().ok())
            .sum();
        Duration::from_nanos(all.max(main))
    };
    let (before, _) = count();
    let (cpu_before, begin) = (cpu(), Instant::now());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (spent, passed) = (cpu() - cpu_before, begin.elapsed());
    let (after, any_failed) = count();
    let rate = (after - before) as f64 / passed.as_secs_f64();
    let share = spent.as_secs_f64() / passed.as_secs_f64() * 100.0;
    eprintln!("{rate:.0} probes/s, {share:.2} % of a core, {:.0} µs each", share * 10_000.0 / rate);
    assert!(!any_failed && rate > 490.0, "{rate}");
    assert!(share < 10.0, "{share}");
}
