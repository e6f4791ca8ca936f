//! Values of messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use super::cursor::{BYTES, Cursor};
use super::{Envelope, MAGIC, WireError};
use crate::schema::{Field, Leaf, Schema, Shape, TypeId};

pub(super) struct Reader<'a> {
    pub(super) schema: &'a Schema,
    /// How many values may still come.
    pub(super) values: u32,
}

impl Reader<'_> {
    /// Reads a message into an object; what is there already is merged with it.
    pub(super) fn message(
        &mut self,
        id: TypeId,
        raw: &[u8],
        object: &mut Map<String, Value>,
        depth: u32,
    ) -> Result<(), WireError> {
        let depth = depth.checked_sub(1).ok_or(WireError::TooMuch)?;
        let mut rest = Cursor::new(raw);
        while let Some((number, wire)) = rest.key()? {
            match self.schema.get(id).numbered(number) {
                Some(field) => self.field(field, wire, &mut rest, object, depth)?,
                None => rest.skip(wire)?,
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &Field,
        wire: u8,
        rest: &mut Cursor<'_>,
        object: &mut Map<String, Value>,
        depth: u32,
    ) -> Result<(), WireError> {
        self.values = self.values.checked_sub(1).ok_or(WireError::TooMuch)?;
        match field.shape {
            Shape::One => self.one(field, wire, rest, object, depth),
            Shape::List => {
                let packed = wire == BYTES && matches!(field.leaf, Leaf::Int32 | Leaf::Int64 | Leaf::Bool);
                let mut new = Vec::new();
                if packed {
                    let mut numbers = Cursor::new(rest.bytes(wire, field.name)?);
                    while !numbers.is_empty() {
                        self.values = self.values.checked_sub(1).ok_or(WireError::TooMuch)?;
                        new.push(number(field.leaf, numbers.varint()?));
                    }
                } else {
                    new.push(self.leaf(field, wire, rest, depth)?);
                }
                list(object, field.name).extend(new);
                Ok(())
            }
            Shape::Items => {
                let items = self.items(field, rest.bytes(wire, field.name)?, depth)?;
                list(object, field.name).extend(items);
                Ok(())
            }
            Shape::Map | Shape::MapOfItems => {
                let (key, value) = self.entry(field, rest.bytes(wire, field.name)?, depth)?;
                child(object, field.name).insert(key, value);
                Ok(())
            }
        }
    }

    fn one(
        &mut self,
        field: &Field,
        wire: u8,
        rest: &mut Cursor<'_>,
        object: &mut Map<String, Value>,
        depth: u32,
    ) -> Result<(), WireError> {
        if let Leaf::Object(id) = field.leaf {
            let raw = rest.bytes(wire, field.name)?;
            if field.is_embedded() {
                return self.message(id, raw, object, depth);
            }
            let mut inner = match object.remove(field.name) {
                Some(Value::Object(inner)) => inner,
                _ => Map::new(),
            };
            self.message(id, raw, &mut inner, depth)?;
            if !(inner.is_empty() && field.omits_zero()) {
                object.insert(field.name.to_owned(), inner.into());
            }
            return Ok(());
        }
        let value = self.leaf(field, wire, rest, depth)?;
        if value.is_null() || (!field.pointer && field.omits_empty() && is_empty(&value)) {
            object.remove(field.name);
        } else {
            object.insert(field.name.to_owned(), value);
        }
        Ok(())
    }

    /// Reads the message around a list.
    fn items(&mut self, field: &Field, raw: &[u8], depth: u32) -> Result<Vec<Value>, WireError> {
        let mut rest = Cursor::new(raw);
        let mut items = Vec::new();
        while let Some((number, wire)) = rest.key()? {
            self.values = self.values.checked_sub(1).ok_or(WireError::TooMuch)?;
            match number {
                1 => items.push(self.leaf(field, wire, &mut rest, depth)?),
                _ => rest.skip(wire)?,
            }
        }
        Ok(items)
    }

    /// Reads one entry of a map.
    fn entry(&mut self, field: &Field, raw: &[u8], depth: u32) -> Result<(String, Value), WireError> {
        let mut rest = Cursor::new(raw);
        let (mut key, mut value) = (String::new(), None);
        while let Some((number, wire)) = rest.key()? {
            match number {
                1 => key = rest.text(wire, field.name)?,
                2 if field.shape == Shape::MapOfItems => {
                    value = Some(self.items(field, rest.bytes(wire, field.name)?, depth)?.into());
                }
                2 => value = Some(self.leaf(field, wire, &mut rest, depth)?),
                _ => rest.skip(wire)?,
            }
        }
        let value = match value {
            Some(value) => value,
            // An entry without a value has the zero of its type.
            None if field.shape == Shape::MapOfItems => Value::Array(Vec::new()),
            None => zero(field.leaf),
        };
        Ok((key, value))
    }

    fn leaf(&mut self, field: &Field, wire: u8, rest: &mut Cursor<'_>, depth: u32) -> Result<Value, WireError> {
        let name = field.name;
        let bad = |problem: String| WireError::BadValue { field: name.to_owned(), problem };
        Ok(match field.leaf {
            Leaf::Text => rest.text(wire, name)?.into(),
            Leaf::Bool | Leaf::Int32 | Leaf::Int64 => number(field.leaf, rest.number(wire, name)?),
            Leaf::Double => Number::from_f64(rest.double(wire, name)?)
                .map(Value::Number)
                .ok_or_else(|| bad("no finite number".to_owned()))?,
            Leaf::Bytes => STANDARD.encode(rest.bytes(wire, name)?).into(),
            Leaf::Quantity => wrapped(rest.bytes(wire, name)?, name)?
                .map_or_else(|| Value::from("0"), |text| String::from_utf8_lossy(text).into_owned().into()),
            Leaf::IntOrText => int_or_text(rest.bytes(wire, name)?, name)?,
            Leaf::Time | Leaf::MicroTime => time(field, rest.bytes(wire, name)?)?,
            Leaf::Raw | Leaf::FieldSet | Leaf::Json => match wrapped(rest.bytes(wire, name)?, name)? {
                None | Some(b"") => Value::Null,
                Some(raw) if raw.starts_with(MAGIC) => self.nested(raw, depth)?,
                Some(raw) => serde_json::from_slice(raw).map_err(|error| bad(error.to_string()))?,
            },
            Leaf::SchemaOrBool | Leaf::SchemaOrList | Leaf::SchemaOrTexts => {
                self.choice(field, rest.bytes(wire, name)?, depth)?
            }
            Leaf::Object(id) => {
                let mut object = Map::new();
                self.message(id, rest.bytes(wire, name)?, &mut object, depth)?;
                object.into()
            }
        })
    }

    /// Reads an object with an envelope of its own inside another.
    fn nested(&mut self, raw: &[u8], depth: u32) -> Result<Value, WireError> {
        let envelope = Envelope::read(raw)?;
        let id = self.schema.kind(&envelope.api_version, &envelope.kind).ok_or_else(|| WireError::BadValue {
            field: envelope.kind.clone(),
            problem: format!("no such kind in {:?}", envelope.api_version),
        })?;
        let mut object = Map::new();
        self.message(id, envelope.raw, &mut object, depth)?;
        object.insert("apiVersion".to_owned(), envelope.api_version.into());
        object.insert("kind".to_owned(), envelope.kind.into());
        Ok(object.into())
    }

    /// Reads a schema, or what stands in its place.
    fn choice(&mut self, field: &Field, raw: &[u8], depth: u32) -> Result<Value, WireError> {
        let id = self.schema.named("apiextensions/v1", "JSONSchemaProps").ok_or(WireError::TooMuch)?;
        let mut rest = Cursor::new(raw);
        let (mut allows, mut schema, mut many) = (false, None, Vec::new());
        while let Some((number, wire)) = rest.key()? {
            self.values = self.values.checked_sub(1).ok_or(WireError::TooMuch)?;
            let one = |reader: &mut Self, raw: &[u8]| {
                let mut object = Map::new();
                reader.message(id, raw, &mut object, depth).map(|()| Value::Object(object))
            };
            match (field.leaf, number) {
                (Leaf::SchemaOrBool, 1) => allows = rest.number(wire, field.name)? != 0,
                (Leaf::SchemaOrBool, 2) | (_, 1) => schema = Some(one(self, rest.bytes(wire, field.name)?)?),
                (Leaf::SchemaOrList, 2) => many.push(one(self, rest.bytes(wire, field.name)?)?),
                (Leaf::SchemaOrTexts, 2) => many.push(rest.text(wire, field.name)?.into()),
                _ => rest.skip(wire)?,
            }
        }
        Ok(match (schema, field.leaf) {
            (_, Leaf::SchemaOrList | Leaf::SchemaOrTexts) if !many.is_empty() => many.into(),
            (Some(schema), _) => schema,
            (None, Leaf::SchemaOrBool) => allows.into(),
            (None, _) => Value::Null,
        })
    }
}

fn child<'a>(object: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let value = object.entry(key).or_insert_with(|| Value::Object(Map::new()));
    // A field has one shape, so what is there is a map.
    let Value::Object(map) = value else { unreachable!("a map field holds a map") };
    map
}

