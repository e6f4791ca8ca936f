//! Tables for terminals: the columns that `kubectl get` shows, computed here so that every client shows the same.

mod cells;
mod custom;
mod described;
mod pod;
mod values;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::custom::Served;
use super::error::ApiError;
use super::object::{Object, meta};
use super::resources::Resource;

/// One column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    name: &'static str,
    kind: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    priority: u8,
}

/// Objects to columns.
#[derive(Debug)]
pub(crate) struct Tabler {
    resource: &'static Resource,
    columns: Vec<Column>,
    /// What the definition of a custom kind says.
    served: Option<Arc<Served>>,
    now: Timestamp,
    include: Include,
}

/// What rows carry of their objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Include {
    None,
    Metadata,
    Object,
}

impl Tabler {
    /// Returns a tabler; `include` is the query's `includeObject`.
    pub(crate) fn new(resource: &'static Resource, include: &str, now: Timestamp) -> Result<Self, ApiError> {
        let include = match include {
            "" | "Metadata" => Include::Metadata,
            "None" => Include::None,
            "Object" => Include::Object,
            other => {
                let text = format!("unrecognized includeObject value: {other:?}");
                return Err(ApiError::bad_request(text));
            }
        };
        let served = resource.custom.and_then(|custom| custom.served());
        let columns = if served.is_some() { Vec::new() } else { cells::columns(resource.kind) };
        Ok(Self { resource, columns, served, now, include })
    }

    /// Returns a table of objects.
    pub(crate) fn table(
        &self,
        list_metadata: Value,
        objects: &[Object],
        with_columns: bool,
    ) -> Result<Value, ApiError> {
        let mut rows = Vec::with_capacity(objects.len());
        for object in objects {
            rows.push(self.row(object.value()?));
        }
        Ok(self.wrap(list_metadata, rows, with_columns))
    }

    /// Returns a table of one parsed object, as watches send it.
    pub(crate) fn single(&self, object: Value, with_columns: bool) -> Value {
        let metadata = json!({"resourceVersion": meta(&object, "resourceVersion")});
        let row = self.row(object);
        self.wrap(metadata, vec![row], with_columns)
    }

    fn wrap(&self, list_metadata: Value, rows: Vec<Value>, with_columns: bool) -> Value {
        let columns: Vec<Value> = match &self.served {
            _ if !with_columns => Vec::new(),
            Some(served) => custom::definitions(&served.version().columns),
            None => self.columns.iter().map(definition).collect(),
        };
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_metadata,
            "columnDefinitions": columns, "rows": rows})
    }

    fn row(&self, object: Value) -> Value {
        let object = self.resource.read_value(object);
        let cells = match &self.served {
            Some(served) => custom::cells(&served.version().columns, &object, self.now),
            None => cells::cells(self.resource.kind, &object, self.now),
        };
        let mut row = Map::new();
        row.insert("cells".to_owned(), Value::Array(cells));
        match self.include {
            Include::None => {}
            Include::Metadata => {
                row.insert("object".to_owned(), partial(&object));
            }
            Include::Object => {
                row.insert("object".to_owned(), self.resource.strategy.shown(object));
            }
        }
        Value::Object(row)
    }
}

/// Returns an object's metadata alone.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({}))})
}

fn definition(column: &Column) -> Value {
    let format = if column.name == "Name" { "name" } else { "" };
    json!({"name": column.name, "type": column.kind, "format": format, "description": column.name,
        "priority": column.priority})
}
