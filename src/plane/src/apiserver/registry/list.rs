//! Listing: selectors, pages, older versions.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longshore_api::selector::{FieldSelector, LabelSelector, Outline, known_fields};
use memchr::memmem::Finder;
use serde_json::{Value, json};

use super::Registry;
use crate::apiserver::error::ApiError;
use crate::apiserver::object::{Object, parse};
use crate::apiserver::resources::{Resource, built_in};
use crate::store::{ListRequest, Revision, StoreError};

/// Which objects are wanted.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// By labels.
    pub labels: Option<LabelSelector>,
    /// By fields.
    pub fields: Option<FieldSelector>,
    /// What both look at; the whole object without. All selections of a kind have the same.
    outline: Option<&'static Outline>,
    /// Texts of which each stands in what is selected.
    needles: Vec<Finder<'static>>,
}

impl Selection {
    /// Reads both selectors as a query gives them.
    pub fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, ApiError> {
        let bad = |error: longshore_api::selector::SelectorError| ApiError::bad_request(error.to_string());
        let labels = LabelSelector::parse(labels).map_err(bad)?;
        let fields = FieldSelector::parse(fields).map_err(bad)?;
        match resource.custom.and_then(|custom| custom.served()) {
            Some(served) => fields.check_known(&served.version().selectable).map_err(bad)?,
            None => fields.check(&resource.full_name()).map_err(bad)?,
        }
        if labels.is_everything() && fields.is_everything() {
            return Ok(Self::default());
        }
        let needles = labels.needles().chain(fields.needles()).filter(|text| is_plain(text));
        Ok(Self {
            needles: needles.map(|text| Finder::new(text).into_owned()).collect(),
            // Which fields of a custom kind select can change while it is watched.
            outline: resource.custom.is_none().then(|| outline(resource)),
            labels: Some(labels).filter(|selector| !selector.is_everything()),
            fields: Some(fields).filter(|selector| !selector.is_everything()),
        })
    }

    /// Whether nothing is filtered.
    pub fn is_everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_none()
    }

    /// Whether an object is wanted.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.as_ref().is_none_or(|labels| labels.matches_object(object))
            && self.fields.as_ref().is_none_or(|fields| fields.matches(object))
    }

    /// Whether stored bytes are wanted; damaged ones are.
    pub fn matches_bytes(&self, bytes: &[u8]) -> bool {
        self.is_everything() || (self.may_match(bytes) && self.read(bytes).is_none_or(|object| self.matches(&object)))
    }

    /// Whether stored bytes can be wanted: a look at the text that is much cheaper than reading it.
    pub(crate) fn may_match(&self, bytes: &[u8]) -> bool {
        // Where letters are written as numbers, a text can stand there and not be found.
        self.needles.iter().all(|needle| needle.find(bytes).is_some()) || memchr::memmem::find(bytes, b"\\u").is_some()
    }

    /// Reads what a selection looks at; none if it is damaged.
    pub(crate) fn read(&self, bytes: &[u8]) -> Option<Value> {
        match self.outline {
            Some(outline) => outline.read(bytes).ok(),
            None => parse(bytes).ok(),
        }
    }

    /// Returns the one node whose pods can match, if the fields say so.
    pub(crate) fn only_node(&self) -> Option<&str> {
        self.fields.as_ref()?.exact("spec.nodeName").filter(|node| !node.is_empty())
    }

    /// Returns the one name that can match, if the fields say so.
    pub fn only_name(&self) -> Option<&str> {
        self.fields.as_ref()?.exact("metadata.name")
    }

    /// Returns the one namespace that can match, if the fields say so.
    pub fn only_namespace(&self) -> Option<&str> {
        self.fields.as_ref()?.exact("metadata.namespace")
    }
}

/// Returns what selectors of a built-in kind look at: one for all, a thousand watchers hold on to it.
fn outline(resource: &Resource) -> &'static Outline {
    static ALL: LazyLock<HashMap<String, Outline>> = LazyLock::new(|| {
        let names = built_in().map(Resource::full_name).filter(|name| !known_fields(name).is_empty());
        names.map(|name| (name.clone(), Outline::selectable(known_fields(&name).iter().copied()))).collect()
    });
    static OTHERS: LazyLock<Outline> = LazyLock::new(|| Outline::selectable([]));
    let stored = resource.stored_as.unwrap_or(resource);
    ALL.get(&stored.full_name()).unwrap_or(&OTHERS)
}

/// Whether a text stands in JSON as it is, unless its letters are written as numbers.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
}

