//! Watches over HTTP: order, resumption, filters, bookmarks, and what becomes of the slow.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt as _;
use http::{Request, StatusCode};
use serde_json::{Value, json};

use super::{Server, config_map, pod};
use crate::store::Limits;

const MAPS: &str = "/api/v1/namespaces/a/configmaps";

struct Frames {
    stream: BodyDataStream,
    rest: String,
}

impl Frames {
    async fn open(server: &Server, path: &str, accept: &str) -> Self {
        let request = Request::builder().uri(path).header("accept", accept).body(Body::empty()).unwrap();
        let response = server.raw(request).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        Self { stream: response.into_body().into_data_stream(), rest: String::new() }
    }

    /// The next frame; nothing at the end.
    async fn next(&mut self) -> Option<Value> {
        while !self.rest.contains('\n') {
            let chunk = self.stream.next().await?.unwrap();
            self.rest.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        let (line, rest) = self.rest.split_once('\n').unwrap();
        let frame = serde_json::from_str(line).unwrap();
        self.rest = rest.to_owned();
        Some(frame)
    }

    /// Type and name of the next frame.
    async fn brief(&mut self) -> String {
        let frame = self.next().await.unwrap();
        let name = frame["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        format!("{} {name}", frame["type"].as_str().unwrap())
    }
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

#[tokio::test]
async fn a_watch_resumes_behind_the_version_it_names() {
    let server = Server::start().await;
    let made = server.post(MAPS, config_map("one")).await.body;
    let mut frames = Frames::open(&server, &format!("{MAPS}?watch=1&resourceVersion={}", version(&made)), "*/*").await;
    server.post(MAPS, config_map("two")).await;
    server.patch("merge-patch", &format!("{MAPS}/one"), json!({"data": {"a": "2"}})).await;
    server.delete(&format!("{MAPS}/one"), Value::Null).await;
    server.post("/api/v1/namespaces/default/configmaps", config_map("elsewhere")).await;
    server.post(MAPS, config_map("three")).await;
    for want in ["ADDED two", "MODIFIED one", "DELETED one", "ADDED three"] {
        assert_eq!(frames.brief().await, want);
    }
    // Without a version it begins with what is there.
    let mut frames = Frames::open(&server, &format!("{MAPS}?watch=true"), "*/*").await;
    for want in ["ADDED three", "ADDED two"] {
        assert_eq!(frames.brief().await, want);
    }
    server.delete(&format!("{MAPS}/two"), Value::Null).await;
    assert_eq!(frames.brief().await, "DELETED two");
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let server = Server::start().await;
    let now = server.get(MAPS).await.body;
    let path = format!("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1&resourceVersion={}", version(&now));
    let mut frames = Frames::open(&server, &path, "*/*").await;
    server.post("/api/v1/namespaces/a/pods", pod("mine", "n1")).await;
    server.post("/api/v1/namespaces/a/pods", pod("theirs", "n2")).await;
    server.post("/api/v1/namespaces/a/pods", pod("free", "")).await;
    let binding = json!({"metadata": {"name": "free"}, "target": {"kind": "Node", "name": "n1"}});
    server.post("/api/v1/namespaces/a/pods/free/binding", binding).await;
    assert_eq!(frames.brief().await, "ADDED mine");
    assert_eq!(frames.brief().await, "ADDED free");

    let mut object = config_map("m");
    object["metadata"]["labels"] = json!({"in": "yes"});
    let made = server.post(MAPS, object).await.body;
    let path = format!("{MAPS}?watch=1&labelSelector=in%3Dyes&resourceVersion={}", version(&made));
    let mut frames = Frames::open(&server, &path, "*/*").await;
    server.patch("merge-patch", &format!("{MAPS}/m"), json!({"data": {"a": "2"}})).await;
    let out = server.patch("merge-patch", &format!("{MAPS}/m"), json!({"metadata": {"labels": {"in": "no"}}})).await;
    server.patch("merge-patch", &format!("{MAPS}/m"), json!({"data": {"a": "3"}})).await;
    server.patch("merge-patch", &format!("{MAPS}/m"), json!({"metadata": {"labels": {"in": "yes"}}})).await;
    assert_eq!(frames.brief().await, "MODIFIED m");
    let left = frames.next().await.unwrap();
    assert_eq!((&left["type"], version(&left["object"])), (&json!("DELETED"), version(&out.body)));
    assert_eq!(left["object"]["metadata"]["labels"]["in"], "yes", "as it was last seen");
    assert_eq!(frames.brief().await, "ADDED m");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_with_time_and_the_end_of_the_first_list_is_marked() {
    let server = Server::start().await;
    server.post(MAPS, config_map("one")).await;
    let path = format!(
        "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=90"
    );
    let mut frames = Frames::open(&server, &path, "*/*").await;
    assert_eq!(frames.brief().await, "ADDED one");
    let end = frames.next().await.unwrap();
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let other = server.post("/api/v1/namespaces/default/configmaps", config_map("elsewhere")).await.body;
    let mark = frames.next().await.unwrap();
    assert_eq!((&mark["type"], version(&mark["object"])), (&json!("BOOKMARK"), version(&other)));
    assert_eq!(frames.next().await.unwrap()["type"], "BOOKMARK", "one more before the end");
    assert!(frames.next().await.is_none(), "it ends when its time is over");
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_told_that_it_is_too_late() {
    let server = Server::with(Limits { events: 20, ..Limits::default() }).await;
    let made = server.post(MAPS, config_map("one")).await.body;
    let path = format!("{MAPS}?watch=1&resourceVersion={}", version(&made));
    let mut frames = Frames::open(&server, &path, "*/*").await;
    for index in 0..200 {
        let patch = json!({"data": {"a": index.to_string()}});
        server.patch("merge-patch", &format!("{MAPS}/one"), patch).await;
    }
    let frame = frames.next().await.unwrap();
    assert_eq!((&frame["type"], &frame["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert!(frames.next().await.is_none());
    // The same for one that comes back too late.
    let mut frames = Frames::open(&server, &path, "*/*").await;
    assert_eq!(frames.next().await.unwrap()["object"]["reason"], "Expired");
}

#[tokio::test]
async fn tables_and_metadata_can_be_watched() {
    let server = Server::start().await;
    server.post("/api/v1/namespaces/a/pods", pod("p", "n1")).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let mut frames = Frames::open(&server, "/api/v1/namespaces/a/pods?watch=1", accept).await;
    let first = frames.next().await.unwrap();
    assert_eq!(first["object"]["rows"][0]["cells"][1], "0/1");
    assert_eq!(first["object"]["columnDefinitions"].as_array().unwrap().len(), 9);
    server.delete("/api/v1/namespaces/a/pods/p", Value::Null).await;
    let second = frames.next().await.unwrap();
    assert_eq!(second["object"]["rows"][0]["cells"][2], "Terminating");
    assert_eq!(second["object"]["columnDefinitions"], json!([]));

    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let mut frames = Frames::open(&server, "/api/v1/namespaces/a/pods?watch=1", accept).await;
    let frame = frames.next().await.unwrap();
    assert_eq!(frame["object"]["kind"], "PartialObjectMetadata");
    assert!(frame["object"].get("spec").is_none());
}

#[tokio::test]
async fn a_watch_of_one_name_is_not_woken_by_its_neighbours() {
    let server = Server::start().await;
    server.post(MAPS, config_map("one")).await;
    let path = format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Done");
    let mut frames = Frames::open(&server, &path, "*/*").await;
    server.post(MAPS, config_map("one-more")).await;
    server.delete(&format!("{MAPS}/one"), Value::Null).await;
    assert_eq!(frames.brief().await, "ADDED one");
    assert_eq!(frames.brief().await, "DELETED one");
}

#[tokio::test]
async fn an_agent_sees_pods_come_to_its_node_change_there_and_go() {
    const PODS: &str = "/api/v1/namespaces/a/pods";
    let server = Server::start().await;
    server.post(PODS, pod("first", "n1")).await;
    let mut frames = Frames::open(&server, "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1", "*/*").await;
    assert_eq!(frames.brief().await, "ADDED first");
    server.post(PODS, pod("second", "")).await;
    server.post(PODS, pod("other", "n2")).await;
    let target =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "second"}, "target": {"name": "n1"}});
    server.post(&format!("{PODS}/second/binding"), target).await;
    server.patch("merge-patch", &format!("{PODS}/other"), json!({"metadata": {"labels": {"app": "n1"}}})).await;
    server.patch("merge-patch", &format!("{PODS}/second"), json!({"metadata": {"labels": {"app": "y"}}})).await;
    server.delete(&format!("{PODS}/second?gracePeriodSeconds=0"), Value::Null).await;
    server.delete(&format!("{PODS}/other?gracePeriodSeconds=0"), Value::Null).await;
    server.delete(&format!("{PODS}/first?gracePeriodSeconds=0"), Value::Null).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(frames.brief().await);
    }
    assert_eq!(seen, ["ADDED second", "MODIFIED second", "DELETED second", "DELETED first"]);
}

#[tokio::test(start_paused = true)]
async fn watches_end_with_the_server() {
    let server = Server::start().await;
    let mut frames = Frames::open(&server, &format!("{MAPS}?watch=1"), "*/*").await;
    let waiting = tokio::time::timeout(Duration::from_secs(5), frames.next());
    server.api.stop().cancel();
    assert_eq!(waiting.await, Ok(None));
}
