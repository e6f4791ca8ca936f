use std::fmt::Write as _;

use serde_json::json;

use super::*;

fn key(name: &str) -> Step {
    Step::Key(name.to_owned())
}

#[test]
fn scalars_are_read_as_kubernetes_reads_them() {
    let text = "mode: 0644\non: yes\noff: off\ntext: \"yes\"\nhex: 0x10\nneg: -3\nbig: 18446744073709551615\nfraction: 0.5\nnothing:\ndate: 2020-01-02\nzero: 0\nversion: 1.36\nuser: 012\n";
    let want = json!({"mode": 420, "on": true, "off": false, "text": "yes", "hex": 16, "neg": -3,
        "big": 18_446_744_073_709_551_615u64, "fraction": 0.5, "nothing": null, "date": "2020-01-02", "zero": 0, "version": 1.36, "user": 10});
    assert_eq!(to_value(text).unwrap(), want);
}

#[test]
fn keys_become_text() {
    assert_eq!(to_value("1: a\n8080: b\n").unwrap(), json!({"1": "a", "8080": "b"}));
}

#[test]
fn duplicate_keys_are_refused_with_their_place() {
    let error = to_value("a:\n  b: 1\n  c: 2\n  b: 3\n").unwrap_err();
    let YamlError::Invalid { position, message } = error else { panic!("{error}") };
    assert_eq!(position, Position { line: 4, column: 3 });
    assert!(message.contains("duplicate") && message.contains('b'), "{message}");

    let error = to_value("{\"a\": 1,\n \"a\": 2}").unwrap_err();
    let YamlError::Invalid { position, message } = error else { panic!("{error}") };
    assert_eq!(position.line, 2);
    assert_eq!(message, "duplicate key \"a\"");
}

#[test]
fn json_with_tabs_and_flow_mappings_are_both_read() {
    assert_eq!(to_value("{\n\t\"a\": [1, 2]\n}").unwrap(), json!({"a": [1, 2]}));
    assert_eq!(to_value("{a: b, c: [d]}").unwrap(), json!({"a": "b", "c": ["d"]}));
    assert!(to_value("{\"a\": ").is_err());
}

#[test]
fn streams_of_documents_lose_only_the_empty_ones() {
    let text = "---\n# only a comment\n---\na: 1\n---\n---\nb: 2\n...\n";
    assert_eq!(documents(text).unwrap(), [json!({"a": 1}), json!({"b": 2})]);
    assert_eq!(to_value("").unwrap(), Value::Null);
    assert_eq!(to_value("# nothing\n").unwrap(), Value::Null);
    assert_eq!(to_value("---\na: 1\n---\n").unwrap(), json!({"a": 1}));
    assert_eq!(to_value("a: 1\n---\nb: 2\n").unwrap_err(), YamlError::Several(2));
}

#[test]
fn syntax_errors_have_a_place_and_one_line() {
    let error = to_value("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("line "), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn anchors_aliases_and_merge_keys_work() {
    let text = "base: &b {x: 1, y: 2}\none:\n  <<: *b\n  y: 3\ntwo: *b\n";
    assert_eq!(
        to_value(text).unwrap(),
        json!({"base": {"x": 1, "y": 2}, "one": {"x": 1, "y": 3}, "two": {"x": 1, "y": 2}})
    );
}

#[test]
fn an_alias_bomb_is_refused_quickly() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let previous = level - 1;
        let list = vec![format!("*a{previous}"); 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{list}]").unwrap();
    }
    assert!(matches!(to_value(&text), Err(YamlError::Invalid { .. })));
}

#[test]
fn deep_nesting_is_refused_in_every_form() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    for text in [
        deep("[", "]"),
        deep("{\"a\":", "}"),
        deep("{a: ", "}"),
        "- ".repeat(100_000),
        format!("{}x", "- ".repeat(5_000)),
    ] {
        assert!(to_value(&text).is_err());
        assert_eq!(locate(&text, &[Step::Index(0)]), None);
    }
    for fine in [format!("{}1{}", "[".repeat(90), "]".repeat(90)), format!("{}x", "- ".repeat(90))] {
        assert!(to_value(&fine).is_ok());
        assert!(locate(&fine, &[]).is_some());
    }
}

#[test]
fn huge_input_is_refused_before_parsing() {
    let text = "a".repeat(MAX_BYTES + 1);
    assert_eq!(to_value(&text).unwrap_err(), YamlError::TooLarge(MAX_BYTES + 1));
    assert_eq!(documents(&text).unwrap_err(), YamlError::TooLarge(MAX_BYTES + 1));
    let many = "- a\n".repeat(MAX_NODES + 1);
    assert!(matches!(to_value(&many), Err(YamlError::Invalid { .. })));
}

#[test]
fn garbage_is_an_error_and_never_a_panic() {
    for text in [
        "\u{0}\u{1}\u{2}",
        "&",
        "*x",
        "!!binary x",
        "? : ?",
        "%YAML 9.9\n---\n",
        "a: *undefined",
        "\t",
        "{[}",
        "a: b: c",
        ".inf",
        "a: .nan",
    ] {
        drop(to_value(text));
        drop(documents(text));
        locate(text, &[key("a")]);
    }
    assert!(to_value("a: .nan").is_err());
}

#[test]
fn a_path_is_found_or_its_deepest_part() {
    let text = "a:\n  b:\n  - c: 1\n  - c: x\n    d: y\n";
    let at = |line, column| Some(Position { line, column });
    assert_eq!(locate(text, &[key("a"), key("b"), Step::Index(1), key("d")]), at(5, 5));
    assert_eq!(locate(text, &[key("a"), key("b"), Step::Index(1)]), at(4, 5));
    assert_eq!(locate(text, &[key("a"), key("nope")]), at(1, 1));
    assert_eq!(locate("{\"a\": {\"b\": 1}}", &[key("a"), key("b")]), at(1, 8));
}

#[test]
fn what_is_written_is_read_back() {
    let value = json!({"text": "yes", "number": "0644", "null": null, "empty": "", "list": [], "map": {}, "lines": "a\nb\n", "colon": "a: b",
        "nested": [{"a": [1, 2.5, -3, true]}, "x"], "tilde": "~", "octal": "0o17", "sexagesimal": "1:20", "n": "n", "key": {"on": "off"}, "date": "2020-01-02",
        "unicode": "ünïcode\u{7}", "trail": "x ", "hash": "a #b"});
    let text = to_string(&value).unwrap();
    assert_eq!(to_value(&text).unwrap(), value, "{text}");
}

proptest::proptest! {
    #[test]
    fn any_text_survives_writing_and_reading(text in "\\PC{0,40}", other in "[a-z0-9:#~ .'\"-]{0,12}") {
        let value = json!({"a": text, "b": [other.clone()], "c": {"k": other}});
        let written = to_string(&value).unwrap();
        proptest::prop_assert_eq!(to_value(&written).unwrap(), value, "{}", written);
    }

    #[test]
    fn reading_never_panics(text in "[-a-c0-9:{}\\[\\],&*!|>'\"%@` \n#?<~.]{0,60}") {
        drop(to_value(&text));
        drop(documents(&text));
        locate(&text, &[Step::Index(0), Step::Key("a".into())]);
    }
}
