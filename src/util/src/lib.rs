//! Run-time help that every crate above may use: clock, backoff, tasks, mailbox, atomic files, YAML with positions.

pub mod backoff;
pub mod clock;
pub mod mailbox;
pub mod tasks;

pub use tasks::{Tasks, spawn};
