//! Server-side apply by several managers in turn, and the books of who owns what. An input is a line with the kind
//! (`VERSION KIND`, or `custom SCHEMA`) and a line for each step: `NAME OBJECT` applies, `NAME! OBJECT` with force,
//! `NAME= OBJECT` updates, `* BOOKS` puts other books in their place. What does not begin like that is dealt.

use longshore_api::custom::Node;
use longshore_api::managed::{self, Applied, ApplyError, Managed, Root, Write};
use longshore_api::patch;
use longshore_api::schema::{TypeId, schema};
use longshore_api::shape::{MAX_DEPTH, is_deeper};
use serde_json::{Map, Value, json};

use super::deal::{Deal, size};
use super::places;

const NAMES: [&str; 4] = ["a", "b", "c", "kubectl"];
const MOST_STEPS: usize = 12;

enum Step {
    Apply { manager: String, force: bool, object: Value },
    Update { manager: String, object: Value },
    Books(Value),
}

/// Runs the target.
pub fn run(input: &[u8]) {
    if let Some((kind, steps)) = read(input) {
        return match kind {
            Kind::Type(id) => play(Root::Type(id), Some(id), &steps),
            Kind::Custom(node) => play(Root::Custom(&node), None, &steps),
        };
    }
    let mut deal = Deal::new(input);
    let id = deal.kind();
    let steps = dealt(&mut deal, id);
    play(Root::Type(id), Some(id), &steps);
}

enum Kind {
    Type(TypeId),
    Custom(Box<Node>),
}

fn read(input: &[u8]) -> Option<(Kind, Vec<Step>)> {
    let text = std::str::from_utf8(input).ok()?;
    let (first, rest) = text.split_once('\n')?;
    let (version, name) = first.split_once(' ')?;
    let kind = match version {
        "custom" => Kind::Custom(Box::new(Node::read(&serde_json::from_str(name).ok()?))),
        _ => Kind::Type(schema().kind(version, name)?),
    };
    let mut steps = Vec::new();
    for line in rest.lines().take(MOST_STEPS) {
        let (who, object) = line.split_once(' ')?;
        let Ok(object) = serde_json::from_str(object) else { continue };
        steps.push(match who {
            "*" => Step::Books(object),
            _ => match (who.strip_suffix('='), who.strip_suffix('!')) {
                (Some(who), _) => Step::Update { manager: who.to_owned(), object },
                (None, Some(who)) => Step::Apply { manager: who.to_owned(), force: true, object },
                (None, None) => Step::Apply { manager: who.to_owned(), force: false, object },
            },
        });
    }
    Some((kind, steps))
}

fn dealt(deal: &mut Deal<'_>, id: TypeId) -> Vec<Step> {
    let found = schema().get(id);
    let mut before = json!({});
    let mut steps = Vec::new();
    while !deal.is_empty() && steps.len() < MOST_STEPS {
        let manager = NAMES[deal.below(NAMES.len())].to_owned();
        let what = deal.byte();
        // Half of the objects are like the one before.
        deal.patch = what & 1 == 0;
        let object = deal.object(id);
        if deal.patch {
            before = patch::strategic(found.api_version, found.name, &before, &object).unwrap_or(before);
        } else {
            before = object;
        }
        let object = before.clone();
        steps.push(match what >> 1 & 3 {
            0 => Step::Update { manager, object },
            1 => Step::Apply { manager, force: true, object },
            _ => Step::Apply { manager, force: false, object },
        });
    }
    steps
}

/// What there is after some steps.
struct State<'s> {
    root: Root<'s>,
    id: Option<TypeId>,
    live: Option<Value>,
    managed: Managed,
    /// Whether the books are those that the steps made.
    own_books: bool,
    moment: usize,
}

fn play(root: Root<'_>, id: Option<TypeId>, steps: &[Step]) {
    let mut state = State { root, id, live: None, managed: Managed::default(), own_books: true, moment: 0 };
    for step in steps {
        state.moment += 1;
        match step {
            Step::Apply { manager, force, object } => state.apply(manager, *force, object),
            Step::Update { manager, object } => state.update(manager, object),
            Step::Books(books) => {
                if let Some(managed) = Managed::read(books) {
                    (state.managed, state.own_books) = (managed, false);
                }
            }
        }
    }
}

