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
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::scene::{Clocks, SharedBook};

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

#[derive(Debug)]
struct State {
    objects: BTreeMap<String, Value>,
    mood: Mood,
    revision: u64,
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
        let state = State { objects: BTreeMap::new(), mood: Mood::Good, revision: 1, dice: Dice::new(seed) };
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

    /// All pods.
    pub(crate) fn pods(&self) -> Vec<Pod> {
        let state = self.state.lock().unwrap();
        state.objects.values().map(|object| serde_json::from_value(object.clone()).unwrap()).collect()
    }

    pub(crate) fn object(&self, name: &str) -> Option<Value> {
        self.state.lock().unwrap().objects.get(name).cloned()
    }

    fn put(&self, name: &str, mut object: Value) {
        let mut state = self.state.lock().unwrap();
        state.revision += 1;
        object["metadata"]["resourceVersion"] = json!(state.revision.to_string());
        state.objects.insert(name.to_owned(), object);
        drop(state);
        self.changed.notify_one();
    }

    /// A user makes or changes a pod; its status stays.
    pub(crate) fn apply(&self, name: &str, mut object: Value) {
        match self.object(name) {
            Some(mut old) => {
                old["spec"] = object["spec"].take();
                old["metadata"]["labels"] = object["metadata"]["labels"].take();
                self.put(name, old);
            }
            None => {
                object["metadata"]["creationTimestamp"] = json!(self.clocks.stamp(0));
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
            object["metadata"]["deletionTimestamp"] = json!(self.clocks.stamp(grace));
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
        let new = longshore_api::patch::strategic("Pod", &old, patch).unwrap();
        let mut faults = Vec::new();
        let phase = |object: &Value| object["status"]["phase"].as_str().unwrap_or_default().to_owned();
        let (before, after) = (phase(&old), phase(&new));
        if matches!(before.as_str(), "Succeeded" | "Failed") && before != after {
            faults.push(format!("the API's phase of {name} went from {before} to {after}"));
        }
        for list in ["initContainerStatuses", "containerStatuses"] {
            for status in old["status"][list].as_array().into_iter().flatten() {
                let now = new["status"][list].as_array().into_iter().flatten().find(|s| s["name"] == status["name"]);
                let count = |status: &Value| status["restartCount"].as_u64().unwrap_or(0);
                if now.is_none_or(|now| count(now) < count(status)) {
                    faults.push(format!(
                        "the API's restart count of {} went from {} to {now:?}",
                        status["name"],
                        count(status)
                    ));
                }
            }
        }
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
        let pod = book.pod(&uid).cloned().unwrap();
        if !pod.is_done() || !pod.running().is_empty() || pod.has_home() || !pod.ends() {
            book.fault(format!("the API object of {uid} is deleted before its end"));
        }
        if !matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
            book.fault(format!("the API object of {uid} is deleted in phase {}", object["status"]["phase"]));
        }
        book.note(self.clocks.at(), &format!("api: {name} ({uid}) deleted"));
        drop(book);
        self.state.lock().unwrap().objects.remove(name);
        self.changed.notify_one();
        (StatusCode::OK, object)
    }
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
