//! Budgets of disruption.

use k8s_openapi::api::policy::v1 as policy;
use serde_json::Value;

use crate::apiserver::error::Cause;
use crate::apiserver::strategy::described::{Check, Described};
use crate::apiserver::strategy::typed;

/// How many pods of a set may be taken away at once.
pub(crate) static POD_DISRUPTION_BUDGETS: Described = Described {
    status: Some("{\"disruptionsAllowed\":0,\"currentHealthy\":0,\"desiredHealthy\":0,\"expectedPods\":0}"),
    checks: &[
        Check::Amount("spec.minAvailable"),
        Check::Amount("spec.maxUnavailable"),
        Check::Selector("spec.selector"),
        Check::OneOf("spec.unhealthyPodEvictionPolicy", &["AlwaysAllow", "IfHealthyBudget"]),
    ],
    rules: Some(|object, causes| {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        if spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some() {
            causes.push(Cause::invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"));
        }
    }),
    ..Described::new(typed::<policy::PodDisruptionBudget>)
};
