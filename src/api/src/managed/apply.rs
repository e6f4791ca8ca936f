//! Server-side apply: what an object becomes, and who owns it then.

use serde_json::{Map, Value, json};

use super::merge::{over, take_out};
use super::owners::{Entry, Managed, Write, bare, owned, update};
use super::set::{Set, shown};
use super::walk::{Place, Root, collect, compare, item_element};
use crate::custom;
use crate::schema::Schema;
use crate::schema::check::prune;

/// The manager whose applies on the client's side are known by an annotation.
const KUBECTL: &str = "kubectl";
/// That annotation.
const LAST_APPLIED: &str = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// What an apply makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The object, without `managedFields`.
    pub object: Value,
    /// Its managers.
    pub managed: Managed,
}

/// A field that another manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, as shown.
    pub manager: String,
    /// The field, as shown.
    pub path: String,
}

/// An apply that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The applied object does not fit its type.
    #[error("{0}")]
    Misfit(String),
    /// Others own what it would change.
    #[error("{} conflicts", .0.len())]
    Conflicts(Vec<Conflict>),
}

/// Applies an object over a live one, or over nothing.
pub fn apply(
    schema: &Schema,
    root: Root<'_>,
    write: &Write<'_>,
    live: Option<&Value>,
    applied: &Value,
    managed: Managed,
    force: bool,
) -> Result<Applied, ApplyError> {
    fits(schema, root, applied)?;
    let mut managed = managed;
    let live = live.map_or_else(|| json!({}), bare);
    let before = managed.clone();
    if managed.is_empty() && live.get("metadata").is_some() {
        // Nobody has kept the books so far: what is there belongs to those before.
        let first = Write { manager: "before-first-apply", subresource: "", untouched: &[], ..*write };
        managed = update(schema, root, &first, &json!({}), &live, managed);
    }
    let applied = bare(applied);
    let manager = write.manager(true);
    let mut set = Set::default();
    collect(schema, root.place(), &applied, &mut Vec::new(), &mut set);
    let mut set = owned(set);
    for field in write.untouched {
        set.remove_all(&[format!("f:{field}")]);
    }
    let last = managed.find(&manager).map(|entry| entry.set.clone()).unwrap_or_default();
    let time = managed.find(&manager).map_or_else(|| write.now.to_owned(), |entry| entry.time.clone());
    managed.0.retain(|entry| !entry.manager.is(&manager));
    managed.0.push(Entry { manager: manager.clone(), time, set });

    let merged = over(schema, root.place(), live.clone(), &applied);
    let mut held = Set::default();
    managed.0.iter().for_each(|entry| held.unite(&entry.set));
    let doomed = last.with_named_parents().without(&held.with_named_parents());
    let left = take_out(schema, root.place(), merged, &doomed).unwrap_or_else(|| json!({}));
    // A map that was emptied goes; one that is applied empty stays.
    let mut object = over(schema, root.place(), left, &applied);

    let mut comparison = compare(schema, root, &live, &object);
    for field in write.untouched {
        comparison.forget(&[format!("f:{field}")]);
    }
    if !force {
        let mut written = comparison.written();
        if write.manager == KUBECTL {
            written = written.without(&applied_by_client(schema, root, &live));
        }
        let mut conflicts = Vec::new();
        let mut others: Vec<&Entry> = managed.0.iter().filter(|entry| !entry.manager.is(&manager)).collect();
        others.sort_by(|a, b| a.manager.name.cmp(&b.manager.name));
        for entry in others {
            let common = entry.set.common(&written);
            let paths = common.paths();
            conflicts.extend(paths.iter().map(|path| Conflict { manager: entry.manager.shown(), path: shown(path) }));
        }
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    managed.yield_to(Some(&manager), &comparison);
    if write.manager == KUBECTL && live.pointer(LAST_APPLIED).is_some() {
        // A client-side apply later on must start from what was applied last, wherever that was.
        if let Some(annotation) = object.pointer_mut(LAST_APPLIED) {
            *annotation = Value::String(format!("{applied}\n"));
        }
    }
    if (object != live || !managed.says_the_same(&before))
        && let Some(entry) = managed.0.iter_mut().find(|entry| entry.manager.is(&manager))
    {
        entry.time = write.now.to_owned();
        entry.manager.api_version = write.api_version.to_owned();
    }
    managed.0.retain(|entry| !entry.set.is_empty());
    Ok(Applied { object, managed })
}

/// Returns the fields that kubectl applied on its own side and that are still as it wrote them. Its server-side apply takes
/// them over without asking.
fn applied_by_client(schema: &Schema, root: Root<'_>, live: &Value) -> Set {
    let text = live.pointer(LAST_APPLIED).and_then(Value::as_str).unwrap_or_default();
    let Ok(last) = serde_json::from_str::<Value>(text) else { return Set::default() };
    let mut set = Set::default();
    collect(schema, root.place(), &last, &mut Vec::new(), &mut set);
    let comparison = compare(schema, root, &last, live);
    set.without(&comparison.written()).without(&comparison.removed)
}

/// Checks that an applied object has known fields only, and keys where lists need them.
fn fits(schema: &Schema, root: Root<'_>, applied: &Value) -> Result<(), ApplyError> {
    let mut wrong = Vec::new();
    let findings = match root {
        Root::Type(id) => prune(schema, id, &mut applied.clone()),
        Root::Custom(node) => custom::prune::object(node, &mut applied.clone()),
    };
    for text in findings.texts() {
        let path = text.trim_start_matches("unknown field ").trim_matches('"');
        wrong.push(format!(".{path}: field not declared in schema"));
    }
    keys(schema, root.place(), applied, &mut Vec::new(), &mut wrong);
    match wrong.as_slice() {
        [] => Ok(()),
        [one] => Err(ApplyError::Misfit(one.clone())),
        many => Err(ApplyError::Misfit(format!("errors:\n  {}", many.join("\n  ")))),
    }
}

fn keys(schema: &Schema, place: Place<'_>, value: &Value, path: &mut Vec<String>, wrong: &mut Vec<String>) {
    match (place, value) {
        (place, Value::Object(map)) if place.is_keyed() => {
            for (key, value) in map {
                path.push(format!("f:{key}"));
                keys(schema, place.below(schema, key), value, path, wrong);
                path.pop();
            }
        }
        (Place::List(field, inner), Value::Array(items)) => {
            let mut seen = Map::new();
            for (index, item) in items.iter().enumerate() {
                match item_element(schema, field, item) {
                    Ok(element) => {
                        path.push(element.clone());
                        if seen.insert(element, Value::Null).is_some() {
                            let (item, list) = (shown(&path[path.len() - 1..]), shown(&path[..path.len() - 1]));
                            wrong.push(format!("{list}: duplicate entries for key {item}"));
                        }
                        keys(schema, inner.place(), item, path, wrong);
                        path.pop();
                    }
                    Err(problem) => wrong.push(format!("{}: element {index}: {problem}", shown(path))),
                }
            }
        }
        _ => {}
    }
}
