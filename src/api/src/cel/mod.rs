//! The Common Expression Language, as far as rules of custom kinds use it: read into a small tree and evaluated over JSON
//! values with their schemas. Every step is paid for out of a budget, so that no rule runs without end, and reading is
//! bounded in length and depth.

mod cost;
mod eval;
mod functions;
mod lexer;
mod network;
mod parser;
mod scope;
mod shape;
mod signatures;
mod types;
mod value;

use serde_json::Value as Json;

use crate::custom::structural::Node;

pub use eval::Budget;
pub use shape::Shape;

use parser::Expr;
use types::Kind;
use value::Val;

/// An expression that was read.
#[derive(Debug, Clone)]
pub struct Program(Expr);

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CelError {
    /// The budget is used up.
    #[error("cost budget exceeded")]
    Cost,
    /// It was evaluated and failed.
    #[error("{0}")]
    Failed(String),
}

/// A variable: a value with its schema.
#[derive(Debug, Clone, Copy)]
pub struct Variable<'v> {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: &'v Json,
    /// What is known of it.
    pub node: Option<&'v Node>,
    /// `Some` where it stands for a value that may be absent: whether it is there.
    pub optional: Option<bool>,
}

/// A variable of which something is known before there is a value.
#[derive(Debug, Clone, Copy)]
pub struct Known<'s> {
    /// Its name.
    pub name: &'static str,
    /// What is known of it; nothing if it may be anything.
    pub shape: Option<&'s Shape>,
    /// Whether it stands for a value that may be absent.
    pub optional: bool,
}

/// What is known of an expression before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    /// What it costs at most.
    pub cost: u64,
    /// Whether it can be true or false.
    pub decides: bool,
    /// Whether it can be a text, or a list of texts.
    pub says: bool,
    /// Whether it looks at what was there before.
    pub compares: bool,
}

impl Program {
    /// Looks at it before it runs; tells what is wrong with it.
    pub fn outlook(&self, names: &[Known<'_>]) -> Result<Outlook, Vec<String>> {
        let (types, found) = scope::read(&self.0, names);
        if !found.is_empty() {
            return Err(found);
        }
        let kind = types.of(&self.0);
        let says = match kind {
            Kind::List(item) => item.fits(&Kind::Text),
            kind => kind.fits(&Kind::Text),
        };
        Ok(Outlook {
            cost: cost::most(&self.0, names, &types),
            decides: kind.fits(&Kind::Bool),
            says,
            compares: self.uses("oldSelf"),
        })
    }

    /// Reads an expression.
    pub fn parse(text: &str) -> Result<Self, String> {
        parser::parse(text).map(Self)
    }

    /// Whether a variable is used.
    pub fn uses(&self, name: &str) -> bool {
        self.0.uses(name)
    }

    /// Evaluates to true or false.
    pub fn holds(&self, variables: &[Variable<'_>], budget: &mut Budget) -> Result<bool, CelError> {
        match self.run(variables, budget)? {
            Val::Bool(value) => Ok(value),
            other => Err(CelError::Failed(format!("expected a bool, found {}", other.type_name()))),
        }
    }

    /// Evaluates to a text.
    pub fn text(&self, variables: &[Variable<'_>], budget: &mut Budget) -> Result<String, CelError> {
        match self.run(variables, budget)? {
            Val::Text(text) => Ok(text.to_string()),
            other => Err(CelError::Failed(format!("expected a string, found {}", other.type_name()))),
        }
    }

    fn run<'v>(&'v self, variables: &[Variable<'v>], budget: &mut Budget) -> Result<Val<'v>, CelError> {
        let bound = variables.iter().map(|variable| {
            let value = Val::of(variable.value, variable.node);
            let value = match variable.optional {
                None => value,
                Some(true) => Val::Optional(Some(Box::new(value))),
                Some(false) => Val::Optional(None),
            };
            (variable.name, value)
        });
        eval::Run::new(bound.collect(), budget).eval(&self.0)
    }
}

#[cfg(test)]
mod tests;
