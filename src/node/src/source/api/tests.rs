use std::collections::VecDeque;
use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::event::EventRecorder;
use crate::model::PodSink;
use crate::source::fixture::{Recorder, clock, pod};

/// One answer of the scripted server: a list, or the events of a watch after which the stream ends or hangs.
#[derive(Debug, Clone)]
enum Answer {
    List(Vec<Pod>, &'static str),
    Watch { events: Vec<Value>, hang: bool },
    Fail(u16),
}

type Asked = Arc<Mutex<Vec<String>>>;

fn server(script: Vec<Answer>) -> (kube::Client, Asked) {
    let script = Arc::new(Mutex::new(VecDeque::from(script)));
    let asked: Asked = Arc::default();
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (script, log) = (Arc::clone(&script), Arc::clone(&log));
        async move {
            log.lock().push(request.uri().to_string());
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let answer = {
                let mut script = script.lock();
                let fits = match script.front() {
                    Some(Answer::List(..)) => !is_watch,
                    Some(Answer::Watch { .. }) => is_watch,
                    Some(Answer::Fail(_)) => true,
                    None => false,
                };
                if fits { script.pop_front() } else { None }
            };
            Ok::<_, Infallible>(respond(answer.unwrap_or(Answer::Watch { events: vec![], hang: true })))
        }
    });
    (kube::Client::new(service, "default"), asked)
}

fn respond(answer: Answer) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let frame = |text: String| Ok::<_, Infallible>(Frame::data(Bytes::from(text)));
    let (status, frames, hang) = match answer {
        Answer::List(items, version) => {
            let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": version}, "items": items});
            (200, vec![frame(list.to_string())], false)
        }
        Answer::Watch { events, hang } => (200, events.iter().map(|event| frame(format!("{event}\n"))).collect(), hang),
        Answer::Fail(code) => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no", "reason": "X", "code": code});
            (code, vec![frame(status.to_string())], false)
        }
    };
    let body = stream::iter(frames);
    let body = if hang {
        UnsyncBoxBody::new(StreamBody::new(body.chain(stream::pending())))
    } else {
        UnsyncBoxBody::new(StreamBody::new(body))
    };
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
    response
}

fn event(kind: &str, pod: &Pod) -> Value {
    let mut object = serde_json::to_value(pod).unwrap();
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("Pod");
    json!({"type": kind, "object": object})
}

fn run(script: Vec<Answer>) -> (Arc<Recorder>, Asked, Tasks) {
    let (client, asked) = server(script);
    let seen = Recorder::new();
    let sink: Arc<dyn PodSink> = seen.clone();
    let mux = Arc::new(Mux::new([SourceKind::Api], sink, clock(), EventRecorder::log_only(clock())));
    let tasks = Tasks::new();
    start(client, "n1", mux, None, &tasks);
    (seen, asked, tasks)
}

#[tokio::test(start_paused = true)]
async fn a_list_then_a_watch_from_its_version() {
    let script = vec![
        Answer::List(vec![pod("a", "1", "i", "5")], "7"),
        Answer::Watch {
            events: vec![event("ADDED", &pod("b", "2", "i", "8")), event("DELETED", &pod("a", "1", "i", "9"))],
            hang: true,
        },
    ];
    let (seen, asked, tasks) = run(script);
    seen.wait_for("remove 1").await;
    assert_eq!(seen.take(), ["set a", "ready", "set b", "remove 1"]);
    let asked = asked.lock().clone();
    assert!(asked[0].contains("fieldSelector=spec.nodeName%3Dn1"), "{asked:?}");
    assert!(
        asked[1].contains("watch=true")
            && asked[1].contains("resourceVersion=7")
            && asked[1].contains("allowWatchBookmarks=true"),
        "{asked:?}"
    );
    tasks.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_goes_on_from_the_last_version_also_from_a_bookmark() {
    let bookmark = json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"resourceVersion": "20"}, "spec": {"containers": []}}});
    let script = vec![
        Answer::List(vec![], "7"),
        Answer::Watch { events: vec![event("ADDED", &pod("a", "1", "i", "8")), bookmark], hang: false },
        Answer::Watch { events: vec![event("ADDED", &pod("b", "2", "i", "21"))], hang: true },
    ];
    let (seen, asked, tasks) = run(script);
    seen.wait_for("set b").await;
    assert_eq!(seen.take(), ["ready", "set a", "set b"]);
    assert!(asked.lock()[2].contains("resourceVersion=20"), "{:?}", asked.lock());
    tasks.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_means_list_again_without_removing_anything_before() {
    let gone = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "too old resource version", "reason": "Expired", "code": 410}});
    let script = vec![
        Answer::List(vec![pod("a", "1", "i", "5"), pod("b", "2", "i", "6")], "7"),
        Answer::Watch { events: vec![gone], hang: false },
        Answer::List(vec![pod("b", "2", "new", "30"), pod("c", "3", "i", "31")], "32"),
    ];
    let (seen, _asked, tasks) = run(script);
    seen.wait_for("set c").await;
    assert_eq!(seen.take(), ["set a", "set b", "ready", "remove 1", "set b", "set c"]);
    tasks.cancel();
}

#[tokio::test(start_paused = true)]
async fn errors_never_count_as_an_empty_set() {
    let script = vec![
        Answer::Fail(500),
        Answer::Fail(401),
        Answer::List(vec![pod("a", "1", "i", "5")], "7"),
        Answer::Fail(503),
        Answer::Watch { events: vec![], hang: false },
        Answer::Fail(500),
        Answer::Watch { events: vec![event("MODIFIED", &pod("a", "1", "new", "9"))], hang: true },
    ];
    let (seen, _asked, tasks) = run(script);
    seen.wait_for("set a").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(seen.take(), ["set a", "ready", "set a"]);
    tasks.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_is_asked_less_and_less_often() {
    let (seen, asked, tasks) = run(vec![Answer::Fail(401); 1000]);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let count = asked.lock().len();
    assert!((5..25).contains(&count), "{count} questions in two minutes");
    assert!(seen.take().is_empty());
    tasks.cancel();
}

#[tokio::test(start_paused = true)]
async fn managed_fields_are_dropped_and_mirrors_are_no_pods_of_ours() {
    let mut mirror = pod("m", "9", "i", "5");
    mirror.metadata.annotations = Some([(CONFIG_MIRROR.to_owned(), "h".to_owned())].into());
    let mut own = pod("a", "1", "i", "5");
    own.metadata.managed_fields = Some(vec![Default::default()]);
    let (seen, _asked, tasks) = run(vec![Answer::List(vec![mirror, own], "7")]);
    seen.wait_for("ready").await;
    let changes = seen.changes.lock().clone();
    let [crate::model::PodChange::Set(desired), _] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!(desired.pod.metadata.managed_fields, None);
    tasks.cancel();
}
