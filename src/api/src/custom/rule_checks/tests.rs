use serde_json::json;

use super::*;

fn found(schema: &Value) -> Vec<String> {
    let mut report = Report::default();
    root(schema, "schema", true, &mut report);
    report.0.iter().map(ToString::to_string).collect()
}

fn spec(schema: &Value) -> Vec<String> {
    found(&json!({"type": "object", "properties": {"spec": schema}}))
}

fn with(rule: &str, mut schema: Value) -> Value {
    schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
    schema
}

#[test]
fn rules_that_are_cheap_enough_are_taken() {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let nested = json!({"type": "array", "maxItems": 10, "items": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10}}});
    for (rule, schema) in [
        ("self.all(s, s == 'string constant')", &texts),
        ("self.all(s, s.size() > 0)", &texts),
        ("self.exists(s, s == 'x')", &texts),
        ("'x' in self", &texts),
        ("self.all(l, l.all(s, self.all(m, m.all(t, s == t))))", &nested),
        ("self.all(l, l.all(s, s.matches('^[a-z]+$')))", &nested),
    ] {
        assert_eq!(spec(&with(rule, schema.clone())), [""; 0], "{rule}");
    }
}

#[test]
fn rules_that_cost_too_much_are_refused() {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let nested =
        json!({"type": "array", "items": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}});
    let at = "schema.properties[spec].x-kubernetes-validations[0].rule";
    let over = "exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and \
                maxLength where arrays, maps, and strings are declared)";
    for (rule, schema) in [
        ("self.all(s, self.all(t, s == t))", &texts),
        ("self.all(x, x.all(y, y.all(s, s == 'string constant')))", &nested),
        ("self.all(s, s.contains('x'))", &texts),
    ] {
        let want = [
            format!("{at}: Forbidden: estimated rule cost {over}"),
            format!(
                "{at}: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            ),
            format!(
                "schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema {over}"
            ),
        ];
        assert_eq!(spec(&with(rule, schema.clone())), want, "{rule}");
    }
}

#[test]
fn a_rule_counts_as_often_as_there_can_be_values() {
    let rule = |most: Option<u64>| {
        let mut list =
            json!({"type": "array", "items": with("self.contains('x')", json!({"type": "string", "maxLength": 1000}))});
        most.into_iter().for_each(|most| list["maxItems"] = json!(most));
        list
    };
    // 401 for each; about a million fit into a request.
    assert_eq!(spec(&rule(Some(1000))), [""; 0]);
    let refused = spec(&rule(Some(30_000)));
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains(
        "items.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.203000x"
    ));
    assert!(spec(&rule(None))[0].contains("by factor of 42.0x"), "{:?}", spec(&rule(None)));
}

#[test]
fn messages_that_cost_too_much_are_refused() {
    let schema = |message: &str| {
        json!({"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.n > 1", "messageExpression": message}]})
    };
    assert_eq!(spec(&schema("'too ' + 'small'")), [""; 0]);
    let refused = spec(&schema("'not ' + string(self.n)"));
    let want = "schema.properties[spec].x-kubernetes-validations[0].messageExpression: Forbidden: estimated messageExpression \
                cost exceeds budget by factor of more than 100x";
    assert!(refused[0].starts_with(want), "{refused:?}");
}
