//! A model of owned fields that knows nothing of the code that keeps the books: which paths of a set lie in an object, and
//! whether an object is made as its type says.

use longshore_api::schema::{Field, Leaf, Shape, TypeId, schema};
use serde_json::Value;

/// What is told of a path that a set has: the path, and the value there, if there is one.
pub(crate) type Told<'a> = &'a mut dyn FnMut(&str, Option<&Value>);

/// Tells of all paths of a set (`fieldsV1`) in an object. Fields that every typed object has, written or not, are told
/// only where they are written.
pub(crate) fn visit(id: Option<TypeId>, object: &Value, set: &Value, told: Told<'_>) {
    walk(id, object, set, &mut String::new(), told);
}

fn walk(id: Option<TypeId>, value: &Value, set: &Value, path: &mut String, told: Told<'_>) {
    for (element, below) in set.as_object().into_iter().flatten().filter(|(element, _)| *element != ".") {
        let length = path.len();
        path.push('/');
        path.push_str(element);
        let name = element.strip_prefix("f:");
        let field = name.and_then(|name| schema().field(id?, name));
        let found = find(value, element);
        let is_filled = found.is_none() && field.is_some_and(is_always_there);
        if !is_filled {
            if below.as_object().is_some_and(|below| below.is_empty() || below.contains_key(".")) {
                told(path, found);
            } else if found.is_none() {
                told(path, None);
            }
            // Keys of a map and items of a list are of the type that the field gave them.
            let inner = match field {
                Some(Field { leaf: Leaf::Object(inner), .. }) => Some(*inner),
                Some(_) => None,
                None => id,
            };
            if let Some(found) = found {
                walk(inner, found, below, path, told);
            }
        }
        path.truncate(length);
    }
}

/// Returns the value that an element of a path leads to.
fn find<'v>(value: &'v Value, element: &str) -> Option<&'v Value> {
    match element.split_once(':')? {
        ("f", name) => value.get(name),
        ("k", keys) => {
            let keys: Value = serde_json::from_str(keys).ok()?;
            let keys = keys.as_object()?;
            let has = |item: &&Value, unwritten: bool| {
                let is = |key: &str, value: &Value| match item.get(key) {
                    None | Some(Value::Null) => unwritten,
                    Some(own) => own == value,
                };
                keys.iter().all(|(key, value)| is(key, value))
            };
            // A key that is not written has its default, which the books know; an item that has all written is meant first.
            let items = value.as_array()?;
            items.iter().find(|item| has(item, false)).or_else(|| items.iter().find(|item| has(item, true)))
        }
        ("v", text) => {
            let wanted: Value = serde_json::from_str(text).ok()?;
            value.as_array()?.iter().find(|item| **item == wanted)
        }
        ("i", index) => value.get(index.parse::<usize>().ok()?),
        _ => None,
    }
}

/// Whether a typed object has a field that is not written.
fn is_always_there(field: &Field) -> bool {
    let is_object = matches!((field.leaf, field.shape), (Leaf::Object(_), Shape::One));
    !field.pointer && ((is_object && !field.omits_zero()) || !field.omits_empty())
}

/// Whether all that is in an object has the form that its type gives it, without nulls.
pub(crate) fn fits(id: TypeId, object: &Value) -> bool {
    let Value::Object(map) = object else { return false };
    map.iter().all(|(name, value)| match schema().field(id, name) {
        Some(field) => has_shape(field, value),
        None => schema().get(id).is_kind && matches!(name.as_str(), "apiVersion" | "kind") && value.is_string(),
    })
}

fn has_shape(field: &Field, value: &Value) -> bool {
    let leaf = |value: &Value| is_leaf(field.leaf, value);
    match (field.shape, value) {
        (Shape::One, value) => leaf(value),
        (Shape::List | Shape::Items, Value::Array(items)) => items.iter().all(leaf),
        (Shape::Map, Value::Object(map)) => map.values().all(leaf),
        (Shape::MapOfItems, Value::Object(map)) => {
            map.values().all(|items| items.as_array().is_some_and(|items| items.iter().all(leaf)))
        }
        _ => false,
    }
}

fn is_leaf(leaf: Leaf, value: &Value) -> bool {
    match leaf {
        Leaf::Text | Leaf::Bytes | Leaf::Quantity | Leaf::Time | Leaf::MicroTime => value.is_string(),
        Leaf::Bool => value.is_boolean(),
        Leaf::Int32 | Leaf::Int64 => value.is_i64(),
        Leaf::Double => value.is_number(),
        Leaf::IntOrText => value.is_i64() || value.is_string(),
        Leaf::Object(id) => fits(id, value),
        // Whatever is in there belongs to it as a whole.
        Leaf::Raw | Leaf::FieldSet | Leaf::Json | Leaf::SchemaOrBool | Leaf::SchemaOrList | Leaf::SchemaOrTexts => {
            !value.is_null()
        }
    }
}
