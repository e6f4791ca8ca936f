//! Run-time help that every crate above may use: clock, backoff, tasks, mailbox, atomic files, YAML with positions.

pub mod atomic;
pub mod backoff;
pub mod clock;
pub mod errors;
pub mod fair;
pub mod hex;
pub mod mailbox;
pub mod tasks;
pub mod yaml;

pub use tasks::{Tasks, spawn};
