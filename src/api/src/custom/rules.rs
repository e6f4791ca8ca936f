//! Rules in CEL over objects of custom kinds.

use serde_json::Value;

use super::check::counterpart;
use super::structural::{Node, RuleText};
use crate::cel::{Budget, CelError, Program, Variable};
use crate::validate::{FieldError, FieldErrorKind};

/// Most findings told of one object.
const MOST: usize = 100;

/// A rule that was read.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    text: RuleText,
    program: Program,
    message: Option<Program>,
    /// Whether it is about a change.
    about_change: bool,
}

impl Rule {
    /// Reads a rule; nothing if it cannot be read, which a definition is refused for.
    pub(super) fn read(text: &RuleText) -> Option<Self> {
        let program = Program::parse(&text.rule).ok()?;
        let message = Program::parse(&text.message_expression).ok().filter(|_| !text.message_expression.is_empty());
        Some(Self { about_change: program.uses("oldSelf"), text: text.clone(), program, message })
    }

    fn words(&self) -> String {
        match self.text.message.trim() {
            "" => format!("failed rule: {}", self.text.rule.trim()),
            message => message.to_owned(),
        }
    }

    fn finding(&self, path: &str, node: &Node, detail: &str) -> FieldError {
        let kind_name = node.kind.map_or("", super::structural::Type::name);
        let (kind, message) = match self.text.reason.as_str() {
            "FieldValueRequired" => (FieldErrorKind::Required, format!("Required value: {detail}")),
            "FieldValueForbidden" => (FieldErrorKind::Forbidden, format!("Forbidden: {detail}")),
            "FieldValueDuplicate" => (FieldErrorKind::Duplicate, format!("Duplicate value: {kind_name:?}")),
            _ => (FieldErrorKind::Invalid, format!("Invalid value: {kind_name:?}: {detail}")),
        };
        let below = self.text.field_path.as_str();
        let path = match (path.is_empty(), below.is_empty()) {
            (true, true) => "<nil>".to_owned(),
            (true, false) => below.trim_start_matches('.').to_owned(),
            (false, _) => format!("{path}{below}"),
        };
        FieldError { path, message, kind }
    }
}

/// Checks an object against the rules of its schema. Whoever calls has checked it against the schema before.
pub fn object(node: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut walk = Walk { found: Vec::new(), path: String::new(), budget: Budget::default(), ended: false };
    walk.value(node, object, old);
    walk.found
}

struct Walk {
    found: Vec<FieldError>,
    path: String,
    budget: Budget,
    /// Whether nothing more is asked.
    ended: bool,
}

