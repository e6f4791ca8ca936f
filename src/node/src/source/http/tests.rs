use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use serde_json::json;

use super::*;
use crate::event::EventRecorder;
use crate::model::PodSink;
use crate::source::fixture::{Recorder, clock, manifest};

/// A manifest that names a ConfigMap.
fn asking(name: &str) -> Value {
    let mut pod = manifest(name, "i");
    pod["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "x"}}]);
    pod
}

#[tokio::test]
async fn a_url_is_polled_and_failures_change_nothing() {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen_calls = Arc::clone(&calls);
    let handler = move |headers: HeaderMap| {
        let calls = Arc::clone(&calls);
        async move {
            assert_eq!(headers["x-token"], "secret");
            let list = |items: Vec<Value>| json!({"apiVersion": "v1", "kind": "PodList", "items": items}).to_string();
            match calls.fetch_add(1, Ordering::SeqCst) {
                0 => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
                1 => (StatusCode::OK, manifest("a", "i").to_string()),
                2 => (StatusCode::OK, String::new()),
                3 => (StatusCode::OK, "<html>all is well</html>".to_owned()),
                4 => (StatusCode::NOT_FOUND, "<html>no</html>".to_owned()),
                5 => (StatusCode::OK, list(vec![manifest("a", "i"), manifest("b", "i")])),
                // One that names an object of the API stays what it was, one that never was good is left out.
                6 => (StatusCode::OK, list(vec![asking("a"), asking("c"), manifest("b", "i"), manifest("d", "i")])),
                _ => (StatusCode::OK, list(vec![])),
            }
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = Tasks::new();
    let served = longshore_util::spawn(&tasks, "server", async move {
        axum::serve(listener, Router::new().route("/pods/x", get(handler))).await.unwrap();
    });
    let seen = Recorder::new();
    let sink: Arc<dyn PodSink> = seen.clone();
    let mux = Arc::new(Mux::new([SourceKind::Http], sink, clock(), EventRecorder::log_only(clock())));
    let headers = SecretHeaders([("X-Token".to_owned(), vec!["secret".to_owned()])].into());
    start(format!("http://{address}/pods/x?y=z"), headers, Duration::from_millis(20), "node".into(), mux, &tasks);
    seen.wait_for("set b-node").await;
    assert_eq!(seen.take()[..3], ["set a-node", "ready", "set b-node"]);
    seen.wait_for("set d-node").await;
    assert_eq!(seen.take()[0], "set d-node");
    while seen_calls.load(Ordering::SeqCst) < 9 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(seen.take().iter().filter(|change| change.starts_with("remove")).count(), 3);
    tasks.cancel();
    served.abort();
}

#[test]
fn bodies_that_hold_no_pods_are_refused() {
    let made = |body: &str, url: &str| pods(body.as_bytes(), url, "node", &Good::new());
    for body in ["", "null", "kind: [", "[1]", "kind: Pod", "<html>all is well</html>"] {
        assert!(made(body, "http://x").is_err(), "{body}");
    }
    for body in ["{\"kind\": \"PodList\", \"items\": [1]}", "{\"kind\": \"PodList\"}"] {
        assert!(made(body, "http://x").unwrap().is_empty(), "{body}");
    }
    let uid = |url: &str| made(&manifest("a", "i").to_string(), url).unwrap()[0].1.metadata.uid.clone();
    assert_ne!(uid("http://x"), uid("http://y"));
}
