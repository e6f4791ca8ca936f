//! Get, list, watch.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use super::whole::ListBody;
use super::yaml_list::YamlList;
use super::{Call, wanted};
use crate::apiserver::error::{ApiError, Cause};
use crate::apiserver::negotiate::{Form, Wanted, answer, typed};
use crate::apiserver::object::{Object, parse};
use crate::apiserver::registry::{ListOptions, ObjectList, Selection};
use crate::apiserver::resources::Resource;
use crate::apiserver::server::Api;
use crate::apiserver::table::{Tabler, partial};
use crate::apiserver::watch;
use crate::store::{Revision, Text};

/// Lists up to here are written at once.
const SHORT: usize = 64 << 10;

pub(super) fn get(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let wanted = wanted(headers)?;
    let object = api.registry().get(resource.stored(), call.namespace(resource), call.name())?;
    one(api, call, resource, StatusCode::OK, wanted, object)
}

/// Answers with one object.
pub(super) fn one(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    code: StatusCode,
    wanted: Wanted,
    object: Object,
) -> Result<Response<Body>, ApiError> {
    let bytes = match wanted.form {
        Form::Plain | Form::Discovery => shown(resource, object.text)?.bytes(),
        Form::Metadata => encode(&partial(&object.value()?)),
        Form::Table => {
            let tabler = tabler(api, call, resource)?;
            let metadata = json!({"resourceVersion": object.revision.to_string()});
            encode(&tabler.table(metadata, &[object], true)?)
        }
    };
    answer(code, wanted, bytes)
}

/// Returns stored bytes as the face of the kind shows them.
fn shown(resource: &Resource, text: Text) -> Result<Text, ApiError> {
    if let Some(custom) = resource.custom {
        return custom.shown_bytes(text.bytes()).map(Text::from);
    }
    if resource.stored_as.is_none() {
        return Ok(text);
    }
    Ok(encode(&resource.strategy.shown(parse(&text.bytes())?)).into())
}

fn tabler(api: &Api, call: &Call, resource: &'static Resource) -> Result<Tabler, ApiError> {
    Tabler::new(resource, call.query.get("includeObject"), api.registry().clock().now())
}

fn encode(value: &Value) -> Bytes {
    value.to_string().into()
}

/// Reads what a list request selects.
pub(super) fn list_options(call: &Call, resource: &Resource) -> Result<ListOptions, ApiError> {
    let query = &call.query;
    let mut options = ListOptions {
        selection: Selection::parse(resource, query.get("labelSelector"), query.get("fieldSelector"))?,
        page: query.get("continue").to_owned(),
        ..ListOptions::default()
    };
    let limit = query.get("limit");
    if !limit.is_empty() {
        let parsed = limit.parse().map_err(|_| ApiError::bad_request(format!("limit: invalid value {limit:?}")))?;
        options.limit = Some(parsed).filter(|limit| *limit > 0);
    }
    let version = query.get("resourceVersion");
    let how = query.get("resourceVersionMatch");
    const MATCH: &str = "resourceVersionMatch";
    if !how.is_empty() {
        let cause = match (version, how) {
            _ if !options.page.is_empty() => {
                Some(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden with continue"))
            }
            ("", _) => {
                Some(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
            }
            ("0", "Exact") => {
                let text = "resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"";
                Some(Cause::forbidden(MATCH, text))
            }
            (_, "Exact" | "NotOlderThan") => None,
            (_, other) => Some(Cause::unsupported(MATCH, other, &["Exact", "NotOlderThan", ""])),
        };
        if let Some(cause) = cause {
            return Err(ApiError::invalid_list(cause));
        }
    }
    if !options.page.is_empty() && !matches!(version, "" | "0") {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    if version.is_empty() || !options.page.is_empty() {
        return Ok(options);
    }
    let parsed: u64 = version.parse().map_err(|_| watch::bad_version(version))?;
    // A page of a version without a word on how it is meant is of exactly that version.
    if how == "Exact" || (how.is_empty() && options.limit.is_some() && parsed > 0) {
        options.at = Some(Revision(parsed));
    } else {
        options.not_before = Some(Revision(parsed));
    }
    Ok(options)
}

pub(super) fn list(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let wanted = wanted(headers)?;
    let options = list_options(call, resource)?;
    let list = api.registry().list(resource.stored(), call.namespace(resource), &options)?;
    many(api, call, resource, wanted, &list)
}

/// Answers with a list.
pub(super) fn many(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    wanted: Wanted,
    list: &ObjectList,
) -> Result<Response<Body>, ApiError> {
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
    if !list.page.is_empty() {
        metadata["continue"] = json!(list.page);
    }
    if let Some(remaining) = list.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    let (kind, api_version, items) = match wanted.form {
        Form::Plain | Form::Discovery => {
            let items: Result<Vec<Text>, ApiError> =
                list.items.iter().map(|item| shown(resource, item.text.clone())).collect();
            (resource.list_kind(), resource.api_version(), items?)
        }
        Form::Metadata => {
            let items: Result<Vec<Text>, ApiError> =
                list.items.iter().map(|item| Ok(encode(&partial(&item.value()?)).into())).collect();
            ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned(), items?)
        }
        Form::Table => {
            let table = encode(&tabler(api, call, resource)?.table(metadata, &list.items, true)?);
            return answer(StatusCode::OK, wanted, table);
        }
    };
    let size: usize = items.iter().map(Text::len).sum();
    if wanted.yaml && size >= SHORT {
        let list = YamlList::new(&kind, &api_version, &metadata, items).map_err(ApiError::internal)?;
        return Ok(typed(StatusCode::OK, "application/yaml", Body::new(list)));
    }
    let body = ListBody::new(head(&kind, &api_version, &metadata), items);
    if size < SHORT {
        return answer(StatusCode::OK, wanted, body.join());
    }
    let mut response = answer(StatusCode::OK, wanted, Bytes::new())?;
    *response.body_mut() = Body::new(body);
    Ok(response)
}

/// How a list begins.
fn head(kind: &str, api_version: &str, metadata: &Value) -> Vec<u8> {
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[").into_bytes()
}

pub(super) fn watch(
    api: &Api,
    call: &Call,
    resource: &'static Resource,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let slot = api.watch_slot(call)?;
    let wanted = wanted(headers)?;
    let namespace = call.namespace(resource);
    watch::serve(api.registry(), resource, namespace, &call.query, wanted, slot, api.stop().clone())
}
