//! Reads typed objects from JSON values. A field that does not fit is found on the way back from it, so what fits costs nothing
//! more, and the program has the code that reads a type once: keeping track of the path while reading takes its own copy of
//! that of each type.

use std::fmt;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, Expected, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

/// One step from an object to what is in it.
#[derive(Debug)]
enum Step {
    Key(String),
    Item(usize),
}

/// What does not fit, and where.
#[derive(Debug)]
pub(super) struct Misfit(Box<Inner>);

#[derive(Debug)]
struct Inner {
    /// From the inside out.
    path: Vec<Step>,
    text: String,
}

impl Misfit {
    fn below(mut self, step: Step) -> Self {
        self.0.path.push(step);
        self
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.path.iter().rev().enumerate() {
            match step {
                Step::Item(index) => write!(f, "[{index}]")?,
                Step::Key(key) if place == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
            }
        }
        let colon = if self.0.path.is_empty() { "" } else { ": " };
        write!(f, "{colon}{}", self.0.text)
    }
}

impl std::error::Error for Misfit {}

impl Error for Misfit {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(Box::new(Inner { path: Vec::new(), text: text.to_string() }))
    }

    // JSON's words for what is found: null, and numbers as they are written.
    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        serde_json::Error::invalid_type(found, wanted).into()
    }

    fn invalid_value(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        serde_json::Error::invalid_value(found, wanted).into()
    }
}

impl From<serde_json::Error> for Misfit {
    fn from(error: serde_json::Error) -> Self {
        Self::custom(error)
    }
}

/// A value to be read.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a Value);

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(truth) => visitor.visit_bool(*truth),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (.., Some(number)) => visitor.visit_f64(number),
                (None, None, None) => Err(Misfit::custom(format_args!("number {number} cannot be read"))),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => {
                let mut left = Items { items: items.iter().enumerate() };
                let read = visitor.visit_seq(&mut left)?;
                if left.items.len() == 0 {
                    Ok(read)
                } else {
                    Err(Misfit::invalid_length(items.len(), &"fewer elements in array"))
                }
            }
            Value::Object(fields) => visitor.visit_map(Fields { fields: fields.iter(), next: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    /// What is in a variant is read by the usual reader, without a path: no type of the API has any.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        Ok(self.0.deserialize_enum(name, variants, visitor)?)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

struct Items<'de> {
    items: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
}

impl<'de> SeqAccess<'de> for &mut Items<'de> {
    type Error = Misfit;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Misfit> {
        let Some((index, item)) = self.items.next() else { return Ok(None) };
        seed.deserialize(Reader(item)).map(Some).map_err(|misfit| misfit.below(Step::Item(index)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Fields<'de> {
    fields: serde_json::map::Iter<'de>,
    /// The field whose name was read.
    next: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        let Some((key, value)) = self.fields.next() else { return Ok(None) };
        self.next = Some((key, value));
        seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Misfit> {
        let Some((key, value)) = self.next.take() else {
            return Err(Misfit::custom("a value was asked for before its key"));
        };
        seed.deserialize(Reader(value)).map_err(|misfit| misfit.below(Step::Key(key.to_owned())))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}