fn list<'a>(object: &'a mut Map<String, Value>, key: &str) -> &'a mut Vec<Value> {
    let value = object.entry(key).or_insert_with(|| Value::Array(Vec::new()));
    // A field has one shape, so what is there is a list.
    let Value::Array(items) = value else { unreachable!("a list field holds a list") };
    items
}

/// A number as its type shows it; what is too large is cut as Go does.
fn number(leaf: Leaf, raw: u64) -> Value {
    match leaf {
        Leaf::Bool => (raw != 0).into(),
        Leaf::Int32 => {
            let [a, b, c, d, ..] = raw.to_le_bytes();
            i32::from_le_bytes([a, b, c, d]).into()
        }
        _ => raw.cast_signed().into(),
    }
}

fn zero(leaf: Leaf) -> Value {
    match leaf {
        Leaf::Text | Leaf::Bytes => "".into(),
        Leaf::Quantity => "0".into(),
        Leaf::Bool => false.into(),
        Leaf::Int32 | Leaf::Int64 | Leaf::IntOrText | Leaf::Double => 0.into(),
        Leaf::Object(_) => Value::Object(Map::new()),
        _ => Value::Null,
    }
}

/// Whether Go's JSON leaves a value out where empty ones are left out; structures are never empty there.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => false,
    }
}

