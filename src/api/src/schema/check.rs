//! Fields that a type does not have, and keys that come twice: told with their paths, as upstream words them, and left
//! out of the object.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{Field, Leaf, Schema, Shape, TypeId};
use crate::scalars::visit_scalars;

/// Most findings told.
const MOST: usize = 100;

/// What was found, in the order of the text.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Findings(Vec<String>);

impl Findings {
    pub(crate) fn add(&mut self, what: &str, path: &str) {
        let text = format!("{what} field {path:?}");
        if self.0.len() < MOST && !self.0.contains(&text) {
            self.0.push(text);
        }
    }

    /// Takes over what was found in a part, with the way to that part in front.
    pub(crate) fn take_below(&mut self, path: &str, part: &Self) {
        for text in &part.0 {
            if let Some((what, rest)) = text.split_once(" field \"") {
                self.add(what, &format!("{path}.{}", rest.trim_end_matches('"')));
            }
        }
    }

    /// Adds what was found elsewhere in the same object.
    pub fn extend(&mut self, other: Self) {
        for text in other.0 {
            if self.0.len() < MOST && !self.0.contains(&text) {
                self.0.push(text);
            }
        }
    }

    /// Returns the texts.
    pub fn texts(&self) -> &[String] {
        &self.0
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What a value should be.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// An object of a type.
    Object(TypeId),
    /// A map of such.
    MapOf(TypeId),
    /// A list of such.
    ListOf(TypeId),
    /// A schema, or a list of them, or something else in their place.
    Schema,
    /// Anything.
    Free,
}

impl Place {
    fn of(field: &Field) -> Self {
        match (field.leaf, field.shape) {
            (Leaf::Object(id), Shape::One) => Self::Object(id),
            (Leaf::Object(id), Shape::List | Shape::Items) => Self::ListOf(id),
            (Leaf::Object(id), Shape::Map) => Self::MapOf(id),
            (Leaf::SchemaOrBool | Leaf::SchemaOrList, Shape::One) => Self::Schema,
            _ => Self::Free,
        }
    }

    /// What lies below a key; nothing if there is no such field.
    fn below(self, schema: &Schema, key: &str) -> Option<Self> {
        match self {
            Self::Object(id) => match schema.field(id, key) {
                Some(field) => Some(Self::of(field)),
                None if schema.get(id).is_kind && matches!(key, "apiVersion" | "kind") => Some(Self::Free),
                None => None,
            },
            Self::MapOf(id) => Some(Self::Object(id)),
            Self::Schema => match schema.named("apiextensions/v1", "JSONSchemaProps") {
                Some(id) => Self::Object(id).below(schema, key),
                None => Some(Self::Free),
            },
            Self::ListOf(_) | Self::Free => Some(Self::Free),
        }
    }

    /// What the items of a list are.
    fn item(self) -> Self {
        match self {
            Self::ListOf(id) => Self::Object(id),
            Self::Schema => Self::Schema,
            Self::Object(_) | Self::MapOf(_) | Self::Free => Self::Free,
        }
    }
}

/// The way to a value, as told.
#[derive(Debug, Default)]
struct Path(String);

impl Path {
    /// Goes down to a key; returns the length to come back to.
    fn key(&mut self, key: &str) -> usize {
        let length = self.0.len();
        if length > 0 {
            self.0.push('.');
        }
        self.0.push_str(key);
        length
    }

    fn index(&mut self, index: usize) -> usize {
        let length = self.0.len();
        self.0.push('[');
        self.0.push_str(&index.to_string());
        self.0.push(']');
        length
    }
}

/// Reads an object of a type; fields that the type does not have are left out.
pub fn read(schema: &Schema, id: TypeId, json: &[u8]) -> Result<(Value, Findings), serde_json::Error> {
    let mut state = State { schema, path: Path::default(), findings: Findings::default() };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = Seed { state: &mut state, place: Place::Object(id) }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok((value, state.findings))
}

/// Reads an object of which nothing is known yet: only keys that come twice are found.
pub fn read_any(json: &[u8]) -> Result<(Value, Findings), serde_json::Error> {
    let mut state = State { schema: super::schema(), path: Path::default(), findings: Findings::default() };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = Seed { state: &mut state, place: Place::Free }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok((value, state.findings))
}

/// Takes fields that the type does not have out of an object.
pub fn prune(schema: &Schema, id: TypeId, object: &mut Value) -> Findings {
    let mut state = State { schema, path: Path::default(), findings: Findings::default() };
    state.prune(Place::Object(id), object);
    state.findings
}

struct State<'a> {
    schema: &'a Schema,
    path: Path,
    findings: Findings,
}

impl State<'_> {
    fn prune(&mut self, place: Place, value: &mut Value) {
        match (place, value) {
            (Place::Free, _) => {}
            (_, Value::Object(map)) => map.retain(|key, value| {
                let length = self.path.key(key);
                let below = place.below(self.schema, key);
                match below {
                    Some(below) => self.prune(below, value),
                    None => self.findings.add("unknown", &self.path.0),
                }
                self.path.0.truncate(length);
                below.is_some()
            }),
            (_, Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let length = self.path.index(index);
                    self.prune(place.item(), item);
                    self.path.0.truncate(length);
                }
            }
            _ => {}
        }
    }
}

