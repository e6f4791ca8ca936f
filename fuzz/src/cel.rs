//! Rules of custom kinds: read, looked at and evaluated within their budget. An input is a rule, a line `---` and the value
//! that it is about, in JSON; without one there is a value with something of each type.

use longshore_api::cel::{Budget, CelError, Known, Program, Shape, Variable};
use longshore_api::custom::{Node, check, rules};
use serde_json::{Value, json};

/// Runs the target.
pub fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (rule, rest) = text.split_once("\n---\n").unwrap_or((&text, ""));
    let value: Value = serde_json::from_str(rest).unwrap_or_else(|_| sample());
    let schema = schema();
    let node = Node::read(&schema);
    if let Ok(program) = Program::parse(rule) {
        let shape = Shape::of(&node, true);
        let names = ["self", "oldSelf"].map(|name| Known { name, shape: shape.as_ref(), optional: name == "oldSelf" });
        let outlook = program.outlook(&names);
        assert_eq!(outlook, program.outlook(&names), "{rule:?} is judged in two ways");
        for known in [Some(&node), None] {
            let once = || {
                let mut budget = Budget::default();
                let variables = [
                    Variable { name: "self", value: &value, node: known, optional: None },
                    Variable { name: "oldSelf", value: &value, node: known, optional: Some(true) },
                ];
                let holds = program.holds(&variables, &mut budget);
                let text = program.text(&variables, &mut budget);
                (holds, text, budget.is_spent())
            };
            let (one, two) = (once(), once());
            assert_eq!(one, two, "{rule:?} has two values");
            // A rule may use a tenth of what an object may; two of them leave some.
            assert!(!one.2, "{rule:?} spent more than a rule may");
            if one.0.is_ok() && one.1.is_ok() {
                panic!("{rule:?} is a truth and a text");
            }
            if let (Err(CelError::Failed(text)), _, _) = &one {
                assert!(!text.is_empty(), "{rule:?} failed without a word");
            }
        }
    }
    in_a_schema(rule, schema, &value);
}

/// The rule as the one of a schema, about an object before and after.
fn in_a_schema(rule: &str, mut schema: Value, value: &Value) {
    schema["x-kubernetes-validations"] = json!([{"rule": rule, "messageExpression": rule, "message": "m"}]);
    schema["properties"]["list"]["items"]["x-kubernetes-validations"] =
        json!([{"rule": rule, "optionalOldSelf": true}]);
    let node = Node::read(&schema);
    let one = rules::object(&node, value, Some(&sample()));
    assert_eq!(one, rules::object(&node, value, Some(&sample())), "{rule:?} finds two things");
    drop(check::object(&node, value, None));
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "half": {"type": "number"}, "s": {"type": "string"},
        "list": {"type": "array", "items": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "objects": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "integer"}}}},
        "time": {"type": "string", "format": "date-time"}, "span": {"type": "string", "format": "duration"},
        "any": {"x-kubernetes-int-or-string": true}, "flag": {"type": "boolean"},
        "none": {"type": "string", "nullable": true}, "free": {"x-kubernetes-preserve-unknown-fields": true}}})
}

fn sample() -> Value {
    json!({"n": 3, "half": 1.5, "s": "hello", "list": ["a", "b"], "set": ["x", "y"], "map": {"k": "v"},
        "objects": [{"name": "a", "v": 1}, {"name": "b", "v": 2}], "time": "2026-01-02T03:04:05Z", "span": "90m",
        "any": 1, "flag": true, "none": null, "free": {"a": [1, {"b": null}]}})
}
