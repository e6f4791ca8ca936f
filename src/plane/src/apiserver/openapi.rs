//! The OpenAPI documents: what can be asked of which path, and what objects look like. They are made when asked for and
//! not kept: clients do.

use longshore_api::schema::openapi::definitions;
use longshore_api::schema::{TypeId, schema};
use serde_json::{Map, Value, json};

use super::discovery::groups;
use super::resources::{ALL, REVIEWS, Resource};

/// What the documents call themselves.
fn info() -> Value {
    json!({"title": "Kubernetes", "version": "v1.36.2"})
}

/// Where a kind is asked for: below the group, with the object's name.
fn path(row: &Resource) -> String {
    let base = if row.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/{}", row.group, row.version) };
    let namespace = if row.namespaced { "/namespaces/{namespace}" } else { "" };
    format!("{base}{namespace}/{}/{{name}}", row.plural)
}

fn group_version_kind(row: &Resource) -> Value {
    json!({"group": row.group, "version": row.version, "kind": row.kind})
}

/// The types that a kind needs: itself and its list.
fn types(row: &Resource) -> Vec<TypeId> {
    let version = row.api_version();
    let list = format!("{}List", row.kind);
    [row.kind, list.as_str()].into_iter().filter_map(|kind| schema().kind(&version, kind)).collect()
}

/// `/openapi/v3`: the documents there are.
pub(crate) fn index() -> Value {
    let mut paths = Map::new();
    let core = std::iter::once(String::from("api/v1"));
    for path in core.chain(groups().into_iter().map(|group| format!("apis/{group}/v1"))) {
        let url = format!("/openapi/v3/{path}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// One document of `/openapi/v3`.
pub(crate) fn v3(group: &str, version: &str) -> Option<Value> {
    if version != "v1" || (!group.is_empty() && !groups().contains(&group)) {
        return None;
    }
    let query = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let reference = |row: &Resource| {
        let id = schema().kind(&row.api_version(), row.kind)?;
        Some(json!({"$ref": format!("#/components/schemas/{}", schema().public_name(id))}))
    };
    let mut paths = Map::new();
    let mut roots = Vec::new();
    for row in ALL.iter().copied().filter(|row| row.group == group) {
        let answer = reference(row).unwrap_or_else(|| json!({"type": "object"}));
        let answers = json!({"200": {"description": "OK", "content": {"application/json": {"schema": answer}}}});
        let get = json!({
            "operationId": format!("read{}", row.kind),
            "responses": answers,
            "x-kubernetes-action": "get",
            "x-kubernetes-group-version-kind": group_version_kind(row),
        });
        let patch = json!({
            "operationId": format!("patch{}", row.kind),
            "parameters": [query("dryRun"), query("fieldManager"), query("fieldValidation"), query("force")],
            // Without the strategic patch here kubectl makes such patches from the types that it has built in.
            "requestBody": {"content": {"application/merge-patch+json": {"schema": {"type": "object"}},
                "application/apply-patch+yaml": {"schema": {"type": "object"}}}},
            "responses": answers,
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": group_version_kind(row),
        });
        paths.insert(path(row), json!({"get": get, "patch": patch}));
        roots.extend(types(row));
    }
    let reviews = REVIEWS.iter().filter(|review| review.group == group);
    roots.extend(reviews.filter_map(|review| schema().kind(&format!("{}/v1", review.group), review.kind)));
    let schemas = definitions(schema(), roots, "#/components/schemas/");
    Some(json!({"openapi": "3.0.0", "info": info(), "paths": paths, "components": {"schemas": schemas}}))
}

/// `/openapi/v2`: everything in one document.
pub(crate) fn v2() -> Value {
    let mut paths = Map::new();
    for row in ALL.iter().copied() {
        let reference = schema().kind(&row.api_version(), row.kind);
        let answer = reference.map_or_else(
            || json!({"type": "object"}),
            |id| json!({"$ref": format!("#/definitions/{}", schema().public_name(id))}),
        );
        let parameter = |name: &str| json!({"name": name, "in": "query", "type": "string", "uniqueItems": true});
        let operation = |verb: &str, action: &str| {
            json!({
                "operationId": format!("{verb}{}", row.kind),
                "consumes": ["application/json", "application/merge-patch+json", "application/apply-patch+yaml"],
                "produces": ["application/json", "application/yaml"],
                "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
                "responses": {"200": {"description": "OK", "schema": answer}},
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": group_version_kind(row),
            })
        };
        paths.insert(path(row), json!({"get": operation("read", "get"), "patch": operation("patch", "patch")}));
    }
    let reviews = REVIEWS.iter().filter_map(|review| schema().kind(&format!("{}/v1", review.group), review.kind));
    let roots: Vec<TypeId> = ALL.iter().flat_map(|row| types(row)).chain(reviews).collect();
    let definitions = definitions(schema(), roots, "#/definitions/");
    json!({"swagger": "2.0", "info": info(), "paths": paths, "definitions": definitions})
}
