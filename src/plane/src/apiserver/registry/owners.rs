//! Who owns which field: kept by every write, for server-side apply.

use longshore_api::managed::{self, Managed, Root, Write};
use longshore_api::schema::schema;
use serde_json::{Value, json};

use super::{Part, WriteOptions};
use crate::apiserver::known::Known;
use crate::apiserver::object::{copy, metadata, text};
use crate::apiserver::resources::Resource;

/// What stands in `metadata.managedFields` to drop all owners.
fn is_reset(fields: &Value) -> bool {
    fields
        .as_array()
        .is_some_and(|all| matches!(all.as_slice(), [one] if one.as_object().is_some_and(|map| map.is_empty())))
}

impl Part {
    /// The subresource by which such a part is written.
    pub(super) fn subresource(self) -> &'static str {
        match self {
            Self::Main | Self::Whole => "",
            Self::Status => "status",
            Self::Finalize => "finalize",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Resize => "resize",
            Self::Approval => "approval",
        }
    }

    /// Fields at the top that a write of such a part does not touch.
    pub(super) fn untouched(self, resource: &Resource) -> &'static [&'static str] {
        match self {
            Self::Main if resource.has_status => &["status"],
            Self::Status => &["spec"],
            Self::Main | Self::Whole | Self::Finalize | Self::EphemeralContainers | Self::Resize | Self::Approval => {
                &[]
            }
        }
    }
}

/// Enters a write into the books: `old` is what was there, `object` what is written and gets the owners.
pub(super) fn enter(
    resource: &Resource,
    part: Part,
    old: Option<&Value>,
    object: &mut Value,
    options: &WriteOptions,
    now: &str,
) {
    if options.owners_given {
        return;
    }
    let sent = metadata(object).remove("managedFields").unwrap_or_default();
    let kept = old.and_then(|old| old.pointer("/metadata/managedFields"));
    let (Some(known), Some(manager)) =
        (Known::of(resource), options.manager.as_deref().filter(|_| part != Part::Whole))
    else {
        copy(metadata(object), old.and_then(|old| old.get("metadata")), "managedFields");
        return;
    };
    if is_reset(&sent) && part == Part::Main {
        return;
    }
    let api_version = resource.api_version();
    let (subresource, untouched) = (part.subresource(), part.untouched(resource));
    let write = Write { manager, api_version: &api_version, subresource, now, untouched };
    if let (Some(old), Some(kept)) = (old, kept)
        && *kept == sent
        && kept.as_array().is_some_and(|kept| !kept.is_empty())
    {
        // As most are: the writer says nothing of owners, or what there is already.
        if let Some(fields) = managed::update_fields(schema(), known.root(), &write, old, object, sent) {
            put_fields(object, fields);
        }
        return;
    }
    let sent = Managed::read(&sent).filter(|sent| part == Part::Main && !sent.is_empty());
    let managed = sent.or_else(|| kept.and_then(Managed::read)).unwrap_or_default();
    if managed.is_empty() && old.is_some() {
        // Objects from before the books were kept have none until something is applied.
        return;
    }
    let empty = json!({});
    let managed = managed::update(schema(), known.root(), &write, old.unwrap_or(&empty), object, managed);
    put(object, &managed);
}

/// Says who owns what of an object that is answered and not stored.
pub(crate) fn of_review(answer: &mut Value, sent: &Value, subresource: &str, options: &WriteOptions, now: &str) {
    let (api_version, kind) = (text(answer, "/apiVersion").to_owned(), text(answer, "/kind").to_owned());
    let (Some(id), Some(manager)) = (schema().kind(&api_version, &kind), options.manager.as_deref()) else { return };
    let write = Write { manager, api_version: &api_version, subresource, now, untouched: &["status"] };
    put(answer, &managed::update(schema(), Root::Type(id), &write, &json!({}), sent, Managed::default()));
}

/// Writes the owners into an object.
pub(super) fn put(object: &mut Value, managed: &Managed) {
    put_fields(object, managed.to_value());
}

fn put_fields(object: &mut Value, fields: Value) {
    if fields.as_array().is_some_and(|all| !all.is_empty()) {
        metadata(object).insert("managedFields".to_owned(), fields);
    }
}
