//! The roles and bindings that every cluster has: made at the first start, and completed at each later one, so that a new
//! release's roles hold what it needs. What was added by hand stays.

use futures_util::StreamExt as _;
use serde_json::{Map, Value, json};

use super::rules::{Rule, missing};
use crate::apiserver::error::ApiError;
use crate::apiserver::object::{list, meta};
use crate::apiserver::registry::{Part, Registry, WriteOptions};
use crate::apiserver::resources::{CLUSTERROLEBINDINGS, CLUSTERROLES, ROLEBINDINGS, ROLES, Resource};

const ROLES_TEXT: &str = include_str!("roles.txt");
const BINDINGS_TEXT: &str = include_str!("bindings.txt");

const GROUP: &str = "rbac.authorization.k8s.io";
/// Says that a role or binding is completed at each start; somebody may set it to `false`.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-";
/// Each controller's role is bound to the account of its name.
const CONTROLLER: &str = "system:controller:";

/// Writes at a time: enough for the store to keep many with one sync.
const AT_ONCE: usize = 64;

/// Makes and completes all of them.
pub(crate) async fn ensure(registry: &Registry) -> Result<(), ApiError> {
    let wanted: Vec<(&'static Resource, Value)> = roles().into_iter().chain(bindings()).collect();
    let writes = wanted.into_iter().map(|(resource, object)| ensure_one(registry, resource, object));
    let mut writes = futures_util::stream::iter(writes).buffer_unordered(AT_ONCE);
    while let Some(done) = writes.next().await {
        done?;
    }
    Ok(())
}

async fn ensure_one(registry: &Registry, resource: &'static Resource, wanted: Value) -> Result<(), ApiError> {
    let (namespace, name) = (meta(&wanted, "namespace").to_owned(), meta(&wanted, "name").to_owned());
    let own = WriteOptions::default();
    if registry.get(resource, &namespace, &name).is_err() {
        return match registry.create(resource, &namespace, wanted, &own).await {
            Err(error) if !error.is_already_exists() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        };
    }
    let change = |object: Value| Ok(completed(object, &wanted));
    registry.modify(resource, &namespace, &name, Part::Main, &own, change).await.map(drop)
}

/// Returns the object with what it lacks, or nothing if it lacks nothing or does not want to be completed.
fn completed(mut object: Value, wanted: &Value) -> Option<Value> {
    let note = object.pointer("/metadata/annotations").and_then(|notes| notes.get(AUTOUPDATE));
    if note.is_some_and(|note| note == "false") {
        return None;
    }
    if wanted.get("roleRef").is_some() {
        let mut subjects = list(&object, "/subjects").to_vec();
        let before = subjects.len();
        subjects
            .extend(list(wanted, "/subjects").iter().filter(|one| !list(&object, "/subjects").contains(one)).cloned());
        if subjects.len() == before {
            return None;
        }
        object["subjects"] = json!(subjects);
        return Some(object);
    }
    // The rules of a gathering role are gathered.
    if wanted.get("aggregationRule").is_some() {
        return None;
    }
    let own = Rule::all(&object);
    let mut rules = list(&object, "/rules").to_vec();
    let before = rules.len();
    rules.extend(list(wanted, "/rules").iter().filter(|rule| !missing(&own, &[Rule::read(rule)]).is_empty()).cloned());
    if rules.len() == before {
        return None;
    }
    object["rules"] = json!(rules);
    Some(object)
}

fn head(namespace: &str, name: &str) -> Value {
    let mut head = json!({"name": name, "annotations": {AUTOUPDATE: "true"},
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}});
    if !namespace.is_empty() {
        head["namespace"] = json!(namespace);
    }
    head
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Returns all roles; what gathers has its rules already.
fn roles() -> Vec<(&'static Resource, Value)> {
    let mut roles: Vec<(&'static Resource, Value)> = Vec::new();
    for line in lines(ROLES_TEXT) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [first, name, options @ ..] if *first == "role" || first.ends_with("/role") => {
                roles.push(role(first.strip_suffix("/role").unwrap_or_default(), name, options));
            }
            words => {
                if let (Some((_, role)), Some(rule)) = (roles.last_mut(), rule(words))
                    && let Some(rules) = role["rules"].as_array_mut()
                {
                    rules.push(rule);
                }
            }
        }
    }
    // What gathers from what gathers comes last: view, edit, admin.
    for to in ["view", "edit", "admin"] {
        let label = format!("{AGGREGATE}to-{to}");
        let gathered: Vec<Value> = roles
            .iter()
            .filter(|(_, role)| role.pointer("/metadata/labels").is_some_and(|labels| labels.get(&label).is_some()))
            .flat_map(|(_, role)| list(role, "/rules").to_vec())
            .collect();
        if let Some((_, role)) = roles.iter_mut().find(|(_, role)| meta(role, "name") == to) {
            role["rules"] = json!(gathered);
        }
    }
    roles
}

