//! Who owns which field of an object (`metadata.managedFields`), and server-side apply, which rests on it.
//!
//! `set` holds sets of paths, `walk` finds what differs and what an object consists of, `merge` puts an applied object over
//! a live one, `owners` keeps the books. All of it works on JSON values by the table of types.

mod merge;
mod owners;
pub mod set;
mod walk;

pub use walk::Root;

pub use owners::{Applied, ApplyError, Conflict, Managed, Manager, Write, apply, update, update_fields};
