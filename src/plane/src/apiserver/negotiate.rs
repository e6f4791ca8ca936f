//! Media types: which form a client wants to read, and how to read what it sends.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use longshore_api::schema::check::{self, Findings};
use longshore_api::schema::schema;
use longshore_api::schema::wire::{self, Envelope, WireError};
use longshore_api::shape::{MAX_DEPTH, is_deeper};
use longshore_util::yaml;
use serde_json::Value;

use super::error::ApiError;
use super::known::Known;
use super::resources::Resource;

/// Largest body taken.
pub(crate) const MAX_BODY: usize = 3 << 20;

/// How Go's typed clients send objects.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The shape of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects themselves.
    Plain,
    /// Columns for a terminal.
    Table,
    /// Metadata only.
    Metadata,
    /// Discovery in one document.
    Discovery,
}

/// What a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) form: Form,
    pub(crate) yaml: bool,
}

impl Wanted {
    /// Returns the alternative that the client likes best of those that can be served.
    pub(crate) fn parse(headers: &HeaderMap) -> Result<Self, ApiError> {
        let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let alternatives = values.flat_map(|value| value.split(',')).map(str::trim);
        let mut alternatives: Vec<&str> = alternatives.filter(|alternative| !alternative.is_empty()).collect();
        if alternatives.is_empty() {
            return Ok(Self { form: Form::Plain, yaml: false });
        }
        alternatives.retain(|alternative| quality(alternative) > 0);
        alternatives.sort_by_key(|alternative| (std::cmp::Reverse(quality(alternative)), breadth(alternative)));
        alternatives.into_iter().find_map(read_alternative).ok_or_else(ApiError::not_acceptable)
    }
}

/// How much a client likes an alternative (`q`), in thousandths; what cannot be read is liked.
fn quality(alternative: &str) -> u32 {
    let mut parameters = alternative.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let given = parameters.find(|(key, _)| key.trim().eq_ignore_ascii_case("q")).and_then(|(_, value)| {
        let value = value.trim();
        let (whole, part) = value.split_once('.').unwrap_or((value, ""));
        let part: String = part.chars().chain("000".chars()).take(3).collect();
        Some(whole.parse::<u32>().ok()?.min(1) * 1000 + part.parse::<u32>().ok()?)
    });
    given.unwrap_or(1000).min(1000)
}

/// How much an alternative leaves open: one type, all of a family, all.
fn breadth(alternative: &str) -> usize {
    alternative.split(';').next().unwrap_or_default().matches('*').count()
}

fn read_alternative(alternative: &str) -> Option<Wanted> {
    let mut parts = alternative.split(';').map(str::trim);
    let yaml = match parts.next()?.to_ascii_lowercase().as_str() {
        "application/json" | "application/*" | "*/*" => false,
        "application/yaml" => true,
        _ => return None,
    };
    let (mut wanted_kind, mut group, mut version) = ("", "", "");
    for (key, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
        match key.trim() {
            "as" => wanted_kind = value,
            "g" => group = value,
            "v" => version = value,
            "stream" if value != "watch" => return None,
            _ => {}
        }
    }
    let form = match (wanted_kind, group, version) {
        ("", _, _) => Form::Plain,
        ("Table", "meta.k8s.io", "v1") => Form::Table,
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => Form::Metadata,
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Form::Discovery,
        _ => return None,
    };
    Some(Wanted { form, yaml })
}

/// Returns an answer in JSON, or YAML if wanted.
pub(crate) fn answer(code: StatusCode, wanted: Wanted, json: Bytes) -> Result<Response<Body>, ApiError> {
    let (body, media_type) = if wanted.yaml {
        let value: Value = serde_json::from_slice(&json).map_err(ApiError::internal)?;
        (yaml::to_string(&value).map_err(ApiError::internal)?.into(), "application/yaml")
    } else {
        (json, "application/json")
    };
    Ok(typed(code, media_type, body))
}

/// Returns a plain text.
pub(crate) fn plain(code: StatusCode, text: impl Into<Body>) -> Response<Body> {
    typed(code, "text/plain; charset=utf-8", text)
}

/// Returns a body of a media type.
pub(crate) fn typed(code: StatusCode, media_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Says whether a client names one of the media types first.
pub(crate) fn accepts(headers: &HeaderMap, media_types: &[&str]) -> bool {
    let first = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()?.split([',', ';']).next());
    first.is_some_and(|first| media_types.iter().any(|media_type| first.trim().eq_ignore_ascii_case(media_type)))
}

/// The answer to HEAD: all but the body, which HTTP/2 takes for a fault.
pub(crate) fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if let Some(length) = http_body::Body::size_hint(&body).exact() {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Response::from_parts(parts, Body::empty())
}

/// Returns the media type of a body, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads a body.
pub(crate) async fn read_body(body: Body) -> Result<Bytes, ApiError> {
    longshore_transport::body::read(body, MAX_BODY).await.map_err(|error| match error {
        longshore_transport::body::BodyError::TooLarge { limit } => ApiError::too_large(limit),
        broken @ longshore_transport::body::BodyError::Broken(_) => ApiError::bad_request(broken.to_string()),
    })
}

