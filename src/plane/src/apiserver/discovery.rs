//! Discovery: what is served, in the old documents and in the aggregated one.

use axum::body::Body;
use http::{HeaderValue, Response, header};
use serde_json::{Value, json};

use super::hooks::Issuer;
use super::registry::Registry;
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

/// How tokens of service accounts are checked by those who don't ask the apiserver (OpenID Connect Discovery 1.0).
pub(crate) fn openid(issuer: &Issuer, advertised: &str) -> Value {
    json!({
        "issuer": issuer.name,
        "jwks_uri": format!("https://{advertised}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [issuer.algorithm],
    })
}

/// Lets clients keep an answer for an hour.
pub(crate) fn kept(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}

fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("linux/{arch}")
}

/// What is served: the rows that are compiled in and those of custom kinds.
#[derive(Debug)]
pub(crate) struct Catalogue {
    custom: Vec<&'static Resource>,
}

impl Catalogue {
    /// Returns what is served now.
    pub(crate) fn of(registry: &Registry) -> Self {
        Self { custom: registry.kinds().served() }
    }

    /// Returns the groups besides the core that have something to show, in the order shown, each with its versions, the
    /// preferred one first.
    pub(super) fn groups(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let used = |group: &&str| {
            REVIEWS.iter().any(|review| review.group == *group) || ALL.iter().any(|row| row.group == *group)
        };
        let mut groups: Vec<(&str, Vec<&str>)> =
            GROUPS.iter().copied().filter(used).map(|group| (group, vec!["v1"])).collect();
        for row in &self.custom {
            match groups.iter_mut().find(|(group, _)| *group == row.group) {
                Some((_, versions)) if versions.contains(&row.version) => {}
                Some((_, versions)) => versions.push(row.version),
                None => groups.push((row.group, vec![row.version])),
            }
        }
        groups
    }

    /// Returns the rows of a version of a group.
    pub(super) fn rows(&self, group: &str, version: &str) -> Vec<&'static Resource> {
        let all = ALL.iter().copied().chain(self.custom.iter().copied());
        all.filter(|row| row.group == group && row.version == version).collect()
    }

    /// Returns all rows.
    pub(super) fn all(&self) -> impl Iterator<Item = &'static Resource> {
        ALL.iter().copied().chain(self.custom.iter().copied())
    }

    /// Whether a version of a group has something to show.
    pub(super) fn has(&self, group: &str, version: &str) -> bool {
        if group.is_empty() {
            return version == "v1";
        }
        self.groups().iter().any(|(own, versions)| *own == group && versions.contains(&version))
    }

    /// `/apis`.
    pub(crate) fn group_list(&self) -> Value {
        let groups: Vec<Value> = self.groups().iter().map(|(name, versions)| group(name, versions)).collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    /// `/apis/GROUP`.
    pub(crate) fn one_group(&self, name: &str) -> Option<Value> {
        self.groups().iter().find(|(own, _)| *own == name).map(|(_, versions)| {
            let mut group = group(name, versions);
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            group
        })
    }

    /// `/api/v1` and `/apis/GROUP/VERSION`.
    pub(crate) fn resources(&self, group: &str, version: &str) -> Option<Value> {
        self.has(group, version).then(|| resources(&self.rows(group, version), group, version))
    }

    /// The aggregated document of `/api` (core) or `/apis` (all others).
    pub(crate) fn aggregated(&self, core: bool) -> Value {
        let groups = if core { vec![("", vec!["v1"])] } else { self.groups() };
        let items: Vec<Value> = groups
            .into_iter()
            .map(|(group, versions)| {
                let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
                let versions: Vec<Value> = versions
                    .iter()
                    .map(|version| {
                        let resources = aggregated_resources(&self.rows(group, version), group, version);
                        json!({"version": version, "resources": resources, "freshness": "Current"})
                    })
                    .collect();
                json!({"metadata": metadata, "versions": versions})
            })
            .collect();
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
    }
}

/// `/api`.
pub(crate) fn core_versions(server: &str) -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}]})
}

fn group(name: &str, versions: &[&str]) -> Value {
    let version = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

fn reviews(group: &str, version: &str) -> impl Iterator<Item = &'static super::resources::Review> {
    REVIEWS.iter().filter(move |review| version == "v1" && review.group == group)
}

fn resources(rows: &[&'static Resource], group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    for row in rows {
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
    for review in reviews(group, version) {
        list.push(json!({"name": review.plural, "singularName": review.singular, "namespaced": review.namespaced,
            "kind": review.kind, "verbs": ["create"]}));
    }
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": list})
}

fn subresources(row: &Resource) -> Vec<Subresource> {
    let mut subs = row.subresources.to_vec();
    subs.extend(row.subresource("status").filter(|_| row.has_status));
    subs.sort_by_key(|sub| sub.name);
    subs
}

fn aggregated_resources(rows: &[&'static Resource], group: &str, version: &str) -> Vec<Value> {
    let scope = |namespaced: bool| if namespaced { "Namespaced" } else { "Cluster" };
    let response = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut list = Vec::new();
    for row in rows {
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
    for review in reviews(group, version) {
        list.push(json!({"resource": review.plural, "responseKind": response("", "", review.kind),
            "scope": scope(review.namespaced), "singularResource": review.singular, "verbs": ["create"]}));
    }
    list
}
