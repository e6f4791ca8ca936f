//! Rules in CEL, when a definition is written: what they say must be readable, of the right types, and not cost too much for as
//! many values as there can be. Upstream's limits, paths and words.

use serde_json::Value;

use super::define::Report;
use super::structural::{Additional, Node};
use crate::cel::{Known, Outlook, Program, Shape};

/// Most rules in one schema.
const MAX_RULES: usize = 1000;

/// What one expression, and all of a schema together, may cost by estimate.
const EXPRESSION_LIMIT: u64 = 10_000_000;
const SCHEMA_LIMIT: u64 = 100_000_000;

/// What begins a new line.
const LINES: [char; 2] = ['\n', '\r'];

/// How many expressions are named when all together cost too much.
const NAMED: usize = 4;

/// What is known of a schema before its rules are looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trust {
    /// Whether nothing is wrong with it; else its expressions are not looked at.
    pub(super) sound: bool,
    /// Whether it is the same as before; then each expression may cost what it cost.
    pub(super) kept: bool,
}

/// Checks the rules of a version's schema.
pub(super) fn root(schema: &Value, path: &str, trust: Trust, report: &mut Report) {
    let mut walk = Walk { report, kept: trust.kept, sound: false, rules: 0, total: 0, costly: Vec::new() };
    let place = Place { whole: true, times: Some(1), uncorrelated: None };
    let before = walk.report.0.len();
    let node = Node::read(schema);
    walk.node(schema, Some(&node), path, place);
    if !trust.sound || walk.report.0.len() > before {
        return;
    }
    walk.sound = true;
    walk.node(schema, Some(&node), path, place);
    walk.told(path);
}

#[derive(Clone, Copy)]
struct Place<'p> {
    /// Whether an object has a kind and a name.
    whole: bool,
    /// How many such values there can be, if the schema bounds them.
    times: Option<u64>,
    /// The list above whose items cannot be told apart, or the object whose fields are one value.
    uncorrelated: Option<&'p str>,
}

struct Walk<'r> {
    report: &'r mut Report,
    kept: bool,
    /// Whether expressions are looked at; else what is written beside them.
    sound: bool,
    rules: usize,
    /// What all expressions cost.
    total: u64,
    /// The ones that cost most, with their places.
    costly: Vec<(u64, String)>,
}

