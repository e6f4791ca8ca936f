use serde_json::json;

use super::*;

fn run(text: &str, value: &Json, schema: &Json) -> Result<bool, CelError> {
    let node = Node::read(schema);
    let program = Program::parse(text).map_err(CelError::Failed)?;
    let variables = [Variable { name: "self", value, node: Some(&node), optional: None }];
    program.holds(&variables, &mut Budget::default())
}

fn sample() -> (Json, Json) {
    let value = json!({"n": 3, "half": 1, "s": "hello", "list": ["a", "b"], "set": ["x", "y"], "map": {"k": "v"},
        "objects": [{"name": "a", "v": 1}, {"name": "b", "v": 2}], "time": "2026-01-02T03:04:05Z", "span": "90m",
        "a-b": 1, "namespace": "ns", "any": 1, "flag": true, "none": null});
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "half": {"type": "number"}, "s": {"type": "string"},
        "list": {"type": "array", "items": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "objects": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "integer"}}}},
        "time": {"type": "string", "format": "date-time"}, "span": {"type": "string", "format": "duration"},
        "a-b": {"type": "integer"}, "namespace": {"type": "string"}, "any": {"x-kubernetes-int-or-string": true},
        "flag": {"type": "boolean"}, "none": {"type": "string", "nullable": true}}});
    (value, schema)
}

#[test]
fn expressions_hold() {
    let (value, schema) = sample();
    for text in [
        "true",
        "!false",
        "self.n == 3",
        "self.n > 2 && self.n <= 3",
        "self.n + 1 == 4 ? true : false",
        "-self.n == -3",
        "7 % 4 == 3 && 7 / 2 == 3",
        "1.5 + 1.5 == 3.0",
        "self.half == 1.0",
        "1u + 2u == 3u",
        "0x10 == 16",
        "self.s.startsWith('he') && self.s.endsWith(\"lo\") && self.s.contains('ell')",
        "self.s.matches('^h.*o$')",
        "size(self.s) == 5 && self.s.size() == 5",
        "self.list == ['a', 'b']",
        "self.list[1] == 'b'",
        "'a' in self.list",
        "!('z' in self.list)",
        "self.set == ['y', 'x']",
        "self.list + ['c'] == ['a', 'b', 'c']",
        "self.set + ['x'] == ['x', 'y']",
        "self.map['k'] == 'v' && self.map.k == 'v'",
        "'k' in self.map",
        "self.map == {'k': 'v'}",
        "has(self.n) && !has(self.missing)",
        "self.objects.all(o, o.v > 0)",
        "self.objects.exists(o, o.name == 'b')",
        "self.objects.exists_one(o, o.v == 1)",
        "self.objects.map(o, o.v) == [1, 2]",
        "self.objects.map(o, o.v > 1, o.name) == ['b']",
        "self.objects.filter(o, o.v == 2).size() == 1",
        "self.map.all(k, self.map[k] == 'v')",
        "self.objects.all(i, o, o.v == i + 1)",
        "self.objects.transformList(i, o, o.v + i) == [1, 3]",
        "self.objects.map(o, o.v).sum() == 3",
        "[3, 1].max() == 3 && [3, 1].min() == 1",
        "![3, 1].isSorted()",
        "['a', 'b'].join('-') == 'a-b'",
        "'a,b'.split(',') == ['a', 'b']",
        "'abc'.split('') == ['a', 'b', 'c']",
        "'hello'.substring(1, 3) == 'el'",
        "'hello'.indexOf('l') == 2 && 'hello'.lastIndexOf('l') == 3",
        "'aXb'.lowerAscii() == 'axb' && ' a '.trim() == 'a'",
        "'aab'.replace('a', 'x') == 'xxb' && 'aab'.replace('a', 'x', 1) == 'xab'",
        "'abc 123'.find('[0-9]+') == '123' && '1 2 3'.findAll('[0-9]') == ['1', '2', '3']",
        "self.time > timestamp('2026-01-01T00:00:00Z')",
        "self.time.getFullYear() == 2026 && self.time.getMonth() == 0 && self.time.getHours() == 3",
        "self.span == duration('1h30m') && self.span.getMinutes() == 90",
        "self.time + self.span == timestamp('2026-01-02T04:34:05Z')",
        "self.a__dash__b == 1",
        "self.__namespace__ == 'ns'",
        "type(self.any) == int && type(self.s) == string",
        "self.none == null",
        "int('3') == 3 && string(3) == '3' && double(3) == 3.0 && uint(3) == 3u",
        "self.?n.orValue(0) == 3 && self.?missing.orValue(9) == 9",
        "self.?missing.hasValue() == false",
        "optional.of(1).value() == 1 && !optional.none().hasValue()",
        "self.?n.optMap(x, x + 1).value() == 4",
        "cel.bind(x, self.n, x * x == 9)",
        "quantity('1Gi').isGreaterThan(quantity('1M'))",
        "quantity('1').add(quantity('500m')).compareTo(quantity('1500m')) == 0",
        "isQuantity('1Gi') && !isQuantity('x')",
        "ip('10.0.0.1').family() == 4 && isIP('::1')",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3')",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.0.0/8').masked() == cidr('10.0.0.0/8')",
        "url('https://example.com:80/a?x=1').getHostname() == 'example.com' && url('https://example.com:80/a').getPort() == '80'",
        "isURL('https://x') && url('https://h/p?a=b').getQuery() == {'a': ['b']}",
        "sets.contains([1, 2], [1]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])",
        "false && self.missing == 1 || true",
        "self.missing == 1 || true",
        "[1, 'a', true].size() == 3",
        "r'\\d' == '\\\\d'",
        "b'abc' == bytes('abc')",
        "'\\u0041' == 'A'",
        "[1, 2].exists(x, x > 1) && [[1], [2, 3]].flatten() == [1, 2, 3] && [2, 1].sort() == [1, 2] && [1, 1].distinct() == [1]",
        "math.greatest(1, 3, 2) == 3",
        "// a word\n true",
    ] {
        assert_eq!(run(text, &value, &schema), Ok(true), "{text}");
    }
}