struct Seed<'s, 'a> {
    state: &'s mut State<'a>,
    place: Place,
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    visit_scalars!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let place = self.place.item();
        loop {
            let length = self.state.path.index(items.len());
            let item = list.next_element_seed(Seed { state: &mut *self.state, place })?;
            self.state.path.0.truncate(length);
            match item {
                Some(item) => items.push(item),
                None => return Ok(items.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let state = &mut *self.state;
            let length = state.path.key(&key);
            match self.place.below(state.schema, &key) {
                Some(place) => {
                    if object.contains_key(&key) {
                        state.findings.add("duplicate", &state.path.0);
                    }
                    let value = map.next_value_seed(Seed { state: &mut *state, place })?;
                    object.insert(key, value);
                }
                None => {
                    state.findings.add("unknown", &state.path.0);
                    map.next_value::<serde::de::IgnoredAny>()?;
                }
            }
            self.state.path.0.truncate(length);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::schema;

    fn pod() -> TypeId {
        schema().kind("v1", "Pod").unwrap()
    }

    fn found(text: &str) -> Vec<String> {
        read(schema(), pod(), text.as_bytes()).unwrap().1.texts().to_vec()
    }

    #[test]
    fn unknown_fields_are_told_in_the_order_of_the_text_and_left_out() {
        let text = r#"{"kind":"Pod","spec":{"zz":{"a":[1]},"containers":[{"name":"c","ports":[{"containerPort":80,
            "odd":1}]}],"bogus":1},"metadata":{"labels":{"any":"x"},"nope":null}}"#;
        let (value, findings) = read(schema(), pod(), text.as_bytes()).unwrap();
        let want = ["spec.zz", "spec.containers[0].ports[0].odd", "spec.bogus", "metadata.nope"];
        assert_eq!(findings.texts(), want.map(|path| format!("unknown field {path:?}")));
        assert_eq!(
            value,
            json!({"kind": "Pod", "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
                "metadata": {"labels": {"any": "x"}}})
        );
    }

    #[test]
    fn a_key_that_comes_twice_is_told_once_and_the_last_one_counts() {
        let text = r#"{"spec":{"nodeName":"a","nodeName":"b","nodeName":"c"},"metadata":{"labels":{"x":"1","x":"2"}}}"#;
        let (value, findings) = read(schema(), pod(), text.as_bytes()).unwrap();
        assert_eq!(findings.texts(), [r#"duplicate field "spec.nodeName""#, r#"duplicate field "metadata.labels.x""#]);
        assert_eq!(value, json!({"spec": {"nodeName": "c"}, "metadata": {"labels": {"x": "2"}}}));
    }

    #[test]
    fn kind_and_version_belong_to_kinds_alone() {
        assert_eq!(found(r#"{"kind":"Pod","apiVersion":"v1","spec":{"kind":"x"}}"#), [r#"unknown field "spec.kind""#]);
        let set = schema().kind("apps/v1", "StatefulSet").unwrap();
        let text = br#"{"spec":{"volumeClaimTemplates":[{"kind":"PersistentVolumeClaim","apiVersion":"v1","x":1}]}}"#;
        let findings = read(schema(), set, text).unwrap().1;
        assert_eq!(findings.texts(), [r#"unknown field "spec.volumeClaimTemplates[0].x""#]);
    }

    #[test]
    fn fields_of_embedded_types_and_free_values_are_known() {
        assert!(
            found(r#"{"spec":{"volumes":[{"name":"v","hostPath":{"path":"/"}}],"nodeSelector":{"a.b":"c"}}}"#)
                .is_empty()
        );
        let revision = schema().kind("apps/v1", "ControllerRevision").unwrap();
        assert!(read(schema(), revision, br#"{"data":{"x":{"y":1}}}"#).unwrap().1.is_empty());
        let crd = schema().kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap();
        let text = br#"{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"properties":{"free":{"type":"string",
            "items":{"type":"string","odd":1}}}}}}]}}"#;
        assert_eq!(
            read(schema(), crd, text).unwrap().1.texts(),
            [r#"unknown field "spec.versions[0].schema.openAPIV3Schema.properties.free.items.odd""#]
        );
    }

    #[test]
    fn what_has_another_form_than_its_type_is_kept_for_the_typed_decoder() {
        let text = r#"{"spec":{"containers":"nope"},"metadata":[1]}"#;
        assert_eq!(read(schema(), pod(), text.as_bytes()).unwrap().0, serde_json::from_str::<Value>(text).unwrap());
        assert!(read(schema(), pod(), b"{} x").is_err());
        assert!(read(schema(), pod(), "[".repeat(200).as_bytes()).is_err(), "depth is bounded");
    }

    #[test]
    fn pruning_finds_the_same_in_a_value() {
        let mut object = json!({"spec": {"bogus": 1, "containers": [{"name": "c", "nope": 2}]}, "kind": "Pod"});
        let findings = prune(schema(), pod(), &mut object);
        assert_eq!(findings.texts(), [r#"unknown field "spec.bogus""#, r#"unknown field "spec.containers[0].nope""#]);
        assert_eq!(object, json!({"spec": {"containers": [{"name": "c"}]}, "kind": "Pod"}));
    }
}
