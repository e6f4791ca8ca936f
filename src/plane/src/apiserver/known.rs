//! What is known of the fields of a kind: by the table of types, or by a custom kind's schema.

use std::sync::Arc;

use longshore_api::custom::prune;
use longshore_api::managed::Root;
use longshore_api::schema::check::{self, Findings};
use longshore_api::schema::{TypeId, schema};
use serde_json::Value;

use super::custom::Schema;
use super::resources::Resource;

/// What is known of a kind's fields.
#[derive(Debug, Clone)]
pub(crate) enum Known {
    /// A type of the table.
    Type(TypeId),
    /// A custom kind's schema.
    Schema(Arc<Schema>),
}

impl Known {
    /// Returns what is known of a kind; nothing where that is nothing.
    pub(crate) fn of(resource: &Resource) -> Option<Self> {
        match resource.custom {
            Some(custom) => custom.served().map(|served| Self::Schema(Arc::clone(served.schema()))),
            None => schema().kind(&resource.api_version(), resource.kind).map(Self::Type),
        }
    }

    /// Returns how fields are owned.
    pub(crate) fn root(&self) -> Root<'_> {
        match self {
            Self::Type(id) => Root::Type(*id),
            Self::Schema(custom) => Root::Custom(&custom.node),
        }
    }

    /// Takes out fields that are not known.
    pub(crate) fn prune(&self, object: &mut Value) -> Findings {
        match self {
            Self::Type(id) => check::prune(schema(), *id, object),
            Self::Schema(custom) => prune::object(&custom.node, object),
        }
    }
}
