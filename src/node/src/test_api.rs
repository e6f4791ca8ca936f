//! A tiny apiserver for tests: objects by path, behind a `kube::Client`. Creates, gets, replaces, merges, deletes, lists;
//! records what was asked and can be told to fail.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// One request as it was made.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Value,
}

type Answer = Box<dyn Fn(&Asked) -> Option<(StatusCode, Value)> + Send>;

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    asked: Vec<Asked>,
    fail: VecDeque<StatusCode>,
    answer: Option<Answer>,
    revision: u64,
}

/// The fake; clones share their state.
#[derive(Clone, Default)]
pub(crate) struct TestApi(Arc<Mutex<State>>);

impl TestApi {
    pub(crate) fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
                let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                let asked = Asked { method: parts.method, path: parts.uri.path().to_owned(), body };
                let (status, value) = api.handle(asked);
                let bytes = serde_json::to_vec(&value).unwrap_or_default();
                let mut response = Response::new(http_body_util::Full::new(bytes::Bytes::from(bytes)));
                *response.status_mut() = status;
                Ok::<_, Infallible>(response)
            }
        });
        kube::Client::new(service, "default")
    }

    /// The next requests are answered with these codes.
    pub(crate) fn fail_next(&self, codes: impl IntoIterator<Item = StatusCode>) {
        self.0.lock().fail.extend(codes);
    }

    /// Answers some requests by hand.
    pub(crate) fn answer(&self, answer: impl Fn(&Asked) -> Option<(StatusCode, Value)> + Send + 'static) {
        self.0.lock().answer = Some(Box::new(answer));
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.0.lock().asked.clone()
    }

    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        self.0.lock().objects.get(path).cloned()
    }

    pub(crate) fn put(&self, path: &str, value: Value) {
        self.0.lock().objects.insert(path.to_owned(), value);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.0.lock().objects.remove(path);
    }

    pub(crate) fn under(&self, prefix: &str) -> Vec<Value> {
        self.0.lock().objects.iter().filter(|(path, _)| path.starts_with(prefix)).map(|(_, v)| v.clone()).collect()
    }

    fn handle(&self, asked: Asked) -> (StatusCode, Value) {
        let mut state = self.0.lock();
        state.asked.push(asked.clone());
        if let Some(code) = state.fail.pop_front() {
            return failure(code, "told to fail");
        }
        if let Some(answer) = state.answer.as_ref().and_then(|answer| answer(&asked)) {
            return answer;
        }
        state.revision += 1;
        let revision = state.revision.to_string();
        let path = asked.path.trim_end_matches("/status").to_owned();
        let mut body = asked.body;
        match asked.method {
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let path = format!("{path}/{name}");
                if state.objects.contains_key(&path) {
                    return failure(StatusCode::CONFLICT, "AlreadyExists");
                }
                body["metadata"]["uid"] = json!(format!("uid-{revision}"));
                body["metadata"]["resourceVersion"] = json!(revision);
                state.objects.insert(path, body.clone());
                (StatusCode::CREATED, body)
            }
            Method::GET => match state.objects.get(&path) {
                Some(object) => (StatusCode::OK, object.clone()),
                None => failure(StatusCode::NOT_FOUND, "NotFound"),
            },
            Method::PUT | Method::PATCH => {
                let Some(object) = state.objects.get_mut(&path) else {
                    return failure(StatusCode::NOT_FOUND, "NotFound");
                };
                if asked.method == Method::PATCH {
                    merge(object, &body);
                } else {
                    let sent = body["metadata"]["resourceVersion"].clone();
                    if !sent.is_null() && sent != object["metadata"]["resourceVersion"] {
                        return failure(StatusCode::CONFLICT, "Conflict");
                    }
                    *object = body;
                }
                object["metadata"]["resourceVersion"] = json!(revision);
                (StatusCode::OK, object.clone())
            }
            Method::DELETE => match state.objects.remove(&path) {
                Some(object) => (StatusCode::OK, object),
                None => failure(StatusCode::NOT_FOUND, "NotFound"),
            },
            _ => failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
        }
    }
}

fn failure(code: StatusCode, reason: &str) -> (StatusCode, Value) {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code.as_u16(),
    });
    (code, body)
}

/// RFC 7396, enough for what tests send; lists with `type` keys merge by it, as conditions and addresses do.
fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(key);
                } else if !key.starts_with('$') {
                    merge(target.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(target), Value::Array(patch)) if patch.iter().all(|item| item["type"].is_string()) => {
            for item in patch {
                match target.iter_mut().find(|have| have["type"] == item["type"]) {
                    Some(have) => merge(have, item),
                    None => target.push(item.clone()),
                }
            }
        }
        (target, patch) => {
            *target = patch.clone();
            if let Value::Object(object) = target {
                object.retain(|_, value| !value.is_null());
            }
        }
    }
}
