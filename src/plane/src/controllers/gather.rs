//! Keeps the rules of cluster roles that gather those of others.

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use crate::apiserver::error::ApiError;
use crate::apiserver::object::{list, meta};
use crate::apiserver::registry::{Part, Registry, WriteOptions};
use crate::apiserver::resources::CLUSTERROLES;
use crate::apiserver::selects;

pub(super) async fn run(registry: Registry, token: CancellationToken) {
    let mut roles = Feed::new(&registry, &CLUSTERROLES);
    loop {
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            _ = roles.next() => {}
        }
        if let Err(error) = gather(&registry).await {
            tracing::warn!(%error, "cluster roles could not be gathered");
        }
    }
}

async fn gather(registry: &Registry) -> Result<(), ApiError> {
    let (mut roles, _) = registry.list_values(&CLUSTERROLES, "")?;
    roles.sort_by(|a, b| meta(a, "name").cmp(meta(b, "name")));
    for role in roles.iter().filter(|role| role.get("aggregationRule").is_some()) {
        let rules = gathered(role, &roles);
        if list(role, "/rules") == rules {
            continue;
        }
        let change = |mut role: Value| {
            role["rules"] = json!(rules);
            Ok(Some(role))
        };
        let own = WriteOptions::default();
        match registry.modify(&CLUSTERROLES, "", meta(role, "name"), Part::Main, &own, change).await {
            Err(error) if !error.is_not_found() => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// The rules of all roles that a gathering one selects, each once.
fn gathered(role: &Value, roles: &[Value]) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    for selector in list(role, "/aggregationRule/clusterRoleSelectors") {
        for other in roles.iter().filter(|other| meta(other, "name") != meta(role, "name") && selects(selector, other))
        {
            for rule in list(other, "/rules") {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_gathers_the_rules_of_those_it_selects_once() {
        let role = |name: &str, label: &str, rules: Value| json!({"metadata": {"name": name, "labels": {label: "true"}}, "rules": rules});
        let (one, two) = (json!({"verbs": ["get"]}), json!({"verbs": ["list"]}));
        let all = [
            role("a", "to-x", json!([one, two])),
            role("b", "to-x", json!([one])),
            role("c", "to-y", json!([{"verbs": ["delete"]}])),
        ];
        let gathering = json!({"metadata": {"name": "x"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to-x": "true"}}]}});
        assert_eq!(gathered(&gathering, &all), [one, two]);
    }
}
