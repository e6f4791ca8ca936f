//! What the built-in types are made of: one table of facts (`types.txt`), read when it is first asked for. The control
//! plane's decoding, field checks, patches, apply and OpenAPI rest on it; the agent must not touch it, for its memory.

pub mod check;
pub mod openapi;
mod table;
pub mod wire;

use std::sync::LazyLock;

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::read(include_str!("types.txt")));

/// Returns the table.
pub fn schema() -> &'static Schema {
    &SCHEMA
}

/// The types and what is found by kind.
#[derive(Debug)]
pub struct Schema {
    types: Box<[Type]>,
    /// Kinds, in order of name and version.
    kinds: Box<[TypeId]>,
}

/// A type of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(u16);

/// One type.
#[derive(Debug)]
pub struct Type {
    /// Short name of its package, e.g. `core/v1`.
    pub package: &'static str,
    /// What objects of the package have as `apiVersion`.
    pub api_version: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Whether it has `apiVersion` and `kind`.
    pub is_kind: bool,
    /// Whether it has one owner as a whole.
    pub atomic: bool,
    fields: Box<[Field]>,
}

/// One field of a type.
#[derive(Debug)]
pub struct Field {
    /// Name in JSON; `-` for a field whose own fields stand among the owner's.
    pub name: &'static str,
    /// Number in protobuf.
    pub number: u32,
    /// How many values it holds.
    pub shape: Shape,
    /// Whether absence differs from zero.
    pub pointer: bool,
    /// What each value is.
    pub leaf: Leaf,
    marks: &'static str,
}

/// How many values a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One.
    One,
    /// A list.
    List,
    /// A list that protobuf wraps in a message.
    Items,
    /// A map by text.
    Map,
    /// A map of lists that protobuf wraps in messages.
    MapOfItems,
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaf {
    /// A string.
    Text,
    /// A boolean.
    Bool,
    /// A number of 32 bits.
    Int32,
    /// A number of 64 bits.
    Int64,
    /// A floating-point number.
    Double,
    /// Bytes, base64 in JSON.
    Bytes,
    /// An amount, e.g. `100m`.
    Quantity,
    /// A number or a text.
    IntOrText,
    /// A time with seconds.
    Time,
    /// A time with microseconds.
    MicroTime,
    /// Any object.
    Raw,
    /// A set of fields, as `managedFields` has it.
    FieldSet,
    /// Any JSON value.
    Json,
    /// A schema, or a boolean in its place.
    SchemaOrBool,
    /// A schema, or a list of them.
    SchemaOrList,
    /// A schema, or a list of texts.
    SchemaOrTexts,
    /// An object of a type.
    Object(TypeId),
}

impl Schema {
    /// Returns the type of a kind.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<TypeId> {
        let key = |id: &TypeId| {
            let found = self.get(*id);
            (found.name, found.api_version)
        };
        let at = self.kinds.binary_search_by(|id| key(id).cmp(&(kind, api_version))).ok()?;
        self.kinds.get(at).copied()
    }

    /// Returns a type of a package, e.g. `meta/v1` and `ObjectMeta`.
    pub fn named(&self, package: &str, name: &str) -> Option<TypeId> {
        let at = self.types.iter().position(|found| found.package == package && found.name == name)?;
        u16::try_from(at).ok().map(TypeId)
    }

    /// Returns what a type is.
    pub fn get(&self, id: TypeId) -> &Type {
        // Ids come from this table only.
        &self.types[usize::from(id.0)]
    }

    /// Returns all types.
    pub fn types(&self) -> impl Iterator<Item = TypeId> {
        (0u16..).take(self.types.len()).map(TypeId)
    }

    /// Returns the field that JSON shows under a name, also one of an embedded type.
    pub fn field(&self, id: TypeId, name: &str) -> Option<&Field> {
        let fields = &self.get(id).fields;
        fields.iter().find(|field| field.name == name && !field.is_embedded()).or_else(|| {
            fields.iter().filter(|field| field.is_embedded()).find_map(|field| match field.leaf {
                Leaf::Object(inner) => self.field(inner, name),
                _ => None,
            })
        })
    }

    /// Returns the fields that JSON shows, those of embedded types among them.
    pub fn fields(&self, id: TypeId) -> Vec<&Field> {
        let mut all = Vec::new();
        for field in &self.get(id).fields {
            match field.leaf {
                Leaf::Object(inner) if field.is_embedded() => all.extend(self.fields(inner)),
                _ => all.push(field),
            }
        }
        all
    }
}

impl Type {
    /// Returns the field of a number in protobuf.
    fn numbered(&self, number: u32) -> Option<&Field> {
        self.fields.iter().find(|field| field.number == number)
    }
}

impl Field {
    /// Whether its own fields stand among the owner's.
    pub fn is_embedded(&self) -> bool {
        self.name == "-"
    }

    fn mark(&self, key: &str) -> Option<&'static str> {
        self.marks.split(' ').find_map(|mark| mark.strip_prefix(key))
    }

    fn has(&self, mark: &str) -> bool {
        self.marks.split(' ').any(|other| other == mark)
    }

    /// Whether an empty value is left out.
    pub fn omits_empty(&self) -> bool {
        self.has("e")
    }

    /// Whether an object without anything is left out.
    pub fn omits_zero(&self) -> bool {
        self.has("z")
    }

    /// Whether it must be there.
    pub fn is_required(&self) -> bool {
        self.has("r")
    }

    /// Whether a map has one owner as a whole.
    pub fn is_atomic(&self) -> bool {
        self.has("a")
    }

    /// Whether a list holds unique values.
    pub fn is_set(&self) -> bool {
        self.has("set")
    }

    /// Returns the fields that tell the items of a list apart, if that is how it is merged by an apply.
    pub fn keys(&self) -> Option<impl Iterator<Item = &'static str> + Clone> {
        self.mark("k=").map(|keys| keys.split(','))
    }

    /// Whether a strategic merge patch merges a list.
    pub fn merges(&self) -> bool {
        self.strategy().any(|word| word == "merge")
    }

    /// Whether a strategic merge patch replaces a map.
    pub fn replaces(&self) -> bool {
        self.strategy().any(|word| word == "replace")
    }

    fn strategy(&self) -> impl Iterator<Item = &'static str> {
        self.mark("s=").unwrap_or_default().split(',')
    }

    /// Returns the field by which a strategic merge patch merges a list of objects.
    pub fn merge_key(&self) -> Option<&'static str> {
        self.mark("m=")
    }

    /// Returns the default of a value, in JSON.
    pub fn default_value(&self) -> Option<&'static str> {
        self.mark("d=")
    }
}

#[cfg(test)]
mod tests;
