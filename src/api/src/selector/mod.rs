//! Label and field selectors: text forms as clients send them, `LabelSelector` objects, and matching.
//! Error texts are the apiserver's.

mod field;
mod lexer;
mod outline;
mod parser;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as Raw;
use serde_json::Value;

pub use field::{FieldRequirement, FieldSelector, known_fields};
pub use outline::Outline;

use crate::names;

/// A selector that cannot be used; the text is what the client is shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

impl SelectorError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// What a requirement demands of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is an integer above the value.
    GreaterThan,
    /// The label is an integer below the value.
    LessThan,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted, without repeats.
    values: Vec<String>,
}

/// All requirements must hold; an empty selector takes everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    /// A missing selector object selects nothing.
    nothing: bool,
}

impl Requirement {
    /// Checks and builds a requirement.
    pub fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, SelectorError> {
        values.sort();
        values.dedup();
        let mut errors: Vec<String> =
            names::qualified_name(key).into_iter().map(|why| format!("key: Invalid value: {key:?}: {why}")).collect();
        let mut bad = |why: &str| errors.push(format!("values: Invalid value: {}: {why}", go_list(&values)));
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                bad("for 'in', 'notin' operators, values set can't be empty");
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                bad("values set must be empty for exists and does not exist");
            }
            Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
                bad("for 'Gt', 'Lt' operators, exactly one value is required");
            }
            Operator::GreaterThan | Operator::LessThan => {
                for (index, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
                    errors.push(format!(
                        "values[{index}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                    ));
                }
            }
            Operator::In | Operator::NotIn | Operator::Exists | Operator::DoesNotExist => {}
        }
        for (index, value) in values.iter().enumerate() {
            for why in names::label_value(value) {
                errors.push(format!("values[{index}][{key}]: Invalid value: {value:?}: {why}"));
            }
        }
        match errors.as_slice() {
            [] => Ok(Self { key: key.to_owned(), operator, values }),
            [one] => Err(SelectorError::new(one.clone())),
            many => Err(SelectorError::new(format!("[{}]", many.join(", ")))),
        }
    }

    /// Says whether a label of that value (or its absence) fulfils the requirement.
    pub fn accepts(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|wanted| wanted == value);
        let bound = || self.values.first().and_then(|bound| bound.parse::<i64>().ok());
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let (Some(value), Some(bound)) = (value.and_then(|value| value.parse::<i64>().ok()), bound()) else {
                    return false;
                };
                if self.operator == Operator::GreaterThan { value > bound } else { value < bound }
            }
        }
    }
}

/// A list of strings as Go's `%q` shows it.
fn go_list(values: &[String]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("[{}]", quoted.join(","))
}

impl LabelSelector {
    /// Selects everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Selects nothing.
    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    /// Reads the text form, e.g. `a=b,c in (d, e),!f`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = parser::parse(text)?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements, nothing: false })
    }

    /// Builds from plain pairs, as services and replication controllers have them.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut requirements: Vec<Requirement> = pairs
            .into_iter()
            .map(|(key, value)| Requirement {
                key: key.to_owned(),
                operator: Operator::In,
                values: vec![value.to_owned()],
            })
            .collect();
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    /// Builds from a `LabelSelector` object; none selects nothing, an empty one everything.
    pub fn from_object(object: Option<&Raw>) -> Result<Self, SelectorError> {
        let Some(object) = object else { return Ok(Self::nothing()) };
        let labels = object.match_labels.iter().flatten();
        let mut selector = Self::from_pairs(labels.map(|(key, value)| (key.as_str(), value.as_str())));
        for expression in object.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError::new(format!("{other:?} is not a valid label selector operator"))),
            };
            let values = expression.values.clone().unwrap_or_default();
            selector.requirements.push(Requirement::new(&expression.key, operator, values)?);
        }
        selector.requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(selector)
    }

    /// Says whether it takes everything.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Texts of which each stands in every object that is selected: a quick first look. Only where one value is wanted.
    pub fn needles(&self) -> impl Iterator<Item = &str> {
        let one = self.requirements.iter().filter(|own| own.operator == Operator::In && own.values.len() == 1);
        one.filter_map(|requirement| requirement.values.first()).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Says whether an object with these labels is selected; `lookup` gives the value of a label.
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.accepts(lookup(&requirement.key)))
    }

    /// Says whether an object with these labels is selected.
    pub fn matches_map(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches(|key| labels.get(key).map(String::as_str))
    }

    /// Says whether an object in JSON form is selected by its `metadata.labels`.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.matches(|key| labels.get(key).and_then(Value::as_str))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let first = self.values.first().map_or("", String::as_str);
        match self.operator {
            Operator::In if self.values.len() == 1 => write!(f, "{key}={first}"),
            Operator::NotIn if self.values.len() == 1 => write!(f, "{key}!={first}"),
            Operator::In => write!(f, "{key} in ({})", self.values.join(",")),
            Operator::NotIn => write!(f, "{key} notin ({})", self.values.join(",")),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{first}"),
            Operator::LessThan => write!(f, "{key}<{first}"),
        }
    }
}

impl fmt::Display for LabelSelector {
    /// The text form, as sent in `labelSelector=`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
