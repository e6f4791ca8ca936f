//! Paths, and what stands before all of them: login, rights, counting.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{any, get, post};
use http::{HeaderValue, Response, StatusCode, header};
use longshore_transport::serve::Newcomer;
use longshore_util::Tasks;
use tokio::time::Instant;

use super::authn::Login;
use super::authz::{Rights, Wanted};
use super::{
    ServerDeps, ServerOptions, container_logs, pod_gauges, pods, query, resource_metrics, rules, run, streams, target,
};
use crate::telemetry::RequestLabels;

/// What handlers share.
pub(super) struct Shared {
    pub(super) options: ServerOptions,
    pub(super) deps: ServerDeps,
    pub(super) login: Login,
    pub(super) rights: Rights,
    pub(super) tasks: Tasks,
}

/// Builds the main port's routes.
pub(super) fn build(shared: Arc<Shared>) -> Router {
    let mut router = Router::new()
        .route("/healthz", get(healthz))
        .route("/healthz/{check}", get(healthz_check))
        .route("/pods", get(pods::pods))
        .route("/metrics", get(metrics))
        .route("/metrics/resource", get(resource_metrics::get))
        .route("/metrics/probes", get(probe_metrics))
        .route("/metrics/{kind}", get(later))
        .route("/stats/{*rest}", any(later));
    router = if shared.options.debugging_handlers { debugging(router) } else { router };
    router
        .fallback(not_found)
        .method_not_allowed_fallback(async || target::text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed"))
        .layer(from_fn_with_state(Arc::clone(&shared), guard))
        .with_state(shared)
}

fn debugging(router: Router<Arc<Shared>>) -> Router<Arc<Shared>> {
    let exec = get(streams::exec).post(streams::exec);
    let attach = get(streams::attach).post(streams::attach);
    let forward = get(streams::port_forward).post(streams::port_forward);
    router
        .route("/containerLogs/{namespace}/{pod}/{container}", get(container_logs::get))
        .route("/exec/{namespace}/{pod}/{container}", exec.clone())
        .route("/exec/{namespace}/{pod}/{uid}/{container}", exec)
        .route("/attach/{namespace}/{pod}/{container}", attach.clone())
        .route("/attach/{namespace}/{pod}/{uid}/{container}", attach)
        .route("/portForward/{namespace}/{pod}", forward.clone())
        .route("/portForward/{namespace}/{pod}/{uid}", forward)
        .route("/run/{namespace}/{pod}/{container}", post(run::post))
        .route("/run/{namespace}/{pod}/{uid}/{container}", post(run::post))
        .route("/runningpods/", get(pods::running))
        .route("/configz", get(configz))
        .route("/checkpoint/{*rest}", any(later))
        .route("/logs/{*rest}", any(later))
        .route("/logs/", any(later))
}

/// Login, then rights, then the handler; all of it counted.
async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response<Body> {
    let labels = labels(&request);
    let metrics = shared.deps.telemetry.server.clone();
    metrics.requests.get_or_create(&labels).inc();
    metrics.inflight.get_or_create(&labels).inc();
    // Counted down also when the client goes away in the middle.
    let gauge = metrics.inflight.get_or_create_owned(&labels);
    let _inflight = Leave(gauge);
    let begun = Instant::now();
    let (parts, body) = request.into_parts();
    let response = match permit(&shared, &parts).await {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => *refusal,
    };
    metrics.durations.get_or_create(&labels).observe(begun.elapsed().as_secs_f64());
    response
}

struct Leave(prometheus_client::metrics::gauge::Gauge);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn labels(request: &Request) -> RequestLabels {
    let path = rules::path_label(request.uri().path());
    RequestLabels {
        method: rules::method_label(request.method()),
        path,
        server_type: "readwrite",
        long_running: if matches!(path, "exec" | "attach" | "debug") { "true" } else { "false" },
    }
}

async fn permit(shared: &Shared, parts: &http::request::Parts) -> Result<(), Box<Response<Body>>> {
    let path = parts.uri.path();
    let user = match shared.login.check(parts).await {
        Ok(user) => user,
        Err(error) => {
            tracing::debug!(%error, path, "login refused");
            return Err(Box::new(target::text(StatusCode::UNAUTHORIZED, "Unauthorized")));
        }
    };
    if user.is_known()
        && let Some(newcomer) = parts.extensions.get::<Newcomer>()
    {
        newcomer.logged_in();
    }
    let verb = rules::verb(&parts.method, parts.uri.path());
    let subresources = rules::subresources(path);
    for subresource in subresources {
        let wanted = Wanted { verb, subresource, node: &shared.options.node };
        match shared.rights.allow(&user, wanted).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, user = user.name, "rights could not be checked");
                let message = format!(
                    "Authorization error (user={}, verb={verb}, resource=nodes, subresource={subresource})",
                    user.name
                );
                return Err(Box::new(target::text(StatusCode::INTERNAL_SERVER_ERROR, message)));
            }
        }
    }
    let list = subresources.join(" ");
    let message = format!("Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{list}])", user.name);
    tracing::debug!(user = user.name, path, "forbidden");
    Err(Box::new(target::text(StatusCode::FORBIDDEN, message)))
}

async fn healthz(State(shared): State<Arc<Shared>>, RawQuery(raw): RawQuery) -> Response<Body> {
    shared.deps.health.all(&query::pairs(raw.as_deref()))
}

async fn healthz_check(State(shared): State<Arc<Shared>>, Path(check): Path<String>) -> Response<Body> {
    shared.deps.health.one(&check).unwrap_or_else(page_not_found)
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response<Body> {
    pod_gauges::set(&shared.deps.telemetry.pods, &shared.deps.pods.pods());
    metrics_text(shared.deps.telemetry.encode())
}

async fn probe_metrics(State(shared): State<Arc<Shared>>) -> Response<Body> {
    metrics_text(shared.deps.telemetry.probes.encode())
}

fn metrics_text(encoded: Result<String, std::fmt::Error>) -> Response<Body> {
    match encoded {
        Ok(text) => {
            let mut response = Response::new(Body::from(text));
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        Err(error) => target::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

async fn configz(State(shared): State<Arc<Shared>>) -> Response<Body> {
    let body = serde_json::json!({ "kubeletconfig": &*shared.options.config });
    let mut response = pods::json_response(&body);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Known endpoints that this version does not have: said clearly, so that nobody looks for a mistake of theirs.
async fn later(request: Request) -> Response<Body> {
    let path = request.uri().path();
    if rules::is_below(path, "/metrics") && rules::path_label(path) == "metrics" {
        return page_not_found();
    }
    target::text(StatusCode::NOT_IMPLEMENTED, format!("{path} is not available in this version of longshore"))
}

async fn not_found(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    if !shared.options.debugging_handlers && rules::disabled(request.uri().path()) {
        return target::text(StatusCode::METHOD_NOT_ALLOWED, "Debug endpoints are disabled.");
    }
    page_not_found()
}

fn page_not_found() -> Response<Body> {
    target::text(StatusCode::NOT_FOUND, "404 page not found")
}

/// The routes of the health port.
pub(super) fn health(checks: super::HealthChecks) -> Router {
    let all = checks.clone();
    Router::new()
        .route("/healthz", get(async move |RawQuery(raw): RawQuery| all.all(&query::pairs(raw.as_deref()))))
        .route(
            "/healthz/{check}",
            get(async move |Path(check): Path<String>| checks.one(&check).unwrap_or_else(page_not_found)),
        )
        .fallback(async || page_not_found())
}
