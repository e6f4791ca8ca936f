//! `/exec`, `/attach`, `/portForward`: the runtime prepares a stream and names a URL; the upgraded connection is passed on
//! to it byte by byte.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use http::{Response, StatusCode, Uri};
use longshore_cri::{CriError, v1};
use longshore_transport::upgrade::{self, CopyLimits, ForwardLimits, Target};

use super::router::Shared;
use super::{authn, query, target};

/// How one side's silence after the other's end is taken; half-closed streams are of use for seconds, not for hours.
const HALF_CLOSED: Duration = Duration::from_secs(600);
const CONNECT: Duration = Duration::from_secs(10);
const HEAD: Duration = Duration::from_secs(60);

/// Which standard streams are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Streams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl Streams {
    /// Only `1` means yes. A terminal has no error stream of its own.
    fn parse(pairs: &[(String, String)]) -> Option<Self> {
        let is = |name: &str| query::get(pairs, name) == Some("1");
        let tty = is("tty");
        let streams = Self { stdin: is("input"), stdout: is("output"), stderr: is("error") && !tty, tty };
        (streams.stdin || streams.stdout || streams.stderr).then_some(streams)
    }
}

/// The parts of `/exec/…` and `/attach/…` paths.
#[derive(Debug, serde::Deserialize)]
pub(super) struct ContainerPath {
    namespace: String,
    pod: String,
    uid: Option<String>,
    container: String,
}

/// The parts of `/portForward/…` paths.
#[derive(Debug, serde::Deserialize)]
pub(super) struct PodPath {
    namespace: String,
    pod: String,
    uid: Option<String>,
}

const NO_STREAMS: &str = "you must specify at least 1 of stdin, stdout, stderr";

type Begun = (Vec<(String, String)>, Streams, String, bool);

/// What exec and attach begin with: the query, the streams wanted, the container and whether it has a terminal.
async fn begin(shared: &Shared, path: &ContainerPath, query: Option<&str>) -> Result<Begun, Response<Body>> {
    let pairs = query::pairs(query);
    let Some(streams) = Streams::parse(&pairs) else { return Err(target::text(StatusCode::BAD_REQUEST, NO_STREAMS)) };
    let (container_id, tty) = find(shared, path).await?;
    Ok((pairs, streams, container_id, tty))
}

/// Passes the connection on to the URL that the runtime named.
async fn finish(shared: &Shared, url: Result<String, CriError>, request: Request) -> Response<Body> {
    match url {
        Ok(url) => forward(shared, &url, request).await,
        Err(error) => target::runtime_error(&error),
    }
}

/// Runs a command in a container.
pub(super) async fn exec(
    State(shared): State<Arc<Shared>>,
    Path(path): Path<ContainerPath>,
    request: Request,
) -> Response<Body> {
    let (pairs, streams, container_id, _) = match begin(&shared, &path, request.uri().query()).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let wanted = v1::ExecRequest {
        container_id,
        cmd: query::all(&pairs, "command").map(str::to_owned).collect(),
        tty: streams.tty,
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr,
    };
    let url = shared.deps.runtime.exec(wanted).await.map(|answer| answer.url);
    finish(&shared, url, request).await
}

/// Joins the streams of a container's main process.
pub(super) async fn attach(
    State(shared): State<Arc<Shared>>,
    Path(path): Path<ContainerPath>,
    request: Request,
) -> Response<Body> {
    let (_, streams, container_id, tty) = match begin(&shared, &path, request.uri().query()).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    // The process has its terminal from the start or never: the spec says, not the caller.
    let wanted = v1::AttachRequest {
        container_id,
        tty,
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr && !tty,
    };
    let url = shared.deps.runtime.attach(wanted).await.map(|answer| answer.url);
    finish(&shared, url, request).await
}

