//! What can be said of an expression before it runs: names and fields that there are not.

use super::Program;
use super::functions::{KNOWN, PLACES};
use super::parser::Expr;
use super::value::unescaped;
use crate::custom::structural::{Node, Type};

/// Names of variables, and what is known of each.
pub type Names<'n> = [(&'n str, Option<&'n Node>)];

/// Finds names, functions and fields that do not exist.
pub fn check(program: &Program, names: &Names<'_>) -> Vec<String> {
    let known = names.iter().map(|(name, node)| ((*name).to_owned(), *node)).collect();
    let mut scope = Scope { known, found: Vec::new() };
    scope.see(&program.0);
    scope.found
}

struct Scope<'n> {
    known: Vec<(String, Option<&'n Node>)>,
    found: Vec<String>,
}

/// Types that are values, too.
const TYPES: [&str; 9] = ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type"];

impl<'n> Scope<'n> {
    fn put(&mut self, text: String) {
        let text = format!("ERROR: <input>:1:1: {text}");
        if !self.found.contains(&text) {
            self.found.push(text);
        }
    }

    /// Looks at an expression whose value is of no interest.
    fn pass(&mut self, expr: &Expr) {
        self.see(expr);
    }

    /// Looks at an expression; returns what is known of its value.
    fn see(&mut self, expr: &Expr) -> Option<&'n Node> {
        match expr {
            Expr::Ident(name) => match self.known.iter().rev().find(|(own, _)| own == name) {
                Some((_, node)) => *node,
                None if TYPES.contains(&name.as_str()) => None,
                None => {
                    self.put(format!("undeclared reference to '{name}' (in container '')"));
                    None
                }
            },
            Expr::Select { of, field, .. } | Expr::Has { of, field } => {
                let of = self.see(of)?;
                self.field(of, field)
            }
            Expr::Index { of, index, .. } => {
                let of = self.see(of);
                self.see(index);
                of.and_then(|of| of.items.as_deref().or_else(|| of.below("")))
            }
            Expr::Choice { condition, yes, no } => {
                self.see(condition);
                let (yes, no) = (self.see(yes), self.see(no));
                yes.filter(|_| yes == no)
            }
            Expr::Each { range, one, two, body, .. } => {
                let range = self.see(range);
                let item = range.and_then(|range| range.items.as_deref());
                let entry = range.and_then(|range| range.below(""));
                let depth = self.known.len();
                match two {
                    None => self.known.push((one.clone(), item)),
                    Some(two) => {
                        self.known.push((one.clone(), None));
                        self.known.push((two.clone(), item.or(entry)));
                    }
                }
                body.iter().for_each(|part| self.pass(part));
                self.known.truncate(depth);
                None
            }
            Expr::Bind { name, value, body, .. } => {
                let value = self.see(value);
                self.known.push((name.clone(), value));
                let made = self.see(body);
                self.known.pop();
                made
            }
            Expr::Call { on, name, args } => {
                if !KNOWN.contains(&name.as_str()) {
                    self.put(format!("undeclared reference to '{name}' (in container '')"));
                }
                let place = matches!(on.as_deref(), Some(Expr::Ident(place)) if PLACES.contains(&place.as_str()));
                let on = if place { None } else { on.as_deref().and_then(|on| self.see(on)) };
                args.iter().for_each(|arg| self.pass(arg));
                on.filter(|_| matches!(name.as_str(), "value" | "orValue"))
            }
            other => {
                let mut parts = Vec::new();
                other.parts(&mut |part| parts.push(part));
                parts.into_iter().for_each(|part| self.pass(part));
                None
            }
        }
    }

    fn field(&mut self, of: &'n Node, field: &str) -> Option<&'n Node> {
        if of.embedded && matches!(field, "apiVersion" | "kind" | "metadata") {
            return None;
        }
        let plain = unescaped(field);
        let found = of.properties.get(field).or_else(|| of.properties.get(plain.as_deref()?));
        if let Some(found) = found.or_else(|| of.below(field)) {
            return Some(found);
        }
        let closed = of.kind == Some(Type::Object) && !of.preserve && !of.properties.is_empty();
        let scalar = matches!(of.kind, Some(Type::Boolean | Type::Integer | Type::Number | Type::String));
        if closed {
            self.put(format!("undefined field '{field}'"));
        } else if scalar {
            self.put("type '%s' does not support field selection".replace("%s", of.kind.map_or("", Type::name)));
        }
        None
    }
}
