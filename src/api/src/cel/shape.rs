//! What a schema tells of values before there are any: their type, how large they can be, and the least they take in a
//! request. Sizes that a schema leaves open end where the largest request does.

use std::collections::BTreeMap;

use super::value::unescaped;
use crate::custom::structural::{Additional, Node, Type};

/// The largest request.
const REQUEST: u64 = 3 << 20;

/// Longest date with time, and longest duration, with their quotes.
const LONGEST_MOMENT: u64 = 32;

/// A date with its quotes.
const DATE: u64 = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    Dyn,
    Bool,
    Int,
    Double,
    Text,
    Bytes,
    Time,
    Span,
    List,
    Map,
    Object,
}

/// What is known of a value.
#[derive(Debug, Clone)]
pub struct Shape {
    pub(super) base: Base,
    /// Most characters, items or entries.
    pub(super) most: u64,
    /// Fewest bytes in a request.
    least: u64,
    fields: BTreeMap<String, Self>,
    pub(super) item: Option<Box<Self>>,
}

impl Shape {
    /// Returns what a schema tells; nothing if expressions cannot see its values. Objects that stand for themselves (`whole`)
    /// have a kind and a name.
    pub fn of(node: &Node, whole: bool) -> Option<Self> {
        let values = node.values.as_deref();
        let longest = values.and_then(|values| values.max_length);
        if node.int_or_string {
            return Some(Self::plain(Base::Dyn, longest.map_or(REQUEST - 2, |longest| longest.saturating_mul(4)), 1));
        }
        match node.kind? {
            Type::Boolean => Some(Self::plain(Base::Bool, 0, 4)),
            Type::Integer => Some(Self::plain(Base::Int, 0, 1)),
            Type::Number => Some(Self::plain(Base::Double, 0, 1)),
            Type::String => {
                let format = values.map_or("", |values| values.format.as_str());
                Some(match format {
                    "byte" => Self::plain(Base::Bytes, longest.unwrap_or(REQUEST - 2), 2),
                    "duration" => Self::plain(Base::Span, LONGEST_MOMENT, 3),
                    "date" => Self::plain(Base::Time, DATE, DATE),
                    "date-time" => Self::plain(Base::Time, LONGEST_MOMENT, 21),
                    _ => {
                        let known = values.and_then(|values| values.one_of_values.as_ref());
                        let known = known.map(|all| all.iter().filter_map(|own| Some(own.as_str()?.len())).max());
                        let known = known.map(|longest| longest.map_or(0, |longest| longest as u64));
                        let longest = longest.map(|longest| longest.saturating_mul(4));
                        Self::plain(Base::Text, longest.or(known).unwrap_or(REQUEST - 2), 2)
                    }
                })
            }
            Type::Array => {
                let items = node.items.as_deref()?;
                let item = Self::of(items, items.embedded)?;
                let most = values.and_then(|values| values.max_items).unwrap_or((REQUEST - 2) / (item.least + 1));
                Some(Self { item: Some(Box::new(item)), ..Self::plain(Base::List, most, 2) })
            }
            Type::Object => match &node.additional {
                Additional::Schema(below) => {
                    let item = Self::of(below, below.embedded)?;
                    let open = (REQUEST - 2) / (item.least + 6);
                    let most = values.and_then(|values| values.max_properties).unwrap_or(open);
                    Some(Self { item: Some(Box::new(item)), ..Self::plain(Base::Map, most, 2) })
                }
                Additional::None | Additional::Any(_) => Some(Self::object(node, whole)),
            },
        }
    }

    fn plain(base: Base, most: u64, least: u64) -> Self {
        Self { base, most, least, fields: BTreeMap::new(), item: None }
    }

    fn object(node: &Node, whole: bool) -> Self {
        let required = node.values.as_deref().map_or(&[][..], |values| &values.required);
        let mut shape = Self::plain(Base::Object, 0, 2);
        for (name, below) in &node.properties {
            let Some(field) = Self::of(below, below.embedded) else { continue };
            // What has a default need not be sent.
            if below.default.is_none() && required.contains(name) {
                shape.least = shape.least.saturating_add(field.least).saturating_add(name.len() as u64 + 4);
            }
            shape.fields.insert(name.clone(), field);
        }
        let names = shape.fields.get("metadata").map(|metadata| &metadata.fields);
        let is_text = |field: Option<&Self>| field.is_some_and(|field| field.base == Base::Text);
        let named = names.is_some_and(|names| is_text(names.get("name")) && is_text(names.get("generateName")));
        if whole && !(named && is_text(shape.fields.get("kind")) && is_text(shape.fields.get("apiVersion"))) {
            let text = || Self::plain(Base::Text, REQUEST - 2, 2);
            let names = [("name".to_owned(), text()), ("generateName".to_owned(), text())];
            let metadata = Self { fields: names.into(), ..Self::plain(Base::Object, 0, 2) };
            let all = [("kind", text()), ("apiVersion", text()), ("metadata", metadata)];
            shape.fields.extend(all.map(|(name, field)| (name.to_owned(), field)));
        }
        shape
    }

    /// Returns a field, by its name as expressions write it.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        self.fields.get(name).or_else(|| self.fields.get(&unescaped(name)?))
    }

    /// How often such a value fits into a request.
    pub fn times(&self) -> u64 {
        REQUEST / self.least.saturating_add(1)
    }
}
