//! What an object consists of as far as ownership goes: which values are owned one by one, which as a whole.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::set::Set;
use crate::custom::structural::{ListType, Node, Type};
use crate::schema::{Field, Leaf, Schema, Shape, TypeId};

/// What an object is.
#[derive(Debug, Clone, Copy)]
pub enum Root<'s> {
    /// Of a type of the table.
    Type(TypeId),
    /// Of a custom kind with this schema.
    Custom(&'s Node),
}

impl<'s> Root<'s> {
    pub(super) fn place(self) -> Place<'s> {
        match self {
            Self::Type(id) => Place::Object(id),
            Self::Custom(node) => Place::Node(node, true),
        }
    }
}

/// How a value is owned.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'s> {
    /// As a whole.
    Whole,
    /// Field by field.
    Object(TypeId),
    /// Entry by entry.
    Map(Inner<'s>),
    /// Item by item; items of a set are their own keys.
    List(Items<'s>, Inner<'s>),
    /// Field by field, by a custom kind's schema; whether it has what all objects have.
    Node(&'s Node, bool),
    /// Entry by entry, whatever there is; nothing is known of it.
    Deduced,
}

/// By what the items of a list are told apart.
#[derive(Debug, Clone, Copy)]
pub(super) enum Items<'s> {
    Field(&'s Field),
    Node(&'s Node),
}

/// How what lies in a map or list is owned.
#[derive(Debug, Clone, Copy)]
pub(super) enum Inner<'s> {
    Whole,
    Object(TypeId),
    Node(&'s Node),
}

impl<'s> Inner<'s> {
    fn of(schema: &Schema, leaf: Leaf) -> Self {
        match leaf {
            Leaf::Object(id) if !schema.get(id).atomic => Self::Object(id),
            _ => Self::Whole,
        }
    }

    pub(super) fn place(self) -> Place<'s> {
        match self {
            Self::Whole => Place::Whole,
            Self::Object(id) => Place::Object(id),
            Self::Node(node) => Place::of_node(node),
        }
    }
}

impl<'s> Place<'s> {
    fn of(schema: &'s Schema, field: &'s Field) -> Self {
        let inner = Inner::of(schema, field.leaf);
        match field.shape {
            _ if field.is_atomic() => Self::Whole,
            Shape::One => inner.place(),
            Shape::List | Shape::Items if field.is_set() || field.keys().is_some() => {
                Self::List(Items::Field(field), inner)
            }
            Shape::List | Shape::Items => Self::Whole,
            Shape::Map => Self::Map(inner),
            Shape::MapOfItems => Self::Map(Inner::Whole),
        }
    }

    fn of_node(node: &'s Node) -> Self {
        match node.kind {
            Some(Type::Object) if node.atomic_map => Self::Whole,
            Some(Type::Object) => Self::Node(node, node.embedded),
            Some(Type::Array) if node.list != ListType::Atomic => {
                Self::List(Items::Node(node), node.items.as_deref().map_or(Inner::Whole, Inner::Node))
            }
            None if node.preserve && !node.int_or_string => Self::Deduced,
            Some(_) | None => Self::Whole,
        }
    }

    /// How the value under a key is owned.
    pub(super) fn below(self, schema: &'s Schema, key: &str) -> Self {
        match self {
            Self::Object(id) => schema.field(id, key).map_or(Self::Whole, |field| Self::of(schema, field)),
            Self::Map(inner) => inner.place(),
            Self::Node(_, true) if matches!(key, "apiVersion" | "kind") => Self::Whole,
            Self::Node(_, true) if key == "metadata" => {
                schema.named("meta/v1", "ObjectMeta").map_or(Self::Whole, Self::Object)
            }
            Self::Node(node, _) => match node.below(key) {
                Some(below) => Self::of_node(below),
                None => Self::Deduced,
            },
            Self::Deduced => Self::Deduced,
            Self::Whole | Self::List(..) => Self::Whole,
        }
    }

    /// Whether a key is an entry that was made up, not a field that the type has.
    fn is_entry(self, key: &str) -> bool {
        match self {
            Self::Map(_) | Self::Deduced => true,
            Self::Node(_, true) if matches!(key, "apiVersion" | "kind" | "metadata") => false,
            Self::Node(node, _) => !node.properties.contains_key(key),
            Self::Whole | Self::Object(_) | Self::List(..) => false,
        }
    }

    /// Whether it is owned key by key.
    pub(super) fn is_keyed(self) -> bool {
        matches!(self, Self::Object(_) | Self::Map(_) | Self::Node(..) | Self::Deduced)
    }

    /// Whether the value is one whose parts are owned by themselves.
    pub(super) fn splits(self, value: &Value) -> bool {
        match self {
            Self::Whole => false,
            // What nothing is known of may as well be a plain value.
            Self::Deduced => value.is_object(),
            Self::Object(_) | Self::Map(_) | Self::Node(..) => value.is_object() || value.is_null(),
            Self::List(..) => value.is_array() || value.is_null(),
        }
    }
}

impl Items<'_> {
    /// Returns the fields by which items are told apart, each with its default.
    fn keys(self, schema: &Schema) -> Option<Vec<(String, Option<Value>)>> {
        match self {
            Self::Field(field) => {
                let default = |name: &str| match field.leaf {
                    Leaf::Object(id) => {
                        schema.field(id, name)?.default_value().and_then(|text| serde_json::from_str(text).ok())
                    }
                    _ => None,
                };
                field.keys().map(|names| names.map(|name| (name.to_owned(), default(name))).collect())
            }
            Self::Node(node) => {
                let ListType::Map(names) = &node.list else { return None };
                let default = |name: &String| node.items.as_deref()?.properties.get(name)?.default.clone();
                Some(names.iter().map(|name| (name.clone(), default(name))).collect())
            }
        }
    }
}

