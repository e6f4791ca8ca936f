//! Reading `types.txt`. A line that cannot be read is left out; a test sees to it that there is none.

use std::collections::HashMap;

use super::{Field, Leaf, Schema, Shape, Type, TypeId};

/// Types by package and name.
type Names = HashMap<(&'static str, &'static str), TypeId>;

impl Schema {
    /// Reads the table.
    pub(super) fn read(text: &'static str) -> Self {
        let names = names(text);
        let mut types: Vec<Type> = Vec::with_capacity(names.len());
        let mut fields = Vec::new();
        let (mut package, mut api_version) = ("", "");
        for line in lines(text) {
            if let Some(rest) = line.strip_prefix("@ ") {
                (package, api_version) = rest.split_once(' ').unwrap_or((rest, ""));
            } else if let Some(rest) = line.strip_prefix("= ") {
                finish(&mut types, &mut fields);
                let (name, marks) = rest.split_once(' ').unwrap_or((rest, ""));
                let has = |mark: &str| marks.split(' ').any(|other| other == mark);
                let (is_kind, atomic) = (has("kind"), has("a"));
                types.push(Type { package, api_version, name, is_kind, atomic, fields: Box::default() });
            } else {
                fields.extend(field(line, package, &names));
            }
        }
        finish(&mut types, &mut fields);
        let types = types.into_boxed_slice();
        let mut kinds: Vec<TypeId> =
            (0u16..).zip(&types).filter(|(_, found)| found.is_kind).map(|(id, _)| TypeId(id)).collect();
        kinds.sort_by_key(|id| {
            let found = &types[usize::from(id.0)];
            (found.name, found.api_version)
        });
        Self { types, kinds: kinds.into_boxed_slice() }
    }
}

/// Lines with something in them.
pub(super) fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Gives the fields read so far to the type begun last.
fn finish(types: &mut [Type], fields: &mut Vec<Field>) {
    if let Some(last) = types.last_mut() {
        last.fields = std::mem::take(fields).into_boxed_slice();
    }
}

fn names(text: &'static str) -> Names {
    let mut names = Names::new();
    let mut package = "";
    let mut next = 0u16..;
    for line in lines(text) {
        if let Some(rest) = line.strip_prefix("@ ") {
            package = rest.split(' ').next().unwrap_or_default();
        } else if let Some(rest) = line.strip_prefix("= ")
            && let Some(id) = next.next()
        {
            names.insert((package, rest.split(' ').next().unwrap_or_default()), TypeId(id));
        }
    }
    names
}

/// Reads one line of a type.
fn field(line: &'static str, package: &'static str, names: &Names) -> Option<Field> {
    let mut words = line.splitn(4, ' ');
    let (name, number, shape) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    let marks = words.next().unwrap_or_default();
    let (pointer, shape) = shape.strip_prefix('*').map_or((false, shape), |rest| (true, rest));
    let prefixes = [("{}<>", Shape::MapOfItems), ("{}", Shape::Map), ("[]", Shape::List), ("<>", Shape::Items)];
    let (shape, word) = prefixes
        .into_iter()
        .find_map(|(prefix, kind)| shape.strip_prefix(prefix).map(|rest| (kind, rest)))
        .unwrap_or((Shape::One, shape));
    Some(Field { name, number, shape, pointer, leaf: leaf(word, package, names)?, marks })
}

fn leaf(word: &'static str, package: &'static str, names: &Names) -> Option<Leaf> {
    Some(match word {
        "string" => Leaf::Text,
        "bool" => Leaf::Bool,
        "int32" => Leaf::Int32,
        "int64" => Leaf::Int64,
        "double" => Leaf::Double,
        "bytes" => Leaf::Bytes,
        "Quantity" => Leaf::Quantity,
        "IntOrString" => Leaf::IntOrText,
        "Time" => Leaf::Time,
        "MicroTime" => Leaf::MicroTime,
        "RawExtension" => Leaf::Raw,
        "FieldsV1" => Leaf::FieldSet,
        "JSON" => Leaf::Json,
        "JSONSchemaPropsOrBool" => Leaf::SchemaOrBool,
        "JSONSchemaPropsOrArray" => Leaf::SchemaOrList,
        "JSONSchemaPropsOrStringArray" => Leaf::SchemaOrTexts,
        _ => {
            let place = word.split_once('.').unwrap_or((package, word));
            Leaf::Object(*names.get(&place)?)
        }
    })
}
