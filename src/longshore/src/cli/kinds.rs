//! From what people write (`po`, `pods`, `Pod`) to what the apiserver serves, by its own discovery.

use anyhow::{Context as _, Result};
use kube::core::DynamicObject;
use kube::discovery::{ApiCapabilities, ApiResource, Discovery, Scope};
use kube::{Api, Client};
use longshore_transport::client::Typed;
use serde_json::Value;

use super::client::explain;
use crate::app::fail::Hint;

/// The short names people know by heart.
const SHORT: [(&str, &str); 7] = [
    ("po", "pods"),
    ("no", "nodes"),
    ("ns", "namespaces"),
    ("cm", "configmaps"),
    ("svc", "services"),
    ("sa", "serviceaccounts"),
    ("ev", "events"),
];

/// An object of any kind.
pub(crate) type Object = Typed<DynamicObject>;

/// All kinds the apiserver serves.
#[derive(Debug)]
pub(crate) struct Kinds {
    found: Vec<(ApiResource, ApiCapabilities)>,
}

/// One kind.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
}

impl Kinds {
    /// Asks the apiserver.
    pub(crate) async fn discover(client: &Client) -> Result<Self> {
        let discovery =
            Discovery::new(client.clone()).run().await.map_err(explain).context("ask for the API's kinds")?;
        let found = discovery.groups().flat_map(kube::discovery::ApiGroup::recommended_resources).collect();
        Ok(Self { found })
    }

    /// Finds a kind by what a person wrote: plural, singular, short name, `name.group`.
    pub(crate) fn named(&self, word: &str) -> Result<Kind> {
        let lower = word.to_lowercase();
        let wanted = SHORT.iter().find(|(short, _)| *short == lower).map_or(lower.as_str(), |(_, plural)| plural);
        let matches = |resource: &ApiResource| {
            let full = format!("{}.{}", resource.plural, resource.group);
            resource.plural == wanted || resource.kind.to_lowercase() == wanted || full == wanted
        };
        let found = self.found.iter().find(|(resource, _)| matches(resource));
        found.map(kind).ok_or_else(|| {
            let mut names: Vec<&str> = self.found.iter().map(|(resource, _)| resource.plural.as_str()).collect();
            names.sort_unstable();
            Hint::error(format!("the apiserver has no kind {word:?}"), format!("it has {}", names.join(", ")))
        })
    }

    /// Finds the kind of a manifest.
    pub(crate) fn of(&self, object: &Value) -> Result<Kind> {
        let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (version, name) = (text("apiVersion"), text("kind"));
        anyhow::ensure!(!version.is_empty() && !name.is_empty(), "a manifest needs apiVersion and kind");
        let found = self.found.iter().find(|(resource, _)| resource.api_version == version && resource.kind == name);
        found.map(kind).with_context(|| format!("the apiserver has no kind {name} in {version}"))
    }
}

fn kind((resource, capabilities): &(ApiResource, ApiCapabilities)) -> Kind {
    Kind { resource: resource.clone(), namespaced: capabilities.scope == Scope::Namespaced }
}

impl Kind {
    /// The API of this kind in a namespace (ignored for kinds without namespaces).
    pub(crate) fn api(&self, client: &Client, namespace: &str) -> Api<Object> {
        if self.namespaced {
            Api::namespaced_with(client.clone(), namespace, &self.resource)
        } else {
            Api::all_with(client.clone(), &self.resource)
        }
    }

    /// The API of this kind in all namespaces.
    pub(crate) fn everywhere(&self, client: &Client) -> Api<Object> {
        Api::all_with(client.clone(), &self.resource)
    }

    /// `pod/web`, as kubectl writes it.
    pub(crate) fn title(&self, name: &str) -> String {
        let kind = self.resource.kind.to_lowercase();
        if self.resource.group.is_empty() {
            format!("{kind}/{name}")
        } else {
            format!("{kind}.{}/{name}", self.resource.group)
        }
    }
}
