//! Schemas of custom kinds, read into trees that objects are walked along.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;

use super::pattern::Pattern;
use super::rules::Rule;

/// Deepest schema that is read; what lies below is taken as it is. JSON itself ends at 128 levels, and a level of a schema
/// has two of them.
const MAX_DEPTH: u32 = 64;

/// What a value should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A map.
    Object,
    /// A list.
    Array,
    /// A text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
}

impl Type {
    /// Reads a type's name.
    pub fn read(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// How the items of a list are told apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListType {
    /// Not at all: the list is one value.
    #[default]
    Atomic,
    /// By themselves.
    Set,
    /// By fields.
    Map(Vec<String>),
}

/// A rule in CEL, as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleText {
    /// What must hold.
    pub rule: String,
    /// What is said if it does not.
    pub message: String,
    /// An expression that makes that.
    pub message_expression: String,
    /// The kind of finding.
    pub reason: String,
    /// The field that is told, below the one that has the rule.
    pub field_path: String,
    /// Whether a rule about changes is asked at birth, too.
    pub optional_old_self: bool,
}

/// What a value must fulfil beside its type.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values {
    /// Format, e.g. `date-time`.
    pub format: String,
    /// A regular expression.
    pub pattern: Pattern,
    /// All values that are allowed.
    pub one_of_values: Option<Vec<Value>>,
    /// Largest number.
    pub maximum: Option<f64>,
    /// Whether that itself is too large.
    pub exclusive_maximum: bool,
    /// Smallest number.
    pub minimum: Option<f64>,
    /// Whether that itself is too small.
    pub exclusive_minimum: bool,
    /// What a number must be a multiple of.
    pub multiple_of: Option<f64>,
    /// Longest text.
    pub max_length: Option<u64>,
    /// Shortest text.
    pub min_length: Option<u64>,
    /// Longest list.
    pub max_items: Option<u64>,
    /// Shortest list.
    pub min_items: Option<u64>,
    /// Whether items must differ.
    pub unique_items: bool,
    /// Largest map.
    pub max_properties: Option<u64>,
    /// Smallest map.
    pub min_properties: Option<u64>,
    /// Fields that must be there.
    pub required: Vec<String>,
    /// All must hold.
    pub all_of: Vec<Node>,
    /// One at least must hold.
    pub any_of: Vec<Node>,
    /// Exactly one must hold.
    pub one_of: Vec<Node>,
    /// Must not hold.
    pub not: Option<Box<Node>>,
    /// Rules in CEL.
    pub rules: Vec<RuleText>,
    /// The same, read when they are first asked for.
    programs: Programs,
}

/// Rules that were read; they are what their texts are.
#[derive(Debug, Clone, Default)]
struct Programs(OnceLock<Vec<Rule>>);

impl PartialEq for Programs {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

/// What other fields of a map may be.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Additional {
    /// None is known.
    #[default]
    None,
    /// Any, or none at all.
    Any(bool),
    /// Of this schema.
    Schema(Box<Node>),
}

/// A schema.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node {
    /// The value's type.
    pub kind: Option<Type>,
    /// Whether null is a value.
    pub nullable: bool,
    /// Whether a number or a text.
    pub int_or_string: bool,
    /// Whether unknown fields are kept.
    pub preserve: bool,
    /// Whether the value is an object with `apiVersion`, `kind` and `metadata`.
    pub embedded: bool,
    /// Whether a map is owned as a whole.
    pub atomic_map: bool,
    /// How items of a list are told apart.
    pub list: ListType,
    /// What stands there if nothing does.
    pub default: Option<Value>,
    /// Known fields.
    pub properties: BTreeMap<String, Self>,
    /// Other fields.
    pub additional: Additional,
    /// Items of a list.
    pub items: Option<Box<Self>>,
    /// What else must hold.
    pub values: Option<Box<Values>>,
    /// Whether there is a rule in CEL, here or below.
    has_rules: bool,
}

impl Node {
    /// Reads a schema.
    pub fn read(schema: &Value) -> Self {
        Self::at(schema, MAX_DEPTH)
    }