/// Reaches ports of a pod.
pub(super) async fn port_forward(
    State(shared): State<Arc<Shared>>,
    Path(path): Path<PodPath>,
    request: Request,
) -> Response<Body> {
    let pairs = query::pairs(request.uri().query());
    let is_websocket = upgrade::wanted_upgrade(request.headers())
        .is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let port = match if is_websocket { ports(&pairs) } else { Ok(Vec::new()) } {
        Ok(port) => port,
        Err(message) => return target::text(StatusCode::BAD_REQUEST, message),
    };
    let pods = &*shared.deps.pods;
    if target::pod(pods, &path.namespace, &path.pod, None).is_none() {
        return target::text(StatusCode::NOT_FOUND, "pod does not exist");
    }
    let Some(view) = target::pod(pods, &path.namespace, &path.pod, path.uid.as_deref()) else {
        return target::text(StatusCode::NOT_FOUND, "pod not found");
    };
    let pod_sandbox_id = match target::ready_sandbox(&shared.deps.runtime, view.desired.uid.as_str()).await {
        Ok(Some(id)) => id,
        Ok(None) => {
            let name = format!("{}_{}", path.pod, path.namespace);
            return target::text(StatusCode::INTERNAL_SERVER_ERROR, format!("pod not found (\"{name}\")"));
        }
        Err(error) => return target::runtime_error(&error),
    };
    match shared.deps.runtime.port_forward(v1::PortForwardRequest { pod_sandbox_id, port }).await {
        Ok(answer) => forward(&shared, &answer.url, request).await,
        Err(error) => target::runtime_error(&error),
    }
}

/// The ports of a WebSocket request; SPDY names them per stream.
fn ports(pairs: &[(String, String)]) -> Result<Vec<i32>, String> {
    let mut ports = Vec::new();
    for text in query::all(pairs, "port").flat_map(|list| list.split(',')) {
        match text.parse::<u16>() {
            Ok(0) => return Err(format!("port \"{text}\" must be > 0")),
            Ok(port) => ports.push(i32::from(port)),
            Err(error) => return Err(format!("unable to parse \"{text}\" as a port: {error}")),
        }
    }
    if ports.is_empty() { Err("query parameter \"port\" is required".to_owned()) } else { Ok(ports) }
}

/// The running container that a path names, and whether its spec gives it a terminal.
async fn find(shared: &Shared, path: &ContainerPath) -> Result<(String, bool), Response<Body>> {
    let pods = &*shared.deps.pods;
    let Some(view) = target::pod(pods, &path.namespace, &path.pod, path.uid.as_deref()) else {
        return Err(target::text(StatusCode::NOT_FOUND, "pod does not exist"));
    };
    let uid = view.desired.uid.as_str();
    match target::running_container(&shared.deps.runtime, uid, &path.container).await {
        Ok(Some(id)) => {
            let tty = target::container_tty(view.desired.pod.spec.as_ref(), &path.container).unwrap_or(false);
            Ok((id, tty))
        }
        Ok(None) => {
            let message = format!("container not found (\"{}\")", path.container);
            Err(target::text(StatusCode::INTERNAL_SERVER_ERROR, message))
        }
        Err(error) => Err(target::runtime_error(&error)),
    }
}

async fn forward(shared: &Shared, url: &str, mut request: Request) -> Response<Body> {
    if upgrade::wanted_upgrade(request.headers()).is_none() {
        return target::text(StatusCode::BAD_REQUEST, "Upgrade request required");
    }
    let Ok(uri) = url.parse::<Uri>() else {
        tracing::warn!(url, "the runtime names a stream that is no URL");
        return target::text(StatusCode::INTERNAL_SERVER_ERROR, "the runtime named a stream that is no URL");
    };
    authn::strip_protocol_token(request.headers_mut());
    let limits = ForwardLimits {
        connect: CONNECT,
        response: Some(HEAD),
        copy: CopyLimits { idle: shared.options.stream_idle, half_closed: HALF_CLOSED },
    };
    match upgrade::forward(request, &Target::new(uri, None), &limits, &shared.tasks).await {
        Ok(response) => response,
        Err(error) => {
            tracing::warn!(%error, "stream to the runtime");
            target::text(error.status(), error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Option<Streams> {
        Streams::parse(&query::pairs(Some(query)))
    }

    #[test]
    fn a_terminal_takes_the_error_stream_away() {
        let all = Streams { stdin: true, stdout: true, stderr: true, tty: false };
        assert_eq!(parse("input=1&output=1&error=1"), Some(all));
        assert_eq!(parse("input=1&output=1&error=1&tty=1"), Some(Streams { stderr: false, tty: true, ..all }));
        assert_eq!(parse("error=1&tty=1"), None);
        assert_eq!(parse("input=true"), None);
    }

    #[test]
    fn ports_are_checked() {
        let ports = |query: &str| super::ports(&query::pairs(Some(query)));
        assert_eq!(ports("port=80&port=443"), Ok(vec![80, 443]));
        assert_eq!(ports(""), Err("query parameter \"port\" is required".to_owned()));
        assert_eq!(ports("port=0"), Err("port \"0\" must be > 0".to_owned()));
        assert!(ports("port=70000").is_err());
    }
}
