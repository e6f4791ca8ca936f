use serde_json::json;

use super::*;

fn found(schema: &Value) -> Vec<String> {
    let mut report = Report::default();
    root(schema, "schema", Trust { sound: true, kept: false }, &mut report);
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
    assert_eq!(spec(&schema("'not ' + string(self.n)")), [""; 0]);
    let refused = spec(&schema("self.s.matches(self.s) ? 'a' : 'b'"));
    let want = "schema.properties[spec].x-kubernetes-validations[0].messageExpression: Forbidden: estimated messageExpression \
                cost exceeds budget by factor of more than 100x";
    assert!(refused[0].starts_with(want), "{refused:?}");
}

#[test]
fn rules_and_messages_have_the_right_types() {
    let at = "schema.properties[spec].x-kubernetes-validations[0]";
    let schema = |rule: &str, message: &str| {
        json!({"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string", "maxLength": 9}},
            "x-kubernetes-validations": [{"rule": rule, "messageExpression": message}]})
    };
    assert_eq!(spec(&schema("self.n > 1", "self.s + ' is wrong'")), [""; 0]);
    for (rule, message, want) in [
        ("self.n", "'x'", format!("{at}.rule: Invalid value: \"self.n\": cel expression must evaluate to a bool")),
        (
            "self.n + 'x' == 'y'",
            "",
            format!(
                "{at}.rule: Invalid value: \"self.n + 'x' == 'y'\": compilation failed: ERROR: <input>:1:1: found no matching \
                 overload for '_+_' applied to '(int, string)'"
            ),
        ),
        (
            "self.n > 1",
            "self.n",
            format!("{at}.messageExpression: Invalid value: \"self.n\": messageExpression must evaluate to a string"),
        ),
        (
            "self.n > 1",
            "self.m",
            format!(
                "{at}.messageExpression: Invalid value: \"self.m\": messageExpression compilation failed: ERROR: <input>:1:1: \
                 undefined field 'm'"
            ),
        ),
    ] {
        assert_eq!(spec(&schema(rule, message)), [want], "{rule}");
    }
}

#[test]
fn a_schema_that_stays_keeps_its_rules() {
    let schema = with("self.contains('x'.replace('x', 'y'))", json!({"type": "string", "maxLength": 30_000_000}));
    let report = |kept| {
        let mut report = Report::default();
        root(&schema, "schema", Trust { sound: true, kept }, &mut report);
        report.0.len()
    };
    assert_eq!((report(false), report(true)), (1, 0));
}

