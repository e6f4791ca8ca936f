//! What an object consists of as far as ownership goes: which values are owned one by one, which as a whole.

use serde_json::{Map, Value};

use super::set::Set;
use crate::schema::{Field, Leaf, Schema, Shape, TypeId};

/// How a value is owned.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'s> {
    /// As a whole.
    Whole,
    /// Field by field.
    Object(TypeId),
    /// Entry by entry.
    Map(Inner),
    /// Item by item; items of a set are their own keys.
    List(&'s Field, Inner),
}

/// How what lies in a map or list is owned.
#[derive(Debug, Clone, Copy)]
pub(super) enum Inner {
    Whole,
    Object(TypeId),
}

impl Inner {
    fn of(schema: &Schema, leaf: Leaf) -> Self {
        match leaf {
            Leaf::Object(id) if !schema.get(id).atomic => Self::Object(id),
            _ => Self::Whole,
        }
    }

    pub(super) fn place<'s>(self) -> Place<'s> {
        match self {
            Self::Whole => Place::Whole,
            Self::Object(id) => Place::Object(id),
        }
    }
}

impl<'s> Place<'s> {
    fn of(schema: &'s Schema, field: &'s Field) -> Self {
        let inner = Inner::of(schema, field.leaf);
        match field.shape {
            _ if field.is_atomic() => Self::Whole,
            Shape::One => inner.place(),
            Shape::List | Shape::Items if field.is_set() || field.keys().is_some() => Self::List(field, inner),
            Shape::List | Shape::Items => Self::Whole,
            Shape::Map => Self::Map(inner),
            Shape::MapOfItems => Self::Map(Inner::Whole),
        }
    }

    /// How the value under a key is owned.
    pub(super) fn below(self, schema: &'s Schema, key: &str) -> Self {
        match self {
            Self::Object(id) => schema.field(id, key).map_or(Self::Whole, |field| Self::of(schema, field)),
            Self::Map(inner) => inner.place(),
            Self::Whole | Self::List(..) => Self::Whole,
        }
    }

    /// Whether the value is one whose parts are owned by themselves.
    pub(super) fn splits(self, value: &Value) -> bool {
        match self {
            Self::Whole => false,
            Self::Object(_) | Self::Map(_) => value.is_object() || value.is_null(),
            Self::List(..) => value.is_array() || value.is_null(),
        }
    }
}

/// Returns the element of an item's path; what is wrong with the item if it has none.
pub(super) fn item_element(schema: &Schema, field: &Field, item: &Value) -> Result<String, String> {
    let Some(names) = field.keys() else {
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
    for name in names {
        let default = || match field.leaf {
            Leaf::Object(id) => {
                schema.field(id, name)?.default_value().and_then(|text| serde_json::from_str(text).ok())
            }
            _ => None,
        };
        match object.get(name).filter(|value| !value.is_null()).cloned().or_else(default) {
            Some(value) => drop(keys.insert(name.to_owned(), value)),
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
        (Place::Object(_) | Place::Map(_), Value::Object(map)) => {
            for (key, value) in map {
                path.push(format!("f:{key}"));
                collect(schema, place.below(schema, key), value, path, set);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if empty || matches!(place, Place::Map(_)) {
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
pub(super) fn compare(schema: &Schema, id: TypeId, old: &Value, new: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    differ(schema, Place::Object(id), Some(old), Some(new), &mut Vec::new(), &mut comparison);
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
        Place::Object(_) | Place::Map(_) => {
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
            for (element, item) in &olds {
                path.push(element.clone());
                differ(schema, inner.place(), Some(item), find(&news, element), path, found);
                path.pop();
            }
            for (element, item) in news.iter().filter(|(element, _)| find(&olds, element).is_none()) {
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
fn index<'v>(schema: &Schema, field: &Field, list: Option<&'v Value>) -> Vec<(String, &'v Value)> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| Some((item_element(schema, field, item).ok()?, item))).collect()
}

fn find<'v>(items: &[(String, &'v Value)], element: &str) -> Option<&'v Value> {
    items.iter().find(|(other, _)| other == element).map(|(_, item)| *item)
}

/// Fills in what a typed object always has: structures that are no pointers, and the zeros that JSON writes. A new object
/// is compared with one that has nothing else.
pub(super) fn fill(schema: &Schema, id: TypeId, value: &mut Value) {
    let Value::Object(object) = value else { return };
    for field in schema.fields(id) {
        match (field.leaf, field.shape) {
            (Leaf::Object(inner), Shape::One) => {
                if !field.pointer && !field.omits_zero() && object.get(field.name).is_none_or(Value::is_null) {
                    object.insert(field.name.to_owned(), Value::Object(Map::new()));
                }
                if let Some(value) = object.get_mut(field.name) {
                    fill(schema, inner, value);
                }
            }
            (Leaf::Object(inner), _) => match object.get_mut(field.name) {
                Some(Value::Array(items)) => items.iter_mut().for_each(|item| fill(schema, inner, item)),
                Some(Value::Object(map)) => map.values_mut().for_each(|item| fill(schema, inner, item)),
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