fn role(namespace: &str, name: &str, options: &[&str]) -> (&'static Resource, Value) {
    let mut role = json!({"metadata": head(namespace, name), "rules": []});
    for (key, value) in options.iter().filter_map(|option| option.split_once('=')) {
        let label = format!("{AGGREGATE}to-{value}");
        if key == "label" {
            role["metadata"]["labels"][label] = json!("true");
        } else {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        }
    }
    (if namespace.is_empty() { &CLUSTERROLES } else { &ROLES }, role)
}

fn rule(words: &[&str]) -> Option<Value> {
    let texts = |word: &str| -> Vec<String> { word.split(',').map(str::to_owned).collect() };
    if words == ["events"] {
        return Some(json!({"apiGroups": ["", "events.k8s.io"], "resources": ["events"],
            "verbs": ["create", "patch", "update"]}));
    }
    let (verbs, groups, resources) = (words.first()?, words.get(1)?, words.get(2)?);
    let mut all: Vec<String> = Vec::new();
    for verb in verbs.split(',') {
        let named: &[&str] = match verb {
            "READ" => &["get", "list", "watch"],
            "WRITE" => &["create", "delete", "deletecollection", "patch", "update"],
            other => &[other],
        };
        all.extend(named.iter().map(|verb| (*verb).to_owned()));
    }
    all.sort();
    let mut rule = Map::new();
    if *groups == "url" {
        rule.insert("nonResourceURLs".to_owned(), json!(texts(resources)));
    } else {
        let groups: Vec<String> =
            texts(groups).into_iter().map(|group| if group == "core" { String::new() } else { group }).collect();
        rule.insert("apiGroups".to_owned(), json!(groups));
        rule.insert("resources".to_owned(), json!(texts(resources)));
    }
    if let Some(names) = words.get(3) {
        rule.insert("resourceNames".to_owned(), json!(texts(names)));
    }
    rule.insert("verbs".to_owned(), json!(all));
    Some(Value::Object(rule))
}

fn bindings() -> Vec<(&'static Resource, Value)> {
    let mut bindings: Vec<(&'static Resource, Value)> = lines(BINDINGS_TEXT).filter_map(binding).collect();
    for (resource, role) in roles() {
        let name = meta(&role, "name");
        if let Some(account) = name.strip_prefix(CONTROLLER).filter(|_| std::ptr::eq(resource, &CLUSTERROLES)) {
            let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": "kube-system"});
            bindings.push((&CLUSTERROLEBINDINGS, bound("", name, "ClusterRole", name, &[subject])));
        }
    }
    bindings
}

fn binding(line: &str) -> Option<(&'static Resource, Value)> {
    let (left, right) = line.split_once(" to ")?;
    let words: Vec<&str> = left.split_whitespace().collect();
    let namespace = words.first()?.strip_suffix("/bind").unwrap_or_default();
    let name = words.get(1)?;
    let role = words.get(2).unwrap_or(name);
    let subjects: Vec<Value> = right
        .split_whitespace()
        .filter_map(|word| word.split_once(':'))
        .map(|(kind, name)| match kind {
            "account" => {
                let (namespace, name) = name.split_once('/').unwrap_or(("", name));
                json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
            }
            "user" => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
            _ => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
        })
        .collect();
    let (resource, kind): (&'static Resource, &str) =
        if namespace.is_empty() { (&CLUSTERROLEBINDINGS, "ClusterRole") } else { (&ROLEBINDINGS, "Role") };
    Some((resource, bound(namespace, name, kind, role, &subjects)))
}

fn bound(namespace: &str, name: &str, kind: &str, role: &str, subjects: &[Value]) -> Value {
    let mut binding = json!({"metadata": head(namespace, name),
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}});
    if !subjects.is_empty() {
        binding["subjects"] = json!(subjects);
    }
    binding
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_understood() {
        let roles = roles();
        assert!(roles.len() > 65, "{}", roles.len());
        for (_, role) in &roles {
            assert!(!list(role, "/rules").is_empty(), "{role}");
        }
        let rules: usize = lines(ROLES_TEXT).filter(|line| !line.contains("role ")).count();
        let read: usize = roles
            .iter()
            .filter(|(_, role)| role.get("aggregationRule").is_none())
            .map(|(_, role)| list(role, "/rules").len())
            .sum();
        assert_eq!(rules, read);
        let bindings = bindings();
        for (resource, binding) in &bindings {
            let wanted = &binding["roleRef"]["name"];
            let known = roles.iter().any(|(_, role)| {
                role["metadata"]["name"] == *wanted
                    && (std::ptr::eq(*resource, &CLUSTERROLEBINDINGS)
                        || role["metadata"]["namespace"] == binding["metadata"]["namespace"])
            });
            assert!(known, "{binding}");
        }
    }

    #[test]
    fn a_role_is_completed_and_keeps_what_was_added() {
        let wanted = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]});
        let own = json!({"apiGroups": ["x"], "resources": ["y"], "verbs": ["z"]});
        let changed = completed(json!({"rules": [own]}), &wanted).unwrap();
        assert_eq!(changed["rules"].as_array().unwrap().len(), 2);
        assert_eq!(completed(changed, &wanted), None);
        let left_alone = json!({"metadata": {"annotations": {AUTOUPDATE: "false"}}, "rules": []});
        assert_eq!(completed(left_alone, &wanted), None);
    }
}