/// How to list.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Which objects.
    pub selection: Selection,
    /// At most this many.
    pub limit: Option<usize>,
    /// Where an earlier page ended.
    pub page: String,
    /// As of exactly this revision.
    pub at: Option<Revision>,
    /// Not before this revision.
    pub not_before: Option<Revision>,
}

/// A list's answer.
#[derive(Debug, Clone, Default)]
pub struct ObjectList {
    /// In key order.
    pub items: Vec<Object>,
    /// The moment shown.
    pub revision: Revision,
    /// How to go on; empty at the end.
    pub page: String,
    /// How many follow, where that is known.
    pub remaining: Option<usize>,
}

/// Entries read at once while filtering pages.
const CHUNK: usize = 500;

impl Registry {
    /// Lists a kind, in one namespace or all.
    pub fn list(&self, resource: &Resource, namespace: &str, options: &ListOptions) -> Result<ObjectList, ApiError> {
        let current = self.store.revision();
        if let Some(wanted) = options.not_before.filter(|wanted| *wanted > current) {
            return Err(ApiError::future_version(wanted.0, current.0));
        }
        let namespace = match options.selection.only_namespace() {
            Some(only) if namespace.is_empty() && resource.namespaced => only,
            _ => namespace,
        };
        let prefix = resource.prefix(namespace);
        let (mut at, mut after) = (options.at, None);
        if !options.page.is_empty() {
            let (revision, key) = read_page(&options.page)?;
            if !key.starts_with(&prefix) {
                return Err(ApiError::bad_request("continue key is not valid: it does not belong to this list"));
            }
            at = Some(revision);
            after = Some(key);
        }
        if let (Some(name), None, None) = (options.selection.only_name(), at, options.limit)
            && (!resource.namespaced || !namespace.is_empty())
        {
            // One known key: no need to walk a big namespace, and agents ask this for each ConfigMap they use.
            let entry = self.store.get(&resource.key(namespace, name));
            let items =
                entry.into_iter().map(Object::from).filter(|item| options.selection.matches_bytes(&item.bytes()));
            return Ok(ObjectList { items: items.collect(), revision: current, ..ObjectList::default() });
        }
        let continued = after.is_some();
        let limit = options.limit.filter(|limit| *limit > 0);
        self.walk(&prefix, at, after, limit, &options.selection).map_err(|error| match error {
            StoreError::Compacted { .. } if continued => ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You must start a \
                 new list without the continue parameter.",
            ),
            other => ApiError::from_store(&other, resource, ""),
        })
    }

    fn walk(
        &self,
        prefix: &str,
        at: Option<Revision>,
        mut after: Option<String>,
        limit: Option<usize>,
        selection: &Selection,
    ) -> Result<ObjectList, StoreError> {
        let mut list = ObjectList::default();
        let mut at = at;
        loop {
            let chunk = match limit {
                Some(limit) if selection.is_everything() => Some(limit),
                Some(_) => Some(CHUNK),
                None => None,
            };
            let listing = self.store.list(&ListRequest { prefix, after: after.as_deref(), at, limit: chunk })?;
            list.revision = listing.revision;
            at = Some(listing.revision);
            let mut last = None;
            let count = listing.entries.len();
            for (index, entry) in listing.entries.into_iter().enumerate() {
                if limit.is_some_and(|limit| list.items.len() >= limit) {
                    break;
                }
                if limit.is_some() {
                    last = Some((entry.key.to_string(), index + 1 == count));
                }
                if selection.is_everything() || selection.matches_bytes(&entry.value.bytes()) {
                    list.items.push(entry.into());
                }
            }
            let Some((key, whole)) = last else { return Ok(list) };
            let more = !whole || listing.remaining > 0;
            if !more {
                return Ok(list);
            }
            if limit.is_some_and(|limit| list.items.len() >= limit) {
                list.page = write_page(listing.revision, &key);
                list.remaining = selection.is_everything().then_some(listing.remaining);
                return Ok(list);
            }
            after = Some(key);
        }
    }
}

fn write_page(revision: Revision, key: &str) -> String {
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": revision.0, "start": key}).to_string())
}

fn read_page(page: &str) -> Result<(Revision, String), ApiError> {
    let read = || {
        let page: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(page).ok()?).ok()?;
        Some((Revision(page.get("rv")?.as_u64()?), page.get("start")?.as_str()?.to_owned()))
    };
    read().ok_or_else(|| ApiError::bad_request("continue key is not valid: it was not made by this server"))
}
