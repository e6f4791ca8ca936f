//! `/healthz`: named checks, answered as Kubernetes components do.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use longshore_util::Tasks;
use tokio::time::Instant;

use super::query;

/// The beat of the main runtime is this slow: it is only there to be missed.
const BEAT: Duration = Duration::from_secs(30);

/// One check.
#[derive(Clone)]
pub struct HealthCheck {
    name: &'static str,
    check: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl HealthCheck {
    /// A check of that name. It must be cheap and must not block.
    pub fn new(name: &'static str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { name, check: Arc::new(check) }
    }

    /// The check `syncloop`: a task on the agent's runtime beats, and the check fails when the beat stops for `limit`.
    pub fn beat(tasks: &Tasks, limit: Duration) -> Self {
        let begun = Instant::now();
        let last = Arc::new(AtomicU64::new(0));
        let token = tasks.token().clone();
        let beat = Arc::clone(&last);
        tasks.essential("heartbeat", async move {
            loop {
                beat.store(begun.elapsed().as_secs(), Ordering::Relaxed);
                tokio::select! {
                    biased;
                    () = token.cancelled() => return,
                    () = tokio::time::sleep(BEAT) => {}
                }
            }
        });
        // The clock of another runtime may be paused or stuck: the monotonic clock of the system is read here.
        Self::new("syncloop", move || {
            let silent = begun.elapsed().saturating_sub(Duration::from_secs(last.load(Ordering::Relaxed)));
            if silent > limit { Err(format!("no sign of life for {} s", silent.as_secs())) } else { Ok(()) }
        })
    }
}

impl std::fmt::Debug for HealthCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HealthCheck").field(&self.name).finish()
    }
}

/// The checks in the order in which they are shown. `ping` and `log` always stand first.
#[derive(Debug, Clone)]
pub struct HealthChecks(Arc<Vec<HealthCheck>>);

impl HealthChecks {
    /// The given checks behind the usual ones.
    pub fn new(checks: impl IntoIterator<Item = HealthCheck>) -> Self {
        // Logs are written by whoever logs; there is no flusher that could hang.
        let fixed = [HealthCheck::new("ping", || Ok(())), HealthCheck::new("log", || Ok(()))];
        Self(Arc::new(fixed.into_iter().chain(checks).collect()))
    }

    /// Whether all checks pass.
    pub(super) fn is_well(&self) -> bool {
        self.0.iter().all(|check| (check.check)().is_ok())
    }

    /// Answers `/healthz`.
    pub(super) fn all(&self, pairs: &[(String, String)]) -> Response<Body> {
        let mut excluded: Vec<&str> =
            pairs.iter().filter(|(key, _)| key == "exclude").map(|(_, value)| value.as_str()).collect();
        let verbose = query::get(pairs, "verbose").is_some();
        let mut text = String::new();
        let mut failed = Vec::new();
        for check in self.0.iter() {
            let known = excluded.len();
            excluded.retain(|name| *name != check.name);
            let _infallible = if excluded.len() < known {
                writeln!(text, "[+]{} excluded: ok", check.name)
            } else if let Err(error) = (check.check)() {
                tracing::warn!(check = check.name, %error, "health check failed");
                failed.push(check.name);
                writeln!(text, "[-]{} failed: reason withheld", check.name)
            } else {
                writeln!(text, "[+]{} ok", check.name)
            };
        }
        if !excluded.is_empty() {
            let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
            let _infallible =
                writeln!(text, "warn: some health checks cannot be excluded: no matches for {}", names.join(","));
        }
        if !failed.is_empty() {
            text.push_str("healthz check failed\n");
            return answer(StatusCode::INTERNAL_SERVER_ERROR, text);
        }
        if !verbose {
            return answer(StatusCode::OK, "ok".to_owned());
        }
        text.push_str("healthz check passed\n");
        answer(StatusCode::OK, text)
    }

    /// Answers `/healthz/<name>`.
    pub(super) fn one(&self, name: &str) -> Option<Response<Body>> {
        let check = self.0.iter().find(|check| check.name == name)?;
        Some(match (check.check)() {
            Ok(()) => answer(StatusCode::OK, "ok".to_owned()),
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {error}\n")),
        })
    }
}

fn answer(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
