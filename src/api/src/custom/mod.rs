//! Custom kinds: what a `CustomResourceDefinition` says, and what follows for the objects of its kind. All of it is pure:
//! schemas are read, objects are pruned, filled and checked, and no input makes it panic or run without bound.

pub mod accept;
pub mod check;
pub mod define;
pub mod definition;
pub mod fill;
pub mod format;
pub mod path;
pub mod pattern;
pub mod prune;
pub mod publish;
mod rule_checks;
pub mod rules;
mod schema_rules;
pub mod structural;

#[cfg(test)]
mod hostile;

pub use definition::{Definition, Version};
pub use structural::Node;