#[test]
fn what_goes_wrong_is_said() {
    let (value, schema) = sample();
    for (text, want) in [
        ("self.missing == 1", "no such key: missing"),
        ("self.list[7] == 'a'", "index out of bounds: 7"),
        ("1 / 0 == 1", "division by zero"),
        ("9223372036854775807 + 1 > 0", "integer overflow"),
        ("self.n + 'a' == 'b'", "no such overload"),
        ("self.n", "expected a bool, found int"),
        ("'x'.matches('(')", "error parsing regexp"),
    ] {
        let Err(CelError::Failed(found)) = run(text, &value, &schema) else { panic!("{text}") };
        assert!(found.starts_with(want), "{text}: {found}");
    }
}

#[test]
fn what_is_no_expression_is_refused_with_its_place() {
    for text in [
        "",
        "self.",
        "1 +",
        "(1",
        "[1",
        "{1: }",
        "has(1)",
        "a.all(1, true)",
        "'x",
        "1 2",
        "a b",
        "self.n = 3",
        "%",
        "99999999999999999999",
        "-",
        "!",
        "in",
        "a ? b",
    ] {
        assert!(Program::parse(text).is_err(), "{text}");
    }
    assert_eq!(Program::parse("1 +").unwrap_err(), "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>'");
}

#[test]
fn depth_and_length_are_bounded() {
    for text in [
        "(".repeat(10_000),
        format!("{}1{}", "(".repeat(200), ")".repeat(200)),
        "[".repeat(5000),
        "!".repeat(100_000),
        format!("1{}", "+1".repeat(5000)),
        format!("a{}", ".b".repeat(5000)),
        "a?".repeat(5000),
        "x".repeat(1 << 20),
        format!("1{}", "?1:1".repeat(3000)),
    ] {
        drop(Program::parse(&text));
    }
    assert!(
        Program::parse(&format!("{}1{}", "(".repeat(200), ")".repeat(200))).unwrap_err().contains("recursion limit")
    );
    // Each pair of brackets holds a long chain: neither is deep, together they are.
    let mut nested = "x".to_owned();
    for _ in 0..60 {
        nested = format!("({nested}{})", ".a".repeat(60));
    }
    assert!(Program::parse(&nested).unwrap_err().contains("recursion limit"));
    assert!(Program::parse(&format!("self{}", ".a".repeat(50))).is_ok());
    assert!(Program::parse(&vec!["true"; 2000].join(" && ")).is_ok(), "a long chain is no deep one");
}

