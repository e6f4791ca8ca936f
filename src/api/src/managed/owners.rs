//! The books: which manager owns which fields, how a write changes that, what an apply makes of an object.

use serde_json::{Map, Value, json};

use super::merge::{over, take_out};
use super::set::{Set, shown};
use super::walk::{Comparison, Place, Root, collect, compare, fill, item_element};
use crate::custom;
use crate::schema::Schema;
use crate::schema::check::prune;

/// Most managers that update and are told apart; the oldest beyond that are thrown together.
const MAX_UPDATERS: usize = 10;

/// The manager whose applies on the client's side are known by an annotation.
const KUBECTL: &str = "kubectl";
/// That annotation.
const LAST_APPLIED: &str = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// Fields that nobody owns, for the server sets them or they say which object it is.
const UNOWNED: [&[&str]; 12] = [
    &["f:apiVersion"],
    &["f:kind"],
    &["f:metadata"],
    &["f:metadata", "f:name"],
    &["f:metadata", "f:namespace"],
    &["f:metadata", "f:creationTimestamp"],
    &["f:metadata", "f:selfLink"],
    &["f:metadata", "f:uid"],
    &["f:metadata", "f:clusterName"],
    &["f:metadata", "f:generation"],
    &["f:metadata", "f:managedFields"],
    &["f:metadata", "f:resourceVersion"],
];

/// Who owns fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    /// Whether it applies; otherwise it updates.
    pub applies: bool,
    /// Its name.
    pub name: String,
    /// The version in which it wrote.
    pub api_version: String,
    /// The path below the object by which it wrote, or nothing.
    pub subresource: String,
}

impl Manager {
    /// Reads whose an entry of `managedFields` is.
    fn of(entry: &Value) -> Option<Self> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let applies = match text("operation") {
            "Apply" => true,
            "Update" => false,
            _ => return None,
        };
        let (name, api_version) = (text("manager").to_owned(), text("apiVersion").to_owned());
        Some(Self { applies, name, api_version, subresource: text("subresource").to_owned() })
    }

    /// Whether both are one: an applier is the same in all versions.
    fn is(&self, other: &Self) -> bool {
        self.applies == other.applies
            && self.name == other.name
            && self.subresource == other.subresource
            && (self.applies || self.api_version == other.api_version)
    }

    /// Returns how conflicts name it.
    pub fn shown(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text.extend([" with subresource ", &format!("{:?}", self.subresource)]);
        }
        if !self.applies {
            text.extend([" using ", &self.api_version]);
        }
        text
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    manager: Manager,
    time: String,
    set: Set,
}

/// All managers of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managed(Vec<Entry>);

impl Managed {
    /// Reads `managedFields`; nothing if they cannot be read.
    pub fn read(value: &Value) -> Option<Self> {
        let mut entries: Vec<Entry> = Vec::new();
        for entry in value.as_array()? {
            let manager = Manager::of(entry)?;
            let time = entry.get("time").and_then(Value::as_str).unwrap_or_default().to_owned();
            let set = match entry.get("fieldsV1") {
                None | Some(Value::Null) => Set::default(),
                Some(fields) => Set::from_value(fields)?,
            };
            entries.push(Entry { manager, time, set });
        }
        Some(Self(entries))
    }

    /// Whether nobody owns anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes `managedFields`.
    pub fn to_value(&self) -> Value {
        let mut entries: Vec<&Entry> = self.0.iter().filter(|entry| !entry.set.is_empty()).collect();
        entries.sort_by(|a, b| {
            let key = |entry: &Entry| (!entry.manager.applies, entry.time.clone());
            key(a).cmp(&key(b)).then_with(|| a.manager.cmp(&b.manager))
        });
        let written = entries.into_iter().map(|entry| {
            let manager = &entry.manager;
            let operation = if manager.applies { "Apply" } else { "Update" };
            let mut value = json!({"manager": manager.name, "operation": operation, "apiVersion": manager.api_version,
                "fieldsType": "FieldsV1", "fieldsV1": entry.set.to_value()});
            for (key, text) in [("time", &entry.time), ("subresource", &manager.subresource)] {
                if !text.is_empty() {
                    value[key] = json!(text);
                }
            }
            value
        });
        written.collect()
    }

