//! Values dealt out of bytes: the same bytes give the same value, and when they run out the simplest. Objects follow the
//! table of types, so that most of them reach what lies behind the decoder.

use longshore_api::schema::{Field, Leaf, Shape, TypeId, schema};
use serde_json::{Map, Value, json};

/// Most values in one object.
const MOST: u32 = 400;

/// Deepest nesting that is dealt.
const DEPTH: u32 = 12;

/// Texts that mean something somewhere.
const WORDS: [&str; 40] = [
    "a",
    "b",
    "c",
    "",
    "x",
    "Always",
    "Never",
    "TCP",
    "UDP",
    "100m",
    "1Gi",
    "-1",
    "/p",
    "../x",
    "..",
    "é",
    "true",
    "null",
    "$(A)",
    "A",
    "a.b/c",
    "ClusterIP",
    "None",
    "10.96.0.1",
    "::1",
    "0644",
    "1e3",
    "RuntimeDefault",
    "Exists",
    "NoExecute",
    "80",
    "25%",
    "In",
    "metadata.name",
    "2026-01-01T00:00:00Z",
    "RollingUpdate",
    "IfNotPresent",
    "File",
    "YQ==",
    "\u{0}",
];

/// Numbers at the edges.
const NUMBERS: [i64; 16] = [
    0,
    1,
    2,
    -1,
    80,
    65_535,
    65_536,
    30_000,
    1_000,
    i64::MAX,
    i64::MIN,
    2_147_483_647,
    -2_147_483_648,
    4_294_967_296,
    3,
    7,
];

/// The bytes that are left.
pub(crate) struct Deal<'a> {
    rest: &'a [u8],
    left: u32,
    /// Whether nulls and the directives of strategic patches are among what is dealt.
    pub(crate) patch: bool,
}

