//! The OpenAPI documents: what can be asked of which path, and what objects look like. They are made when asked for and
//! not kept: clients do.

mod wire;

use longshore_api::custom::publish::{self, Dialect};
use longshore_api::schema::openapi::definitions;
use longshore_api::schema::{TypeId, schema};
use serde_json::{Map, Value, json};

use super::discovery::Catalogue;
use super::resources::{REVIEWS, Resource};

pub(crate) use wire::{ASKED as PROTOBUF, MARKED as PROTOBUF_ANSWER, encode as to_protobuf};

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

/// Returns the name under which a document has a kind.
fn public_name(row: &Resource) -> Option<String> {
    if row.custom.is_some() {
        return Some(publish::name(row.group, row.version, row.kind));
    }
    schema().kind(&row.api_version(), row.kind).map(|id| schema().public_name(id))
}

/// Adds the schemas of custom kinds and of their lists.
fn add_custom(
    rows: impl Iterator<Item = &'static Resource>,
    dialect: Dialect,
    prefix: &str,
    all: &mut Map<String, Value>,
) {
    for row in rows {
        let Some(served) = row.custom.and_then(|custom| custom.served()) else { continue };
        let name = publish::name(row.group, row.version, row.kind);
        let list = row.list_kind();
        let shown = publish::kind(&served.schema_text(), (row.group, row.version, row.kind), dialect, prefix);
        let list_shown = publish::list(&name, (row.group, row.version, &list), prefix);
        all.insert(publish::name(row.group, row.version, &list), list_shown);
        all.insert(name, shown);
    }
}

/// The metadata of objects and lists, which every document may refer to.
fn metadata_types() -> impl Iterator<Item = TypeId> {
    ["ObjectMeta", "ListMeta"].into_iter().filter_map(|name| schema().named("meta/v1", name))
}

/// `/openapi/v3`: the documents there are.
pub(crate) fn index(catalogue: &Catalogue) -> Value {
    let mut paths = Map::new();
    let core = std::iter::once(String::from("api/v1"));
    let groups = catalogue.groups();
    let groups = groups
        .iter()
        .flat_map(|(group, versions)| versions.iter().map(move |version| format!("apis/{group}/{version}")));
    for path in core.chain(groups) {
        let url = format!("/openapi/v3/{path}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// One document of `/openapi/v3`.
pub(crate) fn v3(catalogue: &Catalogue, group: &str, version: &str) -> Option<Value> {
    if !catalogue.has(group, version) {
        return None;
    }
    let query = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let reference = |row: &Resource| Some(json!({"$ref": format!("#/components/schemas/{}", public_name(row)?)}));
    let mut paths = Map::new();
    let mut roots = Vec::new();
    for row in catalogue.rows(group, version) {
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
    for review in REVIEWS.iter().filter(|review| version == "v1" && review.group == group) {
        let Some(id) = schema().kind(&format!("{group}/v1"), review.kind) else { continue };
        let namespace = if review.namespaced { "/namespaces/{namespace}" } else { "" };
        let answer = json!({"$ref": format!("#/components/schemas/{}", schema().public_name(id))});
        let post = json!({
            "operationId": format!("create{}", review.kind),
            "responses": {"201": {"description": "Created", "content": {"application/json": {"schema": answer}}}},
            "x-kubernetes-action": "post",
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": review.kind},
        });
        paths.insert(format!("/apis/{group}/{version}{namespace}/{}", review.plural), json!({"post": post}));
        roots.push(id);
    }
    let custom: Vec<&'static Resource> =
        catalogue.rows(group, version).into_iter().filter(|row| row.custom.is_some()).collect();
    if !custom.is_empty() {
        roots.extend(metadata_types());
    }
    let mut schemas = definitions(schema(), roots, "#/components/schemas/");
    add_custom(custom.into_iter(), Dialect::V3, "#/components/schemas/", &mut schemas);
    Some(json!({"openapi": "3.0.0", "info": info(), "paths": paths, "components": {"schemas": schemas}}))
}

/// `/openapi/v2`: everything in one document.
pub(crate) fn v2(catalogue: &Catalogue) -> Value {
    let mut paths = Map::new();
    for row in catalogue.all() {
        let answer = public_name(row)
            .map_or_else(|| json!({"type": "object"}), |name| json!({"$ref": format!("#/definitions/{name}")}));
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
    let roots: Vec<TypeId> = catalogue.all().flat_map(types).chain(reviews).collect();
    let mut definitions = definitions(schema(), roots, "#/definitions/");
    add_custom(catalogue.all().filter(|row| row.custom.is_some()), Dialect::V2, "#/definitions/", &mut definitions);
    json!({"swagger": "2.0", "info": info(), "paths": paths, "definitions": definitions})
}