/// Reads JSON, YAML or protobuf.
pub(crate) fn decode(headers: &HeaderMap, kind: &str, body: &[u8]) -> Result<Value, ApiError> {
    match media_type(headers).as_str() {
        "" | "application/json" | "*/*" => serde_json::from_slice(body).map_err(|error| not_json(kind, &error, body)),
        "application/yaml" => {
            let text = std::str::from_utf8(body).map_err(|_| unrecognized(kind, "yaml is not UTF-8"))?;
            yaml::to_value(text).map_err(|error| unrecognized(kind, &format!("yaml parse error: {error}")))
        }
        PROTOBUF => decode_protobuf(kind, body),
        _ => Err(ApiError::unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// Reads an object of a built-in kind, as Go's typed clients send it.
fn decode_protobuf(kind: &str, body: &[u8]) -> Result<Value, ApiError> {
    let refused = |error: WireError| unrecognized(kind, &error.to_string());
    let envelope = Envelope::read(body).map_err(refused)?;
    let table = schema();
    // Options belong to every group; the table has them once.
    let id = table
        .kind(&envelope.api_version, &envelope.kind)
        .or_else(|| table.kind("meta.k8s.io/v1", &envelope.kind).filter(|_| envelope.kind.ends_with("Options")));
    let Some(id) = id else {
        let text = format!("no kind {:?} is registered for version {:?}", envelope.kind, envelope.api_version);
        return Err(ApiError::bad_request(text));
    };
    let mut object = wire::message(table, id, envelope.raw).map_err(|error| {
        let version = envelope.api_version.rsplit('/').next().unwrap_or_default();
        let own = &envelope.kind;
        ApiError::bad_request(format!("{own} in version {version:?} cannot be handled as a {kind}: {error}"))
    })?;
    object.insert("apiVersion".to_owned(), envelope.api_version.into());
    object.insert("kind".to_owned(), envelope.kind.into());
    let object = object.into();
    // JSON can stand inside, whose reader counts from there.
    check_depth(&object, kind)?;
    Ok(object)
}

fn not_json(kind: &str, error: &serde_json::Error, body: &[u8]) -> ApiError {
    let detail = if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
    unrecognized(kind, &format!("json parse error: {detail} ({})", excerpt(body)))
}

fn unrecognized(kind: &str, detail: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {detail}"
    ))
}

fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body.get(..64).unwrap_or(body)).into_owned()
}

/// Reads an object of one kind. Fields that the kind does not have are left out and told.
pub(crate) fn decode_object(
    headers: &HeaderMap,
    resource: &Resource,
    body: &[u8],
) -> Result<(Value, Findings), ApiError> {
    let is_json = matches!(media_type(headers).as_str(), "" | "application/json" | "*/*");
    if resource.custom.is_some() && media_type(headers) == PROTOBUF {
        return Err(ApiError::unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml",
        ));
    }
    let bad_json = |error| not_json(resource.kind, &error, body);
    let (object, findings) = match Known::of(resource) {
        Some(Known::Type(id)) if is_json => check::read(schema(), id, body).map_err(bad_json)?,
        Some(known @ Known::Schema(_)) if is_json => {
            let (mut object, mut findings) = check::read_any(body).map_err(bad_json)?;
            check_kind(&object, &resource.api_version(), resource.kind)?;
            findings.extend(known.prune(&mut object));
            (object, findings)
        }
        Some(known) => {
            let mut object = decode(headers, resource.kind, body)?;
            let findings = known.prune(&mut object);
            (object, findings)
        }
        None => (decode(headers, resource.kind, body)?, Findings::default()),
    };
    check_kind(&object, &resource.api_version(), resource.kind)?;
    check_depth(&object, resource.kind)?;
    Ok((object, findings))
}

/// Refuses what could not be read back from inside a list or a watch's frame.
pub(crate) fn check_depth(object: &Value, kind: &str) -> Result<(), ApiError> {
    if is_deeper(object, MAX_DEPTH) {
        return Err(unrecognized(kind, &format!("more than {MAX_DEPTH} levels")));
    }
    Ok(())
}

/// Checks that an object is what the path takes; it may leave both out.
pub(crate) fn check_kind(object: &Value, api_version: &str, kind: &str) -> Result<(), ApiError> {
    if !object.is_object() {
        return Err(unrecognized(kind, "the body is not an object"));
    }
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (sent_version, sent_kind) = (text("apiVersion"), text("kind"));
    if (sent_kind.is_empty() || sent_kind == kind) && (sent_version.is_empty() || sent_version == api_version) {
        return Ok(());
    }
    let short = |version: &str| version.rsplit_once('/').map_or(version, |(_, version)| version).to_owned();
    let group = match api_version.rsplit_once('/') {
        None => "core".to_owned(),
        Some((group, _)) => group.split('.').next().unwrap_or_default().to_owned(),
    };
    if sent_kind != kind && !sent_kind.is_empty() && sent_version == api_version {
        return Err(ApiError::bad_request(format!(
            "{sent_kind} in version {:?} cannot be handled as a {kind}: converting ({}.{sent_kind}) to ({group}.{kind}): \
             unknown conversion",
            short(sent_version),
            short(sent_version),
        )));
    }
    Err(ApiError::bad_request(format!(
        "the API version in the data ({sent_version}) does not match the expected API version ({api_version})"
    )))
}
