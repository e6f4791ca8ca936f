//! An apiserver in the process: pods with graceful deletion, status patches and deletes with preconditions, and ways to
//! go wrong. What it shows of a pod must never go back.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use longshore_integration::fuzz::Dice;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::scene::{Clocks, SharedBook, stamp};

/// How the apiserver is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Good,
    /// Refuses everything with this code.
    Refuses(u16),
    /// Never answers.
    Hangs,
    /// Does what it is asked, and its answers are lost.
    LosesAnswers,
}

/// An object as it was written, and as it is read: by far more often.
#[derive(Debug)]
struct Object {
    value: Value,
    pod: Arc<Pod>,
}

#[derive(Debug)]
struct State {
    objects: BTreeMap<String, Object>,
    mood: Mood,
    revision: u64,
    /// Mirrors made so far.
    born: u64,
    dice: Dice,
}

/// The apiserver; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    state: Arc<std::sync::Mutex<State>>,
    book: SharedBook,
    clocks: Clocks,
    /// Rung with every change.
    pub(crate) changed: Arc<Notify>,
}

type Answer = (StatusCode, Value);

impl Api {
    pub(crate) fn new(seed: u64, book: SharedBook, clocks: Clocks) -> Self {
        let state = State { objects: BTreeMap::new(), mood: Mood::Good, revision: 1, born: 0, dice: Dice::new(seed) };
        Self { state: Arc::new(std::sync::Mutex::new(state)), book, clocks, changed: Arc::default() }
    }

