use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn labels(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn error(text: &str) -> String {
    LabelSelector::parse(text).unwrap_err().to_string()
}

#[test]
fn every_operator_selects_what_it_says() {
    for (selector, yes, no) in [
        ("", "a=b", "-"),
        ("a=b", "a=b,c=d", "a=c"),
        ("a==b", "a=b", "c=b"),
        ("a!=b", "c=d", "a=b"),
        ("a", "a=", "b=a"),
        ("!a", "b=c", "a=b"),
        ("a in (b, c)", "a=c", "a=d"),
        ("a notin (b,c)", "d=e", "a=b"),
        ("a>5", "a=10", "a=5"),
        ("a<5", "a=-3", "a=5"),
        ("a=b,c!=d,e", "a=b,e=f", "a=b,c=d,e=f"),
        ("a in (,)", "a=", "a=b"),
        ("a=", "a=", "a=b"),
        ("in in (in,notin)", "in=notin", "in=x"),
        ("example.com/x in (y)", "example.com/x=y", "x=y"),
        (" a = b ,\tc ", "a=b,c=d", "a=b"),
    ] {
        let parsed = LabelSelector::parse(selector).unwrap_or_else(|error| panic!("{selector}: {error}"));
        assert!(parsed.matches_map(&labels(yes)), "{selector} should take {yes}");
        if no != "-" {
            assert!(!parsed.matches_map(&labels(no)), "{selector} should refuse {no}");
        }
    }
}

#[test]
fn errors_have_the_apiservers_words() {
    assert_eq!(error("a in"), "unable to parse requirement: found '' expected: '('");
    assert_eq!(error("a,"), "found '', expected: identifier after ','");
    assert_eq!(error("a b"), "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
    assert_eq!(error("=b"), "found '=', expected: !, identifier, or 'end of string'");
    assert_eq!(error("a=b c"), "found 'c', expected: ',' or 'end of string'");
    assert_eq!(error("a in (b"), "unable to parse requirement: found '', expected: ',' or ')'");
    assert_eq!(
        error("a in ()"),
        "unable to parse requirement: values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
    );
    assert_eq!(error("!"), "unable to parse requirement: found '', expected: identifier");
    assert!(error("a>x").ends_with("for 'Gt', 'Lt' operators, the value must be an integer"));
    assert!(
        error("-a=b").starts_with("unable to parse requirement: key: Invalid value: \"-a\": name part must consist of")
    );
    assert!(error("a=-b").contains("values[0][a]: Invalid value: \"-b\": a valid label must be"));
}

#[test]
fn objects_select_like_text() {
    let expression = |operator: &str, values: &[&str]| LabelSelectorRequirement {
        key: "k".into(),
        operator: operator.into(),
        values: Some(values.iter().map(|&value| value.to_owned()).collect()),
    };
    let object = |expressions| Raw { match_labels: Some(labels("a=b")), match_expressions: Some(expressions) };
    let selector = LabelSelector::from_object(Some(&object(vec![expression("NotIn", &["x"])]))).unwrap();
    assert_eq!(selector.to_string(), "a=b,k!=x");
    assert!(selector.matches_object(&json!({"metadata": {"labels": {"a": "b"}}})));
    assert!(!selector.matches_object(&json!({"metadata": {"labels": {"a": "b", "k": "x"}}})));
    assert!(!LabelSelector::from_object(None).unwrap().matches_map(&labels("a=b")));
    assert!(LabelSelector::from_object(Some(&Raw::default())).unwrap().is_everything());
    let error = LabelSelector::from_object(Some(&object(vec![expression("Near", &[])]))).unwrap_err();
    assert_eq!(error.to_string(), "\"Near\" is not a valid label selector operator");
}

#[test]
fn fields_are_compared_as_text() {
    let pod = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "x"}, "status": {"phase": "Running", "podIPs": [{"ip": "1.1.1.1"}]}});
    for (selector, takes) in [
        ("", true),
        ("spec.nodeName=x", true),
        ("spec.nodeName!=x", false),
        ("spec.nodeName==x,status.phase!=Failed", true),
        ("metadata.name=b", false),
        ("spec.hostNetwork=false", true),
        ("status.podIP=", true),
        ("status.podIPs=1.1.1.1", true),
        ("metadata.namespace=n", true),
    ] {
        let selector = FieldSelector::parse(selector).unwrap();
        selector.check("pods").unwrap();
        assert_eq!(selector.matches(&pod), takes, "{selector}");
    }
    assert_eq!(FieldSelector::parse("spec.nodeName=x,a!=b").unwrap().exact("spec.nodeName"), Some("x"));
    assert_eq!(FieldSelector::parse("spec.nodeName!=x").unwrap().exact("spec.nodeName"), None);
}

#[test]
fn unknown_fields_are_refused_in_the_apiservers_words() {
    let check =
        |selector: &str, resource| FieldSelector::parse(selector).unwrap().check(resource).unwrap_err().to_string();
    assert_eq!(
        check("data.a=1", "configmaps"),
        "\"data.a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
    assert_eq!(check("spec.x=1", "pods"), "field label not supported: spec.x");
    assert_eq!(FieldSelector::parse("a").unwrap_err().to_string(), "invalid selector: 'a'; can't understand 'a'");
}

#[test]
fn field_values_can_hold_any_text() {
    let selector = FieldSelector::parse("type=a\\,b\\=c\\\\").unwrap();
    assert_eq!(selector.requirements()[0].value, "a,b=c\\");
    assert_eq!(selector.to_string(), "type=a\\,b\\=c\\\\");
    assert!(FieldSelector::parse("a=b=c").is_err() && FieldSelector::parse("a=\\x").is_err());
}

proptest! {
    #[test]
    fn text_that_parses_is_written_to_text_that_means_the_same(text in "[ab!=<>,() inot1]{0,20}", key in "[ab]", value in "[ab1]{0,2}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            let again = LabelSelector::parse(&selector.to_string()).unwrap();
            let labels = labels(&format!("{key}={value}"));
            prop_assert_eq!(again.matches_map(&labels), selector.matches_map(&labels));
        }
    }

    #[test]
    fn in_and_notin_are_opposites(values in proptest::collection::vec("[a-c]{0,2}", 1..4), value in proptest::option::of("[a-c]{0,2}")) {
        let takes = Requirement::new("k", Operator::In, values.clone()).unwrap().accepts(value.as_deref());
        prop_assert_eq!(takes, !Requirement::new("k", Operator::NotIn, values).unwrap().accepts(value.as_deref()));
    }

    #[test]
    fn any_field_value_survives(value in "\\PC{0,20}") {
        let selector = FieldSelector::equal("f", &value);
        prop_assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap(), selector);
    }
}