/// Returns the element of an item's path; what is wrong with the item if it has none.
pub(super) fn item_element(schema: &Schema, items: Items<'_>, item: &Value) -> Result<String, String> {
    let Some(names) = items.keys(schema) else {
        return if item.is_object() || item.is_array() || item.is_null() {
            Err("a set holds plain values only".to_owned())
        } else {
            Ok(format!("v:{item}"))
        };
    };
    let Value::Object(object) = item else {
        return Err("associative list with keys may not have non-map elements".to_owned());
    };
    let mut keys = Map::new();
    for (name, default) in names {
        match object.get(&name).filter(|value| !value.is_null()).cloned().or(default) {
            Some(value) => drop(keys.insert(name, value)),
            None => {
                return Err(format!(
                    "associative list with keys has an element that omits key field {name:?} (and doesn't have default value)"
                ));
            }
        }
    }
    Ok(format!("k:{}", Value::Object(keys)))
}

/// Adds the paths of a value to a set.
pub(super) fn collect(schema: &Schema, place: Place<'_>, value: &Value, path: &mut Vec<String>, set: &mut Set) {
    match (place, value) {
        (place, Value::Object(map)) if place.is_keyed() => {
            for (key, value) in map {
                path.push(format!("f:{key}"));
                collect(schema, place.below(schema, key), value, path, set);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if empty || place.is_entry(key) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Place::List(field, inner), Value::Array(items)) => {
            for item in items {
                let Ok(element) = item_element(schema, field, item) else { continue };
                path.push(element);
                collect(schema, inner.place(), item, path, set);
                set.insert(path);
                path.pop();
            }
        }
        // The root is never a path.
        _ if path.is_empty() => {}
        _ if place.splits(value) && value.is_null() => {}
        _ => set.insert(path),
    }
}

/// What differs between two objects.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) added: Set,
    pub(super) modified: Set,
    pub(super) removed: Set,
}

impl Comparison {
    /// Forgets everything at and below a path.
    pub(super) fn forget(&mut self, path: &[String]) {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.remove_all(path);
        }
    }

    /// Returns what was added or changed.
    pub(super) fn written(&self) -> Set {
        let mut set = self.added.clone();
        set.unite(&self.modified);
        set
    }
}

/// Compares two objects of a type.
pub(super) fn compare(schema: &Schema, root: Root<'_>, old: &Value, new: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    differ(schema, root.place(), Some(old), Some(new), &mut Vec::new(), &mut comparison);
    comparison
}

