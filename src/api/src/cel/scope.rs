//! What can be said of an expression before it runs: names and fields that there are not, and functions and operators of types
//! that they do not take.

use std::collections::HashMap;
use std::rc::Rc;

use super::Known;
use super::functions::{KNOWN, PLACES, named};
use super::parser::{Bind, Each, Expr, Literal};
use super::signatures::{self, Match};
use super::types::Kind;
use crate::custom::{format, pattern};

/// Most findings told of one expression.
const MOST: usize = 100;

/// Types that are values, too.
pub(super) const TYPES: [&str; 9] = ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type"];

/// Types of all parts of an expression, and the forms of its calls. A part is known by where it is.
#[derive(Default)]
pub(super) struct Types<'s> {
    kinds: HashMap<*const Expr, Kind<'s>>,
    forms: HashMap<*const Expr, Vec<&'static str>>,
}

impl<'s> Types<'s> {
    pub(super) fn of(&self, expr: &Expr) -> &Kind<'s> {
        self.kinds.get(&std::ptr::from_ref(expr)).unwrap_or(&Kind::Dyn)
    }

    /// The forms of a function or operator that fit; none where they are not known.
    pub(super) fn forms(&self, expr: &Expr) -> &[&'static str] {
        self.forms.get(&std::ptr::from_ref(expr)).map_or(&[], Vec::as_slice)
    }
}

/// Returns the word before the dot of a function that is no method. What a macro calls so is a variable.
pub(super) fn place<T>(on: Option<&Expr>, known: &[(String, T)]) -> Option<&'static str> {
    let Some(Expr::Ident(name)) = on else { return None };
    PLACES.iter().copied().find(|place| place == name && known.iter().all(|(own, _)| own != name))
}

/// Finds the types of an expression, and what is wrong with it.
pub(super) fn read<'s>(expr: &Expr, names: &[Known<'s>]) -> (Types<'s>, Vec<String>) {
    let known = names.iter().map(|name| {
        let kind = name.shape.map_or(Kind::Dyn, Kind::of);
        (name.name.to_owned(), if name.optional { Kind::Optional(Rc::new(kind)) } else { kind })
    });
    let mut scope = Scope { known: known.collect(), types: Types::default(), found: Vec::new() };
    scope.see(expr);
    (scope.types, scope.found)
}

struct Scope<'s> {
    known: Vec<(String, Kind<'s>)>,
    types: Types<'s>,
    found: Vec<String>,
}

impl<'s> Scope<'s> {
    fn put(&mut self, text: &str) {
        let text = format!("ERROR: <input>:1:1: {text}");
        if self.found.len() < MOST && !self.found.contains(&text) {
            self.found.push(text);
        }
    }

