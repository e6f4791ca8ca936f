//! Custom kinds as rows of the table. A row is made once for what a kind calls itself and lives as long as the process;
//! what its definition says stands behind it, changes with the definition and goes with it.

mod index;
mod strategy;
mod version;

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::StatusCode;
use longshore_api::custom::{self, Definition, Node, Version};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::error::ApiError;
use super::object::{Object, parse};
use super::resources::Resource;

pub(crate) use index::Kinds;
pub(crate) use version::order;

/// What stands behind a row.
#[derive(Debug)]
pub struct Custom {
    /// Name of lists.
    pub(crate) list_kind: String,
    served: ArcSwapOption<Served>,
}

/// A version of a definition.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) definition: Arc<Definition>,
    /// Which of its versions.
    at: usize,
    /// The stored definition, from which the schema is read when it is first needed.
    source: Bytes,
    schema: OnceLock<Arc<Schema>>,
    /// Cancelled when the definition changes or goes.
    pub(crate) gone: CancellationToken,
}

/// The schema of a version.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) node: Node,
    has_defaults: bool,
    /// The definition was changed: what was stored before may have fields that the schema does not know any more.
    may_not_fit: bool,
}

impl Custom {
    pub(crate) fn new(list_kind: String) -> Self {
        Self { list_kind, served: ArcSwapOption::empty() }
    }

    /// Returns what the definition says now; nothing when there is none any more.
    pub(crate) fn served(&self) -> Option<Arc<Served>> {
        self.served.load_full()
    }

    fn set(&self, served: Option<Arc<Served>>) {
        self.served.store(served);
    }

    /// Returns a stored object as this version shows it.
    pub(crate) fn shown(&self, mut object: Value) -> Value {
        if let Some(served) = self.served() {
            served.show(&mut object);
        }
        object
    }

    /// Returns stored bytes as this version shows them.
    pub(crate) fn shown_bytes(&self, bytes: Bytes) -> Result<Bytes, ApiError> {
        let Some(served) = self.served() else { return Ok(bytes) };
        if served.is_shown_as_stored(&bytes) {
            return Ok(bytes);
        }
        let mut object = parse(&bytes)?;
        served.show(&mut object);
        Ok(super::object::text_of(&object))
    }

    /// Returns an object as it is stored.
    pub(crate) fn kept(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if let Some(served) = self.served() {
            object["apiVersion"] = json!(served.storage_version());
        }
        object
    }

    /// Whether stored bytes are in the version in which objects are stored now.
    pub(crate) fn is_stored_well(&self, bytes: &[u8]) -> bool {
        self.served().is_none_or(|served| has_head(bytes, &served.kind(), &served.storage_version()))
    }
}

impl Served {
    pub(crate) fn version(&self) -> &Version {
        // The index was taken from this definition's own list.
        &self.definition.versions[self.at]
    }

    pub(crate) fn kind(&self) -> String {
        self.definition.accepted.kind.clone()
    }

    fn api_version(&self) -> String {
        self.definition.api_version(self.version())
    }

    /// Returns the `apiVersion` in which objects are stored.
    fn storage_version(&self) -> String {
        self.definition.storage().map_or_else(|| self.api_version(), |version| self.definition.api_version(version))
    }

    /// Returns the schema as it was written; without one, everything is kept.
    pub(crate) fn schema_text(&self) -> Value {
        self.schema_of(parse(&self.source).unwrap_or_default())
    }

    fn schema_of(&self, mut definition: Value) -> Value {
        let pointer = format!("/spec/versions/{}/schema/openAPIV3Schema", self.at);
        let text = definition.pointer_mut(&pointer).map(Value::take).filter(Value::is_object);
        text.unwrap_or_else(|| json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))
    }

    /// Returns the schema.
    pub(crate) fn schema(&self) -> &Arc<Schema> {
        self.schema.get_or_init(|| {
            let definition = parse(&self.source).unwrap_or_default();
            let generation = definition.pointer("/metadata/generation").and_then(Value::as_i64);
            let may_not_fit = generation.is_none_or(|generation| generation > 1);
            let node = Node::read(&self.schema_of(definition));
            Arc::new(Schema { has_defaults: node.has_defaults(), may_not_fit, node })
        })
    }

    /// Why a request in this version cannot be answered, if so.
    pub(crate) fn refusal(&self, verb: &str) -> Option<ApiError> {
        if self.definition.terminating && verb == "create" {
            let text = "create not allowed while custom resource definition is terminating";
            return Some(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", text));
        }
        let version = self.version();
        (self.definition.webhook && !version.storage).then(|| {
            let storage = self.storage_version();
            ApiError::internal(format!(
                "conversion webhook for {storage}, Kind={} failed: this apiserver does not call conversion webhooks; use \
                 version {storage}, or conversion strategy None",
                self.kind()
            ))
        })
    }

    fn is_shown_as_stored(&self, bytes: &[u8]) -> bool {
        let schema = self.schema();
        !schema.has_defaults && !schema.may_not_fit && has_head(bytes, &self.kind(), &self.api_version())
    }

    fn show(&self, object: &mut Value) {
        let api_version = self.api_version();
        let other = object["apiVersion"] != api_version.as_str();
        if other {
            object["apiVersion"] = json!(api_version);
        }
        if other || self.schema().may_not_fit {
            // What only the stored version knows is not shown; unknown fields are told when they are sent, not here.
            drop(custom::prune::object(&self.schema().node, object));
        }
        if self.schema().has_defaults {
            custom::fill::object(&self.schema().node, object);
        }
    }
}

/// Whether stored bytes begin with a kind and version.
fn has_head(bytes: &[u8], kind: &str, api_version: &str) -> bool {
    bytes.starts_with(format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",").as_bytes())
}

impl Resource {
    /// Returns a stored object in the words of this row.
    pub(crate) fn read_value(&self, object: Value) -> Value {
        match self.custom {
            Some(custom) => custom.shown(object),
            None => object,
        }
    }

    /// Returns a stored object, parsed, in the words of this row.
    pub(crate) fn read(&self, object: &Object) -> Result<Value, ApiError> {
        object.value().map(|value| self.read_value(value))
    }
}
