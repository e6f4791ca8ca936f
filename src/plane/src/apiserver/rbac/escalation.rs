//! Nobody gives away rights that he has not: looked at each time a role or binding is written.

use serde_json::Value;

use super::Index;
use super::rules::{Rule, missing};
use crate::apiserver::error::ApiError;
use crate::apiserver::identity::{Attributes, GROUP_MASTERS, UserInfo};
use crate::apiserver::object::{meta, text};
use crate::apiserver::resources::{CLUSTERROLEBINDINGS, CLUSTERROLES, ROLEBINDINGS, ROLES, Resource};

/// Checks a role or binding before it is written. Others pass.
pub(crate) fn check(
    index: &Index,
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    user: Option<&UserInfo>,
) -> Result<(), ApiError> {
    let Some(user) = user.filter(|user| !user.is_in(GROUP_MASTERS)) else { return Ok(()) };
    let is = |rows: [&Resource; 2]| rows.iter().any(|row| std::ptr::eq(*row, resource));
    if is([&ROLES, &CLUSTERROLES]) {
        check_role(index, resource, object, old, user)
    } else if is([&ROLEBINDINGS, &CLUSTERROLEBINDINGS]) {
        check_binding(index, resource, object, old, user)
    } else {
        Ok(())
    }
}

fn may(index: &Index, user: &UserInfo, verb: &str, resource: &str, namespace: &str, name: &str) -> bool {
    let asked = Attributes {
        verb: verb.to_owned(),
        api_group: "rbac.authorization.k8s.io".to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        is_resource: true,
        ..Attributes::default()
    };
    index.allows(user, &asked).is_some()
}

fn check_role(
    index: &Index,
    resource: &Resource,
    role: &Value,
    old: Option<&Value>,
    user: &UserInfo,
) -> Result<(), ApiError> {
    if old.is_some_and(|old| {
        old.get("rules") == role.get("rules") && old.get("aggregationRule") == role.get("aggregationRule")
    }) {
        return Ok(());
    }
    let (namespace, name) = (meta(role, "namespace"), meta(role, "name"));
    if may(index, user, "escalate", resource.plural, namespace, name) {
        return Ok(());
    }
    // What a gathering role gathers cannot be known beforehand.
    if role.get("aggregationRule").is_some() {
        let all = [everything(), every_path()];
        let lacks = missing(&index.rules(user, ""), &all);
        if !lacks.is_empty() {
            return Err(refusal(resource, name, user, &lacks));
        }
    }
    let lacks = missing(&index.rules(user, namespace), &Rule::all(role));
    if lacks.is_empty() { Ok(()) } else { Err(refusal(resource, name, user, &lacks)) }
}

fn everything() -> Rule {
    Rule::read(&serde_json::json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}))
}

fn every_path() -> Rule {
    Rule::read(&serde_json::json!({"verbs": ["*"], "nonResourceURLs": ["*"]}))
}

fn check_binding(
    index: &Index,
    resource: &Resource,
    binding: &Value,
    old: Option<&Value>,
    user: &UserInfo,
) -> Result<(), ApiError> {
    let same = |key: &str| old.is_some_and(|old| old.get(key) == binding.get(key));
    if same("roleRef") && same("subjects") {
        return Ok(());
    }
    let (namespace, name) = (meta(binding, "namespace"), meta(binding, "name"));
    let (kind, role) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
    let plural = if kind == "ClusterRole" { CLUSTERROLES.plural } else { ROLES.plural };
    if may(index, user, "bind", plural, namespace, role) {
        return Ok(());
    }
    let Some(rules) = index.role(kind, namespace, role) else {
        let row: &Resource = if kind == "ClusterRole" { &CLUSTERROLES } else { &ROLES };
        return Err(ApiError::not_found(row, role));
    };
    let lacks = missing(&index.rules(user, namespace), &rules);
    if lacks.is_empty() { Ok(()) } else { Err(refusal(resource, name, user, &lacks)) }
}

fn refusal(resource: &Resource, name: &str, user: &UserInfo, lacks: &[Rule]) -> ApiError {
    let groups: Vec<String> = user.groups.iter().map(|group| format!("{group:?}")).collect();
    let lacks: Vec<String> = lacks.iter().map(Rule::to_string).collect();
    let text = format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        groups.join(" "),
        lacks.join("\n")
    );
    ApiError::forbidden(resource, name, &text)
}

/// Whether a user may approve or sign for a signer.
pub(crate) fn signer_allowed(index: &Index, request: &Value, verb: &str, user: Option<&UserInfo>) -> bool {
    let Some(user) = user.filter(|user| !user.is_in(GROUP_MASTERS)) else { return true };
    let signer = text(request, "/spec/signerName");
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    [signer.to_owned(), format!("{domain}/*")].into_iter().any(|name| {
        let asked = Attributes {
            verb: verb.to_owned(),
            api_group: "certificates.k8s.io".to_owned(),
            version: "v1".to_owned(),
            resource: "signers".to_owned(),
            name,
            is_resource: true,
            ..Attributes::default()
        };
        index.allows(user, &asked).is_some()
    })
}
