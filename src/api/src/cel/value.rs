//! Values of expressions. Objects stay the JSON they are and are looked into when asked.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value as Json};

use crate::custom::format;
use crate::custom::structural::{ListType, Node, Type};
use crate::quantity::Quantity;

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Val<'v> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    Time(Timestamp),
    Span(SignedDuration),
    List(Arc<Vec<Self>>),
    Map(Arc<Vec<(Self, Self)>>),
    /// A list of JSON, and what is known of it.
    JsonList(&'v [Json], Option<&'v Node>),
    /// A map of JSON, and what is known of it.
    JsonMap(&'v Map<String, Json>, Option<&'v Node>),
    Optional(Option<Box<Self>>),
    Quantity(Arc<Quantity>),
    Ip(std::net::IpAddr),
    Cidr(std::net::IpAddr, u8),
    /// Scheme, host with port, path, query.
    Url(Arc<super::network::Url>),
    Version(Arc<super::functions::versions::Version>),
    /// A format, by its name.
    Format(&'static str),
    Type(&'static str),
}

/// Characters that names in expressions cannot have, and how they are written there.
const ESCAPES: [(&str, &str); 4] = [("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];

/// Words that are no names in expressions unless they are wrapped.
const WORDS: [&str; 19] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
];

/// Returns the field's name that an expression means by a name.
pub(super) fn unescaped(name: &str) -> Option<String> {
    if !name.contains("__") {
        return None;
    }
    if let Some(word) = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && (WORDS.contains(&word) || matches!(word, "void" | "while"))
    {
        return Some(word.to_owned());
    }
    let mut out = String::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        match ESCAPES.iter().find(|(escape, _)| rest.starts_with(escape)) {
            Some((escape, plain)) => {
                out.push_str(plain);
                rest = rest.get(escape.len()..)?;
            }
            None => {
                out.push(first);
                rest = rest.get(first.len_utf8()..)?;
            }
        }
    }
    Some(out)
}

impl<'v> Val<'v> {
    /// Returns a JSON value as its schema means it.
    pub(super) fn of(value: &'v Json, node: Option<&'v Node>) -> Self {
        match value {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match (node.and_then(|node| node.kind), number.as_i64()) {
                (Some(Type::Number), _) | (_, None) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
                (_, Some(number)) => Self::Int(number),
            },
            Json::String(text) => {
                let format = node.and_then(|node| node.values.as_ref()).map_or("", |values| values.format.as_str());
                Self::formatted(format, text)
            }
            Json::Array(items) => Self::JsonList(items, node),
            Json::Object(map) => Self::JsonMap(map, node),
        }
    }

    fn formatted(format: &str, text: &str) -> Self {
        let found = match format {
            "date-time" | "datetime" => text.parse().ok().map(Self::Time),
            "date" => text.parse::<jiff::civil::Date>().ok().and_then(|date| {
                date.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| Self::Time(zoned.timestamp()))
            }),
            "duration" => format::span(text).map(|span| Self::Span(SignedDuration::from_nanos(span))),
            "byte" => {
                use base64::Engine as _;
                base64::engine::general_purpose::STANDARD.decode(text).ok().map(|bytes| Self::Bytes(bytes.into()))
            }
            _ => None,
        };
        found.unwrap_or_else(|| Self::Text(text.into()))
    }

    pub(super) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn list(items: Vec<Self>) -> Self {
        Self::List(Arc::new(items))
    }

    /// Returns the name of its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Time(_) => "google.protobuf.Timestamp",
            Self::Span(_) => "google.protobuf.Duration",
            Self::List(_) | Self::JsonList(..) => "list",
            Self::Map(_) | Self::JsonMap(..) => "map",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Version(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Type(_) => "type",
        }
    }

    /// Returns how large it is to work on.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(items) => items.len(),
            Self::Map(entries) => entries.len(),
            Self::JsonList(items, _) => items.len(),
            Self::JsonMap(map, _) => map.len(),
            _ => 1,
        }
    }

    /// Returns the items of a list.
    pub(super) fn items(&self) -> Option<Vec<Self>> {
        match self {
            Self::List(items) => Some(items.to_vec()),
            Self::JsonList(items, node) => {
                let below = node.and_then(|node| node.items.as_deref());
                Some(items.iter().map(|item| Self::of(item, below)).collect())
            }
            _ => None,
        }
    }

    /// Returns the entries of a map.
    pub(super) fn entries(&self) -> Option<Vec<(Self, Self)>> {
        match self {
            Self::Map(entries) => Some(entries.to_vec()),
            Self::JsonMap(map, node) => {
                let entry = |(key, value): (&'v String, &'v Json)| {
                    (Self::text(key.as_str()), Self::of(value, node.and_then(|node| node.below(key))))
                };
                Some(map.iter().map(entry).collect())
            }
            _ => None,
        }
    }

    /// Returns the value under a key of a map.
    pub(super) fn get(&self, key: &Self) -> Option<Self> {
        match (self, key) {
            (Self::JsonMap(map, node), Self::Text(key)) => {
                map.get(&**key).map(|value| Self::of(value, node.and_then(|node| node.below(key))))
            }
            (Self::Map(entries), key) => {
                entries.iter().find(|(own, _)| own.equals(key)).map(|(_, value)| value.clone())
            }
            _ => None,
        }
    }

    /// Returns a field by the name that an expression has for it.
    pub(super) fn field(&self, name: &str) -> Option<Self> {
        self.get(&Self::text(name)).or_else(|| unescaped(name).and_then(|name| self.get(&Self::text(name))))
    }

    /// How the items of a list are told apart.
    fn list_type(&self) -> Option<&'v ListType> {
        match self {
            Self::JsonList(_, Some(node)) if node.list != ListType::Atomic => Some(&node.list),
            _ => None,
        }
    }

    /// Whether both are the same.
    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Time(a), Self::Time(b)) => a == b,
            (Self::Span(a), Self::Span(b)) => a == b,
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a, la), Self::Cidr(b, lb)) => a == b && la == lb,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Version(a), Self::Version(b)) => a == b,
            (Self::Type(a), Self::Type(b)) | (Self::Format(a), Self::Format(b)) => a == b,
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => a.equals(b),
                _ => false,
            },
            (Self::JsonList(a, _), Self::JsonList(b, _))
                if self.list_type().or_else(|| other.list_type()).is_none() =>
            {
                // The same JSON is the same list; other JSON may be, too: 1 and 1.0.
                a == b || self.equal_lists(other)
            }
            (Self::List(_) | Self::JsonList(..), Self::List(_) | Self::JsonList(..)) => self.equal_lists(other),
            (Self::Map(_) | Self::JsonMap(..), Self::Map(_) | Self::JsonMap(..)) => {
                let (Some(a), Some(b)) = (self.entries(), other.entries()) else { return false };
                a.len() == b.len()
                    && a.iter().all(|(key, value)| other.get(key).is_some_and(|other| other.equals(value)))
            }
            _ => self.order(other) == Some(Ordering::Equal),
        }
    }

    fn equal_lists(&self, other: &Self) -> bool {
        let (Some(a), Some(b)) = (self.items(), other.items()) else { return false };
        if a.len() != b.len() {
            return false;
        }
        if self.list_type().or_else(|| other.list_type()).is_some() {
            return a.iter().all(|item| b.iter().any(|other| other.equals(item)));
        }
        a.iter().zip(&b).all(|(a, b)| a.equals(b))
    }

    /// Compares two values that have an order.
    pub(super) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Uint(a), Self::Uint(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Uint(a), Self::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Self::Int(a), Self::Double(b)) => against_double((*a).into(), *b),
            (Self::Uint(a), Self::Double(b)) => against_double((*a).into(), *b),
            (Self::Double(a), Self::Int(b)) => against_double((*b).into(), *a).map(Ordering::reverse),
            (Self::Double(a), Self::Uint(b)) => against_double((*b).into(), *a).map(Ordering::reverse),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Time(a), Self::Time(b)) => Some(a.cmp(b)),
            (Self::Span(a), Self::Span(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }

    /// Adds a list to a list. Items of a set are there once, those of a map replace others with the same keys.
    pub(super) fn joined(&self, other: &Self) -> Option<Vec<Self>> {
        let (mut items, more) = (self.items()?, other.items()?);
        match self.list_type() {
            None | Some(ListType::Atomic) => items.extend(more),
            Some(ListType::Set) => {
                for item in more {
                    if !items.iter().any(|own| own.equals(&item)) {
                        items.push(item);
                    }
                }
            }
            Some(ListType::Map(keys)) => {
                for item in more {
                    let same = |own: &Self| {
                        keys.iter().all(|key| match (own.field(key), item.field(key)) {
                            (Some(a), Some(b)) => a.equals(&b),
                            _ => false,
                        })
                    };
                    match items.iter_mut().find(|own| same(own)) {
                        Some(own) => *own = item,
                        None => items.push(item),
                    }
                }
            }
        }
        Some(items)
    }
}

/// Compares a whole number with another one exactly: rounded to a double, three numbers can each be below the next one, in a
/// ring, and sorting does not bear that.
fn against_double(whole: i128, double: f64) -> Option<Ordering> {
    /// Beyond all whole numbers that there are here.
    const FAR: f64 = 1e30;
    if double.is_nan() {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "held within what fits; the fraction is looked at apart")]
    let floor = double.clamp(-FAR, FAR).floor() as i128;
    let has_fraction = double.fract() != 0.0;
    Some(whole.cmp(&floor).then(if has_fraction { Ordering::Less } else { Ordering::Equal }))
}
