//! Whether a node is one that a pod may be on: node selector and required node affinity, taints and tolerations.
//! What cannot be read (an unknown operator, a bad value) matches nothing.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};

use crate::selector::{Operator, Requirement};

/// Says whether node selector and required node affinity of a pod take a node.
pub fn wants_node(spec: &PodSpec, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let selector = spec.node_selector.iter().flatten();
    if selector.into_iter().any(|(key, value)| labels.get(key) != Some(value)) {
        return false;
    }
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let Some(required) = required else { return true };
    required.node_selector_terms.iter().any(|term| term_matches(term, name, labels))
}

/// All requirements of a term must hold; a term without any takes nothing.
fn term_matches(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let field = |key: &str| (key == "metadata.name").then_some(name);
    expressions.iter().all(|wanted| holds(wanted, |key| labels.get(key).map(String::as_str)))
        && fields.iter().all(|wanted| holds(wanted, field))
}

fn holds<'a>(wanted: &NodeSelectorRequirement, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
    let operator = match wanted.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        _ => return false,
    };
    Requirement::new(&wanted.key, operator, wanted.values.clone().unwrap_or_default())
        .is_ok_and(|requirement| requirement.accepts(lookup(&wanted.key)))
}

/// Returns the first taint of that effect that no toleration covers.
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration], effect: &str) -> Option<&'a Taint> {
    let of_effect = taints.iter().filter(|taint| taint.effect == effect);
    of_effect.into_iter().find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// Says whether a toleration covers a taint; empty key and effect stand for all.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if given(&toleration.effect).is_some_and(|effect| effect != taint.effect) {
        return false;
    }
    if given(&toleration.key).is_some_and(|key| key != taint.key) {
        return false;
    }
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => {
            given(&toleration.key).is_some()
                && toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn takes(spec: Value) -> bool {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let labels = BTreeMap::from([("disk", "ssd"), ("cores", "8")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        wants_node(&spec, "n1", &labels)
    }

    fn required(terms: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn every_pair_of_the_selector_must_be_a_label() {
        assert!(takes(json!({})));
        assert!(takes(json!({"nodeSelector": {"disk": "ssd"}})));
        assert!(!takes(json!({"nodeSelector": {"disk": "hdd"}})));
        assert!(!takes(json!({"nodeSelector": {"disk": "ssd", "zone": "a"}})));
    }

    #[test]
    fn one_term_must_hold_wholly() {
        let expression =
            |key: &str, operator: &str, values: Value| json!({"key": key, "operator": operator, "values": values});
        for (terms, want) in [
            (json!([]), false),
            (json!([{}]), false),
            (json!([{"matchExpressions": [expression("disk", "In", json!(["ssd", "hdd"]))]}]), true),
            (json!([{"matchExpressions": [expression("disk", "In", json!(["hdd"]))]}]), false),
            (json!([{"matchExpressions": [expression("disk", "NotIn", json!(["ssd"]))]}]), false),
            (json!([{"matchExpressions": [expression("zone", "NotIn", json!(["a"]))]}]), true),
            (json!([{"matchExpressions": [expression("zone", "DoesNotExist", json!([]))]}]), true),
            (
                json!([{"matchExpressions": [expression("disk", "Exists", json!([])), expression("cores", "Gt", json!(["4"]))]}]),
                true,
            ),
            (json!([{"matchExpressions": [expression("cores", "Lt", json!(["4"]))]}]), false),
            (json!([{"matchExpressions": [expression("disk", "Near", json!([]))]}]), false),
            (json!([{"matchFields": [expression("metadata.name", "In", json!(["n1"]))]}]), true),
            (json!([{"matchFields": [expression("metadata.name", "In", json!(["n2"]))]}]), false),
            (
                json!([{"matchExpressions": [expression("zone", "Exists", json!([]))]}, {"matchFields": [expression("metadata.name", "In", json!(["n1"]))]}]),
                true,
            ),
        ] {
            assert_eq!(takes(required(terms.clone())), want, "{terms}");
        }
    }

    #[test]
    fn tolerations_table() {
        let taint = Taint { key: "k".into(), value: Some("v".into()), effect: "NoExecute".into(), time_added: None };
        for (toleration, want) in [
            (json!({"operator": "Exists"}), true),
            (json!({"operator": "Exists", "effect": "NoExecute"}), true),
            (json!({"operator": "Exists", "effect": "NoSchedule"}), false),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "x", "operator": "Exists"}), false),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "w"}), false),
            (json!({"key": "k"}), false),
            (json!({}), false),
        ] {
            let toleration: Toleration = serde_json::from_value(toleration).unwrap();
            assert_eq!(tolerates(&toleration, &taint), want, "{toleration:?}");
        }
        let soft = Taint { effect: "PreferNoSchedule".into(), ..taint.clone() };
        let taints = [soft, taint.clone()];
        assert_eq!(untolerated(&taints, &[], "NoExecute"), Some(&taint));
        assert_eq!(untolerated(&taints, &[], "NoSchedule"), None);
    }
}
