//! Discovery: what is served, in the old documents and in the aggregated one.

use serde_json::{Value, json};

use super::resources::{ALL, GROUPS, REVIEWS, Resource, Subresource};

/// The version that clients are told: the release whose behaviour is kept.
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": concat!("v1.36.2+longshore-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc", "platform": platform(),
    })
}

fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("linux/{arch}")
}

/// Groups besides the core that have something to show, in the order shown.
pub(super) fn groups() -> Vec<&'static str> {
    let used =
        |group: &&str| REVIEWS.iter().any(|review| review.group == *group) || ALL.iter().any(|row| row.group == *group);
    GROUPS.iter().copied().filter(used).collect()
}

/// `/api`.
pub(crate) fn core_versions(server: &str) -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}]})
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

/// `/apis`.
pub(crate) fn group_list() -> Value {
    let groups: Vec<Value> = groups().into_iter().map(group).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
pub(crate) fn one_group(name: &str) -> Option<Value> {
    groups().contains(&name).then(|| {
        let mut group = group(name);
        group["kind"] = json!("APIGroup");
        group["apiVersion"] = json!("v1");
        group
    })
}

/// `/api/v1` and `/apis/GROUP/v1`.
pub(crate) fn resources(group: &str, version: &str) -> Option<Value> {
    if version != "v1" || (!group.is_empty() && !groups().contains(&group)) {
        return None;
    }
    let mut list = Vec::new();
    for row in ALL.iter().filter(|row| row.group == group) {
        let mut entry = json!({"name": row.plural, "singularName": row.singular, "namespaced": row.namespaced,
            "kind": row.kind, "verbs": row.verbs(), "storageVersionHash": ""});
        if !row.short_names.is_empty() {
            entry["shortNames"] = json!(row.short_names);
        }
        if !row.categories.is_empty() {
            entry["categories"] = json!(row.categories);
        }
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("storageVersionHash");
        }
        list.push(entry);
        for sub in subresources(row) {
            let mut entry = json!({"name": format!("{}/{}", row.plural, sub.name), "singularName": "",
                "namespaced": row.namespaced, "kind": sub.kind, "verbs": sub.verbs});
            if sub.group != row.group {
                entry["group"] = json!(sub.group);
                entry["version"] = json!(sub.version);
            }
            list.push(entry);
        }
    }
    for review in REVIEWS.iter().filter(|review| review.group == group) {
        list.push(json!({"name": review.plural, "singularName": review.singular, "namespaced": review.namespaced,
            "kind": review.kind, "verbs": ["create"]}));
    }
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": list}))
}

fn subresources(row: &Resource) -> Vec<Subresource> {
    let mut subs = row.subresources.to_vec();
    subs.extend(row.subresource("status").filter(|_| row.has_status));
    subs.sort_by_key(|sub| sub.name);
    subs
}

/// The aggregated document of `/api` (core) or `/apis` (all others).
pub(crate) fn aggregated(core: bool) -> Value {
    let groups = if core { vec![""] } else { groups() };
    let items: Vec<Value> = groups
        .into_iter()
        .map(|group| {
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": [
                {"version": "v1", "resources": aggregated_resources(group), "freshness": "Current"}]})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_resources(group: &str) -> Vec<Value> {
    let scope = |namespaced: bool| if namespaced { "Namespaced" } else { "Cluster" };
    let response = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut list = Vec::new();
    for row in ALL.iter().filter(|row| row.group == group) {
        // Stock writes empty group and version where they are the document's own.
        let mut entry = json!({"resource": row.plural, "responseKind": response("", "", row.kind),
            "scope": scope(row.namespaced), "singularResource": row.singular, "verbs": row.verbs()});
        if !row.short_names.is_empty() {
            entry["shortNames"] = json!(row.short_names);
        }
        if !row.categories.is_empty() {
            entry["categories"] = json!(row.categories);
        }
        let subs: Vec<Value> = subresources(row)
            .iter()
            .map(|sub| {
                let own = sub.group == row.group;
                let (group, version) = if own { ("", "") } else { (sub.group, sub.version) };
                json!({"subresource": sub.name, "responseKind": response(group, version, sub.kind), "verbs": sub.verbs})
            })
            .collect();
        if !subs.is_empty() {
            entry["subresources"] = json!(subs);
        }
        list.push(entry);
    }
    for review in REVIEWS.iter().filter(|review| review.group == group) {
        list.push(json!({"resource": review.plural, "responseKind": response("", "", review.kind),
            "scope": scope(review.namespaced), "singularResource": review.singular, "verbs": ["create"]}));
    }
    list
}