#[test]
fn no_expression_runs_without_end() {
    let numbers: Vec<i64> = (0..2000).collect();
    let long = "x".repeat(100_000);
    let value = json!({"l": numbers, "s": long});
    let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"}}, "s": {"type": "string"}}});
    for text in [
        "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))",
        "self.l.all(a, self.s.contains('y' + string(a)) || true)",
        "self.l.map(a, self.l).map(b, b.map(c, self.l)).size() > 0",
        "self.l.all(a, self.l == self.l)",
        "self.l.all(a, self.s.replace('x', self.s).size() > 0)",
        "cel.bind(a, self.s + self.s, cel.bind(b, a + a + a + a, cel.bind(c, b + b + b + b, cel.bind(d, c + c + c + c, d + d + d + d != ''))))",
        "sets.equivalent(self.l, self.l)",
        "self.l.all(a, 'x'.matches('x{' + string(a) + '}') || true)",
        "self.l.distinct().size() == 2000",
        "lists.range(9223372036854775807).size() > 0",
    ] {
        assert_eq!(run(text, &value, &schema), Err(CelError::Cost), "{text}");
    }
    assert_eq!(run("self.l.all(a, a >= 0)", &value, &schema), Ok(true));
}

#[test]
fn names_and_fields_that_are_not_there_are_found_before() {
    let (_, schema) = sample();
    let node = Node::read(&schema);
    let shape = Shape::of(&node, false);
    let names = [Known { name: "self", shape: shape.as_ref(), optional: false }];
    let found = |text: &str| Program::parse(text).unwrap().outlook(&names).err().unwrap_or_default();
    for text in [
        "self.n > 1",
        "self.objects.all(o, o.v > 0)",
        "self.map.anything == 'x'",
        "self.a__dash__b == 1",
        "self.any == 1",
        "optional.none().hasValue()",
    ] {
        assert_eq!(found(text), [""; 0], "{text}");
    }
    for (text, want) in [
        ("self.missing > 1", "undefined field 'missing'"),
        ("self.objects.all(o, o.w > 0)", "undefined field 'w'"),
        ("other.n > 1", "undeclared reference to 'other' (in container '')"),
        ("nope(self.n)", "undeclared reference to 'nope' (in container '')"),
        ("self.n.x == 1", "type 'int' does not support field selection"),
    ] {
        assert_eq!(found(text), [format!("ERROR: <input>:1:1: {want}")], "{text}");
    }
}

/// Rounded to doubles, 2^53 + 1, 2^53 and 2^53 were all the same to each other and not in order; a sort may panic on that.
#[test]
fn large_numbers_of_different_kinds_have_one_order() {
    let (value, schema) = sample();
    for text in [
        "![9007199254740993, 9007199254740992.0, 9007199254740992].isSorted()",
        "[9007199254740993, 9007199254740992.0, 9007199254740991].sort()[0] == 9007199254740991",
        "9007199254740993 > 9007199254740992.0 && 9007199254740992.0 < 9007199254740993u",
        "-2 < -1.5 && -1 > -1.5 && 2 > 1.5 && 1 < 1.5 && !(1 < 1.0) && 1 <= 1.0",
        "9223372036854775807 < 1e300 && -1e300 < 0u && 18446744073709551615u < 1e20",
    ] {
        assert_eq!(run(text, &value, &schema), Ok(true), "{text}");
    }
}