impl Walk<'_> {
    /// Looks at a schema, and at the same one read.
    fn node(&mut self, schema: &Value, node: Option<&Node>, path: &str, place: Place<'_>) {
        let Some(node) = node.filter(|_| schema.is_object()) else { return };
        let inner = Place { whole: false, ..place };
        let times =
            |bound: &str| place.times.zip(schema[bound].as_u64()).map(|(times, most)| times.saturating_mul(most));
        let atomic = schema["x-kubernetes-map-type"] == "atomic";
        let field = Place {
            uncorrelated: if atomic { place.uncorrelated.or(Some(path)) } else { place.uncorrelated },
            ..inner
        };
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            self.node(below, node.properties.get(name), &format!("{path}.properties[{name}]"), field);
        }
        if let Additional::Schema(below) = &node.additional {
            let more = Place { times: times("maxProperties"), ..inner };
            let path = format!("{path}.additionalProperties");
            self.node(&schema["additionalProperties"], Some(below), &path, more);
        }
        let map = schema["x-kubernetes-list-type"] == "map";
        let uncorrelated = if map { place.uncorrelated } else { place.uncorrelated.or(Some(path)) };
        let items = Place { times: times("maxItems"), uncorrelated, ..inner };
        self.node(&schema["items"], node.items.as_deref(), &format!("{path}.items"), items);
        self.rules_of(schema, node, path, place);
    }

    fn rules_of(&mut self, schema: &Value, node: &Node, path: &str, place: Place<'_>) {
        let Some(rules) = schema["x-kubernetes-validations"].as_array().filter(|rules| !rules.is_empty()) else {
            return;
        };
        let path = format!("{path}.x-kubernetes-validations");
        if !self.sound {
            self.rules += rules.len();
            if self.rules > MAX_RULES {
                self.report.forbidden(path, &format!("must have at most {MAX_RULES} rules"));
                return;
            }
            for (index, rule) in rules.iter().enumerate() {
                self.beside(rule, node, &format!("{path}[{index}]"));
            }
            return;
        }
        let shape = Shape::of(node, place.whole || node.embedded);
        for (index, rule) in rules.iter().enumerate() {
            self.rule(rule, shape.as_ref(), &format!("{path}[{index}]"), place);
        }
    }

    /// What is written beside the expressions.
    fn beside(&mut self, rule: &Value, node: &Node, path: &str) {
        let text = |key: &str| rule[key].as_str().unwrap_or_default();
        let message = format!("{path}.message");
        let said = text("message").trim();
        if text("rule").trim().is_empty() {
            self.report.required(format!("{path}.rule"), "rule is not specified");
        } else if said.is_empty() && !text("message").is_empty() {
            self.report.invalid(message, &rule["message"], "message must be non-empty if specified");
        } else if said.contains(LINES) {
            self.report.invalid(message, &rule["message"], "message must not contain line breaks");
        } else if said.is_empty() && text("rule").trim().contains(LINES) {
            self.report.required(message, "message must be specified if rule contains line breaks");
        }
        if !text("messageExpression").is_empty() && text("messageExpression").trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            self.report.required(format!("{path}.messageExpression"), detail);
        }
        let reasons = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
        if !text("reason").is_empty() && !reasons.contains(&text("reason")) {
            self.report.unsupported(format!("{path}.reason"), &rule["reason"], &reasons);
        }
        let field = text("fieldPath");
        if field.is_empty() {
            return;
        }
        let names = super::definition::fields(field);
        let found = names.iter().try_fold(node, |node, name| node.below(name));
        for (wrong, detail) in [
            (field.trim().is_empty(), "fieldPath must be non-empty if specified"),
            (field.contains(LINES), "fieldPath must not contain line breaks"),
            (!field.starts_with('.') || found.is_none(), "fieldPath must be a valid path"),
        ] {
            if wrong {
                self.report.invalid(format!("{path}.fieldPath"), &rule["fieldPath"], detail);
            }
        }
    }

    fn rule(&mut self, rule: &Value, shape: Option<&Shape>, path: &str, place: Place<'_>) {
        let optional = rule["optionalOldSelf"] == true;
        let names = [Known { name: "self", shape, optional: false }, Known { name: "oldSelf", shape, optional }];
        let Some(outlook) = self.expression(rule, "rule", &names, path) else { return };
        if !outlook.decides {
            self.report.invalid(format!("{path}.rule"), &rule["rule"], "cel expression must evaluate to a bool");
            return;
        }
        let times = place.times.unwrap_or_else(|| shape.map_or(1, Shape::times));
        self.costs(outlook.cost.saturating_mul(times), "estimated rule cost", format!("{path}.rule"));
        self.about_change(rule, &outlook, path, place);
        if rule["messageExpression"].as_str().is_none_or(str::is_empty) {
            return;
        }
        let Some(outlook) = self.expression(rule, "messageExpression", &names, path) else { return };
        let path = format!("{path}.messageExpression");
        if outlook.says {
            // Made once, for the first value that fails.
            self.costs(outlook.cost, "estimated messageExpression cost", path);
        } else {
            self.report.invalid(path, &rule["messageExpression"], "messageExpression must evaluate to a string");
        }
    }

    /// A rule about a change needs something to compare with.
    fn about_change(&mut self, rule: &Value, outlook: &Outlook, path: &str, place: Place<'_>) {
        if let (true, Some(above)) = (outlook.compares, place.uncorrelated) {
            let above = above.split_once(".openAPIV3Schema").map_or("", |(_, rest)| rest).trim_start_matches('.');
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {above}");
            self.report.invalid(format!("{path}.rule"), &rule["rule"], &detail);
        }
        if !outlook.compares && rule["optionalOldSelf"].is_boolean() {
            let detail = "may not be set if oldSelf is not used in rule";
            self.report.invalid(format!("{path}.optionalOldSelf"), &rule["optionalOldSelf"], detail);
        }
    }

    fn expression(&mut self, rule: &Value, key: &str, names: &[Known<'_>], path: &str) -> Option<Outlook> {
        let path = format!("{path}.{key}");
        let found = Program::parse(rule[key].as_str().unwrap_or_default()).map_err(|error| vec![error]);
        match found.and_then(|program| program.outlook(names)) {
            Ok(outlook) => Some(outlook),
            Err(errors) => {
                let words = if key == "rule" { "" } else { "messageExpression " };
                let detail = format!("{words}compilation failed: {}", errors.join("\n"));
                self.report.invalid(path, &rule[key], &detail);
                None
            }
        }
    }

    fn costs(&mut self, cost: u64, what: &str, path: String) {
        if cost > EXPRESSION_LIMIT && !self.kept {
            self.report.forbidden(path.clone(), &over(what, cost, EXPRESSION_LIMIT));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.costly.push((cost, path));
        }
    }

    /// Tells whether all together costs too much, and why.
    fn told(&mut self, path: &str) {
        if self.total <= SCHEMA_LIMIT {
            return;
        }
        let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        self.costly.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        for (_, path) in self.costly.iter().take(NAMED) {
            self.report.forbidden(path.clone(), detail);
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        self.report.forbidden(path, &over(what, self.total, SCHEMA_LIMIT));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a factor for people")]
fn over(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

#[cfg(test)]
mod tests;