    /// Whether both say the same.
    fn says_the_same(&self, other: &Self) -> bool {
        let sorted = |managed: &Self| {
            let mut entries = managed.0.clone();
            entries.sort_by(|a, b| a.manager.cmp(&b.manager));
            entries
        };
        sorted(self) == sorted(other)
    }

    fn find(&self, manager: &Manager) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.manager.is(manager))
    }

    /// Takes what was written or removed by somebody else from all but one.
    fn yield_to(&mut self, except: Option<&Manager>, comparison: &Comparison) {
        let mut gone = comparison.written();
        gone.unite(&comparison.removed);
        for entry in self.0.iter_mut().filter(|entry| except.is_none_or(|manager| !entry.manager.is(manager))) {
            entry.set = entry.set.without(&gone);
        }
        self.0.retain(|entry| !entry.set.is_empty());
    }

    /// Throws the oldest updating managers together when there are too many.
    fn cap(&mut self) {
        let mut updaters: Vec<usize> = (0..self.0.len()).filter(|at| !self.0[*at].manager.applies).collect();
        if updaters.len() <= MAX_UPDATERS {
            return;
        }
        updaters.sort_by(|a, b| self.0[*a].time.cmp(&self.0[*b].time));
        let surplus = updaters.len() - MAX_UPDATERS + 1;
        let mut doomed: Vec<usize> = updaters.into_iter().take(surplus).collect();
        doomed.sort_unstable();
        let mut old: Vec<Entry> = Vec::new();
        for at in doomed.into_iter().rev() {
            let entry = self.0.remove(at);
            let manager = Manager {
                applies: false,
                name: "ancient-changes".to_owned(),
                api_version: entry.manager.api_version,
                subresource: String::new(),
            };
            match old.iter_mut().find(|other| other.manager == manager) {
                Some(other) => {
                    other.set.unite(&entry.set);
                    other.time = entry.time.max(std::mem::take(&mut other.time));
                }
                None => old.push(Entry { manager, time: entry.time, set: entry.set }),
            }
        }
        self.0.extend(old);
    }
}

/// A write, as the books see it.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// The name of who writes.
    pub manager: &'a str,
    /// The version of the object.
    pub api_version: &'a str,
    /// The path below the object, or nothing.
    pub subresource: &'a str,
    /// The time.
    pub now: &'a str,
    /// Fields at the top that such a write does not touch.
    pub untouched: &'a [&'a str],
}

impl Write<'_> {
    fn manager(&self, applies: bool) -> Manager {
        Manager {
            applies,
            name: self.manager.to_owned(),
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }
}

/// Returns the managers after a write that is no apply.
pub fn update(
    schema: &Schema,
    root: Root<'_>,
    write: &Write<'_>,
    live: &Value,
    new: &Value,
    managed: Managed,
) -> Managed {
    entered(write, &changes(schema, root, write, live, new), managed)
}

/// Returns `managedFields` after a write that is no apply, from what they were before; nothing if they cannot be read. Most
/// writes change fields that their writer owns already: what was there is kept then, with a new time.
pub fn update_fields(
    schema: &Schema,
    root: Root<'_>,
    write: &Write<'_>,
    live: &Value,
    new: &Value,
    mut fields: Value,
) -> Option<Value> {
    let comparison = changes(schema, root, write, live, new);
    if is_settled(write, &comparison, &fields) {
        let manager = write.manager(false);
        let entries = fields.as_array_mut()?;
        if !owned(comparison.written()).is_empty()
            && let Some(entry) = entries.iter_mut().find(|entry| Manager::of(entry).is_some_and(|own| own.is(&manager)))
        {
            entry["time"] = json!(write.now);
        }
        let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        entries.sort_by_cached_key(|entry| {
            let manager = Manager::of(entry);
            (manager.as_ref().is_none_or(|manager| !manager.applies), text(entry, "time"), manager)
        });
        return Some(fields);
    }
    Some(entered(write, &comparison, Managed::read(&fields)?).to_value())
}

