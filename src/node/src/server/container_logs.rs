//! `/containerLogs/{namespace}/{pod}/{container}`.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use http::{HeaderValue, Response, StatusCode, header};
use longshore_cri::{SharedRuntime, v1};

use super::router::Shared;
use super::{query, target};
use crate::logs::{self, IsFinished, LogOptions, OptionsError};
use crate::model::PodView;

/// Answers with the log of one container.
pub(super) async fn get(
    State(shared): State<Arc<Shared>>,
    Path((namespace, name, container)): Path<(String, String, String)>,
    RawQuery(raw): RawQuery,
) -> Response<Body> {
    let options = match LogOptions::parse(&query::pairs(raw.as_deref()), shared.deps.clock.now()) {
        Ok(options) => options,
        Err(error @ OptionsError::Malformed) => return target::text(StatusCode::BAD_REQUEST, error.to_string()),
        Err(error @ OptionsError::Invalid) => return target::text(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
    };
    let Some(view) = target::pod(&*shared.deps.pods, &namespace, &name, None) else {
        return target::text(StatusCode::NOT_FOUND, format!("pod \"{name}\" does not exist\n"));
    };
    if target::container_tty(view.desired.pod.spec.as_ref(), &container).is_none() {
        return target::text(StatusCode::NOT_FOUND, format!("container \"{container}\" not found in pod \"{name}\"\n"));
    }
    match open(&shared, &view, &container, options).await {
        Ok(response) => response,
        Err(message) => target::text(StatusCode::BAD_REQUEST, message),
    }
}

async fn open(shared: &Shared, view: &PodView, container: &str, options: LogOptions) -> Result<Response<Body>, String> {
    let name = &view.desired.key.name;
    let received = view.desired.pod.status.as_ref();
    let status = view.status.as_deref().or(received).cloned().unwrap_or_default();
    let id = logs::instance(&status, name, container, options.previous).map_err(|error| error.to_string())?;
    let unknown = |_| format!("unable to retrieve container logs for {id}");
    let request = v1::ContainerStatusRequest { container_id: id.to_string(), verbose: false };
    let answer = shared.deps.runtime.container_status(request).await.map_err(unknown)?;
    let path = answer.status.map(|status| status.log_path).unwrap_or_default();
    if path.is_empty() {
        return Err(format!("container \"{container}\" in pod \"{name}\" has no log file"));
    }
    let finished = Ended { runtime: shared.deps.runtime.clone(), id: id.to_string() };
    let stream = logs::open(&PathBuf::from(path), options, finished, &shared.tasks).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// Asks the runtime whether a container still runs.
struct Ended {
    runtime: SharedRuntime,
    id: String,
}

#[async_trait]
impl IsFinished for Ended {
    async fn is_finished(&self) -> bool {
        let request = v1::ContainerStatusRequest { container_id: self.id.clone(), verbose: false };
        match self.runtime.container_status(request).await {
            // One that has been made and not started may still write.
            Ok(answer) => answer.status.is_none_or(|status| {
                !matches!(status.state(), v1::ContainerState::ContainerRunning | v1::ContainerState::ContainerCreated)
            }),
            // A runtime that is away says nothing about the container.
            Err(error) => error.is_not_found(),
        }
    }
}
