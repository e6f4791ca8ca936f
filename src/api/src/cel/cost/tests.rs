//! Costs as upstream's own tests have them.

use serde_json::{Value, json};

use crate::cel::{Known, Program, Shape};
use crate::custom::Node;

fn cost(rule: &str, schema: &Value) -> u64 {
    let node = Node::read(schema);
    let shape = Shape::of(&node, false);
    let names = ["self", "oldSelf"].map(|name| Known { name, shape: shape.as_ref(), optional: false });
    Program::parse(rule).unwrap().outlook(&names).unwrap_or_else(|found| panic!("{rule}: {found:?}")).cost
}

fn value(kind: &str) -> Value {
    match kind {
        "duration" | "date" | "date-time" => json!({"type": "string", "format": kind}),
        "int-or-string" => json!({"x-kubernetes-int-or-string": true}),
        "numbers" => json!({"type": "array", "items": {"type": "number"}}),
        "map of numbers" => json!({"type": "object", "additionalProperties": {"type": "number"}}),
        "object" => json!({"type": "object", "required": ["required"],
            "properties": {"required": {"type": "string"}, "optional": {"type": "string"}}}),
        kind => json!({"type": kind}),
    }
}

fn list(item: Value, most: Option<u64>) -> Value {
    let mut list = json!({"type": "array", "items": item});
    most.into_iter().for_each(|most| list["maxItems"] = json!(most));
    list
}

fn map(item: Value, most: Option<u64>) -> Value {
    let mut map = json!({"type": "object", "additionalProperties": item});
    most.into_iter().for_each(|most| map["maxProperties"] = json!(most));
    map
}

fn text(most: Option<u64>) -> Value {
    let mut text = json!({"type": "string"});
    most.into_iter().for_each(|most| text["maxLength"] = json!(most));
    text
}

#[test]
fn lists_cost_what_fits_in_a_request() {
    for (item, rule, open, most, bounded) in [
        ("number", "self.all(x, true)", 4_718_591, 10, 32),
        ("string", "self.all(x, true)", 3_145_727, 20, 62),
        ("boolean", "self.all(x, true)", 1_887_437, 5, 17),
        ("numbers", "self.all(x, true)", 3_145_727, 100, 302),
        ("object", "self.all(x, true)", 555_128, 50, 152),
        ("number", "self[1] == 0.0", 2, 5000, 2),
        ("string", "self[1] == self[1]", 314_577, 8, 314_577),
        ("number", "self[3] == 0.0", 2, 0, 2),
        ("number", "self.all(x, x == 0.0)", 6_291_454, 3 * 1024 * 2048, 25_165_826),
        ("int-or-string", "self.all(x, true)", 4_718_591, 10, 32),
        ("int-or-string", "self[0] == 5", 3, 10, 3),
        ("boolean", "self[0] == false", 2, 25, 2),
        ("object", "self[0] == null", 2, 422, 2),
        ("numbers", "self[0][0] == -1.0", 3, 51, 3),
        ("map of numbers", "self.all(x, x.y == 25.2)", 6_291_452, 12, 74),
        ("map of numbers", "self[0].x > 2.0", 4, 3000, 4),
        ("duration", "self.all(x, true)", 2_359_295, 5, 17),
        ("duration", "self[0].getHours() == 2", 4, 525, 4),
        ("date", "self.all(x, true)", 725_936, 15, 47),
        ("date", "self[2].getDayOfMonth() == 13", 4, 42, 4),
        ("date-time", "self.all(x, true)", 428_963, 25, 77),
        ("date-time", "self[2].getMinutes() == 45", 4, 99, 4),
    ] {
        assert_eq!(cost(rule, &list(value(item), None)), open, "{item}: {rule}");
        assert_eq!(cost(rule, &list(value(item), Some(most))), bounded, "{item}, bounded: {rule}");
    }
    for (rule, bounded) in
        [("self.all(x, self.all(y, true))", 352), ("self.all(x, self.all(y, self.all(z, true)))", 3552)]
    {
        assert!(cost(rule, &list(value("number"), None)) > 10_000_000, "{rule}");
        assert_eq!(cost(rule, &list(value("number"), Some(10))), bounded, "{rule}");
    }
}

