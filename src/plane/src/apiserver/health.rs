//! `/livez`, `/readyz` and `/healthz`: named checks, each alone and all together, in the words of a stock apiserver.
//!
//! `/livez` asks nothing outside of this process, for starting it again does not bring etcd back.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode};
use tokio_util::sync::CancellationToken;

use super::negotiate::plain;
use super::registry::Registry;
use super::request::Query;

/// No check takes longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// This answers at all.
    Ping,
    /// Reads show what is there, and writes have somewhere to go.
    Store,
    /// It is not on its way down.
    Shutdown,
}

fn checks(probe: &str) -> Option<&'static [Check]> {
    match probe {
        "livez" => Some(&[Check::Ping]),
        "healthz" => Some(&[Check::Ping, Check::Store]),
        "readyz" => Some(&[Check::Ping, Check::Store, Check::Shutdown]),
        _ => None,
    }
}

impl Check {
    fn name(self, registry: &Registry) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Store => registry.engine(),
            Self::Shutdown => "shutdown",
        }
    }

    async fn run(self, registry: &Registry, stop: &CancellationToken) -> Result<(), String> {
        match self {
            Self::Ping => Ok(()),
            Self::Store => match tokio::time::timeout(PATIENCE, registry.check()).await {
                Ok(outcome) => outcome.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {PATIENCE:?}")),
            },
            Self::Shutdown if stop.is_cancelled() => Err("process is shutting down".to_owned()),
            Self::Shutdown => Ok(()),
        }
    }
}

/// Answers a path of a probe; nothing if it is none.
pub(super) async fn answer(
    path: &str,
    query: &Query,
    registry: &Registry,
    stop: &CancellationToken,
) -> Option<Response<Body>> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let probe = parts.next()?;
    let checks = checks(probe)?;
    let (code, text) = match (parts.next(), parts.next()) {
        (None, _) => all(probe, checks, query, registry, stop).await,
        (Some(name), None) => {
            let check = checks.iter().find(|check| check.name(registry) == name)?;
            match check.run(registry, stop).await {
                Ok(()) => (StatusCode::OK, "ok".to_owned()),
                Err(why) => {
                    tracing::warn!(probe, check = name, error = why, "health check failed");
                    (StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n"))
                }
            }
        }
        _ => return None,
    };
    let mut response = plain(code, text);
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    Some(response)
}

async fn all(
    probe: &str,
    checks: &[Check],
    query: &Query,
    registry: &Registry,
    stop: &CancellationToken,
) -> (StatusCode, String) {
    let mut excluded: Vec<&str> = query.all("exclude").collect();
    let (mut text, mut failed) = (String::new(), false);
    for check in checks {
        let name = check.name(registry);
        let line = if excluded.contains(&name) {
            excluded.retain(|other| *other != name);
            format!("[+]{name} excluded: ok\n")
        } else if let Err(why) = check.run(registry, stop).await {
            // Who may ask may not see what is inside; the log says it.
            tracing::warn!(probe, check = name, error = why, "health check failed");
            failed = true;
            format!("[-]{name} failed: reason withheld\n")
        } else {
            format!("[+]{name} ok\n")
        };
        text.push_str(&line);
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let names = names.join(",");
        text.extend(["warn: some health checks cannot be excluded: no matches for ", &names, "\n"]);
    }
    if failed {
        return (StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{probe} check failed\n"));
    }
    if query.all("verbose").next().is_none() {
        return (StatusCode::OK, "ok".to_owned());
    }
    (StatusCode::OK, format!("{text}{probe} check passed\n"))
}
