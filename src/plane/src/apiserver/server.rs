//! The way of every request: limits, login, rights, answer. Long-running requests (watches, connections to nodes) are
//! counted apart, so that they never keep short ones out.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use longshore_transport::serve::Newcomer;
use longshore_util::{Tasks, spawn};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::audit::{Audit, Received};
use super::compress;
use super::discovery::{self, Catalogue};
use super::error::ApiError;
use super::health;
use super::hooks::Hooks;
use super::identity::{Decision, Forbidden, GROUP_UNAUTHENTICATED, UserInfo};
use super::impersonate;
use super::limits::{Seating, WatchSlot};
use super::metrics::{Asked, Metrics};
use super::negotiate::{Form, Wanted, accepts, answer, plain, typed, without_body};
use super::openapi;
use super::registry::Registry;
use super::request::{Query, RequestInfo};
use super::rest::{self, Call};

mod body;

use body::{Kept, PATIENCE, Rest, Stalled};

/// Bounds of a server.
#[derive(Debug, Clone, Copy)]
pub struct ApiLimits {
    /// Short reads at a time (upstream's default).
    pub reads: usize,
    /// Writes at a time (upstream's default).
    pub writes: usize,
    /// Watches at a time. Each costs some kilobytes; agents hold one for each ConfigMap and Secret in use.
    pub watches: usize,
    /// How long a short request may take, its body included.
    pub timeout: Duration,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self { reads: 400, writes: 200, watches: 8192, timeout: Duration::from_secs(60) }
    }
}

/// The apiserver.
#[derive(Debug)]
pub struct Api {
    registry: Registry,
    hooks: Hooks,
    /// Where clients are told to reach it.
    advertised: String,
    seating: Seating,
    audit: Option<Audit>,
    metrics: Metrics,
    timeout: Duration,
    /// Rests of bodies that are read behind the answer; each ends by itself.
    rests: Tasks,
    stop: CancellationToken,
}