#[test]
fn maps_cost_what_fits_in_a_request() {
    for (item, rule, open, most, bounded) in [
        ("number", "self.all(x, true)", 1_348_169, 10, 32),
        ("string", "self.all(x, true)", 1_179_647, 3, 11),
        ("boolean", "self.all(x, true)", 943_718, 100, 302),
        ("number", "self[\"x\"] == 0.0", 2, 0, 2),
        ("int-or-string", "self.all(x, true)", 1_348_169, 15, 47),
        ("object", "self.all(x, true)", 428_963, 20, 62),
        ("map of numbers", "self.all(x, true)", 1_179_647, 10, 32),
        ("numbers", "self.all(x, true)", 1_179_647, 25, 77),
        ("duration", "self.all(x, true)", 1_048_577, 5, 17),
        ("date", "self.all(x, true)", 524_288, 10, 32),
        ("date-time", "self.all(x, true)", 349_526, 25, 77),
        ("integer", "oldSelf.size() == self.size()", 5, 10, 5),
        ("date-time", "self[\"a\"] == self[\"b\"]", 8, 7, 8),
        ("duration", "self[\"c\"] == self[\"d\"]", 8, 42, 8),
    ] {
        assert_eq!(cost(rule, &map(value(item), None)), open, "{item}: {rule}");
        assert_eq!(cost(rule, &map(value(item), Some(most))), bounded, "{item}, bounded: {rule}");
    }
    // Asking whether something is there costs nothing but the way to it.
    assert_eq!(cost("has(self.x)", &map(value("number"), None)), 1);
}

#[test]
fn texts_cost_by_their_length() {
    for (rule, open, most, bounded) in [
        ("self.contains('test')", 314_574, 10, 5),
        ("self.startsWith('test')", 2, 15, 2),
        ("self.endsWith('test')", 2, 30, 2),
        ("size(self + \"hello\") > size(\"hello\")", 314_578, 4, 7),
        ("self.matches(\"x\")", 314_574, 50, 22),
        ("\"\".matches(\"(((((((((())))))))))[0-9]\")", 7, 10, 7),
        ("self.matches(\"\")", 1, 100, 1),
        ("self == \"x\"", 2, 0, 1),
        ("self.find('[0-9]+') == ''", 629_147, 10, 11),
        ("self.lowerAscii() == 'lower!'", 314_575, 10, 6),
    ] {
        assert_eq!(cost(rule, &text(None)), open, "{rule}");
        assert_eq!(cost(rule, &text(Some(most))), bounded, "bounded: {rule}");
    }
    let bytes = |most: Option<u64>| {
        let mut text = text(most);
        text["format"] = json!("byte");
        text
    };
    assert_eq!((cost("self == b\"x\"", &bytes(None)), cost("self == b\"x\"", &bytes(Some(0)))), (2, 1));
    let mut known = json!({"type": "string", "enum": ["A", "B", "C", "LongValue"]});
    assert_eq!(cost("self.contains('A')", &known), 2);
    known["maxLength"] = json!(1000);
    assert_eq!(cost("self.contains('A')", &known), 401);
}

#[test]
fn what_is_made_has_a_size_too() {
    let both = |most: Option<u64>| list(text(most), most);
    let object = |most: Option<u64>| {
        json!({"type": "object", "properties": {"str": text(most), "separator": text(most), "before": text(Some(2)),
            "after": text(Some(4))}})
    };
    for (rule, schema, open, most, bounded) in [
        ("self.join(' ') == 'aa bb'", &both as &dyn Fn(Option<u64>) -> Value, 329_853_068_905, 10, 43),
        ("self.isSorted() == true", &both, 329_854_432_052, 10, 52),
        ("self.str.replace(self.before, self.after) == 'does not matter'", &object, 629_154, 4, 12),
        ("self.str.split(self.separator) == []", &object, 629_160, 10, 22),
        ("self.all(x, x.contains(self[x]))", &|most| map(text(most), most), 2_752_507, 10, 72),
        ("self.all(x, x[\"y\"].required == \"z\")", &|most| list(map(value("object"), most), most), 7_340_027, 10, 72),
        (
            "self.all(x, x[\"y\"].required == \"z\")",
            &|most| list(map(value("object"), most), None),
            7_340_027,
            10,
            7_340_027,
        ),
    ] {
        assert_eq!(cost(rule, &schema(None)), open, "{rule}");
        assert_eq!(cost(rule, &schema(Some(most))), bounded, "bounded: {rule}");
    }
}
