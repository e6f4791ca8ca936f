//! Who owns which field of an object (`metadata.managedFields`), and server-side apply, which rests on it.
//!
//! `set` holds sets of paths, `walk` finds what differs and what an object consists of, `merge` puts an applied object over
//! a live one, `owners` keeps the books, `apply` is an apply as a whole. All of it works on JSON values by the table of types.

mod apply;
mod merge;
mod owners;
pub mod set;
mod walk;

pub use walk::Root;

pub use apply::{Applied, ApplyError, Conflict, apply};
pub use owners::{Managed, Manager, Write, update, update_fields};
