//! Custom kinds over the whole request path.

use axum::body::Body;
use futures_util::StreamExt as _;
use http::{Method, Request, StatusCode};
use longshore_api::custom::accept;
use serde_json::{Value, json};

use super::{Answer, Server};
use crate::apiserver::registry::{Part, WriteOptions};
use crate::apiserver::resources::CUSTOMRESOURCEDEFINITIONS;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/example.com/v1/namespaces/a/things";

pub(super) fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["color"], "properties": {
            "color": {"type": "string", "enum": ["red", "green", "blue"]},
            "replicas": {"type": "integer", "default": 1, "minimum": 0},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"},
            "phase": {"type": "string"}}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"], "categories": ["all"]},
            "versions": [
                {"name": "v1beta1", "served": true, "storage": false, "deprecated": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
                        "color": {"type": "string"}}}}}}},
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "selectableFields": [{"jsonPath": ".spec.color"}],
                    "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                        {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1}],
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}}}]}})
}

/// Does what the loop of the control plane does.
async fn establish(server: &Server, name: &str) {
    let change = |mut object: Value| {
        let status = accept::status(&object, &[], "2026-01-01T00:00:00Z");
        Ok(status.map(|status| {
            object["status"] = status;
            object
        }))
    };
    let own = WriteOptions::default();
    server.api.registry().modify(&CUSTOMRESOURCEDEFINITIONS, "", name, Part::Whole, &own, change).await.unwrap();
}

pub(super) async fn with(definition: Value) -> Server {
    let server = Server::start().await;
    let made = server.post(DEFINITIONS, definition).await;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.body);
    establish(&server, made.body["metadata"]["name"].as_str().unwrap()).await;
    server
}

