//! Names of custom kinds: within a group each belongs to the definition that had it first.

use serde_json::{Value, json};

use super::definition::Names;

/// What becomes of the names that a definition wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The names that it has now.
    pub names: Names,
    /// Why not all that it wants, and in which words.
    pub conflict: Option<(&'static str, String)>,
}

/// Gives a definition the names that no other of its group has.
pub fn names(wanted: &Names, accepted: &Names, others: &[&Names]) -> Accepted {
    let resources = |name: &str| {
        others.iter().any(|other| {
            other.plural == name || other.singular == name || other.short.iter().any(|short| short == name)
        })
    };
    let kinds = |name: &str| others.iter().any(|other| other.kind == name || other.list_kind == name);
    let mut names = accepted.clone();
    let mut conflict = None;
    let mut take = |own: &mut String, wanted: &str, taken: bool, reason: &'static str| {
        if own != wanted && !wanted.is_empty() && taken {
            conflict = Some((reason, format!("{wanted:?} is already in use")));
        } else {
            wanted.clone_into(own);
        }
    };
    take(&mut names.plural, &wanted.plural, resources(&wanted.plural), "PluralConflict");
    take(&mut names.singular, &wanted.singular, resources(&wanted.singular), "SingularConflict");
    let taken: Vec<&String> =
        wanted.short.iter().filter(|short| !accepted.short.contains(short) && resources(short)).collect();
    if taken.is_empty() {
        names.short.clone_from(&wanted.short);
    } else {
        let texts: Vec<String> = taken.iter().map(|short| format!("{short:?} is already in use")).collect();
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        conflict = Some(("ShortNamesConflict", text));
    }
    let mut take = |own: &mut String, wanted: &str, taken: bool, reason: &'static str| {
        if own != wanted && !wanted.is_empty() && taken {
            conflict = Some((reason, format!("{wanted:?} is already in use")));
        } else {
            wanted.clone_into(own);
        }
    };
    take(&mut names.kind, &wanted.kind, kinds(&wanted.kind), "KindConflict");
    take(&mut names.list_kind, &wanted.list_kind, kinds(&wanted.list_kind), "ListKindConflict");
    names.categories.clone_from(&wanted.categories);
    Accepted { names, conflict }
}

/// Returns a definition's status with the names that it has, or nothing if that is what it says. A definition that has all
/// its names and was never served is `Installing` first and established by the next step.
pub fn status(object: &Value, others: &[&Names], now: &str) -> Option<Value> {
    let wanted = Names::read(&object["spec"]["names"]);
    let have = Names::read(&object["status"]["acceptedNames"]);
    let accepted = names(&wanted, &have, others);
    let mut status = object.get("status").filter(|status| status.is_object()).cloned().unwrap_or_else(|| json!({}));
    status["acceptedNames"] = accepted.names.to_value();
    let (value, reason, message) = match &accepted.conflict {
        None => ("True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => ("False", *reason, message.as_str()),
    };
    set_condition(&mut status, "NamesAccepted", value, reason, message, now);
    let established = condition(&status, "Established").is_some_and(|own| own["status"] == "True");
    if !established {
        let (value, reason, message) = if accepted.conflict.is_none() {
            ("True", "InitialNamesAccepted", "the initial names have been accepted")
        } else {
            ("False", "NotAccepted", "not all names are accepted")
        };
        set_condition(&mut status, "Established", value, reason, message, now);
    }
    (object.get("status") != Some(&status)).then_some(status)
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"].as_array().into_iter().flatten().find(|own| own["type"] == kind)
}

/// Sets a condition. Its time is that of its last change.
pub fn set_condition(status: &mut Value, kind: &str, value: &str, reason: &str, message: &str, now: &str) {
    if !status.is_object() {
        *status = json!({});
    }
    let since =
        condition(status, kind).filter(|own| own["status"] == value).map(|own| own["lastTransitionTime"].clone());
    let since = since.filter(Value::is_string).unwrap_or_else(|| json!(now));
    let new = json!({"type": kind, "status": value, "lastTransitionTime": since, "reason": reason, "message": message});
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|own| own["type"] == kind) {
        Some(own) => *own = new,
        None => conditions.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(plural: &str, kind: &str, short: &[&str]) -> Names {
        Names {
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short: short.iter().map(|short| (*short).to_owned()).collect(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            categories: Vec::new(),
        }
    }

    #[test]
    fn free_names_are_given_and_own_ones_kept() {
        let names_wanted = wanted("things", "Thing", &["th"]);
        let got = names(&names_wanted, &Names::default(), &[]);
        assert_eq!(got, Accepted { names: names_wanted.clone(), conflict: None });
        assert_eq!(names(&names_wanted, &got.names, &[]).conflict, None);
    }

    #[test]
    fn what_another_has_is_refused_with_the_name() {
        let other = wanted("others", "Other", &["th", "x"]);
        for (names_wanted, reason, message) in [
            (wanted("others", "Thing", &[]), "PluralConflict", "\"others\" is already in use"),
            (wanted("things", "Thing", &["th"]), "ShortNamesConflict", "\"th\" is already in use"),
            (
                wanted("things", "Thing", &["th", "x"]),
                "ShortNamesConflict",
                "[\"th\" is already in use, \"x\" is already in use]",
            ),
            (wanted("things", "OtherList", &[]), "KindConflict", "\"OtherList\" is already in use"),
        ] {
            let got = names(&names_wanted, &Names::default(), &[&other]);
            assert_eq!(got.conflict, Some((reason, message.to_owned())));
        }
    }

    #[test]
    fn a_status_is_told_once_and_established_stays() {
        let object =
            json!({"spec": {"names": {"plural": "things", "kind": "Thing"}}, "status": {"storedVersions": ["v1"]}});
        let told = status(&object, &[], "T1").unwrap();
        assert_eq!(told["conditions"][0]["reason"], "NoConflicts");
        assert_eq!(told["conditions"][1]["reason"], "InitialNamesAccepted");
        assert_eq!(told["storedVersions"], json!(["v1"]));
        let mut next = object;
        next["status"] = told;
        assert_eq!(status(&next, &[], "T2"), None);
        next["spec"]["names"]["kind"] = json!("Taken");
        let told = status(&next, &[&wanted("x", "Taken", &[])], "T3").unwrap();
        assert_eq!(told["acceptedNames"]["kind"], "Thing");
        assert_eq!(told["conditions"][0]["status"], "False");
        assert_eq!(told["conditions"][0]["lastTransitionTime"], "T3");
        assert_eq!(told["conditions"][1]["status"], "True");
    }
}
