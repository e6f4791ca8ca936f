//! Namespaces and nodes.

use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};

use super::Strategy;
use crate::apiserver::object::{child, default, list, meta, metadata};

#[derive(Debug)]
pub(crate) struct Namespaces;

impl Strategy for Namespaces {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<core::Namespace>(object)
    }

    fn defaults(&self, object: &mut Value) {
        let name = meta(object, "name").to_owned();
        if !name.is_empty() {
            let labels = metadata(object).entry("labels").or_insert_with(|| json!({}));
            if let Some(labels) = labels.as_object_mut() {
                labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        let mut finalizers = list(object, "/spec/finalizers").to_vec();
        if !finalizers.contains(&json!("kubernetes")) {
            finalizers.push(json!("kubernetes"));
        }
        child(object, "spec").insert("finalizers".to_owned(), finalizers.into());
        object["status"] = json!({"phase": "Active"});
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        // Only the `finalize` path may take them off.
        object["spec"] = old.get("spec").cloned().unwrap_or_else(|| json!({}));
    }

    fn prepare_status(&self, object: &mut Value, _old: &Value) {
        let going = object.pointer("/metadata/deletionTimestamp").is_some();
        child(object, "status").insert("phase".to_owned(), json!(if going { "Terminating" } else { "Active" }));
    }
}

#[derive(Debug)]
pub(crate) struct Nodes;

impl Strategy for Nodes {
    fn decode(&self, object: &Value) -> Result<(), String> {
        super::typed::<core::Node>(object)
    }

    fn defaults(&self, object: &mut Value) {
        child(object, "spec");
        let status = child(object, "status");
        if let Some(capacity) = status.get("capacity").cloned() {
            default(status, "allocatable", || capacity);
        }
        default(status, "daemonEndpoints", || json!({"kubeletEndpoint": {"Port": 0}}));
        default(status, "nodeInfo", || json!({}));
    }
}