pub(super) fn thing(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

fn is(answer: &Answer, code: StatusCode) {
    assert_eq!(answer.code, code, "{}", answer.body);
}

#[tokio::test]
async fn a_kind_is_served_when_it_is_established() {
    let server = Server::start().await;
    let made = server.post(DEFINITIONS, definition()).await;
    is(&made, StatusCode::CREATED);
    assert_eq!(made.body["spec"]["names"]["listKind"], "ThingList");
    assert_eq!(made.body["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(made.body["metadata"]["generation"], 1);
    is(&server.get(THINGS).await, StatusCode::NOT_FOUND);
    establish(&server, "things.example.com").await;
    let list = server.get(THINGS).await;
    is(&list, StatusCode::OK);
    assert_eq!(list.body["kind"], "ThingList");
    let gone = server.delete(&format!("{DEFINITIONS}/things.example.com"), Value::Null).await;
    assert_eq!(gone.body["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    let condition = &gone.body["status"]["conditions"][2];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("Terminating"), &json!("InstanceDeletionPending")));
}

#[tokio::test]
async fn objects_are_pruned_filled_and_counted() {
    let server = with(definition()).await;
    let made = server.post(THINGS, thing("x", json!({"color": "red", "odd": 1, "free": {"any": null}}))).await;
    is(&made, StatusCode::CREATED);
    assert_eq!(made.body["spec"], json!({"color": "red", "replicas": 1, "free": {"any": null}}));
    assert_eq!(made.body["metadata"]["generation"], 1);
    let path = format!("{THINGS}/x");
    let strict =
        server.post(&format!("{THINGS}?fieldValidation=Strict"), thing("y", json!({"color": "red", "odd": 1}))).await;
    is(&strict, StatusCode::BAD_REQUEST);
    assert!(strict.body["message"].as_str().unwrap().ends_with("strict decoding error: unknown field \"spec.odd\""));
    let labelled = server.patch("merge-patch", &path, json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(labelled.body["metadata"]["generation"], 1);
    let status = server
        .patch(
            "merge-patch",
            &format!("{path}/status"),
            json!({"status": {"phase": "Up"}, "spec": {"color": "blue"},
        "metadata": {"labels": {"a": "c"}}}),
        )
        .await;
    is(&status, StatusCode::OK);
    assert_eq!((&status.body["status"]["phase"], &status.body["spec"]["color"]), (&json!("Up"), &json!("red")));
    assert_eq!(
        (&status.body["metadata"]["generation"], &status.body["metadata"]["labels"]["a"]),
        (&json!(1), &json!("b"))
    );
    let changed =
        server.patch("json-patch", &path, json!([{"op": "replace", "path": "/spec/color", "value": "blue"}])).await;
    assert_eq!(changed.body["metadata"]["generation"], 2);
    assert_eq!(changed.body["status"]["phase"], "Up");
    is(&server.patch("strategic-merge-patch", &path, json!({"spec": {}})).await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let mut blind = thing("x", json!({"color": "green"}));
    is(&server.put(&path, blind.clone()).await, StatusCode::UNPROCESSABLE_ENTITY);
    blind["metadata"]["resourceVersion"] = changed.body["metadata"]["resourceVersion"].clone();
    let put = server.put(&path, blind).await;
    is(&put, StatusCode::OK);
    assert_eq!(put.body["status"]["phase"], "Up");
}

#[tokio::test]
async fn versions_show_the_same_object_each_in_its_words() {
    let server = with(definition()).await;
    server.post(THINGS, thing("x", json!({"color": "red", "replicas": 3}))).await;
    let beta = server.get("/apis/example.com/v1beta1/namespaces/a/things/x").await;
    is(&beta, StatusCode::OK);
    assert_eq!(
        (&beta.body["apiVersion"], &beta.body["spec"]),
        (&json!("example.com/v1beta1"), &json!({"color": "red"}))
    );
    let mut sent = beta.body.clone();
    sent["spec"]["color"] = json!("green");
    let put = server.put("/apis/example.com/v1beta1/namespaces/a/things/x", sent).await;
    is(&put, StatusCode::OK);
    assert_eq!(put.body["apiVersion"], "example.com/v1beta1");
    let read = server.get(&format!("{THINGS}/x")).await;
    assert_eq!(read.body["spec"], json!({"color": "green", "replicas": 1}));
    let list = server.get("/apis/example.com/v1beta1/things").await;
    assert_eq!(list.body["items"][0]["apiVersion"], "example.com/v1beta1");
}

#[tokio::test]
async fn columns_scale_selectors_and_discovery_follow_the_definition() {
    let server = with(definition()).await;
    server.post(THINGS, thing("x", json!({"color": "red", "replicas": 3}))).await;
    server.post(THINGS, thing("y", json!({"color": "blue"}))).await;
    let table =
        server.send(Method::GET, THINGS, &[("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")], "").await.body;
    let names: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Name", "Color", "Phase"]);
    assert_eq!(table["rows"][0]["cells"], json!(["x", "red", null]));
    let scale = server.get(&format!("{THINGS}/x/scale")).await;
    assert_eq!((&scale.body["kind"], &scale.body["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
    let scaled = server.patch("merge-patch", &format!("{THINGS}/x/scale"), json!({"spec": {"replicas": 5}})).await;
    is(&scaled, StatusCode::OK);
    assert_eq!(server.get(&format!("{THINGS}/x")).await.body["spec"]["replicas"], 5);
    let red = server.get(&format!("{THINGS}?fieldSelector=spec.color%3Dblue")).await;
    assert_eq!(red.body["items"].as_array().unwrap().len(), 1);
    assert_eq!(red.body["items"][0]["metadata"]["name"], "y");
    let odd = server.get(&format!("{THINGS}?fieldSelector=spec.odd%3Dblue")).await;
    assert_eq!(odd.body["message"], "field label not supported: spec.odd");
    let groups = server.get("/apis").await.body;
    let group =
        groups["groups"].as_array().unwrap().iter().find(|group| group["name"] == "example.com").unwrap().clone();
    assert_eq!(group["preferredVersion"]["version"], "v1");
    assert_eq!(group["versions"].as_array().unwrap().len(), 2);
    let resources = server.get("/apis/example.com/v1").await.body;
    let names: Vec<&str> =
        resources["resources"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["things", "things/scale", "things/status"]);
    assert_eq!(resources["resources"][0]["shortNames"], json!(["th"]));
}

#[tokio::test]
async fn a_field_that_the_schema_lost_is_not_shown_any_more() {
    let mut sent = definition();
    let fields = "/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties";
    sent.pointer_mut(fields).unwrap()["replicas"] = json!({"type": "integer"});
    let server = with(sent.clone()).await;
    is(&server.post(THINGS, thing("x", json!({"color": "red", "replicas": 2}))).await, StatusCode::CREATED);
    sent.pointer_mut(fields).unwrap().as_object_mut().unwrap().remove("replicas");
    let path = format!("{DEFINITIONS}/things.example.com");
    sent["metadata"]["resourceVersion"] = server.get(&path).await.body["metadata"]["resourceVersion"].clone();
    is(&server.put(&path, sent).await, StatusCode::OK);
    for (path, item) in [(format!("{THINGS}/x"), ""), (THINGS.to_owned(), "/items/0")] {
        let shown = server.get(&path).await.body;
        assert_eq!(shown.pointer(&format!("{item}/spec")), Some(&json!({"color": "red"})), "{shown}");
    }
}

#[tokio::test]
async fn a_version_that_others_convert_is_refused_in_words() {
    let mut sent = definition();
    sent["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://example.com/convert"}}});
    let server = with(sent).await;
    is(&server.get(THINGS).await, StatusCode::OK);
    let beta = server.get("/apis/example.com/v1beta1/namespaces/a/things").await;
    is(&beta, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(beta.body["message"].as_str().unwrap().contains("does not call conversion webhooks"), "{}", beta.body);
}

#[tokio::test]
async fn values_and_rules_are_checked_in_upstreams_words() {
    let mut sent = definition();
    let schema = &mut sent["spec"]["versions"][1]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["x-kubernetes-validations"] = json!([
        {"rule": "self.color != 'blue' || self.replicas < 3", "message": "blue things are rare"},
        {"rule": "self.color == oldSelf.color", "message": "color is immutable"}]);
    let server = with(sent).await;
    let wrong = server.post(THINGS, thing("x", json!({"color": "pink", "replicas": -1}))).await;
    is(&wrong, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        wrong.body["message"],
        "Thing.example.com \"x\" is invalid: [spec.color: Unsupported value: \"pink\": supported values: \"red\", \"green\", \
         \"blue\", spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0, <nil>: Invalid \
         value: null: some validation rules were not checked because the object was invalid; correct the existing errors to \
         complete validation]"
    );
    let rare = server.post(THINGS, thing("x", json!({"color": "blue", "replicas": 3}))).await;
    is(&rare, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        rare.body["message"],
        "Thing.example.com \"x\" is invalid: spec: Invalid value: \"object\": blue things are rare"
    );
    is(&server.post(THINGS, thing("x", json!({"color": "blue", "replicas": 2}))).await, StatusCode::CREATED);
    let changed = server.patch("merge-patch", &format!("{THINGS}/x"), json!({"spec": {"color": "red"}})).await;
    is(&changed, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(changed.body["message"].as_str().unwrap().ends_with("color is immutable"), "{}", changed.body);
}

#[tokio::test]
async fn a_definition_that_is_not_structural_is_refused() {
    let server = Server::start().await;
    let mut sent = definition();
    sent["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["odd"] =
        json!({"description": "?"});
    let answer = server.post(DEFINITIONS, sent).await;
    is(&answer, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        answer.body["details"]["causes"][0]["field"],
        "spec.versions[1].schema.openAPIV3Schema.properties[spec].properties[odd].type"
    );
    let mut named = definition();
    named["metadata"]["name"] = json!("other.example.com");
    let answer = server.post(DEFINITIONS, named).await;
    assert_eq!(answer.body["details"]["causes"][0]["field"], "metadata.name");
}

#[tokio::test]
async fn a_rule_that_may_cost_too_much_is_refused_unless_it_was_there_before() {
    let costly = |mut object: Value| {
        let names = json!({"type": "array", "maxItems": 1000,
            "items": {"type": "array", "maxItems": 5000, "items": {"type": "string", "maxLength": 9}},
            "x-kubernetes-validations": [{"rule": "self.all(list, list.all(name, name != 'x'))"}]});
        object["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["names"] = names;
        object
    };
    let server = with(definition()).await;
    let mut other = costly(definition());
    other["metadata"]["name"] = json!("others.example.com");
    other["spec"]["names"] = json!({"plural": "others", "kind": "Other"});
    let refused = server.post(DEFINITIONS, other).await;
    is(&refused, StatusCode::UNPROCESSABLE_ENTITY);
    let cause = &refused.body["details"]["causes"][0];
    assert_eq!(cause["reason"], "FieldValueForbidden");
    assert_eq!(
        cause["field"],
        "spec.versions[1].schema.openAPIV3Schema.properties[spec].properties[names].x-kubernetes-validations[0].rule"
    );
    assert!(cause["message"].as_str().unwrap().contains("estimated rule cost exceeds budget by factor of"), "{cause}");
    // Stored by a release that knew no such limit.
    let (name, own) = ("things.example.com", WriteOptions::default());
    let stored = server
        .api
        .registry()
        .modify(&CUSTOMRESOURCEDEFINITIONS, "", name, Part::Whole, &own, |object| Ok(Some(costly(object))));
    stored.await.unwrap();
    let path = format!("{DEFINITIONS}/{name}");
    is(&server.patch("merge-patch", &path, json!({"metadata": {"labels": {"a": "b"}}})).await, StatusCode::OK);
    let shown = server.get(&path).await;
    let mut changed = shown.body["spec"].clone();
    changed["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"]["maxLength"] =
        json!(9);
    is(&server.patch("merge-patch", &path, json!({"spec": changed})).await, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn fields_are_applied_and_owned_by_the_schema() {
    let mut sent = definition();
    sent["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["ports"] = json!({"type": "array",
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}}});
    let server = with(sent).await;
    let apply = async |manager: &str, spec: Value| {
        let path = format!("{THINGS}/x?fieldManager={manager}");
        let body = thing("x", spec).to_string();
        server.send(Method::PATCH, &path, &[("content-type", "application/apply-patch+yaml")], &body).await
    };
    let one = apply("one", json!({"color": "red", "ports": [{"name": "a", "port": 1}]})).await;
    is(&one, StatusCode::CREATED);
    let two = apply("two", json!({"ports": [{"name": "b", "port": 2}]})).await;
    is(&two, StatusCode::OK);
    assert_eq!(two.body["spec"]["ports"], json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]));
    let conflict = apply("two", json!({"color": "blue"})).await;
    is(&conflict, StatusCode::CONFLICT);
    assert_eq!(conflict.body["message"], "Apply failed with 1 conflict: conflict with \"one\": .spec.color");
    let less = apply("one", json!({"color": "red"})).await;
    assert_eq!(less.body["spec"]["ports"], json!([{"name": "b", "port": 2}]));
    let odd = apply("one", json!({"color": "red", "odd": 1})).await;
    is(&odd, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(odd.body["message"].as_str().unwrap().ends_with(".spec.odd: field not declared in schema"), "{}", odd.body);
}

#[tokio::test]
async fn the_documents_have_the_kind() {
    let server = with(definition()).await;
    let v3 = server.get("/openapi/v3/apis/example.com/v1").await.body;
    let kind = &v3["components"]["schemas"]["com.example.v1.Thing"];
    assert_eq!(kind["properties"]["spec"]["properties"]["color"]["type"], "string");
    assert!(v3["components"]["schemas"]["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"].is_object());
    assert!(v3["paths"]["/apis/example.com/v1/namespaces/{namespace}/things/{name}"].is_object());
    let v2 = server.get("/openapi/v2").await.body;
    assert!(v2["definitions"]["com.example.v1.ThingList"].is_object());
    assert!(server.get("/openapi/v3").await.body["paths"]["apis/example.com/v1beta1"].is_object());
}

#[tokio::test]
async fn a_deprecated_version_says_so_with_each_answer() {
    let server = with(definition()).await;
    let request = Request::builder().uri("/apis/example.com/v1beta1/things").body(Body::empty()).unwrap();
    let response = server.raw(request).await;
    let warning = response.headers().get("warning").unwrap();
    assert_eq!(warning, "299 - \"example.com/v1beta1 Thing is deprecated\"");
    let request = Request::builder().uri(THINGS).body(Body::empty()).unwrap();
    assert!(server.raw(request).await.headers().get("warning").is_none());
}

#[tokio::test]
async fn a_watch_shows_each_version_in_its_words_and_ends_with_the_definition() {
    let server = with(definition()).await;
    let open = async |path: &str| {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        server.raw(request).await.into_body().into_data_stream()
    };
    let mut watch = open("/apis/example.com/v1beta1/namespaces/a/things?watch=1").await;
    server.post(THINGS, thing("x", json!({"color": "red", "replicas": 3}))).await;
    let frame: Value = serde_json::from_slice(&watch.next().await.unwrap().unwrap()).unwrap();
    assert_eq!((&frame["type"], &frame["object"]["apiVersion"]), (&json!("ADDED"), &json!("example.com/v1beta1")));
    assert_eq!(frame["object"]["spec"], json!({"color": "red"}));
    let path = format!("{DEFINITIONS}/things.example.com");
    let noted = server.patch("merge-patch", &path, json!({"metadata": {"labels": {"a": "b"}}})).await;
    is(&noted, StatusCode::OK);
    server.api.registry().kinds().refresh();
    server.patch("merge-patch", &format!("{THINGS}/x"), json!({"spec": {"color": "blue"}})).await;
    assert!(watch.next().await.is_some(), "a label of the definition ends no watch");
    let changed = server.patch("merge-patch", &path, json!({"spec": {"names": {"shortNames": ["t"]}}})).await;
    is(&changed, StatusCode::OK);
    server.api.registry().kinds().refresh();
    assert!(watch.next().await.is_none());
}

/// Readers of JSON end at 128 levels: an object that is taken must be read back from a list and a watch's frame.
#[tokio::test]
async fn what_is_too_deep_to_be_listed_is_refused_however_it_comes() {
    let server = with(definition()).await;
    let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
    let free = |levels: usize| json!({"color": "red", "free": deep(levels)});
    is(&server.post(THINGS, thing("x", free(110))).await, StatusCode::BAD_REQUEST);
    is(&server.post(THINGS, thing("x", free(98))).await, StatusCode::CREATED);
    let path = format!("{THINGS}/x");
    is(&server.patch("merge-patch", &path, json!({"spec": free(110)})).await, StatusCode::BAD_REQUEST);
    let apply = async |levels: usize| {
        let headers = [("content-type", "application/apply-patch+yaml")];
        let body = thing("x", free(levels)).to_string();
        server.send(Method::PATCH, &format!("{path}?fieldManager=m&force=true"), &headers, &body).await
    };
    is(&apply(110).await, StatusCode::BAD_REQUEST);
    is(&apply(98).await, StatusCode::OK);
    let list = server.get(THINGS).await;
    assert_eq!(list.body["items"].as_array().map(Vec::len), Some(1), "it reads back");
    let books = &list.body["items"][0]["metadata"]["managedFields"];
    assert!(longshore_api::managed::Managed::read(books).is_some(), "with its owners");
}