#[test]
fn what_stands_beside_an_expression_has_upstreams_words() {
    let at = "schema.properties[spec].x-kubernetes-validations[0]";
    let schema = |rule: &Value| json!({"type": "object", "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": [rule]});
    for rule in [
        json!({"rule": "self.n >\n1", "message": "larger"}),
        json!({"rule": "self.n > oldSelf.n"}),
        json!({"rule": "self.n > oldSelf.orValue(self).n", "optionalOldSelf": true}),
        json!({"rule": "self.n > 1", "fieldPath": ".n", "reason": "FieldValueRequired"}),
    ] {
        assert_eq!(spec(&schema(&rule)), [""; 0], "{rule}");
    }
    for (rule, want) in [
        (json!({"rule": " "}), "rule: Required value: rule is not specified"),
        (
            json!({"rule": "true", "message": " "}),
            "message: Invalid value: \" \": message must be non-empty if specified",
        ),
        (
            json!({"rule": "true", "message": "a\nb"}),
            "message: Invalid value: \"a\\nb\": message must not contain line breaks",
        ),
        (
            json!({"rule": "true ||\nfalse"}),
            "message: Required value: message must be specified if rule contains line breaks",
        ),
        (
            json!({"rule": "true", "messageExpression": " "}),
            "messageExpression: Required value: messageExpression must be non-empty if specified",
        ),
        (
            json!({"rule": "true", "fieldPath": ".m"}),
            "fieldPath: Invalid value: \".m\": fieldPath must be a valid path",
        ),
        (
            json!({"rule": "true", "optionalOldSelf": false}),
            "optionalOldSelf: Invalid value: false: may not be set if oldSelf is not used in rule",
        ),
    ] {
        assert_eq!(spec(&schema(&rule)), [format!("{at}.{want}")], "{rule}");
    }
    for above in [
        json!({"type": "array", "items": with("self >= oldSelf", json!({"type": "integer"}))}),
        json!({"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"n": with("self >= oldSelf", json!({"type": "integer"}))}}),
    ] {
        assert!(spec(&above)[0].contains("oldSelf cannot be used on the uncorrelatable portion"), "{above}");
    }
}

/// Rules of the kind that widely used definitions have, with their bounds; upstream takes them.
#[test]
fn rules_as_they_are_in_use_are_taken() {
    let name = json!({"type": "string", "minLength": 1, "maxLength": 253});
    let doors = json!({"type": "array", "maxItems": 64, "items": {"type": "object", "required": ["name", "port"], "properties": {
        "name": name, "host": name, "port": {"type": "integer"}, "kind": {"type": "string", "maxLength": 255},
        "tls": {"type": "object", "properties": {"mode": {"type": "string", "enum": ["End", "Pass"]}}}}}});
    let labels =
        json!({"type": "object", "maxProperties": 100, "additionalProperties": {"type": "string", "maxLength": 63}});
    let wants = json!({"type": "array", "maxItems": 100, "items": {"type": "object", "properties": {
        "key": {"type": "string", "maxLength": 316}, "sign": {"type": "string", "enum": ["In", "Exists"]},
        "values": {"type": "array", "items": {"type": "string"}}}}});
    let steps = json!({"type": "array", "maxItems": 16, "items": {"type": "object", "properties": {
        "kind": {"type": "string", "enum": ["Set", "Turn"]}, "matches": {"type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 64}}}}});
    let owner = json!({"type": "object", "properties": {"group": {"type": "string"}, "kind": {"type": "string"}, "port": {"type": "integer"},
        "size": {"x-kubernetes-int-or-string": true}, "limit": {"x-kubernetes-int-or-string": true}, "until": {"type": "string", "format": "date-time"},
        "wait": {"type": "string", "format": "duration"}, "open": {"type": "array", "items": {"type": "string"}}}});
    for (rule, schema) in [
        ("self.all(d, d.kind in ['HTTP', 'TCP'] ? !has(d.tls) : true)", &doors),
        ("self.all(d, d.kind == 'HTTPS' && has(d.tls) ? (d.tls.mode == '' || d.tls.mode == 'End') : true)", &doors),
        ("self.all(a, self.exists_one(b, a.name == b.name))", &doors),
        (
            "self.all(a, self.exists_one(b, a.port == b.port && a.kind == b.kind && (has(a.host) && has(b.host) ? a.host == b.host : !has(a.host) && !has(b.host))))",
            &doors,
        ),
        ("self.all(k, k in ['a.io/x', 'a.io/y'] || !k.find('^([^/]+)').endsWith('a.io'))", &labels),
        ("self.all(w, w.sign == 'In' ? w.values.size() != 0 : true)", &wants),
        ("self.all(w, !w.key.find('^([^/]+)').endsWith('a.io') || w.key.startsWith('b.io/'))", &wants),
        ("self.filter(s, s.kind == 'Set').size() <= 1", &steps),
        ("self.map(s, s.matches.size()).sum() <= 128", &steps),
        ("self.size() == 0 || self[0].matches.size() + (self.size() > 1 ? self[1].matches.size() : 0) <= 128", &steps),
        ("self.all(s, s.matches.all(m, m.matches('^[a-z]+$')))", &steps),
        ("size(self.group) == 0 && self.kind == 'Service' ? has(self.port) : true", &owner),
        ("self == oldSelf", &owner),
        ("!has(oldSelf.port) || has(self.port)", &owner),
        ("type(self.size) == int ? self.size > 0 : self.size.matches('^[0-9]+%$')", &owner),
        ("quantity(self.size).compareTo(quantity(self.limit)) <= 0", &owner),
        ("!has(self.until) || self.until > timestamp('2024-01-01T00:00:00Z')", &owner),
        ("self.wait >= duration('1s') && self.wait.getSeconds() < 3600", &owner),
        ("self.?open.orValue([]).all(o, o.startsWith('a'))", &owner),
        ("self.open.all(o, o != 'a') && !('c' in self.open)", &owner),
        ("self.kind.startsWith('x') && self.kind.size() < 10 && self.group.contains('.')", &owner),
        ("isIP(self.group) || isCIDR(self.group) && cidr(self.group).prefixLength() >= 24", &owner),
        ("!format.dns1123Label().validate('x').hasValue() || url(self.group).getScheme() == 'https'", &owner),
    ] {
        assert_eq!(spec(&with(rule, schema.clone())), [""; 0], "{rule}");
    }
    let whole = with(
        "self.metadata.name.size() <= 63 && self.spec.n > 0",
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}),
    );
    assert_eq!(found(&whole), [""; 0]);
}

/// A schema is read once, however many rules there are, and what is below is looked at once for each place that has rules.
#[test]
fn many_rules_over_a_large_schema_take_little_time() {
    let mut schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    for name in 0..3000 {
        schema["properties"][format!("f{name}")] = json!({"type": "string", "maxLength": 9, "pattern": "^a+$"});
    }
    let rule = json!({"rule": "self.n > 1", "fieldPath": ".n"});
    schema["x-kubernetes-validations"] = json!(vec![rule; 999]);
    let begun = std::time::Instant::now();
    assert_eq!(spec(&schema), [""; 0]);
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// What upstream's conformance tests define.
#[test]
fn definitions_of_the_conformance_tests_are_taken_and_refused() {
    let numbers = json!({"type": "array", "maxItems": 725, "items": {"type": "integer"}});
    let pair = json!({"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}});
    let health = json!({"type": "object", "properties": {"health": {"type": "string"}}});
    for (rule, schema) in [
        ("self.all(x, self.all(y, x == y))", &numbers),
        ("self.x + self.y > 0", &pair),
        ("self.health == 'ok' || self.health == 'unhealthy'", &health),
        ("self > oldSelf", &json!({"type": "integer"})),
    ] {
        assert_eq!(spec(&with(rule, schema.clone())), [""; 0], "{rule}");
    }
    let inner = with("self.all(s, s == 'string constant')", json!({"type": "array", "items": {"type": "string"}}));
    for (schema, want) in [
        (with("self.z == 100", pair.clone()), "undefined field 'z'"),
        (with("self = 42", pair), "Syntax error"),
        (json!({"type": "array", "items": inner}), "exceeds budget"),
    ] {
        let found = spec(&schema);
        assert!(found[0].contains(want), "{found:?}");
    }
}