impl<'a> Deal<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, left: MOST, patch: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit.max(1)
    }

    pub(crate) fn text(&mut self) -> String {
        let byte = self.byte();
        match WORDS.get(usize::from(byte)) {
            Some(word) => (*word).to_owned(),
            None if byte < 224 => ["a", "b", "c"][usize::from(byte % 3)].to_owned(),
            None => {
                let length = usize::from(byte - 223).min(self.rest.len());
                let (text, rest) = self.rest.split_at(length);
                self.rest = rest;
                String::from_utf8_lossy(text).into_owned()
            }
        }
    }

    fn number(&mut self) -> i64 {
        let byte = self.byte();
        NUMBERS.get(usize::from(byte)).copied().unwrap_or_else(|| i64::from(byte) - 64)
    }

    /// An object of a type. Afterwards as many values may be dealt again.
    pub(crate) fn object(&mut self, id: TypeId) -> Value {
        self.left = MOST;
        self.of_type(id, DEPTH)
    }

    fn of_type(&mut self, id: TypeId, depth: u32) -> Value {
        let mut object = Map::new();
        let fields = schema().fields(id);
        if depth == 0 || fields.is_empty() {
            return object.into();
        }
        for field in fields.iter().filter(|field| field.is_required()) {
            // Now and then one that must be there is not.
            if self.byte() != 7 {
                let value = self.field(field, depth);
                object.insert(field.name.to_owned(), value);
            }
        }
        for _ in 0..self.below(6) {
            if self.is_empty() || self.left == 0 {
                break;
            }
            let field = fields[self.below(fields.len())];
            let (name, value) = match (self.patch, self.byte()) {
                (true, 1) => (field.name.to_owned(), Value::Null),
                (true, 2) => ("$patch".to_owned(), json!(["merge", "replace", "delete", "x"][self.below(4)])),
                (true, 3) => (format!("$setElementOrder/{}", field.name), self.field(field, depth)),
                (true, 4) => (format!("$deleteFromPrimitiveList/{}", field.name), self.field(field, depth)),
                (true, 5) => ("$retainKeys".to_owned(), json!([field.name, self.text()])),
                (_, 6) => (field.name.to_owned(), self.any(3)),
                _ => (field.name.to_owned(), self.field(field, depth)),
            };
            object.insert(name, value);
        }
        object.into()
    }

    fn field(&mut self, field: &Field, depth: u32) -> Value {
        match field.shape {
            Shape::One => self.leaf(field.leaf, depth),
            Shape::List | Shape::Items => (0..self.below(4)).map(|_| self.leaf(field.leaf, depth)).collect(),
            Shape::Map => {
                let entries = (0..self.below(4)).map(|_| (self.text(), self.leaf(field.leaf, depth)));
                Value::Object(entries.collect())
            }
            Shape::MapOfItems => {
                let entries = (0..self.below(3)).map(|_| (self.text(), json!([self.leaf(field.leaf, depth)])));
                Value::Object(entries.collect())
            }
        }
    }

    fn leaf(&mut self, leaf: Leaf, depth: u32) -> Value {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return Value::Null;
        }
        match leaf {
            Leaf::Text => self.text().into(),
            Leaf::Bool => (self.byte() % 2 == 1).into(),
            Leaf::Int32 | Leaf::Int64 => self.number().into(),
            Leaf::Double => json!(f64::from(self.byte()) / 4.0),
            Leaf::Bytes => ["", "YQ==", "YWI=", "?"][self.below(4)].into(),
            Leaf::Quantity => ["0", "100m", "1", "1Gi", "1e3", "-1", "x", "9223372036854775807E"][self.below(8)].into(),
            Leaf::IntOrText => match self.byte() % 2 {
                0 => self.number().into(),
                _ => self.text().into(),
            },
            Leaf::Time => "2026-01-01T00:00:00Z".into(),
            Leaf::MicroTime => "2026-01-01T00:00:00.000001Z".into(),
            Leaf::Raw | Leaf::FieldSet | Leaf::Json => self.any(5),
            Leaf::SchemaOrBool | Leaf::SchemaOrList | Leaf::SchemaOrTexts => {
                match schema().named("apiextensions/v1", "JSONSchemaProps") {
                    Some(id) if self.byte().is_multiple_of(2) => self.of_type(id, depth - 1),
                    _ => self.any(2),
                }
            }
            Leaf::Object(id) => self.of_type(id, depth - 1),
        }
    }

    /// Any value.
    pub(crate) fn any(&mut self, depth: u32) -> Value {
        self.left = self.left.saturating_sub(1);
        match self.byte() % if depth == 0 || self.left == 0 { 5 } else { 8 } {
            0 => Value::Null,
            1 => (self.byte() % 2 == 1).into(),
            2 => self.number().into(),
            3 => json!(f64::from(self.byte()) * 0.1),
            4 => self.text().into(),
            5 | 6 => Value::Object((0..self.below(4)).map(|_| (self.text(), self.any(depth - 1))).collect()),
            _ => (0..self.below(4)).map(|_| self.any(depth - 1)).collect(),
        }
    }

    /// A kind of the table.
    pub(crate) fn kind(&mut self) -> TypeId {
        kinds()[usize::from(self.byte()) % kinds().len()]
    }
}

/// The kinds of the table that are objects with metadata of their own; the ones that people use most come first.
pub(crate) fn kinds() -> &'static [TypeId] {
    static KINDS: std::sync::LazyLock<Vec<TypeId>> = std::sync::LazyLock::new(|| {
        let first = [("v1", "Pod"), ("apps/v1", "Deployment"), ("v1", "Service"), ("v1", "ConfigMap"), ("v1", "Node")];
        let mut all: Vec<TypeId> = first.iter().filter_map(|(version, kind)| schema().kind(version, kind)).collect();
        let has_meta = |id: &TypeId| schema().get(*id).is_kind && schema().field(*id, "metadata").is_some();
        for id in schema().types().filter(has_meta) {
            if !schema().get(id).name.ends_with("List") && !all.contains(&id) {
                all.push(id);
            }
        }
        all
    });
    &KINDS
}

/// The number of bytes that a value takes as JSON.
pub(crate) fn size(value: &Value) -> usize {
    value.to_string().len()
}
