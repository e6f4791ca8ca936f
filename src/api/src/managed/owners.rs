//! The books: which manager owns which fields, and how a write changes that.

use serde_json::{Map, Value, json};

use super::set::Set;
use super::walk::{Comparison, Root, compare, fill};
use crate::schema::Schema;

/// Most managers that update and are told apart; the oldest beyond that are thrown together.
const MAX_UPDATERS: usize = 10;

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
        let applies = match text(entry, "operation") {
            "Apply" => true,
            "Update" => false,
            _ => return None,
        };
        let (name, api_version) = (text(entry, "manager").to_owned(), text(entry, "apiVersion").to_owned());
        Some(Self { applies, name, api_version, subresource: text(entry, "subresource").to_owned() })
    }

    /// What the entries of `managedFields` are sorted by.
    fn rank<'a>(&'a self, time: &'a str) -> impl Ord + 'a {
        (!self.applies, time, self)
    }

    /// Whether both are one: an applier is the same in all versions.
    pub(super) fn is(&self, other: &Self) -> bool {
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
pub(super) struct Entry {
    pub(super) manager: Manager,
    pub(super) time: String,
    pub(super) set: Set,
}

/// All managers of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managed(pub(super) Vec<Entry>);

impl Managed {
    /// Reads `managedFields`; nothing if they cannot be read.
    pub fn read(value: &Value) -> Option<Self> {
        let mut entries: Vec<Entry> = Vec::new();
        for entry in value.as_array()? {
            let manager = Manager::of(entry)?;
            let time = text(entry, "time").to_owned();
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
        entries.sort_by(|a, b| a.manager.rank(&a.time).cmp(&b.manager.rank(&b.time)));
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
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        let sorted = |managed: &Self| {
            let mut entries = managed.0.clone();
            entries.sort_by(|a, b| a.manager.cmp(&b.manager));
            entries
        };
        sorted(self) == sorted(other)
    }

    pub(super) fn find(&self, manager: &Manager) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.manager.is(manager))
    }

    /// Takes what was written or removed by somebody else from all but one.
    pub(super) fn yield_to(&mut self, except: Option<&Manager>, comparison: &Comparison) {
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
    pub(super) fn manager(&self, applies: bool) -> Manager {
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
    fields: Value,
) -> Option<Value> {
    let comparison = changes(schema, root, write, live, new);
    let entries = fields.as_array()?;
    let managers: Vec<Manager> = entries.iter().map(Manager::of).collect::<Option<_>>()?;
    let own = write.manager(false);
    let written = comparison.written();
    let wanted = owned(written.clone());
    if !is_settled(entries, &managers, &own, &comparison.removed, &written, &wanted) {
        return Some(entered(write, &comparison, Managed::read(&fields)?).to_value());
    }
    let Value::Array(entries) = fields else { return None };
    let mut entries: Vec<(Manager, Value)> = managers.into_iter().zip(entries).collect();
    if !wanted.is_empty()
        && let Some((_, entry)) = entries.iter_mut().find(|(manager, _)| manager.is(&own))
    {
        entry["time"] = json!(write.now);
    }
    entries.sort_by(|(a, one), (b, two)| a.rank(text(one, "time")).cmp(&b.rank(text(two, "time"))));
    Some(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// Whether a write leaves every manager what it has: `wanted` of what is `written` may be owned.
fn is_settled(
    entries: &[Value],
    managers: &[Manager],
    own: &Manager,
    removed: &Set,
    written: &Set,
    wanted: &Set,
) -> bool {
    let nothing = json!({});
    let mut is_entered = wanted.is_empty();
    for (manager, entry) in managers.iter().zip(entries) {
        let fields = entry.get("fieldsV1").unwrap_or(&nothing);
        let keeps = if manager.is(own) {
            is_entered = is_entered || wanted.is_within(fields);
            // What nobody may own would have to be taken out as well.
            !removed.meets(fields) && written.without(wanted).is_empty()
        } else {
            !written.meets(fields) && !removed.meets(fields)
        };
        if !keeps {
            return false;
        }
    }
    is_entered && managers.iter().filter(|manager| !manager.applies).count() <= MAX_UPDATERS
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
pub(super) fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
    }
    object
}

/// Returns a text of an entry, or an empty one.
fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Takes out what nobody owns.
pub(super) fn owned(mut set: Set) -> Set {
    UNOWNED.iter().for_each(|path| set.remove(path));
    set
}

#[cfg(test)]
mod tests;