impl Api {
    /// Returns a server over a registry. Watches end when `stop` is cancelled.
    pub fn new(
        registry: Registry,
        hooks: Hooks,
        advertised: String,
        limits: ApiLimits,
        audit: Option<Audit>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            registry,
            hooks,
            advertised,
            seating: Seating::new(limits.reads, limits.writes, limits.watches),
            audit,
            metrics: Metrics::new(),
            timeout: limits.timeout,
            rests: Tasks::new(),
            stop,
        })
    }

    /// Returns the objects.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    pub(super) fn watch_slot(&self, call: &Call) -> Result<WatchSlot, ApiError> {
        self.seating.watch(&call.user, &call.info.attributes)
    }

    /// Answers a request.
    pub async fn handle(&self, request: Request<Body>) -> Response<Body> {
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let info = RequestInfo::parse(request.method(), request.uri().path(), &query);
        let asked = Asked::of(&self.registry, &info.attributes, request.headers());
        let (began, inflight) = (tokio::time::Instant::now(), self.metrics.begin(&asked));
        let is_head = *request.method() == Method::HEAD;
        let is_long = is_long_running(&info, &query);
        let (request, unread) = keep_body(request, is_long);
        let outcome = self.answer(request, query, info).await;
        drop(inflight);
        let code = outcome.as_ref().map_or_else(|error| error.code, |response| response.status());
        self.metrics.end(asked, code, began.elapsed());
        let mut response = outcome.unwrap_or_else(|error| {
            if error.code.is_server_error() {
                tracing::warn!(%error, code = error.code.as_u16(), "request failed");
            }
            error.response()
        });
        if let Some(unread) = unread
            && response.status() != StatusCode::SWITCHING_PROTOCOLS
            && self.must_close(unread).await
        {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if is_head { without_body(response) } else { response }
    }

    /// Gets an unread body out of the way; tells whether the connection must end behind the answer.
    async fn must_close(&self, unread: Unread) -> bool {
        match unread.body.drain(unread.awaits_leave).await {
            Rest::Done => false,
            Rest::Never => true,
            Rest::Much => {
                let stop = self.stop.clone();
                drop(spawn(&self.rests, "unread-body", async move {
                    let _ = stop.run_until_cancelled(unread.body.linger()).await;
                }));
                true
            }
        }
    }

    async fn answer(
        &self,
        request: Request<Body>,
        query: Query,
        info: RequestInfo,
    ) -> Result<Response<Body>, ApiError> {
        let (parts, body) = request.into_parts();
        let caller = self.hooks.authenticate.authenticate(&parts)?;
        if !caller.is_in(GROUP_UNAUTHENTICATED)
            && let Some(newcomer) = parts.extensions.get::<Newcomer>()
        {
            newcomer.logged_in();
        }
        let other = impersonate::wanted(&caller, &parts.headers, self.hooks.authorize.as_ref())?;
        let user = Arc::new(other.unwrap_or(caller));
        let decision = self.hooks.authorize.authorize(&user, &info.attributes);
        let Some(audit) = &self.audit else {
            return self.decided(user, info, query, &decision, Request::from_parts(parts, body)).await;
        };
        let received = Received::new(&parts, self.registry.clock().now());
        let asked = info.attributes.clone();
        let request = Request::from_parts(parts, body);
        let answer = self.decided(Arc::clone(&user), info, query, &decision, request).await;
        let code = match &answer {
            Ok(response) => response.status(),
            Err(error) => error.code,
        };
        audit.note(&received, &user, &asked, &decision, code, self.registry.clock().now());
        answer
    }

    /// Answers a request of which is known who asks and whether he may.
    async fn decided(
        &self,
        user: Arc<UserInfo>,
        info: RequestInfo,
        query: Query,
        decision: &Decision,
        request: Request<Body>,
    ) -> Result<Response<Body>, ApiError> {
        if let Decision::Deny { reason } = decision {
            return Err(ApiError::refused(&Forbidden { user: &user, attributes: &info.attributes, reason }));
        }
        if !info.attributes.is_resource {
            if matches!(&*info.attributes.verb, "get" | "head")
                && let Some(answer) = health::answer(&info.attributes.path, &query, &self.registry, &self.stop).await
            {
                return Ok(answer);
            }
            return self.other(&request);
        }
        let long = is_long_running(&info, &query);
        let _seat = if long { None } else { Some(self.seating.seat(&user, &info.attributes, request.method()).await?) };
        let small = !long && *request.method() == Method::GET && compress::is_wanted(request.headers());
        let stalled = request.extensions().get::<Stalled>().cloned().unwrap_or_default();
        let agent = request.headers().get(header::USER_AGENT).and_then(|name| name.to_str().ok()).unwrap_or_default();
        let call = Call { user, info, query, agent: agent.to_owned() };
        let served = rest::serve(self, call, request);
        if long {
            return Box::pin(served).await;
        }
        let served = async { if small { served.await.map(compress::compress) } else { served.await } };
        match tokio::time::timeout(self.timeout, Box::pin(served)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if !stalled.is_so() => Err(error),
            Ok(Err(_)) | Err(_) => {
                let text = "Timeout: request did not complete within the allotted timeout";
                Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", text))
            }
        }
    }

    /// Paths that are no resources.
    fn other(&self, request: &Request<Body>) -> Result<Response<Body>, ApiError> {
        let path = request.uri().path().trim_end_matches('/');
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let not_found = || Ok(plain(StatusCode::NOT_FOUND, "404 page not found\n"));
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return not_found();
        }
        let in_json = |value: Value| {
            let wanted = Wanted::parse(request.headers()).unwrap_or(Wanted { form: Form::Plain, yaml: false });
            answer(StatusCode::OK, wanted, Bytes::from(value.to_string()))
        };
        let aggregated = || Wanted::parse(request.headers()).is_ok_and(|wanted| wanted.form == Form::Discovery);
        let document = match parts.as_slice() {
            ["metrics"] => {
                let text =
                    self.metrics.encode(&self.registry, self.seating.open_watches()).map_err(ApiError::internal)?;
                return Ok(plain(StatusCode::OK, text));
            }
            [".well-known", "openid-configuration"] => {
                let document = discovery::openid(&self.hooks.review.issuer(), &self.advertised);
                return Ok(discovery::kept(typed(StatusCode::OK, "application/json", document.to_string())));
            }
            ["openid", "v1", "jwks"] => {
                let document = json!({"keys": [self.hooks.review.issuer().key]});
                return Ok(discovery::kept(typed(StatusCode::OK, "application/jwk-set+json", document.to_string())));
            }
            ["version"] => discovery::version(),
            ["api"] if aggregated() => return discovery_answer(&Catalogue::of(&self.registry).aggregated(true)),
            ["apis"] if aggregated() => return discovery_answer(&Catalogue::of(&self.registry).aggregated(false)),
            ["api"] => discovery::core_versions(&self.advertised),
            ["apis"] => Catalogue::of(&self.registry).group_list(),
            ["openapi", "v2"] if accepts(request.headers(), &[openapi::PROTOBUF, openapi::PROTOBUF_ANSWER]) => {
                let document = openapi::to_protobuf(&openapi::v2(&Catalogue::of(&self.registry)));
                return Ok(typed(StatusCode::OK, openapi::PROTOBUF_ANSWER, document));
            }
            ["openapi", "v2"] => {
                Wanted::parse(request.headers())?;
                openapi::v2(&Catalogue::of(&self.registry))
            }
            ["openapi", "v3"] => openapi::index(&Catalogue::of(&self.registry)),
            ["openapi", "v3", "api", version] => match openapi::v3(&Catalogue::of(&self.registry), "", version) {
                Some(document) => document,
                None => return not_found(),
            },
            ["openapi", "v3", "apis", group, version] => {
                match openapi::v3(&Catalogue::of(&self.registry), group, version) {
                    Some(document) => document,
                    None => return not_found(),
                }
            }
            ["api", version] => match Catalogue::of(&self.registry).resources("", version) {
                Some(list) => list,
                None => return not_found(),
            },
            ["apis", group] => match Catalogue::of(&self.registry).one_group(group) {
                Some(group) => group,
                None => return not_found(),
            },
            ["apis", group, version] => match Catalogue::of(&self.registry).resources(group, version) {
                Some(list) => list,
                None => return not_found(),
            },
            _ => return not_found(),
        };
        in_json(document)
    }
}

