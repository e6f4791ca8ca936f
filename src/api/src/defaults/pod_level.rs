//! What a pod as a whole asks for when only its limits are given.

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Map, Value, json};

use super::{Object, field};
use crate::resources::{self, Side};
use crate::shape;

/// Where the pod has limits of its own, its requests are the sum of its containers' or else those limits.
pub(super) fn requests(spec: &mut Object) {
    let Some(limits) = child_limits(spec) else { return };
    let whole = Value::Object(spec.clone());
    let sum = shape::read::<PodSpec>(&whole).map(|spec| resources::of_containers(&spec, Side::Requests));
    let Some(own) = field(spec, "resources") else { return };
    let mut requests = own.get("requests").and_then(Value::as_object).cloned().unwrap_or_default();
    for (name, amount) in sum.into_iter().flatten() {
        if resources::is_pod_level(&name) && !name.starts_with("hugepages-") {
            requests.entry(name).or_insert_with(|| json!(amount.to_string()));
        }
    }
    for (name, limit) in limits {
        if resources::is_pod_level(&name) {
            requests.entry(name).or_insert(limit);
        }
    }
    if !requests.is_empty() {
        own.insert("requests".to_owned(), Value::Object(requests));
    }
}

fn child_limits(spec: &Object) -> Option<Map<String, Value>> {
    let limits = spec.get("resources")?.get("limits")?.as_object()?;
    (!limits.is_empty()).then(|| limits.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaulted(spec: Value) -> Value {
        let mut pod = json!({"spec": spec});
        crate::defaults::pod(&mut pod);
        let once = pod["spec"]["resources"].clone();
        crate::defaults::pod(&mut pod);
        assert_eq!(pod["spec"]["resources"], once, "twice changes nothing");
        once
    }

    #[test]
    fn requests_come_from_containers_first_and_from_limits_then() {
        let container = |requests: Value| json!([{"name": "c", "image": "i", "resources": {"requests": requests}}]);
        assert_eq!(
            defaulted(json!({"resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
                "containers": container(json!({"cpu": "500m"}))})),
            json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}})
        );
        let given = json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}});
        assert_eq!(
            defaulted(json!({"resources": given, "containers": container(json!({"memory": "1Mi"}))})),
            json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1", "memory": "1Mi"}})
        );
        let only_requests = json!({"requests": {"cpu": "1"}});
        assert_eq!(defaulted(json!({"resources": only_requests, "containers": container(json!({}))})), only_requests);
        assert_eq!(defaulted(json!({"containers": container(json!({"cpu": "1"}))})), Value::Null);
    }
}
