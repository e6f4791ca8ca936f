//! Static pods from a URL: polled every `httpCheckFrequency`; a body that is the same as before changes nothing, a failed
//! try neither. An item of a list that is no pod does not hide the others; the last good pod of its name stays.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Uri};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use longshore_api::kubelet_config::SecretHeaders;
use longshore_transport::body;
use longshore_util::Tasks;
use longshore_util::yaml;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::manifest::{one_line, static_pod};
use super::mux::Mux;
use crate::model::SourceKind;

/// One try takes no longer than this.
const DEADLINE: Duration = Duration::from_secs(10);
/// Tries that are told loudly before it becomes a debug line.
const LOUD: u32 = 3;

/// Why a try brought no pods.
#[derive(Debug, thiserror::Error)]
enum HttpError {
    /// The URL or a header cannot be used.
    #[error("{0}")]
    Request(String),
    /// No answer.
    #[error("no answer: {0}")]
    Connect(#[source] Box<kube::Error>),
    /// Another status than 200.
    #[error("answered with status {0}")]
    Status(u16),
    /// The body was not read.
    #[error("{0}")]
    Body(#[from] body::BodyError),
    /// The body holds no pods.
    #[error("{0}")]
    Content(String),
    /// It took too long.
    #[error("no answer within {DEADLINE:?}")]
    Deadline,
}

/// Starts the source.
pub(super) fn start(url: String, headers: SecretHeaders, every: Duration, node: String, mux: Arc<Mux>, tasks: &Tasks) {
    let every = if every.is_zero() { Duration::from_secs(20) } else { every };
    let token = tasks.token().clone();
    tasks.essential("http-source", async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = poll(url, headers, every, node, mux) => {}
        }
    });
}

async fn poll(url: String, headers: SecretHeaders, every: Duration, node: String, mux: Arc<Mux>) {
    let mut before: Option<Vec<u8>> = None;
    let mut good = Good::new();
    let mut failures = 0;
    loop {
        let got = match timeout(DEADLINE, fetch(&url, &headers)).await {
            Ok(got) => got,
            Err(_) => Err(HttpError::Deadline),
        };
        let result = match got {
            Ok(bytes) if before.as_deref() == Some(&bytes) => Ok(()),
            Ok(bytes) => pods(&bytes, &url, &node, &good).map(|pods| {
                good = pods;
                before = Some(bytes);
                mux.replace(SourceKind::Http, good.iter().map(|(_, pod)| pod.clone()).collect());
            }),
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => failures = 0,
            Err(error) if failures < LOUD => {
                failures += 1;
                tracing::warn!(%url, %error, "cannot read pods from the manifest URL");
            }
            Err(error) => tracing::debug!(%url, %error, "cannot read pods from the manifest URL"),
        }
        sleep(every).await;
    }
}

async fn fetch(url: &str, headers: &SecretHeaders) -> Result<Vec<u8>, HttpError> {
    let uri: Uri = url.parse().map_err(|error| HttpError::Request(format!("not a URL: {error}")))?;
    let mut request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
        .body(Body::empty())
        .map_err(|error| HttpError::Request(error.to_string()))?;
    for (name, values) in &headers.0 {
        let name =
            HeaderName::try_from(name.as_str()).map_err(|_| HttpError::Request(format!("not a header: {name:?}")))?;
        for value in values {
            let mut value = HeaderValue::try_from(value.as_str())
                .map_err(|_| HttpError::Request(format!("the value of header {name} cannot be sent")))?;
            value.set_sensitive(true);
            request.headers_mut().append(name.clone(), value);
        }
    }
    let mut base = http::uri::Parts::default();
    base.scheme = uri.scheme().cloned();
    base.authority = uri.authority().cloned();
    base.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
    let base = Uri::from_parts(base).map_err(|error| HttpError::Request(format!("not a URL: {error}")))?;
    longshore_transport::tls::install_provider();
    // The API client's HTTP stack serves for any server: one connection for each poll.
    let client =
        kube::Client::try_from(kube::Config::new(base)).map_err(|error| HttpError::Connect(Box::new(error)))?;
    let answer = client.send(request).await.map_err(|error| HttpError::Connect(Box::new(error)))?;
    let status = answer.status().as_u16();
    if status != 200 {
        return Err(HttpError::Status(status));
    }
    Ok(body::read(answer.into_body(), yaml::MAX_BYTES).await?.to_vec())
}

/// Usable pods in the order of the body, each with the namespace and name that the manifest gives them.
type Good = Vec<((String, String), Pod)>;

/// One pod or a list of pods; what is wrong with an item of a list is told once for each body.
fn pods(bytes: &[u8], url: &str, node: &str, before: &Good) -> Result<Good, HttpError> {
    let text = std::str::from_utf8(bytes).map_err(|_| HttpError::Content("not UTF-8 text".to_owned()))?;
    let document = yaml::to_value(text).map_err(|error| HttpError::Content(one_line(&error.to_string())))?;
    let origin = format!("url:{url}");
    let name_of = |manifest: &Value| {
        let text = |field: &str| manifest["metadata"][field].as_str().unwrap_or_default().to_owned();
        (text("namespace"), text("name"))
    };
    let items = match document {
        Value::Null => return Err(HttpError::Content("the body is empty".to_owned())),
        Value::Object(mut list) if list.get("kind").and_then(Value::as_str) == Some("PodList") => {
            match list.remove("items") {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            }
        }
        manifest => {
            let name = name_of(&manifest);
            let pod = static_pod(manifest, node, &origin).map_err(|error| HttpError::Content(error.to_string()))?;
            return Ok(vec![(name, pod)]);
        }
    };
    let mut good = Good::new();
    for (index, item) in items.into_iter().enumerate() {
        let name = name_of(&item);
        match static_pod(with_type(item), node, &origin) {
            Ok(pod) => good.push((name, pod)),
            Err(error) => {
                let last = before.iter().find(|(known, _)| *known == name);
                let stays = if last.is_some() { ", its last good pod stays" } else { "" };
                let name = one_line(&name.1);
                tracing::warn!(url, index, name, %error, "an item of the manifest URL is not usable{stays}");
                good.extend(last.cloned());
            }
        }
    }
    Ok(good)
}

/// Items of a list carry no type of their own.
fn with_type(mut item: Value) -> Value {
    if let Value::Object(pod) = &mut item {
        pod.entry("apiVersion").or_insert_with(|| "v1".into());
        pod.entry("kind").or_insert_with(|| "Pod".into());
    }
    item
}

#[cfg(test)]
mod tests;
