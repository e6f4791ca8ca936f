//! Requests: path, query and headers. An input is a line `METHOD TARGET`, lines of headers, an empty one, and a body. Writes
//! are made dry runs, so that whatever is asked finds the same objects.

use axum::body::Body;
use http::{Method, Request, StatusCode};
use longshore_api::selector::{FieldSelector, LabelSelector};
use serde_json::Value;

use super::server::{Answer, ask};

/// Runs the target.
pub fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let Some((method, target)) = lines.next().and_then(|line| line.split_once(' ')) else { return };
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return };
    // What the connection's reader lets through begins with a slash and has no fragment.
    if !target.starts_with('/') || target.contains('#') {
        return;
    }
    let reads = matches!(method, Method::GET | Method::HEAD);
    let target = if reads { target.to_owned() } else { dry(target) };
    let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(": ")).take(16).collect();
    let Some(answer) = send(&method, &target, &headers, body) else { return };
    if method == Method::GET && answer.code == StatusCode::OK {
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        is_what_was_asked(path, &answer.body);
        if answer.body["items"].is_array() && !is_true(&value(query, "watch")) {
            is_selected(path, query, &answer.body);
            goes_on(&target, &headers, &answer);
        }
    }
}

fn send(method: &Method, target: &str, headers: &[(&str, &str)], body: &str) -> Option<Answer> {
    let mut request = Request::builder().method(method.clone()).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_owned())).ok().map(ask)
}

/// The same target as a dry run.
fn dry(target: &str) -> String {
    match target.split_once('?') {
        Some((path, query)) => format!("{path}?dryRun=All&{query}"),
        None => format!("{target}?dryRun=All"),
    }
}

/// Decodes percent signs: a model of what the server does, written on its own.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let code = text.get(at + 1..at + 3).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The first value of a key, or an empty text.
fn value(query: &str, key: &str) -> String {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut pairs = pairs.map(|(key, value)| (decoded(&key.replace('+', " ")), decoded(&value.replace('+', " "))));
    pairs.find(|(own, _)| own == key).map(|(_, value)| value).unwrap_or_default()
}

fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// An object that is shown is one that the path names, in the namespace that the path names: rights were asked for that.
fn is_what_was_asked(path: &str, body: &Value) {
    let (name, namespace) = (&body["metadata"]["name"], &body["metadata"]["namespace"]);
    let (Some(name), Some(_)) = (name.as_str(), body["metadata"]["uid"].as_str()) else { return };
    let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decoded).collect();
    assert!(parts.iter().any(|part| part == name), "{path} shows {name:?}");
    if let Some(namespace) = namespace.as_str() {
        let place = parts.windows(2).any(|pair| pair[0] == "namespaces" && pair[1] == namespace);
        assert!(place, "{path} shows {namespace}/{name}");
    }
}

/// What is listed is selected, and lies in the namespace that the path names.
fn is_selected(path: &str, query: &str, body: &Value) {
    let kind = body["kind"].as_str().unwrap_or_default();
    if !kind.ends_with("List") || kind.starts_with("Partial") || kind.starts_with("API") {
        return;
    }
    let labels = LabelSelector::parse(&value(query, "labelSelector"));
    let fields = FieldSelector::parse(&value(query, "fieldSelector"));
    let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decoded).collect();
    let at = parts.iter().position(|part| part == "namespaces").filter(|at| parts.len() > at + 2);
    let items = body["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    for item in items {
        assert!(labels.as_ref().is_ok_and(|labels| labels.matches_object(item)), "{path}?{query} lists {item}");
        assert!(fields.as_ref().is_ok_and(|fields| fields.matches(item)), "{path}?{query} lists {item}");
        if let Some(at) = at {
            assert_eq!(item["metadata"]["namespace"], *parts[at + 1], "{path}?{query} lists {item}");
        }
    }
    if let Some(limit) = value(query, "limit").parse::<usize>().ok().filter(|limit| *limit > 0) {
        assert!(items.len() <= limit, "{path}?{query} lists {}", items.len());
    }
}

/// A list that says where it goes on goes on there, with other objects.
fn goes_on(target: &str, headers: &[(&str, &str)], answer: &Answer) {
    let Some(page) = answer.body["metadata"]["continue"].as_str().filter(|page| !page.is_empty()) else { return };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let own = |pair: &&str| {
        let key = decoded(pair.split('=').next().unwrap_or_default());
        !matches!(key.as_str(), "continue" | "resourceVersion" | "resourceVersionMatch")
    };
    let kept: Vec<&str> = query.split('&').filter(own).collect();
    let next = format!("{path}?continue={page}&{}", kept.join("&"));
    let Some(more) = send(&Method::GET, &next, headers, "") else { return };
    assert_eq!(more.code, StatusCode::OK, "{next}: {}", more.body);
    let uids = |body: &Value| -> Vec<Value> {
        body["items"].as_array().into_iter().flatten().map(|item| item["metadata"]["uid"].clone()).collect()
    };
    let before = uids(&answer.body);
    assert!(uids(&more.body).iter().all(|uid| uid.is_null() || !before.contains(uid)), "{next} lists what was listed");
}