fn discovery_answer(document: &Value) -> Result<Response<Body>, ApiError> {
    let mut response = Response::new(Body::from(document.to_string()));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
    );
    Ok(response)
}

/// The kept half of a body that came over HTTP/1.
struct Unread {
    body: Kept,
    awaits_leave: bool,
}

/// Keeps a half of a request's body, if it has one. One stream of HTTP/2 does not stand in the way of the others: its body
/// is only guarded against a client that stops sending.
fn keep_body(request: Request<Body>, is_long: bool) -> (Request<Body>, Option<Unread>) {
    if request.body().is_end_stream() {
        return (request, None);
    }
    let is_shared = request.version() >= Version::HTTP_2;
    let awaits_leave = request.headers().contains_key(header::EXPECT);
    let (parts, body) = request.into_parts();
    let body = Kept::new(body, (!is_long).then_some(PATIENCE));
    let mut request = Request::from_parts(parts, body.body());
    request.extensions_mut().insert(body.stalled());
    (request, (!is_shared).then_some(Unread { body, awaits_leave }))
}

fn is_long_running(info: &RequestInfo, query: &Query) -> bool {
    let attributes = &info.attributes;
    attributes.verb == "watch"
        || matches!(&*attributes.subresource, "exec" | "attach" | "portforward" | "proxy")
        || (attributes.subresource == "log" && query.flag("follow"))
}

/// The server as a service for an accept loop.
#[derive(Debug, Clone)]
pub struct ApiService(pub Arc<Api>);

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = Arc::clone(&self.0);
        Box::pin(async move { Ok(api.handle(request.map(Body::new)).await) })
    }
}

#[cfg(test)]
mod tests;
