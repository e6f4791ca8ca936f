//! Whatever comes in, nothing panics and nothing lasts long.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Definition, Node, check, define, definition, fill, path, pattern, prune, publish, rules};
use crate::cel::{Budget, Program, Variable};

const WORDS: [&str; 32] = [
    "type",
    "object",
    "array",
    "string",
    "integer",
    "number",
    "properties",
    "additionalProperties",
    "items",
    "default",
    "required",
    "enum",
    "pattern",
    "format",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "x-kubernetes-list-type",
    "map",
    "set",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
    "rule",
    "self.a == 1",
    "oldSelf",
    "spec",
    "versions",
    "schema",
    "openAPIV3Schema",
    "metadata",
    "name",
];

fn value() -> impl Strategy<Value = Value> {
    let word = (0..WORDS.len()).prop_map(|at| WORDS[at].to_owned());
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Pieces of expressions, put together anyhow.
fn expression() -> impl Strategy<Value = String> {
    const PIECES: [&str; 40] = [
        "self",
        "oldSelf",
        ".a",
        ".",
        "?",
        ":",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ",",
        "'x'",
        "\"",
        "r'",
        "1",
        "1u",
        "1.5",
        "0x",
        "9223372036854775808",
        "-",
        "!",
        "&&",
        "||",
        "==",
        "<",
        " in ",
        "+",
        "*",
        "%",
        ".all(x, ",
        ".map(x, ",
        "has(",
        ".size()",
        ".matches(",
        "duration(",
        "cel.bind(x, ",
        "\\",
        "é",
    ];
    prop::collection::vec(0..PIECES.len(), 0..24).prop_map(|all| all.into_iter().map(|at| PIECES[at]).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn definitions_of_any_form_are_read_and_judged(object in value(), spec in value(), schema in value()) {
        let mut object = object;
        drop(Definition::read(&object));
        drop(define::validate(&object));
        definition::defaults(&mut object);
        let mut whole = json!({"spec": {"group": "example.com", "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema},
            "subresources": spec, "selectableFields": spec, "additionalPrinterColumns": spec}], "names": spec, "conversion": spec}});
        definition::defaults(&mut whole);
        drop(Definition::read(&whole));
        drop(define::validate(&whole));
        drop(define::validate_update(&whole, &object));
        definition::note_storage(&mut whole);
    }

    #[test]
    fn objects_of_any_form_are_pruned_filled_and_checked(schema in value(), object in value(), old in value()) {
        let schema = json!({"type": "object", "properties": {"spec": schema, "more": schema}});
        let node = Node::read(&schema);
        let mut object = json!({"spec": object, "more": old});
        drop(prune::object(&node, &mut object));
        fill::object(&node, &mut object);
        let before = object.clone();
        fill::object(&node, &mut object);
        prop_assert_eq!(&object, &before, "defaults are stable");
        drop(check::object(&node, &object, None));
        drop(check::object(&node, &object, Some(&old)));
        drop(rules::object(&node, &object, Some(&old)));
        prop_assert!(check::object(&node, &object, Some(&object)).is_empty(), "what did not change is not refused");
        drop(publish::kind(&schema, ("g", "v", "k"), publish::Dialect::V2, ""));
    }

    #[test]
    fn expressions_of_any_form_are_read_and_run(text in expression(), value in value()) {
        if let Ok(program) = Program::parse(&text) {
            let variables = [
                Variable { name: "self", value: &value, node: None, optional: None },
                Variable { name: "oldSelf", value: &value, node: None, optional: Some(true) },
            ];
            drop(program.holds(&variables, &mut Budget::default()));
            drop(program.outlook(&[crate::cel::Known { name: "self", shape: None, optional: false }]));
            let schema = crate::custom::Node::read(&value);
            let shape = crate::cel::Shape::of(&schema, true);
            let names = ["self", "oldSelf"].map(|name| crate::cel::Known {
                name,
                shape: shape.as_ref(),
                optional: name != "self",
            });
            drop(program.outlook(&names));
        }
    }

    #[test]
    fn paths_and_patterns_of_any_form_are_read(text in ".{0,40}", value in value()) {
        if let Ok(path) = path::Path::parse(&text) {
            path.find(&value);
        }
        drop(pattern::compile(&text));
        drop(Program::parse(&text));
    }
}
