use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use longshore_util::Tasks;
use longshore_util::clock::{Clock as _, ManualClock};

use super::correlate::Correlator;
use super::record::Occurrence;
use super::*;
use crate::telemetry::EventMetrics;
use crate::test_api::TestApi;

fn occurrence(reason: &'static str, message: &str, at: Timestamp) -> Occurrence {
    let pod =
        serde_json::from_value(serde_json::json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}})).unwrap();
    Occurrence {
        target: EventTarget::pod_object(&pod),
        kind: EventType::Normal,
        reason: reason.into(),
        message: message.into(),
        at,
    }
}

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

#[test]
fn the_same_event_is_counted_under_one_name() {
    let clock = ManualClock::new(start());
    let mut correlator = Correlator::new();
    let mut names = Vec::new();
    for count in 1..=3 {
        let entry = correlator.correlate(&occurrence("BackOff", "again", clock.now()), clock.now()).unwrap();
        assert_eq!(entry.count, count);
        assert_eq!(entry.first, start());
        assert_eq!(entry.last, clock.now());
        names.push(entry.name.clone());
        correlator.written(&entry);
        clock.advance(Duration::from_secs(10));
    }
    assert!(names.iter().all(|name| *name == names[0]));
    let other = correlator.correlate(&occurrence("BackOff", "other", clock.now()), clock.now()).unwrap();
    assert_eq!(other.count, 1);
    assert_ne!(other.name, names[0]);
}

#[test]
fn the_tenth_message_of_one_reason_is_merged() {
    let now = start();
    let mut correlator = Correlator::new();
    for n in 1..=12 {
        let entry = correlator.correlate(&occurrence("Unhealthy", &format!("message {n}"), now), now).unwrap();
        if n < 10 {
            assert_eq!((entry.message, entry.count), (format!("message {n}"), 1));
        } else {
            assert_eq!(entry.message, format!("(combined from similar events): message {n}"));
            assert_eq!(entry.count, n - 9);
        }
    }
    // Long after, messages stand for themselves again.
    let later = now + jiff::SignedDuration::from_secs(3601);
    assert_eq!(correlator.correlate(&occurrence("Unhealthy", "late", later), later).unwrap().message, "late");
}

#[test]
fn one_object_gets_25_and_then_one_in_five_minutes() {
    let clock = ManualClock::new(start());
    let mut correlator = Correlator::new();
    let mut pass = || correlator.correlate(&occurrence("BackOff", "x", clock.now()), clock.now());
    assert_eq!((0..40).filter(|_| pass().is_some()).count(), 25);
    clock.advance(Duration::from_secs(299));
    assert!(pass().is_none());
    clock.advance(Duration::from_secs(1));
    let entry = pass().unwrap();
    assert_eq!(entry.count, 42, "what was held back is counted all the same");
}

struct World {
    api: TestApi,
    clock: Arc<ManualClock>,
    recorder: EventRecorder,
    metrics: EventMetrics,
    tasks: Tasks,
}

fn world() -> World {
    let (api, tasks) = (TestApi::default(), Tasks::new());
    let clock = Arc::new(ManualClock::new(start()));
    let metrics = EventMetrics::default();
    let options = EventOptions { node: "n1".into(), qps: 50, burst: 100 };
    let recorder = EventRecorder::start(Some(api.client()), options, clock.clone(), metrics.clone(), &tasks);
    World { api, clock, recorder, metrics, tasks }
}

async fn settle(world: &World, written: u64) {
    while world.metrics.written.get() < written {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_is_created_and_then_patched() {
    let world = world();
    let target = EventTarget::node("n1");
    world.recorder.normal(&target, "Starting", "Starting kubelet.");
    settle(&world, 1).await;
    world.clock.advance(Duration::from_secs(60));
    world.recorder.normal(&target, "Starting", "Starting kubelet.");
    settle(&world, 2).await;
    let events = world.api.under("/api/v1/namespaces/default/events/");
    assert_eq!(events.len(), 1);
    let mut event = events[0].clone();
    event["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(
        event,
        serde_json::json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("n1.{:x}", start().as_nanosecond()), "namespace": "default", "uid": "uid-1"},
            "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1"},
            "reason": "Starting", "message": "Starting kubelet.", "type": "Normal", "count": 2,
            "source": {"component": "kubelet", "host": "n1"},
            "reportingComponent": "kubelet", "reportingInstance": "n1",
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:01:00Z",
        })
    );
}

#[tokio::test(start_paused = true)]
async fn an_absent_api_is_waited_for_and_a_refusal_is_not() {
    let world = world();
    let target = EventTarget::node("n1");
    world.api.fail_next([StatusCode::SERVICE_UNAVAILABLE; 5]);
    world.recorder.normal(&target, "A", "a");
    settle(&world, 1).await;
    assert_eq!(world.api.asked().iter().filter(|asked| asked.method == Method::POST).count(), 6);
    world.api.fail_next([StatusCode::FORBIDDEN]);
    world.recorder.normal(&target, "B", "b");
    world.recorder.normal(&target, "C", "c");
    settle(&world, 2).await;
    assert_eq!(world.metrics.refused.get(), 1);
    let reasons: Vec<_> = world.api.under("/api").iter().map(|event| event["reason"].clone()).collect();
    assert_eq!(reasons, ["A", "C"]);
}

#[tokio::test(start_paused = true)]
async fn a_vanished_event_is_written_anew_with_its_count() {
    let world = world();
    let target = EventTarget::node("n1");
    world.recorder.normal(&target, "A", "a");
    settle(&world, 1).await;
    let path = format!("/api/v1/namespaces/default/events/n1.{:x}", start().as_nanosecond());
    world.api.remove(&path);
    world.recorder.normal(&target, "A", "a");
    settle(&world, 2).await;
    assert_eq!(world.api.object(&path).unwrap()["count"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_the_oldest_and_stopping_flushes() {
    let world = world();
    for n in 0..1100 {
        let target = EventTarget::node(&format!("n{n}"));
        world.recorder.normal(&target, "A", "a");
    }
    assert_eq!(world.metrics.dropped.get(), 100);
    world.tasks.cancel();
    world.tasks.join().await;
    assert!(world.metrics.written.get() > 0);
}