impl State<'_> {
    fn lay(&self, manager: &str, force: bool, object: &Value, moment: usize) -> Result<Applied, ApplyError> {
        let now = time(moment);
        let write = Write { manager, api_version: "v1", subresource: "", now: &now, untouched: &["status"] };
        managed::apply(schema(), self.root, &write, self.live.as_ref(), object, self.managed.clone(), force)
    }

    /// Whether the server would take an object as far as this.
    fn is_good(&self, object: &Value) -> bool {
        object.pointer("/metadata/managedFields").is_none()
            && !is_deeper(object, MAX_DEPTH)
            && match self.id {
                Some(id) => places::fits(id, object),
                None => !has_null(object) && object.get("metadata").is_none_or(Value::is_object),
            }
    }

    fn update(&mut self, manager: &str, object: &Value) {
        let now = time(self.moment);
        let write = Write { manager, api_version: "v1", subresource: "", now: &now, untouched: &["status"] };
        let nothing = json!({});
        let live = self.live.as_ref().unwrap_or(&nothing);
        let managed = managed::update(schema(), self.root, &write, live, object, self.managed.clone());
        // Lists whose items cannot be told apart have no books that could be right.
        let keyed = managed::apply(schema(), self.root, &write, None, object, Managed::default(), true);
        if keyed.is_err() || !self.is_good(object) {
            return;
        }
        self.managed = reread(&managed);
        self.live = Some(object.clone());
    }

    fn apply(&mut self, manager: &str, force: bool, object: &Value) {
        let made = match self.lay(manager, force, object, self.moment) {
            Ok(made) => made,
            Err(ApplyError::Conflicts(all)) => {
                assert!(!force, "{manager} applies with force and has conflicts: {all:?}");
                assert!(!all.is_empty(), "conflicts without one");
                return;
            }
            Err(ApplyError::Misfit(text)) => return assert!(!text.is_empty(), "a refusal without a word"),
        };
        if !self.is_good(object) {
            return;
        }
        let books = made.managed.to_value();
        let most = self.live.as_ref().map_or(2, size) + size(object);
        assert!(size(&made.object) <= most + 1, "{} bytes out of {most}", size(&made.object));
        if self.own_books {
            is_in(&made.object, object, &mut String::new());
            self.nobody_owns_what_is_not_there(&made.object, &books);
            if !force && manager != "kubectl" {
                self.nothing_was_taken(manager, &made.object);
            }
        }
        (self.managed, self.live) = (reread(&made.managed), Some(made.object));
        let again = match self.lay(manager, false, object, self.moment + 1) {
            Ok(again) => again,
            Err(error) => panic!("{manager} applies {object} again: {error:?}"),
        };
        // Where nobody owns anything, what is there counts as of a time before all applies, as upstream has it.
        if self.own_books && manager != "kubectl" && !self.managed.is_empty() {
            assert_eq!(Some(&again.object), self.live.as_ref(), "{manager} applies {object} again");
            assert_eq!(again.managed.to_value(), books, "{manager} applies {object} again");
        }
    }

    fn nobody_owns_what_is_not_there(&self, object: &Value, books: &Value) {
        for entry in books.as_array().into_iter().flatten() {
            places::visit(self.id, object, &entry["fieldsV1"], &mut |path, value| {
                // What such a write does not touch is put back afterwards, by the server.
                let is_there = value.is_some() || path.starts_with("/f:status");
                assert!(is_there, "{} owns {path}, which is not in {object}", entry["manager"]);
            });
        }
    }

    /// Without force nothing that others own has another value afterwards.
    fn nothing_was_taken(&self, manager: &str, object: &Value) {
        let Some(live) = &self.live else { return };
        let books = self.managed.to_value();
        let others = |entry: &&Value| entry["manager"] != manager || entry["operation"] != "Apply";
        for entry in books.as_array().into_iter().flatten().filter(others) {
            let mut before = Map::new();
            places::visit(self.id, live, &entry["fieldsV1"], &mut |path, value| {
                if let Some(value) = value.filter(|value| !value.is_object() && !value.is_array()) {
                    before.insert(path.to_owned(), value.clone());
                }
            });
            places::visit(self.id, object, &entry["fieldsV1"], &mut |path, value| {
                if let Some(old) = before.get(path).filter(|_| !path.starts_with("/f:status/")) {
                    assert_eq!(value, Some(old), "{manager} changed {path} of {}", entry["manager"]);
                }
            });
        }
    }
}

/// Writes and reads the books, as they go through the store.
fn reread(managed: &Managed) -> Managed {
    let written = managed.to_value();
    let Some(read) = Managed::read(&written) else { panic!("books that cannot be read: {written}") };
    assert_eq!(read.to_value(), written, "books read and written again");
    read
}

/// Checks that what was applied is in what was made of it.
fn is_in(made: &Value, applied: &Value, path: &mut String) {
    match (made, applied) {
        (Value::Object(made), Value::Object(applied)) => {
            for (key, value) in applied {
                let length = path.len();
                path.push('.');
                path.push_str(key);
                match made.get(key) {
                    Some(made) => is_in(made, value, path),
                    None => panic!("{path} was applied and is not there"),
                }
                path.truncate(length);
            }
        }
        (Value::Array(made), Value::Array(applied)) => {
            for item in applied {
                assert!(made.iter().any(|made| holds(made, item)), "{path}: {item} was applied and is not there");
            }
        }
        (made, applied) => {
            assert!(path.contains("last-applied") || made == applied, "{path}: {made} instead of {applied}");
        }
    }
}

fn holds(made: &Value, applied: &Value) -> bool {
    match (made, applied) {
        (Value::Object(made), Value::Object(applied)) => {
            applied.iter().all(|(key, value)| made.get(key).is_some_and(|made| holds(made, value)))
        }
        (Value::Array(made), Value::Array(applied)) => {
            applied.iter().all(|item| made.iter().any(|made| holds(made, item)))
        }
        (made, applied) => made == applied,
    }
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        _ => false,
    }
}

fn time(moment: usize) -> String {
    format!("2026-01-01T00:00:{moment:02}Z")
}
