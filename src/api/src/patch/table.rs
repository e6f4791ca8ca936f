//! How the fields of the built-in types are merged by a strategic merge patch, read off the table of types. A field of
//! no known type merges when it is a map and is replaced when it is a list.

use crate::schema::{Leaf, Shape, TypeId, schema};

/// What stands at a place of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// An object of a type.
    Object(TypeId),
    /// A map whose values are objects of a type.
    MapOf(TypeId),
    /// Something without rules.
    Free,
}

/// What the table says of a field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    /// A list is merged by this key; empty for primitives.
    pub(super) merge_key: Option<&'static str>,
    /// The patch's value replaces a map as a whole.
    pub(super) replace: bool,
    /// What is in the field, or in its items.
    pub(super) child: Place,
}

/// The place that a kind starts with.
pub(super) fn root(api_version: &str, kind: &str) -> Place {
    schema().kind(api_version, kind).map_or(Place::Free, Place::Object)
}

impl Place {
    /// What is known of a field.
    pub(super) fn field(self, name: &str) -> Rule {
        let free = |child| Rule { merge_key: None, replace: false, child };
        let id = match self {
            Self::Object(id) => id,
            Self::MapOf(id) => return free(Self::Object(id)),
            Self::Free => return free(Self::Free),
        };
        let Some(field) = schema().field(id, name) else { return free(Self::Free) };
        let child = match (field.leaf, field.shape) {
            (Leaf::Object(id), Shape::Map) => Self::MapOf(id),
            (Leaf::Object(id), _) => Self::Object(id),
            _ => Self::Free,
        };
        let is_list = matches!(field.shape, Shape::List | Shape::Items);
        let merge_key = (is_list && field.merges()).then(|| field.merge_key().unwrap_or_default());
        Rule { merge_key, replace: field.replaces(), child }
    }
}
