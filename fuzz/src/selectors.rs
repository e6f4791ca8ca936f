//! Selectors of labels and fields. The first line of an input is one of labels, the second one of fields, the rest an object
//! in JSON, if it is any.

use std::collections::BTreeMap;

use longshore_api::selector::{FieldSelector, LabelSelector};
use serde_json::{Value, json};

const RESOURCES: [&str; 8] =
    ["pods", "nodes", "namespaces", "secrets", "events", "jobs.batch", "replicasets.apps", "things.example.com"];

/// Runs the target.
pub fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (labels, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let (fields, object) = rest.split_once('\n').unwrap_or((rest, ""));
    let object = serde_json::from_str(object).unwrap_or_else(|_| sample());
    by_labels(labels, &object);
    by_fields(fields, &object);
}

fn sample() -> Value {
    json!({"metadata": {"name": "x", "namespace": "a", "labels": {"a": "b", "c": "", "n": "5", "in": "notin"}},
        "spec": {"nodeName": "n", "hostNetwork": true}, "status": {"phase": "Running", "podIPs": [{"ip": "::1"}]},
        "type": "Opaque", "regarding": {"kind": "Pod"}})
}

fn by_labels(text: &str, object: &Value) {
    let Ok(selector) = LabelSelector::parse(text) else { return };
    let printed = selector.to_string();
    match LabelSelector::parse(&printed) {
        Ok(again) => assert_eq!(again, selector, "{text:?} is printed as {printed:?}, which means something else"),
        Err(error) => panic!("{text:?} is printed as {printed:?}, which is refused: {error}"),
    }
    let selected = selector.matches_object(object);
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let labels: BTreeMap<String, String> =
        labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    assert_eq!(selector.matches_map(&labels), selected, "{text:?} on {object}");
    if selector.is_everything() {
        assert!(selected, "everything leaves {object} out");
    }
    // A conjunction selects what all of its parts select.
    let parts: Vec<&str> = printed.split(',').collect();
    if !printed.contains('(') && parts.len() > 1 {
        let each = parts.iter().all(|part| LabelSelector::parse(part).is_ok_and(|part| part.matches_object(object)));
        assert_eq!(each, selected, "{printed:?} part by part on {object}");
    }
}

fn by_fields(text: &str, object: &Value) {
    let Ok(selector) = FieldSelector::parse(text) else { return };
    let printed = selector.to_string();
    match FieldSelector::parse(&printed) {
        Ok(again) => assert_eq!(again, selector, "{text:?} is printed as {printed:?}, which means something else"),
        Err(error) => panic!("{text:?} is printed as {printed:?}, which is refused: {error}"),
    }
    let selected = selector.matches(object);
    assert!(selected || !selector.is_everything(), "everything leaves {object} out");
    for resource in RESOURCES {
        if let Err(error) = selector.check(resource) {
            assert!(!error.to_string().is_empty());
        }
    }
    for requirement in selector.requirements() {
        let one = FieldSelector::equal(&requirement.field, &requirement.value);
        if selected && !requirement.negated {
            assert!(one.matches(object), "{text:?} selects {object}, {one} does not");
        }
        // No field that there is ends like the other operator begins.
        if !requirement.field.ends_with('!') {
            assert_eq!(FieldSelector::parse(&one.to_string()), Ok(one.clone()), "{one}");
        }
    }
}