fn differ(
    schema: &Schema,
    place: Place<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<String>,
    found: &mut Comparison,
) {
    let length = |value: Option<&Value>| match value {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(items)) => items.len(),
        _ => 0,
    };
    if old.is_some() && old == new {
        return;
    }
    let splits = [old, new].into_iter().flatten().all(|value| place.splits(value));
    // Two empty ones are compared as they are, so that nothing and empty stay different.
    if !splits || (length(old) == 0 && length(new) == 0) {
        match (old, new) {
            (None, Some(_)) => found.added.insert(path),
            (Some(_), None) => found.removed.insert(path),
            (Some(old), Some(new)) if old != new => found.modified.insert(path),
            _ => {}
        }
        return;
    }
    match place {
        Place::Object(_) | Place::Map(_) | Place::Node(..) | Place::Deduced => {
            let empty = Map::new();
            let olds = old.and_then(Value::as_object).unwrap_or(&empty);
            let news = new.and_then(Value::as_object).unwrap_or(&empty);
            for (key, value) in olds {
                path.push(format!("f:{key}"));
                differ(schema, place.below(schema, key), Some(value), news.get(key), path, found);
                path.pop();
            }
            for (key, value) in news.iter().filter(|(key, _)| !olds.contains_key(*key)) {
                path.push(format!("f:{key}"));
                differ(schema, place.below(schema, key), None, Some(value), path, found);
                path.pop();
            }
        }
        Place::List(field, inner) => {
            let (olds, news) = (index(schema, field, old), index(schema, field, new));
            let (old_by, new_by) = (by_element(&olds), by_element(&news));
            for (element, item) in &olds {
                path.push(element.clone());
                differ(schema, inner.place(), Some(item), new_by.get(element.as_str()).copied(), path, found);
                path.pop();
            }
            for (element, item) in news.iter().filter(|(element, _)| !old_by.contains_key(element.as_str())) {
                path.push(element.clone());
                differ(schema, inner.place(), None, Some(item), path, found);
                path.pop();
            }
        }
        Place::Whole => {}
    }
    match (old, new) {
        (None, Some(_)) => found.added.insert(path),
        (Some(_), None) => found.removed.insert(path),
        _ => {}
    }
}

/// The items of a list by their elements.
fn index<'v>(schema: &Schema, field: Items<'_>, list: Option<&'v Value>) -> Vec<(String, &'v Value)> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| Some((item_element(schema, field, item).ok()?, item))).collect()
}

/// The same to look up, the first of those with the same element: lists may be as long as a request allows.
fn by_element<'l, 'v>(items: &'l [(String, &'v Value)]) -> HashMap<&'l str, &'v Value> {
    let mut found = HashMap::with_capacity(items.len());
    for (element, item) in items {
        found.entry(element.as_str()).or_insert(*item);
    }
    found
}

/// Fills in what a typed object always has: structures that are no pointers, and the zeros that JSON writes. A new object
/// is compared with one that has nothing else.
pub(super) fn fill(schema: &Schema, root: Root<'_>, value: &mut Value) {
    if let Root::Type(id) = root {
        fill_type(schema, id, value);
    }
}

fn fill_type(schema: &Schema, id: TypeId, value: &mut Value) {
    let Value::Object(object) = value else { return };
    for field in schema.fields(id) {
        match (field.leaf, field.shape) {
            (Leaf::Object(inner), Shape::One) => {
                if !field.pointer && !field.omits_zero() && object.get(field.name).is_none_or(Value::is_null) {
                    object.insert(field.name.to_owned(), Value::Object(Map::new()));
                }
                if let Some(value) = object.get_mut(field.name) {
                    fill_type(schema, inner, value);
                }
            }
            (Leaf::Object(inner), _) => match object.get_mut(field.name) {
                Some(Value::Array(items)) => items.iter_mut().for_each(|item| fill_type(schema, inner, item)),
                Some(Value::Object(map)) => map.values_mut().for_each(|item| fill_type(schema, inner, item)),
                _ => {}
            },
            _ => {}
        }
        if !field.omits_empty() && !field.pointer && !object.contains_key(field.name) {
            let zero = match (field.shape, field.leaf) {
                (Shape::One, Leaf::Text) => "".into(),
                (Shape::One, Leaf::Bool) => false.into(),
                (Shape::One, Leaf::Int32 | Leaf::Int64) => 0.into(),
                _ => Value::Null,
            };
            object.insert(field.name.to_owned(), zero);
        }
    }
}
