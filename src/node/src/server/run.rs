//! `/run`: a command in a container, its output as the answer.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use http::{Response, StatusCode};
use longshore_cri::v1;

use super::router::Shared;
use super::{query, target};

/// The parts of the path.
#[derive(Debug, serde::Deserialize)]
pub(super) struct RunPath {
    namespace: String,
    pod: String,
    uid: Option<String>,
    container: String,
}

/// Runs `cmd`, split at blanks, without a time limit.
pub(super) async fn post(
    State(shared): State<Arc<Shared>>,
    Path(path): Path<RunPath>,
    RawQuery(raw): RawQuery,
) -> Response<Body> {
    let pods = &*shared.deps.pods;
    let Some(view) = target::pod(pods, &path.namespace, &path.pod, path.uid.as_deref()) else {
        return target::text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    let runtime = &shared.deps.runtime;
    let container_id = match target::running_container(runtime, view.desired.uid.as_str(), &path.container).await {
        Ok(Some(id)) => id,
        Ok(None) => {
            let message = format!("container not found (\"{}\")", path.container);
            return target::text(StatusCode::INTERNAL_SERVER_ERROR, message);
        }
        Err(error) => return target::runtime_error(&error),
    };
    let pairs = query::pairs(raw.as_deref());
    let cmd: Vec<String> = query::get(&pairs, "cmd").unwrap_or_default().split(' ').map(str::to_owned).collect();
    let shown = cmd.join(" ");
    match runtime.exec_sync(v1::ExecSyncRequest { container_id, cmd, timeout: 0 }).await {
        Ok(answer) if answer.exit_code == 0 => {
            let mut output = answer.stdout;
            output.extend_from_slice(&answer.stderr);
            Response::new(Body::from(output))
        }
        Ok(answer) => {
            let stderr = String::from_utf8_lossy(&answer.stderr);
            let message = format!("command '{shown}' exited with {}: {stderr}", answer.exit_code);
            target::text(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
        Err(error) => target::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
