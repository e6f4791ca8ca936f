//! One rule: what it allows, and whether it covers another.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::apiserver::identity::Attributes;
use crate::apiserver::object::list;

/// A rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    pub(super) verbs: Vec<Box<str>>,
    pub(super) groups: Vec<Box<str>>,
    pub(super) resources: Vec<Box<str>>,
    pub(super) names: Vec<Box<str>>,
    pub(super) paths: Vec<Box<str>>,
}

fn has(all: &[Box<str>], wanted: &str) -> bool {
    all.iter().any(|own| **own == *wanted || **own == *"*")
}

impl Rule {
    /// Reads a rule as roles have it.
    pub(crate) fn read(rule: &Value) -> Self {
        let texts = |key: &str| -> Vec<Box<str>> {
            list(rule, &format!("/{key}")).iter().filter_map(Value::as_str).map(Box::from).collect()
        };
        Self {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            paths: texts("nonResourceURLs"),
        }
    }

    /// Reads all rules of a role.
    pub(crate) fn all(role: &Value) -> Vec<Self> {
        list(role, "/rules").iter().map(Self::read).collect()
    }

    /// Whether it speaks of paths that are no resources.
    pub(crate) fn is_of_paths(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Whether it allows a request.
    pub(crate) fn allows(&self, asked: &Attributes) -> bool {
        if !has(&self.verbs, &asked.verb) {
            return false;
        }
        if !asked.is_resource {
            return self.paths.iter().any(|path| path_matches(path, &asked.path));
        }
        has(&self.groups, &asked.api_group)
            && self.resources.iter().any(|own| resource_matches(own, &asked.resource, &asked.subresource))
            && (self.names.is_empty() || self.names.iter().any(|name| **name == *asked.name))
    }

    /// Returns the rule in the words of a review.
    pub(crate) fn shown(&self) -> Value {
        let mut map = Map::new();
        let fields = [
            ("verbs", &self.verbs),
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.paths),
        ];
        for (key, texts) in fields.into_iter().filter(|(_, texts)| !texts.is_empty()) {
            map.insert(key.to_owned(), json!(texts));
        }
        Value::Object(map)
    }

    /// Splits into rules of one verb, group, resource and name each.
    fn parts(&self) -> Vec<Self> {
        let one = |text: &str| -> Vec<Box<str>> { vec![Box::from(text)] };
        let mut parts = Vec::new();
        for verb in &self.verbs {
            for path in &self.paths {
                parts.push(Self { verbs: one(verb), paths: one(path), ..Self::default() });
            }
            for group in &self.groups {
                for resource in &self.resources {
                    let plain =
                        Self { verbs: one(verb), groups: one(group), resources: one(resource), ..Self::default() };
                    if self.names.is_empty() {
                        parts.push(plain);
                        continue;
                    }
                    parts.extend(self.names.iter().map(|name| Self { names: one(name), ..plain.clone() }));
                }
            }
        }
        parts
    }

    /// Whether this allows all that a rule of single words allows.
    fn covers(&self, part: &Self) -> bool {
        let all = |own: &[Box<str>], wanted: &[Box<str>]| wanted.iter().all(|word| has(own, word));
        if !all(&self.verbs, &part.verbs) {
            return false;
        }
        if part.is_of_paths() {
            return part.paths.iter().all(|path| self.paths.iter().any(|own| path_matches(own, path)));
        }
        let resource = |wanted: &str| {
            let (resource, sub) = wanted.split_once('/').unwrap_or((wanted, ""));
            self.resources.iter().any(|own| **own == *wanted || resource_matches(own, resource, sub))
        };
        all(&self.groups, &part.groups)
            && part.resources.iter().all(|wanted| resource(wanted))
            && (self.names.is_empty()
                || (!part.names.is_empty() && part.names.iter().all(|name| self.names.contains(name))))
    }
}

/// Returns what of `wanted` is not covered by `own`.
pub(crate) fn missing(own: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(Rule::parts);
    parts.filter(|part| !own.iter().any(|rule| rule.covers(part))).collect()
}

fn resource_matches(own: &str, resource: &str, subresource: &str) -> bool {
    if own == "*" {
        return true;
    }
    match own.split_once('/') {
        None => subresource.is_empty() && own == resource,
        Some(("*", sub)) => !subresource.is_empty() && sub == subresource,
        Some((name, sub)) => name == resource && sub == subresource,
    }
}

fn path_matches(own: &str, path: &str) -> bool {
    own == path || own.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("ResourceNames", &self.names),
            ("NonResourceURLs", &self.paths),
            ("Verbs", &self.verbs),
        ];
        f.write_str("{")?;
        for (index, (name, texts)) in fields.into_iter().filter(|(_, texts)| !texts.is_empty()).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
            write!(f, "{comma}{name}:[{}]", texts.join(" "))?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(value: Value) -> Rule {
        Rule::read(&value)
    }

    fn asked(verb: &str, group: &str, resource: &str, sub: &str, name: &str) -> Attributes {
        Attributes {
            verb: verb.to_owned(),
            api_group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: sub.to_owned(),
            name: name.to_owned(),
            is_resource: true,
            ..Attributes::default()
        }
    }

    #[test]
    fn a_rule_allows_what_it_names() {
        let pods = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/scale"]}));
        assert!(pods.allows(&asked("get", "", "pods", "", "p")));
        assert!(!pods.allows(&asked("get", "", "pods", "log", "p")));
        assert!(!pods.allows(&asked("list", "", "pods", "", "")));
        assert!(!pods.allows(&asked("get", "apps", "pods", "", "")));
        assert!(pods.allows(&asked("get", "", "anything", "scale", "")));
        let named = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"]}));
        assert!(named.allows(&asked("get", "x", "pods", "log", "a")));
        assert!(!named.allows(&asked("list", "x", "pods", "", "")));
        let paths = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/api/*", "/version"]}));
        let path = |path: &str| Attributes { verb: "get".to_owned(), path: path.to_owned(), ..Attributes::default() };
        assert!(paths.allows(&path("/api/v1")) && paths.allows(&path("/version")));
        assert!(!paths.allows(&path("/apis")) && !paths.allows(&path("/versions")));
    }

    #[test]
    fn what_is_not_held_is_named() {
        let own = [rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}))];
        let less = [rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}))];
        assert!(missing(&own, &less).is_empty());
        let more = [rule(json!({"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["pods"]}))];
        let found = missing(&own, &more);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}"#);
        let star = [rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}))];
        assert!(missing(&star, &more).is_empty());
        assert_eq!(missing(&more, &star).len(), 1);
    }
}