/// Whether a write leaves every manager what it has.
fn is_settled(write: &Write<'_>, comparison: &Comparison, fields: &Value) -> bool {
    let Some(entries) = fields.as_array() else { return false };
    let (manager, written) = (write.manager(false), comparison.written());
    let (wanted, nothing) = (owned(written.clone()), json!({}));
    let mut is_entered = wanted.is_empty();
    let mut updaters = 0;
    for entry in entries {
        let Some(other) = Manager::of(entry) else { return false };
        updaters += usize::from(!other.applies);
        let fields = entry.get("fieldsV1").unwrap_or(&nothing);
        let keeps = if other.is(&manager) {
            is_entered = is_entered || wanted.is_within(fields);
            // What nobody may own would have to be taken out as well.
            !comparison.removed.meets(fields) && written.without(&wanted).is_empty()
        } else {
            !written.meets(fields) && !comparison.removed.meets(fields)
        };
        if !keeps {
            return false;
        }
    }
    is_entered && updaters <= MAX_UPDATERS
}

/// Returns which fields a write changes, of those that it may.
fn changes(schema: &Schema, root: Root<'_>, write: &Write<'_>, live: &Value, new: &Value) -> Comparison {
    let (mut live, mut new) = (unlike(live, new), unlike(new, live));
    fill(schema, root, &mut live);
    fill(schema, root, &mut new);
    let mut comparison = compare(schema, root, &live, &new);
    for field in write.untouched {
        comparison.forget(&[format!("f:{field}")]);
    }
    comparison
}

/// Enters what a write changes.
fn entered(write: &Write<'_>, comparison: &Comparison, mut managed: Managed) -> Managed {
    managed.yield_to(None, comparison);
    let written = owned(comparison.written());
    if !written.is_empty() {
        let manager = write.manager(false);
        match managed.0.iter_mut().find(|entry| entry.manager.is(&manager)) {
            Some(entry) => {
                entry.set.unite(&written);
                entry.time = write.now.to_owned();
            }
            None => managed.0.push(Entry { manager, time: write.now.to_owned(), set: written }),
        }
    }
    managed.cap();
    managed
}

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

/// Returns what of an object differs from another one, field by field at the top and in the metadata: most writes change
/// little, and the rest need not be copied and walked.
fn unlike(object: &Value, other: &Value) -> Value {
    let (Some(ours), Some(theirs)) = (object.as_object(), other.as_object()) else { return bare(object) };
    let differs = |(key, value): &(&String, &Value)| theirs.get(*key) != Some(value);
    let mut unlike = Map::new();
    for (key, value) in ours.iter().filter(differs) {
        let value = match (key.as_str(), value, theirs.get(key)) {
            ("metadata", Value::Object(ours), Some(Value::Object(theirs))) => {
                let own = ours.iter().filter(|(key, value)| *key != "managedFields" && theirs.get(*key) != Some(value));
                Value::Object(own.map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            ("metadata", value, _) => bare(&json!({"metadata": value}))["metadata"].take(),
            _ => value.clone(),
        };
        unlike.insert(key.clone(), value);
    }
    Value::Object(unlike)
}

/// Returns an object without what is said of its managers.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
    }
    object
}

/// Takes out what nobody owns.
fn owned(mut set: Set) -> Set {
    UNOWNED.iter().for_each(|path| set.remove(path));
    set
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

#[cfg(test)]
mod tests;