fn outlook(text: &str, schema: &Json) -> Result<Outlook, Vec<String>> {
    let node = Node::read(schema);
    let shape = Shape::of(&node, true);
    let names = [
        Known { name: "self", shape: shape.as_ref(), optional: false },
        Known { name: "oldSelf", shape: shape.as_ref(), optional: true },
    ];
    Program::parse(text).unwrap().outlook(&names)
}

#[test]
fn what_has_the_right_types_is_taken() {
    let (_, schema) = sample();
    for text in [
        "self.n + 1 == 2",
        "self.n < 1.5 && self.half > 1 && self.n >= 1u",
        "self.half == 1.0",
        "self.s + 'x' == 'y'",
        "self.any == 1 && self.any == 'x' && self.any + 1 == 2",
        "type(self.any) == int ? self.any < 5 : self.any.endsWith('%')",
        "self.time > timestamp('2026-01-01T00:00:00Z') && self.time - self.time < duration('1h')",
        "self.time + self.span > self.time",
        "self.time == null || self.objects[0] != null || self.any == null",
        "self.map['k'] == 'v' && self.map.k == 'v' && 'k' in self.map",
        "self.list + ['c'] == ['a'] || [] == self.list || self.list == []",
        "self.list.map(s, size(s)).sum() == 2",
        "self.list.map(s, s + 'x')[0] == 'ax'",
        "self.list.filter(s, s != '').size() > 0",
        "self.objects.map(o, o.v > 1, o.name) == ['b']",
        "self.objects.all(i, o, o.v == i + 1)",
        "self.map.all(k, self.map[k] == 'v') && self.map.all(k, v, k == v)",
        "self.map.transformMap(k, v, size(v)).k == 1",
        "self.objects.transformList(i, o, o.v + i) == [1, 3]",
        "self.?s.orValue('x') == 'x' && self.?objects[?0].?name.hasValue()",
        "self.?n.optMap(x, x + 1).value() == 4",
        "oldSelf.hasValue() ? oldSelf.value().n == self.n : true",
        "oldSelf.?n.orValue(0) <= self.n",
        "cel.bind(x, self.n, x * x == 9)",
        "cel.bind(math, self.s, math.contains('x'))",
        "quantity('1Gi').add(1).isGreaterThan(quantity('1M')) && quantity('1') == quantity('1')",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').ip() == ip('10.0.0.0')",
        "url(self.s).getQuery()['a'] == ['b']",
        "sets.contains(self.list, ['a']) && self.set.isSorted()",
        "[1, 2].exists(x, x == self.n) && {'a': 1}.a == 1",
        "dyn(self.n) == 'x' && [dyn(1), 'x'].size() == 2",
        "[[1], [2, 3]].flatten() == [1, 2, 3]",
        "self.metadata.name.startsWith('x') && self.kind != '' && self.apiVersion != ''",
        "has(self.s) && !has(self.any)",
        "math.greatest(1, 3, 2) == 3",
    ] {
        let found = outlook(text, &schema);
        assert!(found.as_ref().is_ok_and(|found| found.decides), "{text}: {found:?}");
    }
}

