//! The pods of the recorded cases must be stored as a stock apiserver stored them: defaults and admission included.

use std::path::Path;

use http::StatusCode;
use longshore_util::yaml;
use serde_json::{Value, json};

use super::Server;
use crate::apiserver::registry::WriteOptions;
use crate::apiserver::resources::{NAMESPACES, SERVICEACCOUNTS};

/// Cases whose recorded object is not what was created.
const CHANGED: &[(&str, &str)] = &[
    ("static-pod", "comes from the node's disk"),
    ("ephemeral", "a container was added later"),
    ("resize-cpu", "sizes were changed later"),
];

fn normalise(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(normalise),
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::String(text) if text.starts_with("kube-api-access-") => *text = "kube-api-access-XXXXX".to_owned(),
        Value::String(text) if text == "node-1" => *text = "NODE".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn pods_of_the_recorded_cases_are_stored_as_recorded() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../integration/golden"));
    let server = Server::start().await;
    let (mut compared, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(folder.join("cases")).unwrap() {
        let path = entry.unwrap().path();
        let case = path.file_stem().unwrap().to_string_lossy().into_owned();
        let recorded = folder.join("recorded").join(&case).join("object.json");
        if path.extension().is_none_or(|extension| extension != "yaml")
            || CHANGED.iter().any(|(name, _)| *name == case)
            || !recorded.exists()
        {
            continue;
        }
        let mut want: Value = serde_json::from_str(&std::fs::read_to_string(recorded).unwrap()).unwrap();
        let namespace = format!("g-{case}");
        let own = WriteOptions::default();
        let registry = server.api.registry();
        registry.create(&NAMESPACES, "", json!({"metadata": {"name": namespace}}), &own).await.unwrap();
        let account = json!({"metadata": {"name": "default"}});
        registry.create(&SERVICEACCOUNTS, &namespace, account, &own).await.unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut objects = yaml::documents(&text).unwrap();
        // What a pod refers to comes first, wherever the case has it.
        objects.sort_by_key(|object| object["kind"] == "Pod");
        for mut object in objects {
            let kind = object["kind"].as_str().unwrap().to_owned();
            let path = match kind.as_str() {
                "RuntimeClass" => "/apis/node.k8s.io/v1/runtimeclasses".to_owned(),
                "PriorityClass" => "/apis/scheduling.k8s.io/v1/priorityclasses".to_owned(),
                kind => format!("/api/v1/namespaces/{namespace}/{}s", kind.to_lowercase()),
            };
            if kind == "Pod" && object["spec"].get("nodeName").is_none() {
                object["spec"]["nodeName"] = json!("node-1");
            }
            let made = server.post(&path, object).await;
            if made.code != StatusCode::CREATED {
                wrong.push(format!("{case}: {}", made.body));
                continue;
            }
            if kind == "Pod" {
                let mut spec = made.body["spec"].clone();
                normalise(&mut spec);
                compared += 1;
                normalise(&mut want["spec"]);
                if spec != want["spec"] {
                    wrong.push(format!("{case}:\n got {spec}\nwant {}", want["spec"]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared >= 18, "{compared}");
}
