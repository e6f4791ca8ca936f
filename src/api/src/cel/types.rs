//! Types of values before there are any. What is not known is `Dyn`, which fits everything.

use std::fmt;
use std::rc::Rc;

use super::shape::{Base, Shape};

/// A type.
#[derive(Debug, Clone)]
pub(super) enum Kind<'s> {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Time,
    Span,
    Type,
    Quantity,
    Ip,
    Cidr,
    Url,
    Version,
    Format,
    List(Rc<Self>),
    Map(Rc<Self>, Rc<Self>),
    Optional(Rc<Self>),
    Object(&'s Shape),
}

impl<'s> Kind<'s> {
    /// Returns the type of a value of which a schema tells.
    pub(super) fn of(shape: &'s Shape) -> Self {
        let item = || Rc::new(shape.item.as_deref().map_or(Self::Dyn, Self::of));
        match shape.base {
            Base::Dyn => Self::Dyn,
            Base::Bool => Self::Bool,
            Base::Int => Self::Int,
            Base::Double => Self::Double,
            Base::Text => Self::Text,
            Base::Bytes => Self::Bytes,
            Base::Time => Self::Time,
            Base::Span => Self::Span,
            Base::List => Self::List(item()),
            Base::Map => Self::Map(Rc::new(Self::Text), item()),
            Base::Object => Self::Object(shape),
        }
    }

    /// Whether all values of the type have the same size.
    pub(super) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Int | Self::Uint | Self::Double | Self::Time | Self::Span => true,
            Self::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// Whether null is a value. It is none of what is plain in JSON, whatever a schema says: such fields are then absent.
    fn has_null(&self) -> bool {
        match self {
            Self::Bool | Self::Int | Self::Uint | Self::Double | Self::Text | Self::Bytes | Self::Type => false,
            Self::List(_) | Self::Map(..) => false,
            Self::Dyn | Self::Null | Self::Time | Self::Span | Self::Optional(_) | Self::Object(_) => true,
            Self::Quantity | Self::Ip | Self::Cidr | Self::Url | Self::Version | Self::Format => true,
        }
    }

    /// Whether a value may be of both types. All objects are taken for the same, which upstream tells apart.
    pub(super) fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::Null, other) | (other, Self::Null) => other.has_null(),
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.fits(b),
            (Self::Map(key, value), Self::Map(other_key, other)) => key.fits(other_key) && value.fits(other),
            (Self::Object(_), Self::Object(_) | Self::Map(..)) | (Self::Map(..), Self::Object(_)) => true,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }

    /// Returns the type of values of both types.
    pub(super) fn both(self, other: &Self) -> Self {
        match (&self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => Self::Dyn,
            (Self::Null, other) => other.clone(),
            (Self::List(a), Self::List(b)) => Self::List(Rc::new((**a).clone().both(b))),
            (Self::Optional(a), Self::Optional(b)) => Self::Optional(Rc::new((**a).clone().both(b))),
            (Self::Map(key, value), Self::Map(other_key, other)) => {
                Self::Map(Rc::new((**key).clone().both(other_key)), Rc::new((**value).clone().both(other)))
            }
            _ => self,
        }
    }
}

impl fmt::Display for Kind<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Dyn => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::Bytes => "bytes",
            Self::Time => "timestamp",
            Self::Span => "duration",
            Self::Type => "type",
            Self::Quantity => "kubernetes.Quantity",
            Self::Ip => "net.IP",
            Self::Cidr => "net.CIDR",
            Self::Url => "kubernetes.URL",
            Self::Version => "kubernetes.Semver",
            Self::Format => "kubernetes.NamedFormat",
            Self::Object(_) => "object",
            Self::List(item) => return write!(out, "list({item})"),
            Self::Map(key, value) => return write!(out, "map({key}, {value})"),
            Self::Optional(inner) => return write!(out, "optional_type({inner})"),
        })
    }
}
