//! Objects written as protobuf, by the table of types: what a client of a stock server's makes of them. The product only
//! reads this form, so the writer stands here and the two are held against each other.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_api::schema::wire::MAGIC;
use longshore_api::schema::{Field, Leaf, Shape, TypeId, schema};
use serde_json::{Map, Value};

/// Puts a message into its envelope.
pub(crate) fn envelope(id: TypeId, message: &[u8]) -> Vec<u8> {
    let found = schema().get(id);
    let mut meta = Vec::new();
    part(1, found.api_version.as_bytes(), &mut meta);
    part(2, found.name.as_bytes(), &mut meta);
    let mut out = MAGIC.to_vec();
    part(1, &meta, &mut out);
    part(2, message, &mut out);
    out
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}

fn key(number: u32, wire: u8, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | u64::from(wire), out);
}

fn part(number: u32, content: &[u8], out: &mut Vec<u8>) {
    key(number, 2, out);
    varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// Types whose fields stand among those of another one: the owner, the number of the field there, the type.
const EMBEDDED: [(&str, u32, &str); 14] = [
    ("ConfigMapEnvSource", 1, "LocalObjectReference"),
    ("ConfigMapKeySelector", 1, "LocalObjectReference"),
    ("ConfigMapProjection", 1, "LocalObjectReference"),
    ("ConfigMapVolumeSource", 1, "LocalObjectReference"),
    ("SecretEnvSource", 1, "LocalObjectReference"),
    ("SecretKeySelector", 1, "LocalObjectReference"),
    ("SecretProjection", 1, "LocalObjectReference"),
    ("EphemeralContainer", 1, "EphemeralContainerCommon"),
    ("PersistentVolumeSpec", 2, "PersistentVolumeSource"),
    ("Probe", 1, "ProbeHandler"),
    ("Volume", 2, "VolumeSource"),
    ("IngressRule", 2, "IngressRuleValue"),
    ("NamedRuleWithOperations", 2, "RuleWithOperations"),
    ("RuleWithOperations", 2, "Rule"),
];

/// Writes an object of a type; nothing if there is something in it that this writer does not know.
pub(crate) fn message(id: TypeId, object: &Map<String, Value>) -> Option<Vec<u8>> {
    let own = schema().get(id);
    let embedded = EMBEDDED.iter().find(|(owner, ..)| *owner == own.name);
    let embedded = embedded.and_then(|(_, number, name)| Some((*number, schema().named(own.package, name)?)));
    let (mut out, mut inner) = (Vec::new(), Map::new());
    for (name, value) in object {
        if own.is_kind && matches!(name.as_str(), "apiVersion" | "kind") {
            continue;
        }
        if embedded.is_some_and(|(_, id)| schema().field(id, name).is_some()) {
            inner.insert(name.clone(), value.clone());
        } else {
            write(schema().field(id, name)?, value, &mut out)?;
        }
    }
    if let Some((number, id)) = embedded.filter(|_| !inner.is_empty()) {
        part(number, &message(id, &inner)?, &mut out);
    }
    Some(out)
}

fn write(field: &Field, value: &Value, out: &mut Vec<u8>) -> Option<()> {
    match field.shape {
        Shape::One => leaf(field, field.number, value, out),
        Shape::List => value.as_array()?.iter().try_for_each(|item| leaf(field, field.number, item, out)),
        Shape::Items => {
            let mut items = Vec::new();
            value.as_array()?.iter().try_for_each(|item| leaf(field, 1, item, &mut items))?;
            part(field.number, &items, out);
            Some(())
        }
        Shape::Map => value.as_object()?.iter().try_for_each(|(name, value)| {
            let mut entry = Vec::new();
            part(1, name.as_bytes(), &mut entry);
            leaf(field, 2, value, &mut entry)?;
            part(field.number, &entry, out);
            Some(())
        }),
        Shape::MapOfItems => None,
    }
}

fn leaf(field: &Field, number: u32, value: &Value, out: &mut Vec<u8>) -> Option<()> {
    match field.leaf {
        Leaf::Text => part(number, value.as_str()?.as_bytes(), out),
        Leaf::Bytes => part(number, &STANDARD.decode(value.as_str()?).ok()?, out),
        Leaf::Bool => {
            key(number, 0, out);
            varint(u64::from(value.as_bool()?), out);
        }
        Leaf::Int32 => {
            let small = i32::try_from(value.as_i64()?).ok()?;
            key(number, 0, out);
            varint(i64::from(small).cast_unsigned(), out);
        }
        Leaf::Int64 => {
            key(number, 0, out);
            varint(value.as_i64()?.cast_unsigned(), out);
        }
        Leaf::Quantity => {
            let mut inner = Vec::new();
            part(1, value.as_str()?.as_bytes(), &mut inner);
            part(number, &inner, out);
        }
        Leaf::IntOrText => {
            let mut inner = Vec::new();
            match value {
                Value::String(text) => {
                    inner.extend([8, 1]);
                    part(3, text.as_bytes(), &mut inner);
                }
                other => {
                    let small = i32::try_from(other.as_i64()?).ok()?;
                    inner.extend([8, 0, 16]);
                    varint(i64::from(small).cast_unsigned(), &mut inner);
                }
            }
            part(number, &inner, out);
        }
        Leaf::Object(id) => part(number, &message(id, value.as_object()?)?, out),
        _ => return None,
    }
    Some(())
}
