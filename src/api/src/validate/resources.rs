//! Requests and limits of containers and of the pod as a whole, and what a change of them may need.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;

use super::report::Report;
use super::{items, part, text};
use crate::names;
use crate::quantity::Quantity;
use crate::resources::{self, Side};
use crate::shape;

/// What one container asks for.
pub(super) fn container(container: &Value, path: &str, out: &mut Report) {
    let Some(own) = part(container, "resources") else { return };
    requirements(own, &format!("{path}.resources"), out, |at, name, out| {
        let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if !name.contains('/') && !standard {
            out.invalid(at, name, "must be a standard resource for containers");
            return false;
        }
        true
    });
}

fn requirements(own: &Value, path: &str, out: &mut Report, known: impl Fn(&str, &str, &mut Report) -> bool) {
    let amount =
        |side: &str, name: &str| own.get(side)?.get(name)?.as_str().and_then(|text| Quantity::parse(text).ok());
    for side in ["limits", "requests"] {
        for (name, value) in own.get(side).and_then(Value::as_object).into_iter().flatten() {
            let at = format!("{path}.{side}[{name}]");
            out.texts(&at, name, names::qualified_name(name));
            if !known(&at, name, out) {
                continue;
            }
            let text = value.as_str().unwrap_or_default();
            match Quantity::parse(text) {
                Ok(amount) if amount.is_negative() => {
                    out.invalid(at, text, "must be greater than or equal to 0");
                }
                Ok(_) => {}
                Err(error) => out.invalid(at, text, &error.to_string()),
            }
        }
    }
    for (name, value) in own.get("requests").and_then(Value::as_object).into_iter().flatten() {
        if let (Some(request), Some(limit)) = (amount("requests", name), amount("limits", name))
            && request > limit
        {
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            out.invalid(format!("{path}.requests"), value.clone(), &detail);
        }
    }
}

/// What a change of a container's size needs; `never` says that the container is never started again.
pub(super) fn policies(container: &Value, path: &str, never: bool, out: &mut Report) {
    let at = format!("{path}.resizePolicy");
    let mut seen = BTreeSet::new();
    for (item, policy) in items(container, path, "resizePolicy") {
        let (resource, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if !seen.insert(resource) {
            out.duplicate(item, resource);
        }
        out.one_of(at.as_str(), resource, &["cpu", "memory"]);
        out.one_of(at.as_str(), restart, &["NotRequired", "RestartContainer"]);
        if never && restart != "NotRequired" {
            out.invalid(at.as_str(), restart, "must be 'NotRequired' when `restartPolicy` is 'Never'");
        }
    }
}

/// What the pod as a whole asks for: it covers its containers, and none of them may have more.
pub(super) fn pod(spec: &Value, out: &mut Report) {
    let Some(own) = part(spec, "resources") else { return };
    let path = "spec.resources";
    requirements(own, path, out, |at, name, out| {
        let known = resources::is_pod_level(name);
        if !known && !name.contains('/') && name != "ephemeral-storage" {
            out.invalid(at, name, "must be a standard resource type or fully qualified");
        } else if !known {
            out.unsupported(at, name, &["cpu", "hugepages-", "memory"]);
        }
        known
    });
    let Ok(typed) = shape::read::<PodSpec>(spec) else { return };
    let Some(whole) = &typed.resources else { return };
    let requests = resources::amounts(whole.requests.as_ref());
    for (name, sum) in resources::of_containers(&typed, Side::Requests) {
        if let Some(request) = requests.get(&name).filter(|request| sum > **request) {
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            out.invalid(format!("{path}.requests[{name}]"), request.to_string(), &detail);
        }
    }
    let limits = resources::amounts(whole.limits.as_ref());
    for (name, sum) in resources::of_containers(&typed, Side::Limits) {
        if let Some(limit) = limits.get(&name).filter(|limit| name.starts_with("hugepages-") && sum > **limit) {
            let detail = format!("must be greater than or equal to aggregate container limits of {sum}");
            out.invalid(format!("{path}.limits[{name}]"), limit.to_string(), &detail);
        }
    }
    for (index, container) in typed.containers.iter().enumerate() {
        for (name, amount) in resources::of_container(container, Side::Limits) {
            if let Some(limit) = limits.get(&name).filter(|limit| amount > **limit) {
                let detail = format!("must be less than or equal to pod limits of {limit}");
                out.invalid(format!("{path}.containers[{index}][{name}].limits"), amount.to_string(), &detail);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn findings(spec: Value) -> Vec<String> {
        let mut pod = json!({"spec": spec});
        crate::defaults::pod(&mut pod);
        crate::validate::pod(&pod).iter().map(ToString::to_string).collect()
    }

    fn whole(resources: Value, container: Value) -> Value {
        json!({"resources": resources, "containers": [{"name": "c", "image": "i:1", "resources": container}]})
    }

    #[test]
    fn a_pod_covers_its_containers() {
        let limits = |cpu: &str| json!({"limits": {"cpu": cpu}});
        assert_eq!(findings(whole(limits("2"), limits("1"))), Vec::<String>::new());
        let few = json!({"requests": {"cpu": "500m"}});
        assert_eq!(
            findings(whole(few, json!({"requests": {"cpu": "1"}}))),
            ["spec.resources.requests[cpu]: Invalid value: \"500m\": must be greater than or equal to aggregate \
              container requests of 1"]
        );
        let got = findings(whole(
            json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}),
            json!({
            "requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
        ));
        assert!(got[0].ends_with("Invalid value: \"2\": must be less than or equal to pod limits of 1"), "{got:?}");
        let got = findings(whole(json!({"requests": {"ephemeral-storage": "1Gi"}}), json!({})));
        assert!(got[0].contains("supported values: \"cpu\", \"hugepages-\", \"memory\""), "{got:?}");
    }

    #[test]
    fn policies_name_what_there_is() {
        let with = |restart: &str, policies: Value| {
            json!({"restartPolicy": restart,
                "containers": [{"name": "c", "image": "i:1", "resizePolicy": policies}]})
        };
        let policy = |resource: &str, restart: &str| json!({"resourceName": resource, "restartPolicy": restart});
        let fine = json!([policy("cpu", "NotRequired"), policy("memory", "RestartContainer")]);
        assert_eq!(findings(with("Always", fine.clone())), Vec::<String>::new());
        assert_eq!(
            findings(with("Never", fine)),
            ["spec.containers[0].resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when \
              `restartPolicy` is 'Never'"]
        );
        let twice = json!([policy("cpu", "NotRequired"), policy("cpu", "NotRequired")]);
        assert_eq!(findings(with("Always", twice)), ["spec.containers[0].resizePolicy[1]: Duplicate value: \"cpu\""]);
        let odd = findings(with("Always", json!([policy("disk", "Perhaps")])));
        assert_eq!(odd.len(), 2, "{odd:?}");
    }
}