impl Walk {
    fn value(&mut self, node: &Node, value: &Value, old: Option<&Value>) {
        if self.ended || !node.has_rules() || (value.is_null() && node.nullable) {
            return;
        }
        if let Some(values) = &node.values {
            for rule in values.programs() {
                self.ask(rule, node, value, old);
            }
        }
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let Some(below) = node.below(key) else { continue };
                    let length = self.path.len();
                    if length > 0 {
                        self.path.push('.');
                    }
                    self.path.push_str(key);
                    self.value(below, value, old.and_then(|old| old.get(key)));
                    self.path.truncate(length);
                }
            }
            Value::Array(items) => {
                let Some(below) = &node.items else { return };
                for (index, item) in items.iter().enumerate() {
                    let length = self.path.len();
                    self.path.extend(["[", &index.to_string(), "]"]);
                    self.value(below, item, counterpart(node, item, old));
                    self.path.truncate(length);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn ask(&mut self, rule: &Rule, node: &Node, value: &Value, old: Option<&Value>) {
        if self.ended {
            return;
        }
        let optional = rule.text.optional_old_self;
        // A rule about a change has nothing to say where there was nothing; any other nothing where nothing changed.
        if (rule.about_change && old.is_none() && !optional) || (!rule.about_change && old == Some(value)) {
            return;
        }
        let node_of = Some(node);
        let mut variables = vec![Variable { name: "self", value, node: node_of, optional: None }];
        if rule.about_change {
            let there = optional.then_some(old.is_some());
            variables.push(Variable {
                name: "oldSelf",
                value: old.unwrap_or(&Value::Null),
                node: node_of,
                optional: there,
            });
        }
        let finding = match rule.program.holds(&variables, &mut self.budget) {
            Ok(true) => return,
            Ok(false) => {
                let made = rule.message.as_ref().and_then(|message| message.text(&variables, &mut self.budget).ok());
                let made = made.filter(|text| !text.trim().is_empty() && !text.contains('\n'));
                rule.finding(&self.path, node, &made.unwrap_or_else(|| rule.words()))
            }
            Err(CelError::Failed(text)) => {
                rule.finding(&self.path, node, &format!("{text} evaluating rule: {}", rule.words()))
            }
            Err(CelError::Cost) => {
                self.ended = true;
                let detail = if self.budget.is_spent() {
                    "validation failed due to running out of cost budget, no further validation rules will be run"
                        .to_owned()
                } else {
                    format!("call cost exceeds limit for rule: {}", rule.words())
                        + ", no further validation rules will be run"
                };
                rule.finding(&self.path, node, &detail)
            }
        };
        if self.found.len() < MOST {
            self.found.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(schema: Value, sent: Value, old: Option<Value>) -> Vec<String> {
        let node = Node::read(&json!({"type": "object", "properties": {"spec": schema}}));
        let old = old.map(|old| json!({"spec": old}));
        object(&node, &json!({"spec": sent}), old.as_ref()).iter().map(ToString::to_string).collect()
    }

    fn schema(rule: Value) -> Value {
        json!({"type": "object", "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}},
            "x-kubernetes-validations": [rule]})
    }

    #[test]
    fn a_broken_rule_is_told_as_it_says() {
        let sent = json!({"min": 3, "max": 2});
        for (rule, want) in [
            (
                json!({"rule": "self.min <= self.max"}),
                r#"spec: Invalid value: "object": failed rule: self.min <= self.max"#,
            ),
            (
                json!({"rule": "self.min <= self.max", "message": "min over max"}),
                r#"spec: Invalid value: "object": min over max"#,
            ),
            (
                json!({"rule": "self.min <= self.max", "messageExpression": "'min ' + string(self.min)", "message": "m"}),
                r#"spec: Invalid value: "object": min 3"#,
            ),
            (
                json!({"rule": "self.min <= self.max", "messageExpression": "self.none", "message": "m"}),
                r#"spec: Invalid value: "object": m"#,
            ),
            (
                json!({"rule": "self.min <= self.max", "message": "m", "fieldPath": ".min", "reason": "FieldValueForbidden"}),
                "spec.min: Forbidden: m",
            ),
            (
                json!({"rule": "self.none == 1", "message": "m"}),
                r#"spec: Invalid value: "object": no such key: none evaluating rule: m"#,
            ),
        ] {
            assert_eq!(found(schema(rule), sent.clone(), None), [want]);
        }
        assert_eq!(found(schema(json!({"rule": "self.min <= self.max"})), json!({"min": 1, "max": 2}), None), [""; 0]);
    }

    #[test]
    fn rules_about_changes_are_asked_where_there_was_something() {
        let frozen = schema(json!({"rule": "self.min == oldSelf.min", "message": "frozen"}));
        assert_eq!(found(frozen.clone(), json!({"min": 1}), None), [""; 0]);
        assert_eq!(found(frozen.clone(), json!({"min": 1}), Some(json!({"min": 1}))), [""; 0]);
        assert_eq!(
            found(frozen, json!({"min": 2}), Some(json!({"min": 1}))),
            [r#"spec: Invalid value: "object": frozen"#]
        );
        let optional = schema(
            json!({"rule": "!oldSelf.hasValue() || self.min == oldSelf.value().min", "optionalOldSelf": true, "message": "m"}),
        );
        assert_eq!(found(optional.clone(), json!({"min": 1}), None), [""; 0]);
        assert_eq!(found(optional, json!({"min": 2}), Some(json!({"min": 1}))).len(), 1);
    }

    #[test]
    fn items_of_maps_are_compared_with_those_of_the_same_keys() {
        let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "properties": {"n": {"type": "string"}, "v": {"type": "integer"}},
                "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "shrinks"}]}});
        let old = json!([{"n": "a", "v": 5}, {"n": "b", "v": 1}]);
        assert_eq!(
            found(list, json!([{"n": "b", "v": 2}, {"n": "a", "v": 4}, {"n": "c", "v": 0}]), Some(old)),
            [r#"spec[1]: Invalid value: "object": shrinks"#]
        );
    }

    #[test]
    fn a_rule_that_costs_too_much_ends_the_check() {
        let list = json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [
            {"rule": "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))", "message": "slow"}, {"rule": "false"}]});
        let numbers: Vec<i64> = (0..500).collect();
        let found = found(list, json!(numbers), None);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("call cost exceeds limit for rule: slow"), "{found:?}");
    }
}
