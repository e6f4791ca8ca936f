//! The Common Expression Language, as far as rules of custom kinds use it: read into a small tree and evaluated over JSON
//! values with their schemas. Every step is paid for out of a budget, so that no rule runs without end, and reading is
//! bounded in length and depth.

mod eval;
mod functions;
mod lexer;
mod network;
mod parser;
mod scope;
mod value;

use serde_json::Value as Json;

use crate::custom::structural::Node;

pub use eval::Budget;
pub use scope::{Names, check};

use parser::Expr;
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

impl Program {
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
