//! Bodies in `application/vnd.kubernetes.protobuf`: the envelope, and messages of the built-in types as JSON.
//!
//! Go writes every field that is no pointer, so zeros of fields that JSON leaves out when empty are dropped here;
//! zeros behind pointers were set on purpose and stay. Fields with unknown numbers are passed over.

mod cursor;
mod value;

use serde_json::{Map, Value};

use super::{Schema, TypeId};
use cursor::Cursor;

/// What such a body begins with.
pub const MAGIC: &[u8] = b"k8s\0";

/// Deepest nesting of messages.
const MAX_DEPTH: u32 = 64;

/// Most values in one body: small messages must not grow into much memory.
const MAX_VALUES: u32 = 500_000;

/// A body that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// It does not begin as such bodies do.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    /// It ends inside a value.
    #[error("unexpected EOF")]
    Short,
    /// A number or key is written in a way that none is.
    #[error("proto: illegal tag or integer overflow")]
    Malformed,
    /// A field is written as another type.
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WrongType {
        /// The field's name in JSON.
        field: String,
        /// How it was written.
        wire: u8,
    },
    /// Messages lie too deep in each other, or are too many.
    #[error("proto: the message is nested too deeply or holds too many values")]
    TooMuch,
    /// A value of a special type cannot be read.
    #[error("proto: {field}: {problem}")]
    BadValue {
        /// The field's name in JSON.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// The content is in another form than protobuf.
    #[error("proto: content of type {0:?} inside the envelope is not served")]
    Content(String),
}

/// What stands around a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Version of the object inside.
    pub api_version: String,
    /// Kind of the object inside.
    pub kind: String,
    /// The message.
    pub raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads the envelope of a body.
    pub fn read(body: &'a [u8]) -> Result<Self, WireError> {
        let mut rest = Cursor::new(body.strip_prefix(MAGIC).ok_or(WireError::NoMagic)?);
        let mut envelope = Self::default();
        while let Some((number, wire)) = rest.key()? {
            match number {
                1 => {
                    let mut meta = Cursor::new(rest.bytes(wire, "typeMeta")?);
                    while let Some((number, wire)) = meta.key()? {
                        match number {
                            1 => envelope.api_version = meta.text(wire, "apiVersion")?,
                            2 => envelope.kind = meta.text(wire, "kind")?,
                            _ => meta.skip(wire)?,
                        }
                    }
                }
                2 => envelope.raw = rest.bytes(wire, "raw")?,
                3 | 4 => {
                    let text = rest.text(wire, "contentType")?;
                    if !text.is_empty() && text != "application/vnd.kubernetes.protobuf" {
                        return Err(WireError::Content(text));
                    }
                }
                _ => rest.skip(wire)?,
            }
        }
        Ok(envelope)
    }
}

/// Returns a message of a type as JSON shows it, without kind and version.
pub fn message(schema: &Schema, id: TypeId, raw: &[u8]) -> Result<Map<String, Value>, WireError> {
    let mut reader = value::Reader { schema, values: MAX_VALUES };
    let mut object = Map::new();
    reader.message(id, raw, &mut object, MAX_DEPTH)?;
    Ok(object)
}

#[cfg(test)]
mod tests;
