//! `/pods` and `/runningpods/`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::{HeaderValue, Response, StatusCode, header};
use longshore_cri::v1;
use serde_json::{Value, json};

use super::router::Shared;
use super::target;
use crate::model::PodView;

/// All pods that sources want. API pods show the status last received; static pods the one that the agent has made.
pub(super) async fn pods(State(shared): State<Arc<Shared>>) -> Response<Body> {
    let mut items = Vec::new();
    for view in shared.deps.pods.pods() {
        match item(&view) {
            Ok(item) => items.push(item),
            Err(error) => return target::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
    list(&items)
}

fn item(view: &PodView) -> Result<Value, serde_json::Error> {
    let mut pod = serde_json::to_value(&*view.desired.pod)?;
    if view.desired.source.is_static()
        && let Some(status) = &view.status
    {
        pod["status"] = serde_json::to_value(&**status)?;
    }
    if let Value::Object(pod) = &mut pod {
        pod.remove("apiVersion");
        pod.remove("kind");
    }
    Ok(pod)
}

/// What runs, as the runtime says.
pub(super) async fn running(State(shared): State<Arc<Shared>>) -> Response<Body> {
    let state = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
    let filter = v1::ContainerFilter { state: Some(state), ..v1::ContainerFilter::default() };
    let answer = shared.deps.runtime.list_containers(v1::ListContainersRequest { filter: Some(filter) }).await;
    match answer {
        Ok(answer) => list(&group(&answer.containers)),
        Err(error) => target::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// One item per pod. Containers without the pod labels are not ours.
fn group(containers: &[v1::Container]) -> Vec<Value> {
    let mut pods: BTreeMap<&str, Value> = BTreeMap::new();
    for container in containers {
        let label = |name: &str| container.labels.get(name).map(String::as_str);
        let (Some(uid), Some(name), Some(namespace)) =
            (label("io.kubernetes.pod.uid"), label("io.kubernetes.pod.name"), label("io.kubernetes.pod.namespace"))
        else {
            continue;
        };
        let pod = pods.entry(uid).or_insert_with(|| {
            json!({
                "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": null},
                "spec": {"containers": []},
                "status": {},
            })
        });
        let image = container.image.as_ref().map(|image| image.image.as_str()).unwrap_or_default();
        let name = container.metadata.as_ref().map(|metadata| metadata.name.as_str()).unwrap_or_default();
        if let Some(list) = pod["spec"]["containers"].as_array_mut() {
            list.push(json!({"name": name, "image": image, "resources": {}}));
        }
    }
    pods.into_values().collect()
}

fn list(items: &[Value]) -> Response<Body> {
    let body = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items});
    json_response(&body)
}

/// An answer in JSON.
pub(super) fn json_response(body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
