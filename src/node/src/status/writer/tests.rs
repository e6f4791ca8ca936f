use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;
use crate::model::SourceKind;
use crate::source::fixture::{Recorder, pod};
use crate::test_api::TestApi;

const PATH: &str = "/api/v1/namespaces/default/pods/a";

struct World {
    api: TestApi,
    writer: StatusWriter,
    tasks: Tasks,
}

impl World {
    fn new() -> Self {
        let (api, tasks) = (TestApi::default(), Tasks::new());
        let writer = StatusWriter::start(api.client(), &tasks);
        let object = pod("a", "u1", "i", "1");
        api.put(PATH, serde_json::to_value(object).unwrap());
        Self { api, writer, tasks }
    }

    fn put(&self, desired: &DesiredPod, status: PodStatus, done: bool) {
        let update = StatusUpdate {
            uid: desired.uid.clone(),
            key: desired.key.clone(),
            mirror: None,
            status: Arc::new(status),
            done,
        };
        self.writer.put(desired, update);
    }

    async fn settle(&self) {
        self.writer.flush(Duration::from_secs(300)).await;
    }

    fn asked(&self, method: &Method) -> Vec<crate::test_api::Asked> {
        self.api.asked().into_iter().filter(|asked| asked.method == method).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

fn desired(source: SourceKind, deleting: bool) -> DesiredPod {
    let mut object = pod("a", "u1", "i", "1");
    if deleting {
        object.metadata.deletion_timestamp = Some(Time("2026-01-02T03:04:05Z".parse().unwrap()));
    }
    DesiredPod {
        uid: PodUid::from("u1"),
        key: PodKey::new("default", "a"),
        pod: Arc::new(object),
        source,
        seen: "2026-01-02T03:04:05Z".parse().unwrap(),
    }
}

fn phase(phase: &str) -> PodStatus {
    PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() }
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_met_a_conflict_is_tried_again_while_the_object_is_ours() {
    let world = World::new();
    let refused = std::sync::atomic::AtomicBool::new(false);
    world.api.answer(move |asked| {
        let first = asked.method == Method::DELETE && !refused.swap(true, std::sync::atomic::Ordering::Relaxed);
        let body =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409});
        first.then_some((StatusCode::CONFLICT, body))
    });
    world.put(
        &desired(SourceKind::Api, true),
        PodStatus { phase: Some("Failed".into()), ..PodStatus::default() },
        true,
    );
    world.settle().await;
    assert!(world.api.object(PATH).is_none());
    assert_eq!(world.asked(&Method::DELETE).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_status_is_patched_with_the_uid_as_precondition() {
    let world = World::new();
    world.put(&desired(SourceKind::Api, false), phase("Running"), false);
    world.settle().await;
    let asked = world.asked(&Method::PATCH);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].path, format!("{PATH}/status"));
    assert_eq!(asked[0].body, json!({"metadata": {"uid": "u1"}, "status": {"phase": "Running"}}));
    // The same again costs nothing.
    world.put(&desired(SourceKind::Api, false), phase("Running"), false);
    world.settle().await;
    assert_eq!(world.api.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_the_newest_wins() {
    let world = World::new();
    world.api.fail_next([StatusCode::INTERNAL_SERVER_ERROR; 6]);
    for step in 0..100 {
        let status = PodStatus { message: Some(step.to_string()), ..phase("Running") };
        world.put(&desired(SourceKind::Api, false), status, false);
        if step % 30 == 0 {
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
    world.settle().await;
    assert_eq!(world.api.object(PATH).unwrap()["status"]["message"], "99");
    assert!(world.api.asked().len() < 16, "{}", world.api.asked().len());
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_which_nothing_is_left_is_deleted_once() {
    let world = World::new();
    world.put(&desired(SourceKind::Api, true), phase("Running"), false);
    world.settle().await;
    assert!(world.asked(&Method::DELETE).is_empty());
    world.put(&desired(SourceKind::Api, true), phase("Succeeded"), true);
    world.settle().await;
    let deletions = world.asked(&Method::DELETE);
    assert_eq!(deletions.len(), 1);
    assert_eq!(deletions[0].body["gracePeriodSeconds"], 0);
    assert_eq!(deletions[0].body["preconditions"], json!({"uid": "u1"}));
    assert_eq!(world.api.object(PATH), None);
    world.put(&desired(SourceKind::Api, true), phase("Failed"), true);
    world.settle().await;
    assert_eq!(world.asked(&Method::DELETE).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_finished_pod_is_deleted_when_its_deletion_comes_later() {
    let world = World::new();
    world.put(&desired(SourceKind::Api, false), phase("Succeeded"), true);
    world.settle().await;
    assert!(world.asked(&Method::DELETE).is_empty());
    let table = Recorder::new();
    world.writer.tap(table.clone()).apply(PodChange::Set(desired(SourceKind::Api, true)));
    world.settle().await;
    assert_eq!(world.asked(&Method::DELETE).len(), 1);
    assert_eq!(table.take(), ["set a"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_tried_again() {
    let world = World::new();
    world.api.answer(|asked| {
        (asked.method == Method::DELETE).then(|| (StatusCode::SERVICE_UNAVAILABLE, json!({"code": 503})))
    });
    world.put(&desired(SourceKind::Api, true), phase("Succeeded"), true);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(world.asked(&Method::DELETE).len() > 2);
    world.api.answer(|_| None);
    world.settle().await;
    assert_eq!(world.api.object(PATH), None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_is_left_alone() {
    let world = World::new();
    world.api.remove(PATH);
    for phase_name in ["Running", "Failed"] {
        world.put(&desired(SourceKind::Api, false), phase(phase_name), false);
        world.settle().await;
    }
    assert_eq!(world.api.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_pod_of_that_name_is_never_written() {
    let world = World::new();
    world.api.put(PATH, serde_json::to_value(pod("a", "other", "i", "9")).unwrap());
    world.api.answer(|asked| {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "uid", "reason": "Conflict", "code": 409});
        (asked.method == Method::PATCH).then_some((StatusCode::CONFLICT, status))
    });
    world.put(&desired(SourceKind::Api, true), phase("Failed"), true);
    world.settle().await;
    assert_eq!((world.asked(&Method::PATCH).len(), world.asked(&Method::DELETE).len()), (1, 0));
    assert!(world.api.object(PATH).is_some());
}

#[tokio::test(start_paused = true)]
async fn conditions_of_others_stay_and_what_they_break_is_put_right() {
    let world = World::new();
    let condition = |name: &str, status: &str| PodCondition {
        type_: name.into(),
        status: status.into(),
        ..PodCondition::default()
    };
    let ours = PodStatus { conditions: Some(vec![condition("Ready", "True")]), ..phase("Running") };
    world.put(&desired(SourceKind::Api, false), ours, false);
    world.settle().await;
    let mut seen = desired(SourceKind::Api, false);
    let mut object = pod("a", "u1", "i", "50");
    object.status = Some(PodStatus {
        conditions: Some(vec![condition("gate", "True"), condition("Ready", "False")]),
        ..phase("Running")
    });
    let shown = object.status.clone().map(|status| serde_json::to_value(status).unwrap()).unwrap();
    let mut stored = world.api.object(PATH).unwrap();
    stored["status"] = shown;
    world.api.put(PATH, stored);
    seen.pod = Arc::new(object);
    let tap = world.writer.tap(Recorder::new());
    tap.apply(PodChange::Status(seen));
    world.settle().await;
    let conditions = world.api.object(PATH).unwrap()["status"]["conditions"].clone();
    let wanted = json!([{"type": "gate", "status": "True"}, {"type": "Ready", "status": "True"}]);
    let plain: Vec<Value> =
        conditions.as_array().unwrap().iter().map(|c| json!({"type": c["type"], "status": c["status"]})).collect();
    assert_eq!(json!(plain), wanted);
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_is_shown_by_its_mirror_whichever_that_is() {
    let world = World::new();
    world.api.remove(PATH);
    world.put(&desired(SourceKind::File, false), phase("Running"), false);
    world.settle().await;
    assert!(world.api.asked().is_empty());
    for mirror in ["m1", "m2"] {
        let object = pod("a", mirror, "i", "3");
        world.api.put(PATH, serde_json::to_value(&object).unwrap());
        world.writer.mirror(&PodUid::from("u1"), Some(&object));
        world.settle().await;
        let last = world.asked(&Method::PATCH).pop().unwrap();
        assert_eq!(last.body, json!({"metadata": {"uid": mirror}, "status": {"phase": "Running"}}));
        world.writer.mirror(&PodUid::from("u1"), None);
    }
    world.settle().await;
    assert_eq!(world.asked(&Method::PATCH).len(), 2);
    // A static pod's end deletes nothing here: mirrors have their own room.
    world.put(&desired(SourceKind::File, true), phase("Succeeded"), true);
    world.settle().await;
    assert!(world.asked(&Method::DELETE).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_pod_is_not_written_any_more() {
    let world = World::new();
    world.api.fail_next([StatusCode::INTERNAL_SERVER_ERROR]);
    world.put(&desired(SourceKind::Api, false), phase("Running"), false);
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.writer.forget(&PodUid::from("u1"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.api.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_slow_pod_does_not_hold_up_the_others() {
    let world = World::new();
    world.api.answer(|asked| {
        asked.path.contains("/stuck-").then(|| (StatusCode::TOO_MANY_REQUESTS, json!({"code": 429, "message": "slow"})))
    });
    for index in 0..20 {
        let mut stuck = desired(SourceKind::Api, false);
        stuck.uid = PodUid::from(format!("s{index}"));
        stuck.key = PodKey::new("default", format!("stuck-{index}"));
        world.put(&stuck, phase("Running"), false);
    }
    world.put(&desired(SourceKind::Api, false), phase("Running"), false);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(world.api.object(PATH).unwrap()["status"]["phase"], "Running");
}

/// CPU time of this thread, on which everything of the test runs.
fn cpu() -> Duration {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    Duration::from(now)
}

/// The apiserver takes connections and says nothing, and more pods wait than may be written at once.
#[tokio::test]
async fn waiting_for_an_apiserver_that_hangs_costs_nothing() {
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let pods = IN_FLIGHT + 3;
    let asked = Arc::clone(&calls);
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let number = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            // All fail once, so that each waits for its moment.
            if number >= pods {
                std::future::pending::<()>().await;
            }
            Err::<http::Response<kube::client::Body>, tower::BoxError>("no route to host".into())
        }
    });
    let tasks = Tasks::new();
    let writer = StatusWriter::start(kube::Client::new(service, "default"), &tasks);
    for number in 0..pods {
        let object = pod(&format!("p{number}"), &format!("u{number}"), "i", "1");
        let desired = DesiredPod {
            uid: PodUid::from(format!("u{number}").as_str()),
            key: PodKey::new("default", format!("p{number}").as_str()),
            pod: Arc::new(object),
            source: SourceKind::Api,
            seen: "2026-01-02T03:04:05Z".parse().unwrap(),
        };
        let status = Arc::new(phase("Running"));
        let update =
            StatusUpdate { uid: desired.uid.clone(), key: desired.key.clone(), mirror: None, status, done: false };
        writer.put(&desired, update);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), pods + IN_FLIGHT);
    let before = cpu();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = cpu().saturating_sub(before);
    assert!(used < Duration::from_millis(300), "{used:?} of CPU in a second of waiting");
    tasks.cancel();
}