/// Reads a message whose first field holds the bytes that count.
fn wrapped<'a>(raw: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, WireError> {
    let mut rest = Cursor::new(raw);
    let mut found = None;
    while let Some((number, wire)) = rest.key()? {
        match number {
            1 => found = Some(rest.bytes(wire, name)?),
            _ => rest.skip(wire)?,
        }
    }
    Ok(found)
}

fn int_or_text(raw: &[u8], name: &str) -> Result<Value, WireError> {
    let mut rest = Cursor::new(raw);
    let (mut is_text, mut int, mut text) = (false, Value::from(0), String::new());
    while let Some((field, wire)) = rest.key()? {
        match field {
            1 => is_text = rest.number(wire, name)? == 1,
            2 => int = number(Leaf::Int32, rest.number(wire, name)?),
            3 => text = rest.text(wire, name)?,
            _ => rest.skip(wire)?,
        }
    }
    Ok(if is_text { text.into() } else { int })
}

/// Reads a time; an empty message is the zero time, which JSON shows as null.
fn time(field: &Field, raw: &[u8]) -> Result<Value, WireError> {
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let mut rest = Cursor::new(raw);
    let (mut seconds, mut nanos) = (0, 0);
    while let Some((number, wire)) = rest.key()? {
        match number {
            1 => seconds = rest.number(wire, field.name)?.cast_signed(),
            2 => nanos = rest.number(wire, field.name)?.cast_signed(),
            _ => rest.skip(wire)?,
        }
    }
    let bad = |problem: String| WireError::BadValue { field: field.name.to_owned(), problem };
    let nanos = i32::try_from(nanos).map_err(|error| bad(error.to_string()))?;
    let at = Timestamp::new(seconds, nanos).map_err(|error| bad(error.to_string()))?;
    let format = if field.leaf == Leaf::Time { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
    Ok(at.strftime(format).to_string().into())
}