    fn at(schema: &Value, depth: u32) -> Self {
        let Some(depth) = depth.checked_sub(1) else { return Self { preserve: true, ..Self::default() } };
        let flag = |key: &str| schema[key].as_bool().unwrap_or(false);
        let properties = schema["properties"].as_object().into_iter().flatten();
        let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
        let mut node = Self {
            kind: schema["type"].as_str().and_then(Type::read),
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            atomic_map: schema["x-kubernetes-map-type"] == "atomic",
            list: match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map(keys.filter_map(Value::as_str).map(str::to_owned).collect()),
                _ => ListType::Atomic,
            },
            default: schema.get("default").filter(|value| !value.is_null()).cloned(),
            properties: properties.map(|(name, below)| (name.clone(), Self::at(below, depth))).collect(),
            additional: match schema.get("additionalProperties") {
                Some(Value::Bool(any)) => Additional::Any(*any),
                Some(below @ Value::Object(_)) => Additional::Schema(Box::new(Self::at(below, depth))),
                _ => Additional::None,
            },
            items: schema.get("items").filter(|items| items.is_object()).map(|items| Box::new(Self::at(items, depth))),
            values: Values::read(schema, depth).map(Box::new),
            has_rules: false,
        };
        let others = match &node.additional {
            Additional::Schema(below) => Some(&**below),
            Additional::None | Additional::Any(_) => None,
        };
        let mut below = node.properties.values().chain(node.items.as_deref()).chain(others);
        let own = node.values.as_ref().is_some_and(|values| !values.rules.is_empty());
        node.has_rules = own || below.any(|below| below.has_rules);
        node
    }

    /// Whether there is a rule in CEL, here or below.
    pub fn has_rules(&self) -> bool {
        self.has_rules
    }

    /// Returns what is known of the value under a key.
    pub fn below(&self, key: &str) -> Option<&Self> {
        self.properties.get(key).or(match &self.additional {
            Additional::Schema(below) => Some(below),
            Additional::None | Additional::Any(_) => None,
        })
    }

    /// Whether a key may be there though nothing is known of its value.
    pub fn keeps(&self, key: &str) -> bool {
        self.preserve
            || matches!(self.additional, Additional::Any(true))
            || (self.embedded && matches!(key, "apiVersion" | "kind" | "metadata"))
    }

    /// Whether there is a default anywhere.
    pub fn has_defaults(&self) -> bool {
        self.default.is_some()
            || self.properties.values().any(Self::has_defaults)
            || self.items.as_deref().is_some_and(Self::has_defaults)
            || matches!(&self.additional, Additional::Schema(below) if below.has_defaults())
    }
}

impl Values {
    /// Returns the rules that can be read.
    pub(super) fn programs(&self) -> &[Rule] {
        self.programs.0.get_or_init(|| self.rules.iter().filter_map(Rule::read).collect())
    }

    /// Returns nothing if nothing is demanded.
    fn read(schema: &Value, depth: u32) -> Option<Self> {
        let text = |key: &str| schema[key].as_str().unwrap_or_default().to_owned();
        let flag = |key: &str| schema[key].as_bool().unwrap_or(false);
        let count = |key: &str| schema[key].as_u64();
        let nodes = |key: &str| -> Vec<Node> {
            schema[key].as_array().into_iter().flatten().map(|below| Node::at(below, depth)).collect()
        };
        let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
        let required = schema["required"].as_array().into_iter().flatten();
        let values = Self {
            format: text("format"),
            pattern: Pattern::new(schema["pattern"].as_str().unwrap_or_default()),
            one_of_values: schema["enum"].as_array().filter(|values| !values.is_empty()).cloned(),
            maximum: schema["maximum"].as_f64(),
            exclusive_maximum: flag("exclusiveMaximum"),
            minimum: schema["minimum"].as_f64(),
            exclusive_minimum: flag("exclusiveMinimum"),
            multiple_of: schema["multipleOf"].as_f64(),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            unique_items: flag("uniqueItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            required: required.filter_map(Value::as_str).map(str::to_owned).collect(),
            all_of: nodes("allOf"),
            any_of: nodes("anyOf"),
            one_of: nodes("oneOf"),
            not: schema.get("not").filter(|not| not.is_object()).map(|not| Box::new(Node::at(not, depth))),
            rules: rules.map(RuleText::read).collect(),
            programs: Programs::default(),
        };
        (values != Self::default()).then_some(values)
    }
}

impl RuleText {
    /// Reads one of `x-kubernetes-validations`.
    pub fn read(rule: &Value) -> Self {
        let text = |key: &str| rule[key].as_str().unwrap_or_default().to_owned();
        Self {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old_self: rule["optionalOldSelf"].as_bool().unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_read_with_what_lies_below() {
        let node = Node::read(&json!({"type": "object", "properties": {
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "default": "x"}}}},
            "free": {"x-kubernetes-preserve-unknown-fields": true},
            "map": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}}}));
        let list = &node.properties["list"];
        assert_eq!(list.list, ListType::Map(vec!["name".to_owned()]));
        assert!(node.has_defaults() && !node.properties["map"].has_defaults());
        assert_eq!(node.properties["map"].below("any").unwrap().kind, Some(Type::Integer));
        assert!(node.properties["free"].keeps("x") && !node.keeps("x"));
        assert!(node.values.is_none());
    }

    #[test]
    fn depth_is_bounded_and_odd_schemas_are_harmless() {
        let mut deep = json!({"type": "string", "default": "x"});
        for _ in 0..1000 {
            deep = json!({"items": deep});
        }
        assert!(!Node::read(&deep).has_defaults());
        // Dropped piece by piece: the value itself is deeper than any parser would make it.
        while let Some(below) = deep.get_mut("items").map(Value::take) {
            deep = below;
        }
        for odd in [json!(1), json!([]), json!({"properties": [], "items": 3, "required": {"a": 1}, "enum": "x"})] {
            assert_eq!(Node::read(&odd), Node::default());
        }
    }
}