#[test]
fn what_has_wrong_types_is_refused_in_upstreams_words() {
    let (_, schema) = sample();
    for (text, want) in [
        ("self.n + 'x' == 'y'", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("self.n == 1.0", "found no matching overload for '_==_' applied to '(int, double)'"),
        ("self.half == 1", "found no matching overload for '_==_' applied to '(double, int)'"),
        ("self.n + 1.0 > 2.0", "found no matching overload for '_+_' applied to '(int, double)'"),
        ("self.s == null", "found no matching overload for '_==_' applied to '(string, null)'"),
        ("self.s > 1", "found no matching overload for '_>_' applied to '(string, int)'"),
        ("self.s && true", "found no matching overload for '_&&_' applied to '(string, bool)'"),
        ("true || self.n", "found no matching overload for '_||_' applied to '(bool, int)'"),
        ("!self.n", "found no matching overload for '!_' applied to '(int)'"),
        ("-self.s == ''", "found no matching overload for '-_' applied to '(string)'"),
        ("self.n.startsWith('x')", "found no matching overload for 'startsWith' applied to 'int.(string)'"),
        ("self.s.contains(1)", "found no matching overload for 'contains' applied to 'string.(int)'"),
        ("size(self.n) == 1", "found no matching overload for 'size' applied to '(int)'"),
        ("1 in self.list", "found no matching overload for '@in' applied to '(int, list(string))'"),
        ("self.list['a'] == 'b'", "found no matching overload for '_[_]' applied to '(list(string), string)'"),
        ("self.map[1] == 'b'", "found no matching overload for '_[_]' applied to '(map(string, string), int)'"),
        ("self.list == 'a'", "found no matching overload for '_==_' applied to '(list(string), string)'"),
        ("self.list == [1]", "found no matching overload for '_==_' applied to '(list(string), list(int))'"),
        ("self.n > 1 ? 1 : 'x'", "found no matching overload for '_?_:_' applied to '(bool, int, string)'"),
        ("self.list.all(s, s)", "found no matching overload for '_&&_' applied to '(bool, string)'"),
        ("self.list.all(s, s > 1)", "found no matching overload for '_>_' applied to '(string, int)'"),
        (
            "self.n.all(x, true)",
            "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("self.time > '2026'", "found no matching overload for '_>_' applied to '(timestamp, string)'"),
        (
            "self.?n.orValue('x') == 1",
            "found no matching overload for 'orValue' applied to 'optional_type(int).(string)'",
        ),
        ("self.?n == 1", "found no matching overload for '_==_' applied to '(optional_type(int), int)'"),
        ("oldSelf.n == self.n", "found no matching overload for '_==_' applied to '(optional_type(int), int)'"),
        ("[1, 'x'].size() == 2", "expected type 'int' but found 'string'"),
        (
            "self.list.map(s, size(s)) == ['x']",
            "found no matching overload for '_==_' applied to '(list(int), list(string))'",
        ),
        ("quantity(1).isInteger()", "found no matching overload for 'quantity' applied to '(int)'"),
        ("self.time > timestamp('soon')", "invalid timestamp argument"),
        ("self.span > duration('long')", "invalid duration argument"),
        ("self.s.matches('(')", "invalid matches argument"),
        ("self.metadata.labels == {}", "undefined field 'labels'"),
        ("self.list.name == 'x'", "type 'list(string)' does not support field selection"),
    ] {
        assert_eq!(outlook(text, &schema), Err(vec![format!("ERROR: <input>:1:1: {want}")]), "{text}");
    }
    for text in ["self.n", "self.s", "[true]", "size(self.s)", "self.objects"] {
        assert!(!outlook(text, &schema).unwrap().decides, "{text}");
    }
    for (text, says) in
        [("self.s", true), ("'a' + string(1)", true), ("self.list", true), ("self.n", false), ("true", false)]
    {
        assert_eq!(outlook(text, &schema).unwrap().says, says, "{text}");
    }
}

/// Types of maps of maps would double with each step if their keys could be maps.
#[test]
fn types_do_not_grow_without_end() {
    let mut text = "z == z && [z].all(y, y == z)".to_owned();
    for step in (0..40).rev() {
        let (to, from) = (if step == 39 { "z".to_owned() } else { format!("v{step}") }, format!("v{}", step - 1));
        let from = if step == 0 { "1".to_owned() } else { from };
        text = format!("cel.bind({to}, {{{from}: {from}}}, {text})");
    }
    drop(outlook(&text, &json!({"type": "object"})));
}

#[test]
fn values_are_written_into_texts_versions_compared_and_formats_known() {
    let (value, schema) = sample();
    for text in [
        "'%s has %d of %s'.format([self.s, self.n, self.list]) == 'hello has 3 of [\"a\", \"b\"]'",
        "'100%% %s %s'.format([true, null]) == '100% true null'",
        "'%s %s %s'.format([1.5, self.span, self.time]) == '1.5 5400s 2026-01-02T03:04:05Z'",
        "'%.2f %f'.format([3.14159, 1234567.5]) == '3.14 1,234,567.500000'",
        "'%e'.format([1052.032911275]) == '1.052033\\u202f\\u00d7\\u202f10\\u2070\\u00b3'",
        "'%b %o %x %X %x'.format([5, 30, 26, 255, 'hi']) == '101 36 1a FF 6869'",
        "'%b %d'.format([true, -7]) == '1 -7'",
        "'%s'.format([{'b': [1, 2], 'a': []}, 1]) == '{\"a\":[], \"b\":[1, 2]}'",
        "'%s'.format([[1.5]]) == '[1.500000]'",
        "'%s %s'.format([[duration('1m')], [type(1)]]) == '[duration(\"60s\")] [int]'",
        "'é%sé'.format(['%']) == 'é%é'",
        "semver('1.2.3').compareTo(semver('1.2.10')) == -1 && semver('1.0.0').isGreaterThan(semver('1.0.0-rc.1'))",
        "semver('1.0.0-alpha.2').isLessThan(semver('1.0.0-alpha.10')) && semver('1.0.0-1').isLessThan(semver('1.0.0-a'))",
        "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3+x').patch() == 3",
        "semver('v1.02', true) == semver('1.2.0') && isSemver('v1.0', true) && !isSemver('v1.0.0') && !isSemver('01.0.0')",
        "!isSemver('1.0') && !isSemver('') && !isSemver('1.0.0-') && !isSemver('1.0.0+') && isSemver('1.0.0-a.b+c.1')",
        "!format.dns1123Label().validate('my-name').hasValue() && format.dns1123Label().validate('My').value().size() > 0",
        "format.named('uuid').value().validate('x').value() == ['does not match the UUID format']",
        "!format.named('nope').hasValue() && !format.dns1035LabelPrefix().validate('a-').hasValue()",
        "strings.quote('a\"b') == '\"a\\\\\"b\"' && lists.range(3) == [0, 1, 2] && lists.range(0).size() == 0",
        "ip.isCanonical('::1') && !ip.isCanonical('0:0::1') && ip.isCanonical('10.0.0.1')",
        "['::1'].all(ip, ip.contains(':'))",
        "!format.date().validate('2026-01-02').hasValue() && format.byte().validate('*').hasValue()",
    ] {
        assert_eq!(run(text, &value, &schema), Ok(true), "{text}");
        assert!(outlook(text, &schema).is_ok_and(|found| found.decides), "{text}: {:?}", outlook(text, &schema));
    }
    for (text, want) in [
        (
            "'%d'.format(['x']) == ''",
            "error during formatting: decimal clause can only be used on integers, was given string",
        ),
        ("'%s'.format([]) == ''", "index 0 out of range"),
        ("'%z'.format([1]) == ''", "could not parse formatting clause: unrecognized formatting clause \"z\""),
        ("'%'.format([1]) == ''", "unexpected end of string"),
        ("'%.9999999f'.format([1.0]) == ''", "could not parse formatting clause"),
        ("'%.'.format([1.0]) == ''", "could not parse formatting clause"),
        ("semver('1.x.0').major() == 1", "Invalid character(s) found in minor number \"x\""),
    ] {
        let Err(CelError::Failed(found)) = run(text, &value, &schema) else { panic!("{text}") };
        assert!(found.starts_with(want), "{text}: {found}");
    }
    let refused = outlook("format.nope().validate('x').hasValue()", &schema).unwrap_err();
    assert_eq!(refused, ["ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')"]);
    let cheap = outlook("'%s is smaller than %d'.format([self.s, self.n])", &schema).unwrap();
    assert!(cheap.says && cheap.cost < 100, "{cheap:?}");
}
