//! Field selectors: `a=b,c!=d` over the fields that a resource declares as selectable.

use std::fmt;

use serde_json::Value;

use super::SelectorError;

/// One condition on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field's path, e.g. `spec.nodeName`.
    pub field: String,
    /// The value, unescaped.
    pub value: String,
    /// `!=` instead of `=`.
    pub negated: bool,
}

/// All requirements must hold; an empty selector takes everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// Reads the text form; backslash escapes `\`, `,` and `=`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for term in split_terms(text).into_iter().filter(|term| !term.is_empty()) {
            let Some((field, negated, value)) = split_operator(term) else {
                return Err(SelectorError::new(format!("invalid selector: '{text}'; can't understand '{term}'")));
            };
            requirements.push(FieldRequirement { field: field.to_owned(), value: unescape(value)?, negated });
        }
        Ok(Self { requirements })
    }

    /// Builds a selector of one field.
    pub fn equal(field: &str, value: &str) -> Self {
        let requirement = FieldRequirement { field: field.to_owned(), value: value.to_owned(), negated: false };
        Self { requirements: vec![requirement] }
    }

    /// The requirements in the order given.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// Says whether it takes everything.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The value that a field must have, if the selector says so; serves to narrow a list early.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let wanted = self.requirements.iter().find(|requirement| requirement.field == field && !requirement.negated)?;
        Some(&wanted.value)
    }

    /// Texts without which no object is selected, as far as they stand in an object as they are: a quick first look.
    pub fn needles(&self) -> impl Iterator<Item = &str> {
        let texts = self.requirements.iter().filter(|requirement| !requirement.negated);
        // Other fields have texts that are made of what stands there, or of its absence.
        let plain = texts.filter(|requirement| matches!(&*requirement.field, "spec.nodeName" | "metadata.name"));
        plain.map(|requirement| &*requirement.value).filter(|value| !value.is_empty())
    }

    /// Refuses fields that a resource does not offer, with the apiserver's wording for the resource (plural name, e.g.
    /// `pods`, with its API group where it has one, e.g. `jobs.batch`).
    pub fn check(&self, resource: &str) -> Result<(), SelectorError> {
        let known = known_fields(resource);
        for FieldRequirement { field, .. } in &self.requirements {
            if matches!(field.as_str(), "metadata.name" | "metadata.namespace") || known.contains(&field.as_str()) {
                continue;
            }
            return Err(SelectorError::new(match resource {
                "nodes" | "namespaces" => format!(
                    "{field:?} is not a known field selector: only \"metadata.name\", \"{}\"",
                    known.join("\", \"")
                ),
                _ if known.is_empty() => {
                    format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
                }
                _ => format!("field label not supported: {field}"),
            }));
        }
        Ok(())
    }

    /// Refuses fields that a custom kind does not offer.
    pub fn check_known(&self, known: &[String]) -> Result<(), SelectorError> {
        for FieldRequirement { field, .. } in &self.requirements {
            if !matches!(field.as_str(), "metadata.name" | "metadata.namespace") && !known.contains(field) {
                return Err(SelectorError::new(format!("field label not supported: {field}")));
            }
        }
        Ok(())
    }

    /// Says whether an object in JSON form is selected. An absent field counts as the empty text, booleans and numbers
    /// as their text.
    pub fn matches(&self, object: &Value) -> bool {
        self.requirements
            .iter()
            .all(|requirement| (field_text(object, &requirement.field) == requirement.value) != requirement.negated)
    }
}

/// The fields, besides name and namespace, by which objects of a resource can be selected.
pub fn known_fields(resource: &str) -> &'static [&'static str] {
    match resource {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        "nodes" => &["spec.unschedulable"],
        "namespaces" => &["status.phase"],
        "secrets" => &["type"],
        "services" => &["spec.clusterIP", "spec.type"],
        "replicationcontrollers" | "replicasets.apps" => &["status.replicas"],
        "jobs.batch" => &["status.successful"],
        "certificatesigningrequests.certificates.k8s.io" => &["spec.signerName"],
        "events" | "events.events.k8s.io" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
        ],
        _ => &[],
    }
}

/// The text of a field by its selectable name.
fn field_text(object: &Value, field: &str) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
    };
    let at = |path: &str| path.split('.').fold(object, |value, name| &value[name]);
    let or = |first: &str, second: &str| {
        let found = text(at(first));
        if found.is_empty() { text(at(second)) } else { found }
    };
    match field {
        // Absent means false there.
        "spec.hostNetwork" | "spec.unschedulable" => at(field).as_bool().unwrap_or(false).to_string(),
        "status.podIPs" => {
            let ips = at(field).as_array().into_iter().flatten();
            ips.filter_map(|entry| entry["ip"].as_str()).collect::<Vec<_>>().join(",")
        }
        "status.successful" => text(at("status.succeeded")),
        "status.replicas" | "status.succeeded" => at(field).as_i64().unwrap_or(0).to_string(),
        "source" => or("source.component", "reportingComponent"),
        _ => match field.split_once('.') {
            Some(("involvedObject", rest)) => or(field, &format!("regarding.{rest}")),
            Some(("regarding", rest)) => or(field, &format!("involvedObject.{rest}")),
            _ => text(at(field)),
        },
    }
}

/// The paths that [`field_text`] reads for a field.
pub(super) fn paths(field: &str) -> Vec<String> {
    match field {
        "status.successful" => vec!["status.succeeded".to_owned()],
        "source" => vec!["source.component".to_owned(), "reportingComponent".to_owned()],
        _ => match field.split_once('.') {
            Some(("involvedObject" | "regarding", rest)) => {
                vec![format!("involvedObject.{rest}"), format!("regarding.{rest}")]
            }
            _ => vec![field.to_owned()],
        },
    }
}

/// Splits at commas that no backslash stands before.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits at the first operator: `!=`, `==` or `=`.
fn split_operator(term: &str) -> Option<(&str, bool, &str)> {
    for (index, _) in term.char_indices() {
        let rest = &term[index..];
        for (operator, negated) in [("!=", true), ("==", false), ("=", false)] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((&term[..index], negated, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut text = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => text.push(escaped),
                Some(other) => {
                    return Err(SelectorError::new(format!(
                        "invalid field selector: invalid escape sequence: \\{other} in {value}"
                    )));
                }
                None => {
                    return Err(SelectorError::new(format!(
                        "invalid field selector: unescaped character in value: \\ in {value}"
                    )));
                }
            },
            ',' | '=' => {
                return Err(SelectorError::new(format!(
                    "invalid field selector: unescaped character in value: {character} in {value}"
                )));
            }
            other => text.push(other),
        }
    }
    Ok(text)
}

impl fmt::Display for FieldSelector {
    /// The text form, as sent in `fieldSelector=`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, FieldRequirement { field, value, negated }) in self.requirements.iter().enumerate() {
            let (comma, operator) = (if index == 0 { "" } else { "," }, if *negated { "!=" } else { "=" });
            let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{comma}{field}{operator}{value}")?;
        }
        Ok(())
    }
}
