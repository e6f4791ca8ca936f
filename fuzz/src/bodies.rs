//! Bodies of requests: JSON, YAML and protobuf, what is told of their fields, defaults and checks. The first byte of an input
//! says in which form the rest is: `j` JSON, `y` YAML, `b` protobuf with its envelope, `m` a message alone, and everything
//! else deals an object. The second chooses the kind: a letter of `KINDS`, or any row.

use axum::body::Body;
use http::{Method, Request, StatusCode};
use longshore_api::schema::{TypeId, schema, wire};
use longshore_api::shape::{MAX_DEPTH, is_deeper};
use longshore_api::{defaults, validate};
use longshore_plane::apiserver::resources::{Resource, built_in};
use longshore_util::yaml;
use serde_json::{Map, Value};

use super::deal::Deal;
use super::server::{Answer, ask};
use super::wire as writer;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Levels that an object may have so that it can be read inside a list or a watch's frame: readers of JSON end at 128. The
/// owners of its fields lie a few levels deeper than the fields.
const READ_BACK: usize = 120;

/// Letters for kinds that people write, so that seeds can be read.
const KINDS: [(u8, &str, &str); 14] = [
    (b'p', "", "pods"),
    (b'd', "apps", "deployments"),
    (b's', "", "services"),
    (b'c', "", "configmaps"),
    (b'x', "", "secrets"),
    (b'n', "", "nodes"),
    (b'j', "batch", "jobs"),
    (b'r', "rbac.authorization.k8s.io", "roles"),
    (b'e', "", "events"),
    (b'i', "networking.k8s.io", "ingresses"),
    (b'h', "apps", "controllerrevisions"),
    (b'k', "apiextensions.k8s.io", "customresourcedefinitions"),
    (b'l', "coordination.k8s.io", "leases"),
    (b'q', "", "resourcequotas"),
];

/// Runs the target.
pub fn run(input: &[u8]) {
    let Some((form, rest)) = input.split_first() else { return };
    let (kind, body) = rest.split_first().unwrap_or((&0, &[]));
    if *kind == b't' {
        return match form {
            b'y' => post("/apis/example.com/v1/namespaces/a/things", YAML, body, None),
            _ => post("/apis/example.com/v1/namespaces/a/things", JSON, body, None),
        };
    }
    let resource = row(*kind);
    let path = path(resource);
    let Some(id) = schema().kind(&resource.api_version(), resource.kind) else { return };
    match form {
        b'j' => {
            if let Ok(value) = serde_json::from_slice::<Value>(body) {
                yaml_reads_back(&value);
            }
            post(&path, JSON, body, Some(id));
        }
        b'y' => {
            if let Ok(text) = std::str::from_utf8(body) {
                drop(yaml::documents(text));
                if let Ok(value) = yaml::to_value(text) {
                    yaml_reads_back(&value);
                }
            }
            post(&path, YAML, body, Some(id));
        }
        b'b' => post(&path, PROTOBUF, body, Some(id)),
        b'm' => {
            drop(wire::message(schema(), id, body));
            post(&path, PROTOBUF, &writer::envelope(id, body), Some(id));
        }
        _ => {
            let object = Deal::new(body).object(id);
            protobuf_reads_back(id, &object);
            yaml_reads_back(&object);
            post(&path, JSON, object.to_string().as_bytes(), Some(id));
        }
    }
}

fn row(letter: u8) -> &'static Resource {
    let rows: Vec<&'static Resource> = built_in().collect();
    let known = KINDS.iter().find(|(own, ..)| *own == letter);
    let found =
        known.and_then(|(_, group, plural)| rows.iter().find(|row| row.group == *group && row.plural == *plural));
    found.unwrap_or_else(|| &rows[usize::from(letter) % rows.len()])
}

fn path(resource: &Resource) -> String {
    let base = if resource.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", resource.group) };
    let space = if resource.namespaced { "/namespaces/a" } else { "" };
    format!("{base}/{}{space}/{}", resource.version, resource.plural)
}

/// Creates without storing.
fn send(path: &str, media_type: &str, validation: &str, body: &[u8]) -> Option<Answer> {
    let target = format!("{path}?dryRun=All&fieldManager=fuzz&fieldValidation={validation}");
    let request = Request::builder().method(Method::POST).uri(target).header("content-type", media_type);
    request.body(Body::from(body.to_vec())).ok().map(ask)
}