    /// Looks at an expression; returns the type of its value.
    fn see(&mut self, expr: &Expr) -> Kind<'s> {
        let kind = self.kind(expr);
        self.types.kinds.insert(std::ptr::from_ref(expr), kind.clone());
        kind
    }

    /// The same, where a list may hold anything.
    fn see_mixed(&mut self, expr: &Expr) -> Kind<'s> {
        let Expr::List(items) = expr else { return self.see(expr) };
        items.iter().for_each(|item| drop(self.see(item)));
        let kind = Kind::List(Rc::new(Kind::Dyn));
        self.types.kinds.insert(std::ptr::from_ref(expr), kind.clone());
        kind
    }

    fn kind(&mut self, expr: &Expr) -> Kind<'s> {
        match expr {
            Expr::Literal(literal) => match literal {
                Literal::Null => Kind::Null,
                Literal::Bool(_) => Kind::Bool,
                Literal::Int(_) => Kind::Int,
                Literal::Uint(_) => Kind::Uint,
                Literal::Double(_) => Kind::Double,
                Literal::Text(_) => Kind::Text,
                Literal::Bytes(_) => Kind::Bytes,
            },
            Expr::Ident(name) => match self.known.iter().rev().find(|(own, _)| own == name) {
                Some((_, kind)) => kind.clone(),
                None if TYPES.contains(&name.as_str()) => Kind::Type,
                None => {
                    self.put(&format!("undeclared reference to '{name}' (in container '')"));
                    Kind::Dyn
                }
            },
            Expr::Select { of, field, optional } => {
                let of = self.see(of);
                let found = self.field(&of, field);
                match found {
                    found @ Kind::Optional(_) => found,
                    found if *optional => Kind::Optional(Rc::new(found)),
                    found => found,
                }
            }
            Expr::Has { of, field } => {
                let of = self.see(of);
                self.field(&of, field);
                Kind::Bool
            }
            Expr::Index { of, index, optional } => {
                let takes = [self.see(of), self.see(index)];
                self.call(expr, if *optional { "_[?_]" } else { "_[_]" }, &takes, false)
            }
            Expr::List(items) => {
                let item = self.same(items.iter());
                Kind::List(Rc::new(item))
            }
            Expr::Map(entries) => {
                let key = plain(self.same(entries.iter().map(|(key, _)| key)));
                let value = self.same(entries.iter().map(|(_, value)| value));
                Kind::Map(Rc::new(key), Rc::new(value))
            }
            Expr::Not(of) => {
                let takes = [self.see(of)];
                self.call(expr, "!_", &takes, false)
            }
            Expr::Negate(of) => {
                let takes = [self.see(of)];
                self.call(expr, "-_", &takes, false)
            }
            Expr::Binary { sign, left, right } => {
                let takes = [self.see(left), self.see(right)];
                let name = if *sign == "in" { "@in".to_owned() } else { format!("_{sign}_") };
                self.call(expr, &name, &takes, false)
            }
            Expr::Chain { and, parts } => {
                let kinds: Vec<Kind<'s>> = parts.iter().map(|part| self.see(part)).collect();
                for (at, kind) in kinds.iter().enumerate().filter(|(_, kind)| !kind.fits(&Kind::Bool)) {
                    let sign = if *and { "&&" } else { "||" };
                    let takes = if at == 0 { format!("{kind}, bool") } else { format!("bool, {kind}") };
                    self.put(&format!("found no matching overload for '_{sign}_' applied to '({takes})'"));
                }
                Kind::Bool
            }
            Expr::Choice { condition, yes, no } => {
                let takes = [self.see(condition), self.see(yes), self.see(no)];
                self.call(expr, "_?_:_", &takes, false)
            }
            Expr::Each { kind, range, one, two, body } => {
                let range = self.see(range);
                self.each(*kind, &range, (one, two.as_deref()), body)
            }
            Expr::Bind { kind, name, value, body } => {
                let value = self.see(value);
                let value = match (kind, &value) {
                    (Bind::OptMap | Bind::OptFlatMap, Kind::Optional(inner)) => (**inner).clone(),
                    (Bind::OptMap | Bind::OptFlatMap, Kind::Dyn) => Kind::Dyn,
                    (Bind::OptMap | Bind::OptFlatMap, other) => {
                        self.put(&format!("found no matching overload for 'hasValue' applied to '{other}.()'"));
                        Kind::Dyn
                    }
                    (Bind::Plain, value) => value.clone(),
                };
                self.known.push((name.clone(), value));
                let made = self.see(body);
                self.known.pop();
                if *kind == Bind::OptMap { Kind::Optional(Rc::new(made)) } else { made }
            }
            Expr::Call { on, name, args } => {
                let place = place(on.as_deref(), &self.known);
                if place == Some("format") && args.is_empty() && named::is_known(name) {
                    return Kind::Format;
                }
                if !KNOWN.contains(&name.as_str()) {
                    self.put(&format!("undeclared reference to '{name}' (in container '')"));
                }
                let on = if place.is_none() { on.as_deref() } else { None };
                self.literals(name, args);
                let parts = on.into_iter().chain(args);
                // What is formatted need not be of one type.
                let takes: Vec<Kind<'s>> = if name == "format" {
                    parts.map(|part| self.see_mixed(part)).collect()
                } else {
                    parts.map(|part| self.see(part)).collect()
                };
                match place {
                    Some(place) => self.call(expr, &format!("{place}.{name}"), &takes, false),
                    None => self.call(expr, name, &takes, on.is_some()),
                }
            }
        }
    }

    /// What is written out in an expression can be read before it runs.
    fn literals(&mut self, name: &str, args: &[Expr]) {
        let Some(Expr::Literal(Literal::Text(text))) = args.last() else { return };
        let sound = match (name, args.len()) {
            ("duration", 1) => format::span(text).is_some(),
            ("timestamp", 1) => text.parse::<jiff::Timestamp>().is_ok(),
            ("matches", _) => pattern::compile(text).is_ok(),
            _ => true,
        };
        if !sound {
            self.put(&format!("invalid {name} argument"));
        }
    }

    /// Finds what a function or operator gives.
    fn call(&mut self, expr: &Expr, name: &str, takes: &[Kind<'s>], method: bool) -> Kind<'s> {
        if let Some(Match { forms, gives }) = signatures::find(name, takes) {
            self.types.forms.insert(std::ptr::from_ref(expr), forms);
            return gives;
        }
        let mut words = takes.iter().map(ToString::to_string);
        let on = if method { words.next().map(|on| on + ".").unwrap_or_default() } else { String::new() };
        let words = words.collect::<Vec<_>>().join(", ");
        self.put(&format!("found no matching overload for '{name}' applied to '{on}({words})'"));
        Kind::Dyn
    }

    /// Finds the type that all parts of a list have.
    fn same<'e>(&mut self, parts: impl Iterator<Item = &'e Expr>) -> Kind<'s> {
        let mut all: Option<Kind<'s>> = None;
        for part in parts {
            let kind = self.see(part);
            all = Some(match all {
                None => kind,
                Some(all) if all.fits(&kind) => all.both(&kind),
                Some(all) => {
                    self.put(&format!("expected type '{all}' but found '{kind}'"));
                    Kind::Dyn
                }
            });
        }
        all.unwrap_or(Kind::Dyn)
    }

    fn each(&mut self, kind: Each, range: &Kind<'s>, names: (&str, Option<&str>), body: &[Expr]) -> Kind<'s> {
        let (one, two) = match range {
            Kind::List(item) if names.1.is_none() => ((**item).clone(), None),
            Kind::List(item) => (Kind::Int, Some((**item).clone())),
            Kind::Map(key, value) => ((**key).clone(), names.1.map(|_| (**value).clone())),
            Kind::Dyn => (Kind::Dyn, names.1.map(|_| Kind::Dyn)),
            other => {
                let detail = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.put(&detail);
                (Kind::Dyn, names.1.map(|_| Kind::Dyn))
            }
        };
        let depth = self.known.len();
        self.known.push((names.0.to_owned(), one.clone()));
        self.known.extend(names.1.map(str::to_owned).zip(two));
        let kinds: Vec<Kind<'s>> = body.iter().map(|part| self.see(part)).collect();
        self.known.truncate(depth);
        let last = kinds.last().cloned().unwrap_or(Kind::Dyn);
        // What decides stands first, unless it stands alone and is what is made.
        let makes = matches!(kind, Each::Map | Each::TransformList | Each::TransformMap);
        let decides = if makes && kinds.len() == 1 { None } else { kinds.first() };
        if let Some(decides) = decides.filter(|decides| !decides.fits(&Kind::Bool)) {
            let (sign, takes) = match kind {
                Each::All => ("_&&_", format!("bool, {decides}")),
                Each::Exists => ("_||_", format!("bool, {decides}")),
                Each::ExistsOne => ("_?_:_", format!("{decides}, int, int")),
                _ => ("_?_:_", format!("{decides}, list({last}), list({last})")),
            };
            self.put(&format!("found no matching overload for '{sign}' applied to '({takes})'"));
        }
        match kind {
            Each::All | Each::Exists | Each::ExistsOne => Kind::Bool,
            Each::Map | Each::TransformList => Kind::List(Rc::new(last)),
            Each::Filter => Kind::List(Rc::new(one)),
            Each::TransformMap => {
                let key = if matches!(range, Kind::List(_)) { Kind::Int } else { one };
                Kind::Map(Rc::new(plain(key)), Rc::new(last))
            }
        }
    }

    fn field(&mut self, of: &Kind<'s>, field: &str) -> Kind<'s> {
        match of {
            Kind::Dyn => Kind::Dyn,
            Kind::Map(_, value) => (**value).clone(),
            Kind::Object(shape) => match shape.field(field) {
                Some(found) => Kind::of(found),
                None => {
                    self.put(&format!("undefined field '{field}'"));
                    Kind::Dyn
                }
            },
            Kind::Optional(inner) => match self.field(inner, field) {
                found @ Kind::Optional(_) => found,
                found => Kind::Optional(Rc::new(found)),
            },
            other => {
                self.put(&format!("type '{other}' does not support field selection"));
                Kind::Dyn
            }
        }
    }
}

/// Keys of maps are plain. Types of maps of maps from maps would grow with each step.
fn plain(key: Kind<'_>) -> Kind<'_> {
    if matches!(key, Kind::Map(..) | Kind::List(_) | Kind::Optional(_)) { Kind::Dyn } else { key }
}
