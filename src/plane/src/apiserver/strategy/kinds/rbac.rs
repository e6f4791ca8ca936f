//! Roles and who has them. What they let somebody do is the business of `crate::apiserver::rbac`.

use k8s_openapi::api::rbac::v1 as rbac;
use longshore_api::names;
use serde_json::{Value, json};

use crate::apiserver::error::Cause;
use crate::apiserver::object::{child, list, text};
use crate::apiserver::strategy::described::{Check, Described, Fill, Frozen};
use crate::apiserver::strategy::typed;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Roles of a namespace.
pub(crate) static ROLES: Described = Described {
    fill: Some(null_rules),
    rules: Some(|object, causes| rules(object, true, causes)),
    generation: &[],
    ..Described::new(typed::<rbac::Role>)
};

/// Roles of the whole cluster.
pub(crate) static CLUSTER_ROLES: Described = Described {
    fill: Some(null_rules),
    checks: &[Check::Selector("aggregationRule?.clusterRoleSelectors[]")],
    rules: Some(|object, causes| {
        rules(object, false, causes);
        if object.get("aggregationRule").is_some() && list(object, "/aggregationRule/clusterRoleSelectors").is_empty() {
            let text = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            causes.push(Cause::required("aggregationRule.clusterRoleSelectors", text));
        }
    }),
    generation: &[],
    ..Described::new(typed::<rbac::ClusterRole>)
};

/// Who has a role in a namespace.
pub(crate) static ROLE_BINDINGS: Described = Described {
    defaults: &[Fill::Set("roleRef.apiGroup", "\"rbac.authorization.k8s.io\"")],
    fill: Some(subject_groups),
    checks: &[Check::Chosen("roleRef.kind", &["ClusterRole", "Role"])],
    rules: Some(binding),
    frozen: &[Frozen::Invalid("roleRef", "cannot change roleRef")],
    generation: &[],
    ..Described::new(typed::<rbac::RoleBinding>)
};

/// Who has a role in the whole cluster.
pub(crate) static CLUSTER_ROLE_BINDINGS: Described = Described {
    defaults: &[Fill::Set("roleRef.apiGroup", "\"rbac.authorization.k8s.io\"")],
    fill: Some(subject_groups),
    checks: &[Check::Chosen("roleRef.kind", &["ClusterRole"])],
    rules: Some(binding),
    frozen: &[Frozen::Invalid("roleRef", "cannot change roleRef")],
    generation: &[],
    ..Described::new(typed::<rbac::ClusterRoleBinding>)
};

/// Rules are required on the wire: none are shown as null by the stock server.
fn null_rules(object: &mut Value) {
    if object.get("rules").is_none() {
        object["rules"] = Value::Null;
    }
}

fn rules(object: &Value, namespaced: bool, causes: &mut Vec<Cause>) {
    for (index, rule) in list(object, "/rules").iter().enumerate() {
        let at = format!("rules[{index}]");
        if list(rule, "/verbs").is_empty() {
            causes.push(Cause::required(format!("{at}.verbs"), "verbs must contain at least one value"));
        }
        let paths = list(rule, "/nonResourceURLs");
        let some = |key: &str| !list(rule, &format!("/{key}")).is_empty();
        if !paths.is_empty() {
            let field = format!("{at}.nonResourceURLs");
            if namespaced {
                let text = "namespaced rules cannot apply to non-resource URLs";
                causes.push(Cause::invalid(field.as_str(), &json!(paths), text));
            }
            if some("apiGroups") || some("resources") || some("resourceNames") {
                let text = "rules cannot apply to both regular resources and non-resource URLs";
                causes.push(Cause::invalid(field, &json!(paths), text));
            }
            continue;
        }
        if !some("apiGroups") {
            causes
                .push(Cause::required(format!("{at}.apiGroups"), "resource rules must supply at least one api group"));
        }
        if !some("resources") {
            causes.push(Cause::required(format!("{at}.resources"), "resource rules must supply at least one resource"));
        }
    }
}

fn subject_groups(object: &mut Value) {
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        if matches!(text(subject, "/kind"), "User" | "Group") && text(subject, "/apiGroup").is_empty() {
            subject["apiGroup"] = json!(GROUP);
        }
    }
    if object.get("roleRef").is_none() {
        child(object, "roleRef");
    }
}

fn binding(object: &Value, causes: &mut Vec<Cause>) {
    let group = text(object, "/roleRef/apiGroup");
    if group != GROUP {
        causes.push(Cause::unsupported("roleRef.apiGroup", group, &[GROUP]));
    }
    let name = text(object, "/roleRef/name");
    if name.is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    } else {
        let texts = crate::apiserver::rules::path_segment(name);
        causes.extend(texts.iter().map(|detail| Cause::invalid("roleRef.name", &json!(name), detail)));
    }
    for (index, subject) in list(object, "/subjects").iter().enumerate() {
        self::subject(subject, &format!("subjects[{index}]"), causes);
    }
}

fn subject(subject: &Value, at: &str, causes: &mut Vec<Cause>) {
    let (kind, group, name) = (text(subject, "/kind"), text(subject, "/apiGroup"), text(subject, "/name"));
    if name.is_empty() {
        causes.push(Cause::required(format!("{at}.name"), ""));
    }
    match kind {
        "ServiceAccount" => {
            if !name.is_empty() {
                let texts = names::dns1123_subdomain(name);
                causes.extend(texts.iter().map(|detail| Cause::invalid(format!("{at}.name"), &json!(name), detail)));
            }
            if !group.is_empty() {
                causes.push(Cause::unsupported(format!("{at}.apiGroup"), group, &[""]));
            }
            if text(subject, "/namespace").is_empty() {
                causes.push(Cause::required(format!("{at}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                causes.push(Cause::unsupported(format!("{at}.apiGroup"), group, &[GROUP]));
            }
        }
        other => causes.push(Cause::unsupported(format!("{at}.kind"), other, &["ServiceAccount", "User", "Group"])),
    }
}
