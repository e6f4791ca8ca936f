//! The verbs over HTTP: reads what a request carries, calls the registry, writes the answer in the form asked for.

mod evict;
mod fields;
mod read;
mod scale;
mod special;
mod whole;
mod write;
mod yaml_list;

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, Request, Response};

use super::error::{ApiError, Cause};
use super::identity::{Attributes, Decision, Forbidden, UserInfo};
use super::negotiate::Wanted;
use super::registry::{Part, WriteOptions};
use super::request::{Query, RequestInfo};
use super::resources::{REVIEWS, Resource};
use super::server::Api;
use crate::store::Revision;

/// Longest name of a manager of fields.
const MAX_MANAGER: usize = 128;

/// A request that may be answered: who asks, for what, with which query.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) user: Arc<UserInfo>,
    pub(super) info: RequestInfo,
    pub(super) query: Query,
    /// What the client calls itself.
    pub(super) agent: String,
}

impl Call {
    fn namespace(&self, resource: &Resource) -> &str {
        if resource.namespaced { &self.info.attributes.namespace } else { "" }
    }

    fn name(&self) -> &str {
        &self.info.attributes.name
    }

    /// Whether the answer must show all that was answered before, by any apiserver: not when a reader is content with
    /// what is here, or names a version that is.
    fn reads_the_present(&self, here: Revision) -> bool {
        match (&*self.info.attributes.verb, self.query.get("resourceVersion").parse::<u64>()) {
            ("get" | "list" | "watch", Ok(version)) => version > here.0,
            _ => true,
        }
    }

    /// Under which name the client owns what it writes.
    fn manager(&self) -> Result<String, ApiError> {
        let sent = self.query.get("fieldManager");
        if sent.is_empty() {
            let own = self.agent.split('/').next().unwrap_or_default();
            return Ok(own.chars().filter(|letter| !letter.is_control()).take(MAX_MANAGER).collect());
        }
        let kind = match self.info.attributes.verb.as_str() {
            "create" => "CreateOptions",
            "update" => "UpdateOptions",
            _ => "PatchOptions",
        };
        let bad = |detail: &str| ApiError::bad_option(kind, &Cause::invalid("fieldManager", &sent.into(), detail));
        if sent.chars().count() > MAX_MANAGER {
            return Err(bad("may not be longer than 128"));
        }
        if sent.chars().any(char::is_control) {
            return Err(bad("should only contain printable characters"));
        }
        Ok(sent.to_owned())
    }

    fn write_options(&self) -> Result<WriteOptions, ApiError> {
        let dry_run = match self.query.get("dryRun") {
            "" => false,
            "All" => true,
            other => {
                let text = format!("dryRun: Unsupported value: {other:?}: supported values: \"All\"");
                return Err(ApiError::new(http::StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text));
            }
        };
        let fields = fields::validation(self)?;
        let manager = Some(self.manager()?).filter(|name| !name.is_empty()).map(Arc::from);
        Ok(WriteOptions { user: Some(Arc::clone(&self.user)), dry_run, fields, manager, ..WriteOptions::default() })
    }
}

/// Answers a request for a resource.
pub(super) async fn serve(api: &Api, call: Call, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let attributes = &call.info.attributes;
    if attributes.version == "v1"
        && let Some(review) =
            REVIEWS.iter().find(|row| row.group == attributes.api_group && row.plural == attributes.resource)
    {
        return special::review(api, &call, review, request).await;
    }
    let (group, version, plural) = (&attributes.api_group, &attributes.version, &attributes.resource);
    let mut found = api.registry().resource(group, version, plural);
    if found.is_none() && group.contains('.') {
        // Its definition may just have been written through another apiserver.
        api.registry().settle().await?;
        found = api.registry().resource(group, version, plural);
    }
    let Some(resource) = found else { return Err(ApiError::no_such_path()) };
    let custom = resource.custom.and_then(|custom| custom.served());
    if let Some(refusal) = custom.as_ref().and_then(|served| served.refusal(&attributes.verb)) {
        return Err(refusal);
    }
    let response = asked(api, &call, resource, request).await?;
    Ok(match custom.as_ref().and_then(|served| served.version().warning.as_deref()) {
        Some(warning) => fields::warned(warning, response),
        None => response,
    })
}

/// Answers a request for a kind that is served.
async fn asked(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let attributes = &call.info.attributes;
    if !resource.namespaced && call.info.in_namespace {
        // Rights in that namespace were asked for, and they are none to what lies in no namespace.
        return Err(ApiError::no_such_path());
    }
    if resource.namespaced && attributes.namespace.is_empty() && !matches!(&*attributes.verb, "list" | "watch") {
        let by_name = !attributes.name.is_empty();
        return Err(if by_name { ApiError::no_such_path() } else { ApiError::method_not_allowed() });
    }
    if call.reads_the_present(api.registry().revision()) {
        api.registry().settle().await?;
    }
    if !attributes.subresource.is_empty() {
        return subresource(api, call, resource, request).await;
    }
    match attributes.verb.as_str() {
        "get" => read::get(api, call, resource, request.headers()),
        "list" => read::list(api, call, resource, request.headers()),
        "watch" => read::watch(api, call, resource, request.headers()),
        "create" if attributes.name.is_empty() => write::create(api, call, resource, request).await,
        "update" if !attributes.name.is_empty() => write::update(api, call, resource, Part::Main, request).await,
        "patch" if !attributes.name.is_empty() => write::patch(api, call, resource, Part::Main, request).await,
        "delete" => write::delete(api, call, resource, request).await,
        "deletecollection" if resource.delete_collection => {
            write::delete_collection(api, call, resource, request).await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

async fn subresource(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let attributes = &call.info.attributes;
    let Some(sub) = resource.subresource(&attributes.subresource) else { return Err(ApiError::no_such_path()) };
    let verb = attributes.verb.as_str();
    if !sub.verbs.contains(&verb) {
        return Err(ApiError::method_not_allowed());
    }
    let part = match sub.name {
        "status" => Part::Status,
        "finalize" => Part::Finalize,
        "ephemeralcontainers" => Part::EphemeralContainers,
        "resize" => Part::Resize,
        "approval" => Part::Approval,
        "scale" => return scale::scale(api, call, resource, request).await,
        "binding" => return special::bind(api, call, request).await,
        "eviction" => return evict::evict(api, call, request).await,
        "token" => return special::token(api, call, request).await,
        _ => return special::connect(api, call, resource, request).await,
    };
    match verb {
        "get" => read::get(api, call, resource, request.headers()),
        "update" => write::update(api, call, resource, part, request).await,
        "patch" => write::patch(api, call, resource, part, request).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Refuses a caller who may not create what the request names, whatever the request's own verb.
fn may_create(api: &Api, call: &Call) -> Result<(), ApiError> {
    let attributes = Attributes { verb: "create".to_owned(), ..call.info.attributes.clone() };
    let Decision::Deny { reason } = api.hooks().authorize.authorize(&call.user, &attributes) else { return Ok(()) };
    Err(ApiError::refused(&Forbidden { user: &call.user, attributes: &attributes, reason: &reason }))
}

fn wanted(headers: &HeaderMap) -> Result<Wanted, ApiError> {
    Wanted::parse(headers)
}