    pub(crate) fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                let (status, value) = api.serve(request).await;
                let mut response = Response::new(Body::from(serde_json::to_vec(&value).unwrap()));
                *response.status_mut() = status;
                Ok::<_, Infallible>(response)
            }
        });
        kube::Client::new(service, "default")
    }

    pub(crate) fn set_mood(&self, mood: Mood) {
        self.state.lock().unwrap().mood = mood;
    }

    /// All pods that are mirrors, or all that are not.
    pub(crate) fn pods(&self, mirrors: bool) -> Vec<Arc<Pod>> {
        let state = self.state.lock().unwrap();
        let asked = state.objects.values().filter(|object| is_mirror(&object.value) == mirrors);
        asked.map(|object| Arc::clone(&object.pod)).collect()
    }

    /// A user deletes what stands for a static pod.
    pub(crate) fn drop_mirror(&self, name: &str) {
        self.state.lock().unwrap().objects.remove(name);
        self.changed.notify_one();
    }

    fn create(&self, mut object: Value) -> Answer {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut book = self.book.lock().unwrap();
        if !is_mirror(&object) {
            book.fault(format!("the agent makes a pod {name} that is no mirror"));
        }
        if self.object(&name).is_some() {
            return failure(StatusCode::CONFLICT, "AlreadyExists");
        }
        book.note(self.clocks.millis(), &format!("api: mirror {name} made"));
        drop(book);
        let mut state = self.state.lock().unwrap();
        state.born += 1;
        object["metadata"]["uid"] = json!(format!("m{}", state.born));
        drop(state);
        object["metadata"]["creationTimestamp"] = json!(stamp(self.clocks, 0));
        self.put(&name, object);
        (StatusCode::CREATED, self.object(&name).unwrap())
    }

    pub(crate) fn object(&self, name: &str) -> Option<Value> {
        self.state.lock().unwrap().objects.get(name).map(|object| object.value.clone())
    }

    fn put(&self, name: &str, mut object: Value) {
        let mut state = self.state.lock().unwrap();
        state.revision += 1;
        object["metadata"]["resourceVersion"] = json!(state.revision.to_string());
        let pod = Arc::new(Pod::deserialize(&object).unwrap());
        state.objects.insert(name.to_owned(), Object { value: object, pod });
        drop(state);
        self.changed.notify_one();
    }

    /// A user makes or changes a pod; its status stays.
    pub(crate) fn apply(&self, name: &str, mut object: Value) {
        match self.object(name) {
            Some(mut old) => {
                let spec = object["spec"].take();
                if old["spec"] != spec {
                    let generation = old["metadata"]["generation"].as_u64().unwrap_or(0);
                    old["metadata"]["generation"] = json!(generation + 1);
                    old["spec"] = spec;
                }
                old["metadata"]["labels"] = object["metadata"]["labels"].take();
                self.put(name, old);
            }
            None => {
                object["metadata"]["creationTimestamp"] = json!(stamp(self.clocks, 0));
                object["metadata"]["generation"] = json!(1);
                self.put(name, object);
            }
        }
    }

    /// A user deletes a pod; returns its uid and whether it is gone at once.
    pub(crate) fn delete(&self, name: &str, grace: u64) -> Option<(String, bool)> {
        let mut object = self.object(name)?;
        let uid = object["metadata"]["uid"].as_str()?.to_owned();
        let over = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if grace == 0 || over {
            self.state.lock().unwrap().objects.remove(name);
            self.changed.notify_one();
            return Some((uid, true));
        }
        let earlier = object["metadata"]["deletionGracePeriodSeconds"].as_u64();
        if earlier.is_none_or(|earlier| grace < earlier) {
            object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            object["metadata"]["deletionTimestamp"] = json!(stamp(self.clocks, grace));
            self.put(name, object);
        }
        Some((uid, false))
    }

    async fn serve(&self, request: Request<Body>) -> Answer {
        let (mood, pause) = {
            let mut state = self.state.lock().unwrap();
            (state.mood, state.dice.between(1, 9))
        };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        match mood {
            Mood::Refuses(code) => return failure(StatusCode::from_u16(code).unwrap(), "told to refuse"),
            Mood::Hangs => std::future::pending().await,
            Mood::Good | Mood::LosesAnswers => {}
        }
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await.unwrap_or_default();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let path = parts.uri.path().trim_end_matches("/status").to_owned();
        let name = path.rsplit('/').next().unwrap_or_default();
        let answer = match parts.method {
            Method::GET if path.contains("/nodes/") => {
                (StatusCode::OK, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": "n"}}))
            }
            Method::POST => self.create(body),
            Method::GET => self.object(name).map_or_else(missing, |object| (StatusCode::OK, object)),
            Method::PATCH => self.patch(name, &body),
            Method::DELETE => self.let_go(name, &body),
            _ => failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
        };
        if mood == Mood::LosesAnswers {
            return failure(StatusCode::GATEWAY_TIMEOUT, "answer lost");
        }
        answer
    }

    fn patch(&self, name: &str, patch: &Value) -> Answer {
        let Some(old) = self.object(name) else { return missing() };
        if patch["metadata"]["uid"].as_str().is_some_and(|uid| old["metadata"]["uid"] != uid) {
            return failure(StatusCode::CONFLICT, "the uid is another");
        }
        let new = longshore_api::patch::strategic("v1", "Pod", &old, patch).unwrap();
        // A static pod that was refused tries again, and one that comes back begins anew behind the same mirror.
        let faults = if is_mirror(&old) { Vec::new() } else { backwards(name, &old, &new) };
        let mut book = self.book.lock().unwrap();
        faults.into_iter().for_each(|text| book.fault(text));
        drop(book);
        self.put(name, new);
        (StatusCode::OK, self.object(name).unwrap())
    }

    /// The agent deletes the object of a pod of which nothing is left.
    fn let_go(&self, name: &str, options: &Value) -> Answer {
        let Some(object) = self.object(name) else { return missing() };
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        if options["preconditions"]["uid"].as_str() != Some(&uid) {
            return failure(StatusCode::CONFLICT, "the uid is another");
        }
        let mut book = self.book.lock().unwrap();
        if is_mirror(&object) {
            book.note(self.clocks.millis(), &format!("api: mirror {name} deleted"));
            drop(book);
            self.drop_mirror(name);
            return (StatusCode::OK, object);
        }
        let pod = book.pod(&uid).cloned().unwrap();
        if !pod.is_done() || !pod.running().is_empty() || pod.has_home() || !pod.ends() {
            book.fault(format!("the API object of {uid} is deleted before its end"));
        }
        if !matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
            book.fault(format!("the API object of {uid} is deleted in phase {}", object["status"]["phase"]));
        }
        book.note(self.clocks.millis(), &format!("api: {name} ({uid}) deleted"));
        drop(book);
        self.state.lock().unwrap().objects.remove(name);
        self.changed.notify_one();
        (StatusCode::OK, object)
    }
}

/// What goes back between two versions of a pod.
fn backwards(name: &str, old: &Value, new: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let phase = |object: &Value| object["status"]["phase"].as_str().unwrap_or_default().to_owned();
    let (before, after) = (phase(old), phase(new));
    if matches!(before.as_str(), "Succeeded" | "Failed") && before != after {
        faults.push(format!("the API's phase of {name} went from {before} to {after}"));
    }
    for list in ["initContainerStatuses", "containerStatuses"] {
        for status in old["status"][list].as_array().into_iter().flatten() {
            let now = new["status"][list].as_array().into_iter().flatten().find(|s| s["name"] == status["name"]);
            let count = |status: &Value| status["restartCount"].as_u64().unwrap_or(0);
            if now.is_none_or(|now| count(now) < count(status)) {
                let (container, was) = (&status["name"], count(status));
                faults.push(format!("the API's restart count of {container} went from {was} to {now:?}"));
            }
        }
    }
    faults
}

fn is_mirror(object: &Value) -> bool {
    object["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string()
}

fn missing() -> Answer {
    failure(StatusCode::NOT_FOUND, "NotFound")
}

fn failure(code: StatusCode, reason: &str) -> Answer {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "message": reason,
        "code": code.as_u16(),
    });
    (code, body)
}