fn post(path: &str, media_type: &str, body: &[u8], id: Option<TypeId>) {
    let shown = || String::from_utf8_lossy(body).into_owned();
    let each = ["Ignore", "Warn", "Strict"].map(|validation| send(path, media_type, validation, body));
    let [Some(ignore), Some(warn), Some(strict)] = each else { return };
    let told = warn.headers.get_all("warning").iter().any(|text| {
        let text = String::from_utf8_lossy(text.as_bytes());
        text.contains("unknown field") || text.contains("duplicate field")
    });
    assert_eq!(ignore.code, warn.code, "{path}: to be told changes the answer: {} {}", warn.body, shown());
    if strict.code.is_success() {
        assert!(warn.code.is_success() && !told, "{path}: strict takes what others do not: {} {}", warn.body, shown());
    } else if warn.code.is_success() {
        assert!(told, "{path}: strict refuses without a reason to warn: {} {}", strict.body, shown());
        let text = strict.body["message"].as_str().unwrap_or_default();
        assert!(text.contains("strict decoding error"), "{path}: {text}");
    }
    if ignore.code == StatusCode::CREATED {
        made(path, &ignore.body);
        if id.is_some_and(|id| schema().get(id).name == "Pod") {
            as_a_pod(&ignore.body);
        }
    }
}

/// What the server made can be sent to it again, and is the same then.
fn made(path: &str, object: &Value) {
    assert!(!is_deeper(object, READ_BACK), "{path}: too deep for a list to be read: {object}");
    let mut again = object.clone();
    if let Some(meta) = again["metadata"].as_object_mut() {
        for own in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"] {
            meta.remove(own);
        }
    }
    let Some(answer) = send(path, JSON, "Strict", again.to_string().as_bytes()) else { return };
    assert_eq!(answer.code, StatusCode::CREATED, "{path}: the server refuses what it made: {} {again}", answer.body);
    assert_eq!(lasting(&answer.body), lasting(object), "{path}: made again it is another");
}

/// What an object says beside its metadata and status, with one text in the place of its uid.
fn lasting(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten().filter(|(key, _)| *key != "metadata" && *key != "status");
    let fields: Map<String, Value> = fields.map(|(key, value)| (key.clone(), value.clone())).collect();
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let text = Value::Object(fields).to_string();
    let text = if uid.is_empty() { text } else { text.replace(uid, "its-own") };
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

/// Defaults are stable, and what the server took has no faults.
fn as_a_pod(object: &Value) {
    let mut once = object.clone();
    defaults::pod(&mut once);
    let mut twice = once.clone();
    defaults::pod(&mut twice);
    assert_eq!(once, twice, "defaults of defaults");
    let faults = validate::pod(&once);
    assert!(faults.is_empty(), "taken with faults: {faults:?} {once}");
}

/// What is written as YAML reads as what it was.
fn yaml_reads_back(value: &Value) {
    if is_deeper(value, MAX_DEPTH - 2) {
        return;
    }
    let written = match yaml::to_string(value) {
        Ok(written) => written,
        Err(error) => panic!("{value} has no YAML: {error}"),
    };
    match yaml::to_value(&written) {
        Ok(read) => assert!(same(&read, value), "{value} is written as {written:?} and read as {read}"),
        Err(error) => panic!("{value} is written as {written:?} and not read: {error}"),
    }
}

/// Equal, with numbers compared by what they count.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(one), Value::Number(two)) => one == two || one.as_f64() == two.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// What is written as protobuf reads as what it was, but for what JSON leaves out when it is empty.
fn protobuf_reads_back(id: TypeId, object: &Value) {
    let Some(message) = object.as_object().and_then(|object| writer::message(id, object)) else { return };
    match wire::message(schema(), id, &message) {
        Ok(read) => {
            let (read, sent) = (filled(&read.into()), filled(object));
            assert_eq!(read, sent, "{object} as protobuf");
        }
        Err(error) => panic!("{object} as protobuf is not read: {error}"),
    }
}

/// Without anything empty, which the two forms show differently.
fn filled(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind"));
            let kept = kept.map(|(key, value)| (key.clone(), filled(value))).filter(|(_, value)| !is_empty(value));
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.iter().map(filled).collect(),
        other => other.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}
